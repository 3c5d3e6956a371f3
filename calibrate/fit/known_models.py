"""Fitting models that are known before any trace: physics' corrections, and the scale of a profile's tables.

Jointly over traces of one server, or, of physics, of several. Least squares on the logs of each request's latencies,
the simulator in the loop. Every coefficient starts at its configured value and is held near it by a prior on its log,
as wide as its plausible error: coefficients that the traces do not determine keep their learned values. Intervals are
of the problem linearized around the optimum, with that prior: they are too narrow if two overheads can compensate each
other, such as those per layer and per collective on one server.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from lazy_dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from calibrate.fit.gauss_newton import SHARES, STAIRCASE
from calibrate.fit.objective.fit_trace import FitTrace
from calibrate.fit.objective.many_runs import THREADS
from calibrate.fit.objective.objective import NOISE, log_ratio, robust
from calibrate.fit.objective.simulated_trace import SimulatedTrace, simulated
from calibrate.fit.search import Report
from calibrate.fit.uncertainty import Coefficient
from calibrate.run_to_run.normal_quantiles import half_width
from sim import LatencyModel
from sim.latency import Fitting
from traces import ConfigError, TraceError
from traces.statistics.bootstrap import Floats

if TYPE_CHECKING:
    from calibrate.fit.model_selection import Held, Predictor
    from calibrate.fit.result import Fit
    from replay import TwinConfig

METHOD = "least squares on log latencies, priors on the logs of the coefficients, linearized at the optimum"

REQUESTS_PER_TRACE = 20
"""The most independent requests that a trace counts as: neighbours share their queues, and no model is exact."""
STEPS = (0.3, 0.1, 0.05)
"""Shares of a coefficient's prior over which its slopes are taken, one search after the other: requests that change
places in the queue make the errors rugged, so the first covers a wide range. The last one's movement adds to the
spread."""
EVALUATIONS = 15
SEEN = 0.7
"""A coefficient is identifiable when the traces bring its spread below this share of the prior's."""
TIED = 0.9
"""Correlation from which two coefficients are named together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedTrace:
    """A trace and the twin of the server that it was observed on."""

    trace: FitTrace
    config: TwinConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimum:
    """Where the search ended: the logs ``x`` of the coefficients ``names``, and around them their residuals' slopes.

    ``expected``, ``width``: of the logs, before any trace is seen.

    ``slopes`` [rows, p] and ``residuals`` [rows], robust weights in: the rows of every trace [4, n] in turn, then the
    priors'. ``moved_by``: the last search's movement.
    """

    names: tuple[str, ...]
    x: Floats
    expected: Floats
    width: Floats
    slopes: Floats
    residuals: Floats
    moved_by: Floats
    cost: float
    converged: bool

    def without(self, rows: NDArray[np.bool_]) -> Floats:
        """Return where the optimum would be without these of its rows, by one step on the slopes, at most a width."""
        kept = ~rows
        information = self.slopes[kept].T @ self.slopes[kept]
        step = np.linalg.solve(information, self.slopes[kept].T @ self.residuals[kept])
        return np.asarray(self.x - np.clip(step, -self.width, self.width))


def optimum(
    served: Sequence[ServedTrace], *, report: Report | None = None, start: Floats | None = None
) -> Optimum:
    """Return the coefficients that fit all traces best; from ``start``, the logs of an optimum nearby, in one search.

    Raises ConfigError unless every twin's model is physics, or profiled, TraceError where nothing is observed.
    """
    from scipy.optimize import least_squares

    first, names = _model(served[0]), _free_names(served)
    expected, said = np.log([float(getattr(first, name)) for name in names]), first.coefficients()
    width = np.array([said[name].prior for name in names], np.float64)
    weights = [_weight(each) for each in served]
    tell, kind = report or (lambda _stage, _loss: None), type(first).__name__.lower()

    def residuals(x: Floats) -> Floats:
        parts = [
            (
                np.nan_to_num(log_ratio(_run(each, names, x).latency_us, each.trace.observed_us)) * weight
            ).ravel()
            for each, weight in zip(served, weights, strict=True)
        ]
        rows = np.concatenate([*parts, (x - expected) / width])
        tell(kind, float(np.mean(rows**2)))
        return rows

    x, moved_by = expected if start is None else start, np.zeros(len(names))
    for step in STEPS if start is None else STEPS[-1:]:

        def slopes_at(at: Floats, step: float = step) -> Floats:
            here = residuals(at)
            with ThreadPoolExecutor(max_workers=THREADS) as pool:
                moved = list(pool.map(lambda row: residuals(at + step * row), np.diag(width)))
            return np.stack([(there - here) for there in moved], axis=1) / (step * width)

        found = least_squares(
            residuals, x, jac=slopes_at, loss="soft_l1", max_nfev=EVALUATIONS, x_scale=width
        )
        moved_by, x = found.x - x, found.x
    return Optimum(
        names=names,
        x=x,
        expected=expected,
        width=width,
        slopes=np.asarray(found.jac, dtype=np.float64),
        residuals=np.asarray(found.fun, dtype=np.float64),
        moved_by=moved_by,
        cost=float(found.cost),
        converged=bool(found.status > 0),
    )


def _free_names(served: Sequence[ServedTrace]) -> tuple[str, ...]:
    """Return the coefficients that the model has and the traces can determine; one that is 0 is left out of it."""
    first, *others = (_model(each) for each in served)
    return tuple(
        name
        for name, said in first.coefficients().items()
        if said.prior is not None
        and float(getattr(first, name)) > 0
        and any(each.describes(name) for each in (first, *others))
    )


def fit_known(
    served: Sequence[ServedTrace], *, report: Report | None = None, start: Floats | None = None
) -> tuple[Fit, ...]:
    """Return, per trace, the twin with one set of coefficients fitted to all; they differ only in the twin.

    ``start``: the logs of an optimum nearby. Raises ConfigError unless every twin's model is physics, or profiled,
    TraceError where nothing is observed.
    """
    from calibrate.fit.result import Fit

    began = time.monotonic()
    found = optimum(served, report=report, start=start)
    names = found.names
    information = found.slopes.T @ found.slopes
    covariance = np.linalg.inv(information)
    linear = np.sqrt(np.diag(covariance))
    correlation = covariance / np.outer(linear, linear)
    spread = np.hypot(linear, found.moved_by)
    coefficients = _coefficients(names, found.x, spread=spread, width=found.width, correlation=correlation)
    values = {each.name: each.value for each in coefficients}
    return tuple(
        Fit(
            config=replace(each.config, latency=_with(_model(each), values)),
            coefficients=coefficients,
            names=names,
            correlation=correlation,
            condition_number=float(np.linalg.cond(information)),
            loss=found.cost,
            noise=dict(zip(("ttft_us", "e2e_us", "tpot_us"), NOISE.tolist(), strict=False)),
            num_requests=sum(one.trace.num_used for one in served),
            converged=found.converged,
            method=METHOD,
            seconds=time.monotonic() - began,
        )
        for each in served
    )


def predictor(served: Sequence[ServedTrace], found: Optimum) -> Predictor:
    """Return a predictor of left-out requests: a step on the slopes without them, then a simulation."""

    def predict(folds: Sequence[Held]) -> list[list[Floats]]:
        return [_predicted(served, found, held) for held in folds]

    return predict


def _predicted(served: Sequence[ServedTrace], found: Optimum, held: Held) -> list[Floats]:
    latest: list[list[Floats]] = []

    def loss_without(x: Floats) -> float:
        latest.append([_run(each, found.names, x).latency_us for each in served])
        off = float(np.sum(((x - found.expected) / found.width) ** 2))
        for latencies, each, rows in zip(latest[-1], served, held, strict=True):
            residual = log_ratio(latencies, each.trace.observed_us) * _weight(each)
            off += float(np.nansum(np.where(rows, 0.0, robust(residual))))
        return off

    rows = [
        np.broadcast_to(mask, each.trace.observed_us.shape).ravel()
        for mask, each in zip(held, served, strict=True)
    ]
    towards = found.without(np.concatenate([*rows, np.zeros(len(found.names), bool)]))
    return _confirmed(found.x, towards, loss_at=loss_without, latest=latest)


def _confirmed(
    theta: Floats, towards: Floats, *, loss_at: Callable[[Floats], float], latest: list[list[Floats]]
) -> list[Floats]:
    """Return the latencies where a fit without some requests ends up, from ``theta``, that of all.

    A step to a place where the other requests fit worse is shortened: no fit would end there. ``loss_at`` adds the
    latencies to ``latest``.
    """
    here = loss_at(theta)
    for share in SHARES:
        if loss_at(theta + share * (towards - theta)) <= here * (1 + STAIRCASE):
            return latest[-1]
    loss_at(theta)
    return latest[-1]


def started(model: LatencyModel) -> LatencyModel:
    """Return the start of a model's fit; times that are not known begin at a guess."""
    guesses = {name: value for name, value in model.first_guesses.items() if not getattr(model, name)}
    return replace(model, **guesses)


def _model(served: ServedTrace) -> LatencyModel:
    latency = served.config.latency
    if latency.fitting is not Fitting.NEARBY:
        kind = type(latency).__name__.lower()
        raise ConfigError(f"latency.model: got {kind}, expected physics or profiled ({served.config.source})")
    return started(latency)


def _with(model: LatencyModel, values: Mapping[str, float]) -> LatencyModel:
    """Return a model with these coefficients in place of its own."""
    return replace(model, **values)


def _weight(served: ServedTrace) -> Floats:
    """Return each residual's weight [metrics, 1]: its noise, and a trace counts as this many requests at most."""
    num_used = served.trace.num_used
    if num_used == 0:
        raise TraceError(f"{served.trace.name}: got no finished request, expected at least one")
    rows = len(served.trace.observed_us)
    share = np.sqrt(min(1.0, REQUESTS_PER_TRACE / num_used))
    return np.asarray(share / NOISE[:rows, None])


def _run(served: ServedTrace, names: Sequence[str], x: Floats) -> SimulatedTrace:
    """Return the trace simulated with these coefficients."""
    model = _with(_model(served), dict(zip(names, np.exp(x).tolist(), strict=True)))
    return simulated(served.trace, engine=served.config.engine, model=model)


def _coefficients(
    names: Sequence[str], x: Floats, *, spread: Floats, width: Floats, correlation: Floats
) -> tuple[Coefficient, ...]:
    """Return values with intervals, and why the traces do not determine some of them."""
    z = half_width()
    made = []
    for i, name in enumerate(names):
        is_seen = bool(spread[i] < SEEN * width[i])
        others = [other for j, other in enumerate(names) if j != i and abs(correlation[i, j]) > TIED]
        reason = None if is_seen else "the traces do not tell: it stays near its configured value"
        if others:
            reason = f"separated from {', '.join(others)} only by its prior"
        made.append(
            Coefficient(
                name=name,
                value=float(f"{np.exp(x[i]):.6g}"),
                low=float(np.exp(x[i] - z * spread[i])),
                high=float(np.exp(x[i] + z * spread[i])),
                fitted=True,
                identifiable=is_seen and not others,
                reason=reason,
            )
        )
    return tuple(made)
