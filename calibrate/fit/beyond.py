"""Beyond the highest fitted load: by how much a slowdown that the traces do not settle could change the E2E.

A power-limited GPU slows down above a threshold. Where a fit has seen it, the bounds of its size bound the prediction;
where no fitted load reached the threshold, the GPU may keep its clock or lower it from there on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from scipy.stats import norm

from calibrate import number_format
from calibrate.compare.bootstrap import LEVEL
from calibrate.fit.objective.fit_trace import FitTrace
from calibrate.fit.objective.priors import SLOWDOWN, Prior
from calibrate.fit.objective.simulated import simulated
from calibrate.fit.result import Fit
from calibrate.fit.uncertainty import Coefficient
from sim import Blackbox, Extended

FACTOR = 1.5
"""How far beyond the highest fitted load the bounds are stated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BeyondLoad:
    """Mean E2E at ``factor`` times the load of ``trace``, over the twin's own minus 1, at either end of the slowdown.

    ``is_seen``: the fitted traces show the slowdown, so that the ends are those of its interval; else they are none,
    and an unfavourable one that begins at the highest fitted load.
    """

    trace: str
    factor: float
    rate_per_s: float
    low: float
    high: float
    is_seen: bool

    def text(self) -> str:
        """Return the bounds as a sentence."""
        low, high = (number_format.percent(value, signed=True) for value in (self.low, self.high))
        why = (
            "by the interval of the fitted slowdown"
            if self.is_seen
            else "if the GPU slows down there, of which no fitted trace shows anything"
        )
        return (
            f"beyond the highest fitted load ({self.rate_per_s:.3g} requests/s, {self.trace}): at {self.factor:g} "
            f"times that load, mean E2E may differ from the twin's by {low} to {high}, {why}"
        )


def beyond_load(fit: Fit, traces: Sequence[FitTrace], *, priors: Mapping[str, Prior]) -> BeyondLoad | None:
    """Return the bounds for the busiest trace; None where none is open-loop, or the model is not of this kind."""
    latency = fit.config.latency
    if not isinstance(latency, Blackbox):
        return None
    model = latency if isinstance(latency, Extended) else Extended(**_six(latency))  # type: ignore[arg-type]  # no seed among them
    open_loop = [each for each in traces if each.closed_loop is None and _rate(each) > 0]
    if not open_loop:
        return None
    highest = max(open_loop, key=_rate)
    seen = _seen_slowdown(fit)
    if seen is not None:
        ends = [replace(model, kappa=max(bound or 0.0, 0.0)) for bound in (seen.low, seen.high)]
    else:
        prior = priors.get("kappa", SLOWDOWN)
        prior = prior if prior.centre > 0 else SLOWDOWN
        worst = prior.centre + float(norm.ppf(0.5 + LEVEL / 2)) * prior.width
        at = max(duty(model, each) for each in open_loop)
        ends = [replace(model, kappa=0.0), replace(model, kappa=max(worst, model.kappa), u0=min(at, 1.0))]
    faster = _compressed(highest, FACTOR)
    own, *others = (_mean_e2e(faster, fit, each) for each in (model, *ends))
    off = [other / own - 1 for other in others]
    return BeyondLoad(
        trace=highest.name,
        factor=FACTOR,
        rate_per_s=_rate(highest),
        low=min(*off, 0.0),
        high=max(*off, 0.0),
        is_seen=seen is not None,
    )


def duty(model: Extended, trace: FitTrace) -> float:
    """Return the share of a trace's time that its computing takes, without any slowdown."""
    timeline = trace.observed_timeline
    new, prompt = timeline.prefill_tokens, trace.requests.prompt_tokens.astype(np.float64)
    pairs = float(np.nansum(new * (prompt - new) + new * (new + 1) / 2))
    tokens = float(np.nansum(new)) + (float(np.nansum(timeline.output_tokens)) if model.floor > 0 else 0.0)
    span = float(np.nanmax(timeline.last) - np.nanmin(timeline.joined))
    return (float(model.beta1) * tokens + model.beta4 * pairs) / max(span, 1.0)


def _six(latency: Blackbox) -> dict[str, float]:
    return {each.name: float(getattr(latency, each.name)) for each in fields(Blackbox)}


def _seen_slowdown(fit: Fit) -> Coefficient | None:
    """Return the fitted slowdown where the traces, not its prior, say that there is one."""
    found = next((each for each in fit.coefficients if each.name == "kappa" and each.fitted), None)
    return found if found is not None and not found.is_prior_led and (found.low or 0.0) > 0 else None


def _rate(trace: FitTrace) -> float:
    """Return the mean rate of arrivals, requests/s; 0 where they came all at once."""
    arrival = trace.requests.arrival_us
    span = float(np.ptp(arrival)) if len(arrival) > 1 else 0.0
    is_burst = span <= float(np.nanmedian(trace.observed_timeline.last - trace.observed_timeline.joined))
    return 0.0 if is_burst else (len(arrival) - 1) / span * 1e6


def _compressed(trace: FitTrace, factor: float) -> FitTrace:
    """Return the trace with its requests arriving faster."""
    arrival = np.rint(trace.requests.arrival_us / factor).astype(np.int64)
    return replace(trace, requests=replace(trace.requests, arrival_us=arrival))


def _mean_e2e(trace: FitTrace, fit: Fit, model: Extended) -> float:
    run = simulated(trace, engine=fit.config.engine, model=replace(model, sigma=0.0))
    return float(np.nanmean(run.latency_us[1]))
