"""Beyond the highest fitted load: by how much a slowdown that the traces leave open could change the E2E.

A power-limited GPU slows down while it computes. If the traces show by how much, the interval of that bounds the
prediction; else what is expected of such a GPU does. Whatever the slowdown, the fit's other coefficients make the
fitted load come out right: so what counts is by how much E2E grows from that load on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from lazy_dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from scipy.special import log_ndtr, ndtri_exp

from calibrate import number_format
from calibrate.fit.objective.fit_trace import FitTrace
from calibrate.fit.objective.priors import MEMORY, SLOWDOWN, THRESHOLD, Prior
from calibrate.fit.objective.simulated_trace import simulated
from calibrate.fit.result import Fit
from calibrate.fit.uncertainty import Coefficient
from sim import Extended
from sim.latency import Fitting
from traces.statistics.bootstrap import LEVEL, Floats

if TYPE_CHECKING:
    from replay.twin.fitted import FittedRange

FACTOR = 1.5
"""How far beyond the highest fitted load the bounds are stated."""
DRAWS = 40
"""Number of slowdowns drawn from the expectation, one run each: the bounds are known to a tenth of their size."""

Basis = Literal["traces", "GPU", "none"]
"""The sources of a slowdown's bounds: the traces that show it; the expectation for the GPU; none, it is not known."""
REASONS: dict[Basis, str] = {
    "traces": "by the interval of the fitted slowdown",
    "GPU": "by what is expected of {source}: no fitted trace shows a slowdown",
    "none": "if the GPU slows down as {source} do: no fitted trace shows a slowdown, and what limits this GPU is not "
    "known (--gpu), so that this is an example and no bound",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BeyondLoad:
    """Mean E2E at ``factor`` times the load of ``trace``, over the twin's own minus 1, at either end of the slowdown.

    ``basis``: the source of the ends. ``source``: the GPUs whose slowdown was expected, if the traces show none.
    """

    trace: str
    factor: float
    rate_per_s: float
    low: float
    high: float
    basis: Basis
    source: str | None = None

    def text(self) -> str:
        """Return the bounds as a sentence."""
        low, high = (number_format.percent(value, signed=True) for value in (self.low, self.high))
        load = number_format.plain(self.rate_per_s)
        return (
            f"beyond the highest fitted load ({load} requests/s, {self.trace}): at {self.factor:g} times that load, "
            f"mean E2E may differ from the twin's by {low} to {high}, "
            + REASONS[self.basis].format(source=self.source)
        )


def beyond_load(
    fit: Fit, traces: Sequence[FitTrace], *, ranges: Sequence[FittedRange], priors: Mapping[str, Prior]
) -> BeyondLoad | None:
    """Return the bounds for the busiest trace; None where none has a rate, or the model is not of this kind.

    ``ranges``: of each trace's fitted requests, in the order of ``traces``. The busiest trace is the one with
    the highest fitted rate. None also where the twin's own range ends below that rate: it misses that load already.
    """
    latency = fit.config.latency
    if latency.fitting is not Fitting.FREELY:
        return None
    model = Extended.of(latency)
    rated = [
        (span.rate_per_s[1], each)
        for each, span in zip(traces, ranges, strict=True)
        if span.rate_per_s is not None
    ]
    rate_per_s, highest = max(rated, key=lambda each: each[0], default=(0.0, None))
    if highest is None or _misses(fit, rate_per_s):
        return None
    faster = _compressed(highest, FACTOR)
    seen = _seen_slowdown(fit)
    basis: Basis = "traces" if seen is not None else "GPU" if _is_power_limited(priors) else "none"
    expected = {"kappa": SLOWDOWN, "u0": THRESHOLD, "tau_s": priors.get("tau_s", MEMORY)}
    if seen is not None:
        models = [replace(model, kappa=max(bound or 0.0, 0.0)) for bound in (seen.low, seen.high)]
    else:
        models = slowdowns(model, expected)
    own, *others = (_mean_e2e(faster, fit, each) / _mean_e2e(highest, fit, each) for each in (model, *models))
    ends = (0.0, 1.0) if seen is not None else ((1 - LEVEL) / 2, (1 + LEVEL) / 2)
    low, high = np.quantile(np.array(others) / own - 1, ends).tolist()
    return BeyondLoad(
        trace=highest.name,
        factor=FACTOR,
        rate_per_s=rate_per_s,
        low=min(low, 0.0),
        high=max(high, 0.0),
        basis=basis,
        source=None if seen is not None else expected["kappa"].source,
    )


def _is_power_limited(priors: Mapping[str, Prior]) -> bool:
    """Return whether the GPU is known as one that slows down."""
    return "kappa" in priors


def slowdowns(model: Extended, expected: Mapping[str, Prior]) -> list[Extended]:
    """Return the model with slowdowns as they are ``expected``."""
    evenly = (np.arange(DRAWS) + 0.5) / DRAWS
    golden = np.modf(np.arange(1, DRAWS + 1) * (np.sqrt(5) - 1) / 2)[0]
    kappas = _truncated(expected["kappa"], evenly, low=0.0, high=np.inf)
    thresholds = _truncated(expected["u0"], golden, low=0.0, high=1.0)
    return [
        replace(model, kappa=float(kappa), u0=float(u0), tau_s=expected["tau_s"].centre)
        for kappa, u0 in zip(kappas, thresholds, strict=True)
    ]


def _truncated(prior: Prior, shares: Floats, *, low: float, high: float) -> Floats:
    """Return the quantiles at these ``shares`` of a normal that is known to lie between two values.

    Those of ``scipy.stats.truncnorm``, whose import takes 0.6 s. A normal above its centre is mirrored: there its
    shares are too close to 1 to be told apart; far from it they are too small but for their logarithms.
    """
    ends = np.array([low - prior.centre, high - prior.centre]) / prior.width
    side = -1 if ends[0] > 0 else 1
    first, last = log_ndtr(side * ends)
    most = max(first, last)
    drawn = side * ndtri_exp(
        most + np.log((1 - shares) * np.exp(first - most) + shares * np.exp(last - most))
    )
    return np.asarray(np.clip(prior.centre + prior.width * drawn, low, high), dtype=np.float64)


def _seen_slowdown(fit: Fit) -> Coefficient | None:
    """Return the fitted slowdown if the traces, not its prior, show one."""
    found = next((each for each in fit.coefficients if each.name == "kappa" and each.fitted), None)
    return found if found is not None and not found.is_prior_led and (found.low or 0.0) > 0 else None


def _misses(fit: Fit, rate_per_s: float) -> bool:
    """Return whether the fitted twin's range ends below a load that was fitted."""
    fitted = fit.config.fitted
    return fitted is not None and (fitted.rate_per_s is None or fitted.rate_per_s[1] < rate_per_s)


def _compressed(trace: FitTrace, factor: float) -> FitTrace:
    """Return the trace with its requests arriving faster."""
    arrival = np.rint(trace.requests.arrival_us / factor).astype(np.int64)
    return replace(trace, requests=replace(trace.requests, arrival_us=arrival))


def _mean_e2e(trace: FitTrace, fit: Fit, model: Extended) -> float:
    run = simulated(trace, engine=fit.config.engine, model=replace(model, sigma=0.0))
    return float(np.nanmean(run.latency_us[1]))
