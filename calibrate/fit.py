"""Fitting the twin's coefficients to observed traces, with the simulator in the loop."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from calibrate.bootstrap import Floats
from calibrate.exposure import Timeline
from calibrate.pair import side_of
from calibrate.problem import (
    FITTED,
    LOSS_METRICS,
    FitTrace,
    Problem,
    coefficients_in,
    decimals_of,
    fitted_in,
)
from calibrate.search import Found, Report, search
from calibrate.start import first_guess, natural_scale, several_starts
from calibrate.uncertainty import METHOD, Coefficient, coefficients_of, uncertainty
from traces.errors import TraceError

if TYPE_CHECKING:
    from replay import TwinConfig
    from traces import Trace

SPARE_DECIMALS = 2
"""Coefficients are written with so many decimals fewer than kept: 1e-4 µs is finer than any trace tells."""
MIN_REQUESTS = 20
"""Fewer finished requests than this cannot tell five coefficients apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleChoice:
    """Which way of scheduling explains the traces better: the loss with and without async scheduling."""

    async_scheduling: bool
    loss_async: float
    loss_sync: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A fitted twin: its configuration, its coefficients with intervals, and how the fit went.

    ``correlation`` [p, p] of the fitted coefficients ``names``. ``noise``: relative spread that the fit
    leaves in one request's TTFT, E2E and TPOT. ``seconds``: wall time.
    """

    config: TwinConfig
    coefficients: tuple[Coefficient, ...]
    names: tuple[str, ...]
    correlation: Floats
    condition_number: float
    loss: float
    noise: dict[str, float]
    num_requests: int
    converged: bool
    method: str
    seconds: float
    schedule: ScheduleChoice | None = None


def fit(
    traces: Sequence[FitTrace],
    config: TwinConfig,
    *,
    names: Sequence[str] = FITTED,
    seed: int = 42,
    infer_async: bool = False,
    report: Report | None = None,
) -> Fit:
    """Return the twin whose simulated latencies are nearest to the observed ones, all traces counting alike.

    ``names``: the coefficients to vary, the others stay as configured. ``infer_async``: fit with and without
    async scheduling and keep the better. Raises TraceError where the traces hold too few finished requests.
    """
    started = time.monotonic()
    names = fitted_in(config.latency, names)
    num_requests = sum(int(trace.used().sum()) for trace in traces)
    if num_requests < MIN_REQUESTS:
        raise TraceError(f"fit: got {num_requests} finished requests, expected at least {MIN_REQUESTS}")
    tell = report or (lambda _stage, _loss: None)
    if infer_async:
        found, schedule = _better_schedule(traces, config, names=names, seed=seed, report=tell)
    else:
        found, schedule = _search(traces, config, names=names, seed=seed, report=tell), None
    fitted = _finish(found, config, seed=seed, num_requests=num_requests)
    return replace(fitted, schedule=schedule, seconds=time.monotonic() - started)


def fit_trace(
    trace: Trace, config: TwinConfig, *, name: str, chosen: NDArray[np.bool_] | None = None
) -> FitTrace:
    """Return a trace made ready: all rows are simulated, the latencies of the ``chosen`` enter the loss."""
    from replay import paced_requests, pacing_of

    pacing = pacing_of(trace)
    side = side_of(trace).table
    counted = ~side["warmup"].to_numpy()
    if chosen is not None:
        counted &= chosen
    latencies = np.stack([np.where(counted, side[metric].to_numpy(), np.nan) for metric in LOSS_METRICS])
    return FitTrace(
        name=name,
        requests=paced_requests(trace, pacing, block_size=config.engine.block_size),
        observed_us=latencies,
        observed_timeline=_observed_timeline(trace),
        closed_loop=pacing.closed_loop,
        max_concurrency=pacing.max_concurrency,
    )


def _observed_timeline(trace: Trace) -> Timeline:
    """Return when the observed requests were where; a prompt is computed as its first token comes."""
    side = side_of(trace).table
    arrival, prompt = side["arrival_us"].to_numpy(), side["prompt_tokens"].to_numpy()
    cached = trace.column("cached_input_tokens").fillna(0).to_numpy(dtype=np.float64)
    first = arrival + side["ttft_us"].to_numpy()
    return Timeline(
        joined=arrival,
        prefill=first - 1.0,
        first=first,
        last=arrival + side["e2e_us"].to_numpy(),
        prefill_tokens=np.maximum(prompt - cached, 1.0),
        output_tokens=side["output_tokens"].to_numpy(),
    )


def _search(
    traces: Sequence[FitTrace], config: TwinConfig, *, names: Sequence[str], seed: int, report: Report
) -> Found:
    """Return the coefficients found from the first guess, its variants and the configured values."""
    scale = natural_scale(traces, names)
    problem = Problem(
        traces=tuple(traces),
        engine=config.engine,
        names=tuple(names),
        base=config.latency,
        scale=scale,
    )
    starts = several_starts(first_guess(problem), names=names, scale=scale)
    given = np.array([float(getattr(config.latency, name)) for name in names])
    if float(config.latency.beta0) > 0:
        starts.append(np.maximum(given, 0.02 * scale))
    return search(problem, starts, seed=seed, report=report)


def _better_schedule(
    traces: Sequence[FitTrace], config: TwinConfig, *, names: Sequence[str], seed: int, report: Report
) -> tuple[Found, ScheduleChoice]:
    """Return the better of the fits with and without async scheduling, judged by one measure of noise."""
    found: dict[bool, Found] = {}
    for way in (True, False):
        engine = replace(config.engine, async_scheduling=way)
        label = "async" if way else "sync"

        def tell(stage: str, loss: float, label: str = label) -> None:
            report(f"{label}, {stage}", loss)

        found[way] = _search(traces, replace(config, engine=engine), names=names, seed=seed, report=tell)
    noise = (found[True].problem.noise + found[False].problem.noise) / 2
    losses = {way: replace(each.problem, noise=noise).evaluate(each.theta) for way, each in found.items()}
    best = min(losses, key=lambda way: losses[way])
    return found[best], ScheduleChoice(
        async_scheduling=best, loss_async=losses[True], loss_sync=losses[False]
    )


def _finish(found: Found, config: TwinConfig, *, seed: int, num_requests: int) -> Fit:
    """Return the fit with its intervals, from where the search ended."""
    problem, theta = found.problem, found.theta
    spread = uncertainty(problem, theta, surface=found.surface, seed=seed, scatter=found.scatter)
    fitted = {
        each.name: each for each in coefficients_of(problem.names, theta, spread=spread, scale=problem.scale)
    }
    shown = coefficients_in(config.latency)
    coefficients = tuple(fitted[name] if name in fitted else _held(name, config) for name in shown)
    values = {name: round(each.value, decimals_of(name) - SPARE_DECIMALS) for name, each in fitted.items()}
    latency = replace(config.latency, **values)
    return Fit(
        config=replace(config, latency=latency, engine=problem.engine),
        coefficients=coefficients,
        names=problem.names,
        correlation=spread.correlation,
        condition_number=spread.condition_number,
        loss=found.loss,
        noise=dict(zip(LOSS_METRICS, problem.noise.tolist(), strict=True)),
        num_requests=num_requests,
        converged=found.converged,
        method=METHOD,
        seconds=0.0,
    )


def _held(name: str, config: TwinConfig) -> Coefficient:
    """Return a coefficient that was not fitted."""
    return Coefficient(
        name=name,
        value=float(getattr(config.latency, name)),
        low=None,
        high=None,
        fitted=False,
        identifiable=False,
        reason="held at the configured value",
    )
