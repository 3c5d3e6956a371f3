"""Fitting the twin's coefficients to observed traces, with the simulator in the loop."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from calibrate.compare.bootstrap import Floats
from calibrate.compare.engine_steps import EngineSteps
from calibrate.compare.pair import side_of
from calibrate.fit.capacity import is_above_capacity, observed_in_order
from calibrate.fit.exposure import Timeline
from calibrate.fit.loss import (
    COEFFICIENTS,
    EXTENDED_FITTED,
    FITTED,
    LATENCIES,
    FitTrace,
    Problem,
    coefficients_in,
    decimals_of,
)
from calibrate.fit.model_selection import Candidate, LatencyModel, choose
from calibrate.fit.one_model import ScheduleChoice, Task, better_schedule, find
from calibrate.fit.priors import Prior
from calibrate.fit.result import Fit
from calibrate.fit.search import Found, Report
from calibrate.fit.step_noise import step_scatter
from calibrate.fit.uncertainty import METHOD, Coefficient, coefficients_of, uncertainty
from sim import Blackbox, Extended, Physics
from traces.errors import ConfigError, TraceError

if TYPE_CHECKING:
    from replay import TwinConfig
    from traces import Trace

SPARE_DECIMALS = 2
"""Coefficients are written with so many decimals fewer than kept: 1e-4 µs is finer than any trace tells."""
MIN_REQUESTS = 20
"""Fewer finished requests than this cannot tell five coefficients apart."""


def fit(
    traces: Sequence[FitTrace],
    config: TwinConfig,
    *,
    names: Sequence[str] = FITTED,
    seed: int = 42,
    infer_async: bool = False,
    latency_model: LatencyModel | None = None,
    priors: Mapping[str, Prior] | None = None,
    report: Report | None = None,
) -> Fit:
    """Return the twin whose simulated latencies are nearest to the observed ones, all traces counting alike.

    ``names``: blackbox's coefficients to vary, the others stay as configured. ``infer_async``: fit with and without
    async scheduling and keep the better. ``latency_model``: blackbox, extended, or ``auto``, which chooses among
    the extended model's terms by cross-validation; None: as configured. ``priors``: what model and GPU imply of the
    extended model's coefficients; what holds of any transformer stands in for the rest. Raises TraceError where the
    traces hold too few finished requests.
    """
    if isinstance(config.latency, Physics):
        from calibrate.fit.physics import Served, fit_physics

        return fit_physics([Served(trace=trace, config=config) for trace in traces], report=report)[0]
    started = time.monotonic()
    num_requests = sum(int(trace.used().sum()) for trace in traces)
    if num_requests < MIN_REQUESTS:
        raise TraceError(f"fit: got {num_requests} finished requests, expected at least {MIN_REQUESTS}")
    tell = report or (lambda _stage, _loss: None)
    twin = replace(config, latency=_as_model(_fitted_model(config), latency_model))
    task = Task(
        traces=tuple(traces), config=twin, names=tuple(names), priors=priors or {}, seed=seed, report=tell
    )
    schedule: ScheduleChoice | None = None
    candidates: tuple[Candidate, ...] = ()
    if infer_async:
        task, schedule = better_schedule(task)
    if latency_model == "auto":
        found, candidates = choose(task)
    else:
        found = find(task)
    fitted = _finish(found, twin, seed=seed, num_requests=num_requests)
    return replace(fitted, schedule=schedule, candidates=candidates, seconds=time.monotonic() - started)


def _fitted_model(config: TwinConfig) -> Blackbox:
    """Return the model whose coefficients a fit finds. Raises ConfigError where it is none of those."""
    if not isinstance(config.latency, Blackbox):
        raise ConfigError(
            f"latency.model: got {type(config.latency).__name__.lower()}, expected blackbox, extended or physics "
            f"for a fit ({config.source})"
        )
    return config.latency


def _as_model(latency: Blackbox, asked: LatencyModel | None) -> Blackbox:
    """Return a model of the kind asked for with the same six coefficients; as it is where nothing is asked."""
    six = {name: getattr(latency, name) for name in COEFFICIENTS}
    if asked in ("auto", "extended") and not isinstance(latency, Extended):
        return Extended(**six)
    return Blackbox(**six) if asked == "blackbox" else latency


def fit_trace(
    trace: Trace,
    config: TwinConfig,
    *,
    name: str,
    chosen: NDArray[np.bool_] | None = None,
    steps: EngineSteps | None = None,
) -> FitTrace:
    """Return a trace made ready: all rows are simulated, the latencies of the ``chosen`` enter the loss.

    ``steps``: the engine's own log of its steps, from which a start is made.
    """
    from replay import paced_requests, pacing_of

    pacing = pacing_of(trace)
    side = side_of(trace).table
    counted = ~side["warmup"].to_numpy()
    if chosen is not None:
        counted &= chosen
    latencies = np.stack([np.where(counted, side[metric].to_numpy(), np.nan) for metric in LATENCIES])
    timeline = _observed_timeline(trace)
    is_paced = pacing.closed_loop is not None or pacing.max_concurrency is not None
    done_rows, done_us = np.zeros(0, np.int64), np.full(len(counted), np.nan)
    if is_paced or is_above_capacity(timeline.joined, timeline.last):
        done_rows, done_us = observed_in_order(timeline.joined, np.where(counted, timeline.last, np.nan))
    return FitTrace(
        name=name,
        requests=paced_requests(trace, pacing, block_size=config.engine.block_size),
        observed_us=np.vstack([latencies, done_us]),
        observed_timeline=timeline,
        steps=steps,
        done_rows=done_rows,
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


def _finish(found: Found, config: TwinConfig, *, seed: int, num_requests: int) -> Fit:
    """Return the fit with its intervals, from where the search ended."""
    problem, theta = found.problem, found.theta
    spread = uncertainty(problem, theta, surface=found.surface, seed=seed, scatter=found.scatter)
    fitted = {
        each.name: each
        for each in coefficients_of(
            problem.names, theta, spread=spread, scale=problem.scale, priors=problem.priors
        )
    }
    base = problem.base
    if isinstance(base, Extended) and isinstance(config.latency, Extended):
        base = replace(base, sigma=config.latency.sigma)
        if not set(problem.names) & set(EXTENDED_FITTED):
            base = Blackbox(**{name: getattr(base, name) for name in COEFFICIENTS})
    shown = coefficients_in(base)
    coefficients = tuple(fitted[name] if name in fitted else _held(name, base) for name in shown)
    values = {name: round(each.value, decimals_of(name) - SPARE_DECIMALS) for name, each in fitted.items()}
    latency = replace(base, **values)
    if isinstance(latency, Extended):
        scatter = _scatter(problem, theta, seed=seed)
        coefficients = tuple(scatter if each.name == "sigma" and scatter else each for each in coefficients)
        latency = replace(latency, sigma=round(scatter.value, 6) if scatter else latency.sigma)
    return Fit(
        config=replace(config, latency=latency, engine=problem.engine),
        coefficients=coefficients,
        names=problem.names,
        correlation=spread.correlation,
        condition_number=spread.condition_number,
        loss=found.loss,
        noise=dict(zip(LATENCIES, problem.noise.tolist(), strict=False)),
        num_requests=num_requests,
        converged=found.converged,
        method=METHOD,
        seconds=0.0,
    )


def _scatter(problem: Problem, theta: Floats, *, seed: int) -> Coefficient | None:
    """Return sigma, 0 unless its interval is clear of 0; None where the traces cannot tell."""
    found = step_scatter(problem, theta, seed=seed)
    if found is None:
        return None
    value, low, high = found
    is_seen = low > 0
    return Coefficient(
        name="sigma",
        value=value if is_seen else 0.0,
        low=low,
        high=high,
        fitted=True,
        identifiable=is_seen,
        reason=None
        if is_seen
        else "answers are too alike in length, or other scatter drowns that of single steps",
    )


def _held(name: str, latency: Blackbox) -> Coefficient:
    """Return a coefficient that was not fitted."""
    return Coefficient(
        name=name,
        value=float(getattr(latency, name)),
        low=None,
        high=None,
        fitted=False,
        identifiable=False,
        reason="held at the configured value",
    )
