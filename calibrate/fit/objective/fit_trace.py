"""Observed traces prepared once for a fit: the simulator's columns, and every request's measurements."""

from __future__ import annotations

from lazy_dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from calibrate.compare.engine_steps import EngineSteps
from calibrate.compare.pair import side_of
from calibrate.fit.objective.exposure import Timeline
from replay.twin import twin_of
from sim import EngineConfig, Requests, Simulator
from traces import saturation_of
from traces.statistics.bootstrap import Floats
from traces.strict.arguments import TEXT, TRACE, TWIN, Count, takes

if TYPE_CHECKING:
    from replay import TwinConfig
    from traces import Trace

LATENCIES = ("ttft_us", "e2e_us", "tpot_us")
LOSS_METRICS = (*LATENCIES, "done_us")
"""What the loss is made of, per request; the rows of every [4, n] array of a fit. ``done_us``: when as many requests as
in the trace were done, of traces that completions pace or whose load was more than the server could serve. There a
queue grows as long as the run lasts, so that a latency reflects the run's length. The rate of answers shows what the
server can serve."""
RUN_UP = 0.2
"""The first share of the answers, which reflects the start of the run more than the server's capacity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FitTrace:
    """One observed trace, prepared once: n requests in the simulator's columns and their measurements.

    ``observed_us`` [4, n]: ``LOSS_METRICS``, NaN where a request has none or takes no part in the loss.
    ``steps``: the engine's own log of its steps, where there is one.
    ``done_rows``: the requests whose completions count, in the order in which they were observed; may be none.
    ``closed_loop``: (concurrency, think time in µs) where completions set the arrivals. ``max_concurrency``: the
    client's cap, where completions release due requests. ``ttft_too_long_us``: what a late client may have added to its
    mean TTFT, at most. ``simulators``: those of its requests that are free, per
    configuration; a copy with other requests has its own. ``counts`` [4]: how many requests have each metric;
    ``num_used``: how many have any.
    """

    name: str
    requests: Requests
    observed_us: Floats
    observed_timeline: Timeline
    steps: EngineSteps | None = None
    done_rows: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    closed_loop: tuple[int, int] | None = None
    max_concurrency: int | None = None
    ttft_too_long_us: float = 0.0
    simulators: dict[EngineConfig, list[Simulator]] = field(
        init=False, default_factory=dict, compare=False, repr=False
    )
    counts: NDArray[np.int64] = field(init=False, compare=False, repr=False)
    num_used: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Compute once what every evaluation of a loss needs."""
        object.__setattr__(self, "counts", np.isfinite(self.observed_us).sum(axis=1))
        object.__setattr__(self, "num_used", int(self.used().sum()))

    def used(self) -> NDArray[np.bool_]:
        """Return which requests take part in the loss."""
        return np.asarray(np.isfinite(self.observed_us).any(axis=0))

    def without(self, rows: NDArray[np.bool_]) -> FitTrace:
        """Return the trace with these requests' latencies left out of the loss; all are simulated as before."""
        left = replace(self, observed_us=np.where(rows, np.nan, self.observed_us))
        object.__setattr__(left, "simulators", self.simulators)
        return left


@takes(trace=TRACE, config=TWIN, name=TEXT, max_concurrency=Count(1))
def fit_trace(
    trace: Trace,
    config: TwinConfig | str | Path,
    *,
    name: str,
    chosen: NDArray[np.bool_] | None = None,
    steps: EngineSteps | None = None,
    max_concurrency: int | None = None,
) -> FitTrace:
    """Return a prepared trace: all rows are simulated, the latencies of the ``chosen`` enter the loss.

    ``steps``: the engine's own log of its steps, from which the initial guess is made. ``max_concurrency``: the
    client's cap, where the trace's header does not say it.
    """
    from replay import paced_requests, pacing_of

    pacing, engine = pacing_of(trace, max_concurrency=max_concurrency), twin_of(config).engine
    side = side_of(trace).table
    counted = ~side["warmup"].to_numpy()
    if chosen is not None:
        counted &= chosen
    latencies = np.stack([np.where(counted, side[metric].to_numpy(), np.nan) for metric in LATENCIES])
    timeline = _observed_timeline(trace)
    is_paced = pacing.closed_loop is not None or pacing.max_concurrency is not None
    done_rows, done_us = np.zeros(0, np.int64), np.full(len(counted), np.nan)
    if is_paced or saturation_of(trace).state == "saturated":
        done_rows, done_us = observed_in_order(timeline.joined, np.where(counted, timeline.last, np.nan))
    return FitTrace(
        name=name,
        requests=paced_requests(
            trace,
            pacing,
            block_size=engine.block_size,
            hash_lookahead=engine.num_hash_lookahead_tokens,
        ),
        observed_us=np.vstack([latencies, done_us]),
        observed_timeline=timeline,
        steps=steps,
        done_rows=done_rows,
        closed_loop=pacing.closed_loop,
        max_concurrency=pacing.max_concurrency,
        ttft_too_long_us=_mean_of(side["ttft_too_long_us"].to_numpy()[np.isfinite(latencies[0])]),
    )


def _mean_of(values: NDArray[np.float64]) -> float:
    return float(values.mean()) if len(values) else 0.0


def _observed_timeline(trace: Trace) -> Timeline:
    """Return when the observed requests reached each stage; a prompt is computed when its first token comes."""
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


def head_of(trace: FitTrace, number: int) -> FitTrace:
    """Return a trace's first requests by arrival; those that were not done when the next one arrived do not count."""
    n = len(trace.requests)
    if n <= number:
        return trace
    order = np.argsort(trace.requests.arrival_us, kind="stable")
    rows, next_us = np.sort(order[:number]), trace.observed_timeline.joined[order[number]]
    place = np.full(n, -1)
    place[rows] = np.arange(number)
    timeline = Timeline(
        **{each.name: getattr(trace.observed_timeline, each.name)[rows] for each in fields(Timeline)}
    )
    is_done = trace.observed_timeline.last[rows] <= next_us
    done_rows = place[trace.done_rows]
    return replace(
        trace,
        requests=trace.requests.take(rows),
        observed_us=np.where(is_done, trace.observed_us[:, rows], np.nan),
        observed_timeline=timeline,
        done_rows=done_rows[(done_rows >= 0) & is_done[done_rows]],
    )


def in_order(done_us: Floats, rows: NDArray[np.int64], *, start_us: float) -> Floats:
    """Return, for each of ``rows``, the k-th of which was the k-th done when observed, when the k-th was done here.

    Counted from ``start_us``; NaN in every other row [n], inf where fewer were done.
    """
    times = np.full(len(done_us), np.nan)
    ends = np.sort(np.where(np.isfinite(done_us[rows]), done_us[rows] - start_us, np.inf))
    times[rows] = ends
    return times


def observed_in_order(arrival_us: Floats, done_us: Floats) -> tuple[NDArray[np.int64], Floats]:
    """Return the finished rows in the order in which they were done, and ``in_order`` of them without the run-up."""
    rows = np.flatnonzero(np.isfinite(done_us))
    rows = rows[np.argsort(done_us[rows], kind="stable")]
    times = in_order(done_us, rows, start_us=float(np.nanmin(arrival_us)))
    times[rows[: int(RUN_UP * len(rows))]] = np.nan
    return rows, times
