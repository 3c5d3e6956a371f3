"""Whether an observation was overloaded: then its latencies reflect the run's length, and only its capacity counts."""

from __future__ import annotations

from lazy_dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from traces.metrics import request_metrics, send_or_arrival_us
from traces.statistics.bootstrap import (
    Estimate,
    Floats,
    block_length,
    interval,
    over_resamples,
    weighted_sums,
)

if TYPE_CHECKING:
    from traces.trace import Trace

State = Literal["stable", "unclear", "saturated"]

LEAST = 20
"""Fewer requests than this show no trend."""
MOST_BINS, LEAST_IN_BIN = 40, 4
"""Number of time spans, and mean arrivals in each: short runs have fewer spans, so that counts are not just chance."""
REPLICATES = 1000
STREAM = 970


@dataclass(frozen=True, slots=True, kw_only=True)
class Saturation:
    """The evidence about a run's load in its arrivals and completions.

    ``slope_per_s``: requests by which the number in flight grows per second between the settling in and the last
    arrival. ``unserved_frac``: the same per arriving request: the share of the load that was not served. ``backlog``:
    requests in flight at the last arrival. ``trend``: mean E2E of the later half of the requests over that of the
    earlier, minus 1. ``index``: the smaller of ``unserved_frac`` and ``trend``, since overload shows in both; it is
    compared with ``floor``, 1/sqrt(n), below which it is chance. None where it is not known.
    """

    state: State
    reason: str
    n: int
    slope_per_s: Estimate
    unserved_frac: Estimate
    backlog: int | None
    trend: float | None
    index: float | None
    floor: float | None


def saturation_of(trace: Trace, *, seed: int = 42, level: float = 0.90) -> Saturation:
    """Return whether the server served the load of an observed run."""
    source = trace.header.source
    if source is not None and source.load_unknown is not None:
        return _nothing("unclear", source.load_unknown, n=len(trace))
    arrival = np.asarray(send_or_arrival_us(trace), dtype=np.float64)
    e2e = request_metrics(trace)["e2e_us"].to_numpy(dtype=np.float64)
    finished = np.isfinite(e2e)
    if trace.header.closed_loop is not None:
        return _nothing("stable", "a closed loop sends no more than it gets answered", n=int(finished.sum()))
    return saturation(arrival[finished], e2e[finished], seed=seed, level=level)


def saturation(arrival_us: Floats, e2e_us: Floats, *, seed: int = 42, level: float = 0.90) -> Saturation:
    """Return whether a load that does not wait for answers was served as fast as it came."""
    n = len(arrival_us)
    if n < LEAST:
        return _nothing("stable", f"{n} requests, too few to show a trend", n=n)
    order = np.argsort(arrival_us, kind="stable")
    arrival, e2e = arrival_us[order], e2e_us[order]
    end = arrival + e2e
    backlog = int(np.count_nonzero(end > arrival[-1]))
    filled_us = arrival[0] + float(np.median(e2e[: n // 4]))
    if filled_us >= arrival[-1]:
        return _burst(n, backlog, span_us=arrival[-1] - arrival[0], ends=end)
    arrived, done = _bins(arrival, end, window=(filled_us, float(arrival[-1])))
    unserved, slope = _growth(arrived, done, window_us=arrival[-1] - filled_us, seed=seed, level=level)
    half = n // 2
    trend = float(e2e[half:].mean() / e2e[:half].mean() - 1)
    floor = 1 / np.sqrt(n)
    index = min(unserved.value or 0.0, trend)
    state, reason = _state(unserved, index=index, trend=trend, floor=floor)
    return Saturation(
        state=state,
        reason=reason,
        n=n,
        slope_per_s=slope,
        unserved_frac=unserved,
        backlog=backlog,
        trend=trend,
        index=index,
        floor=float(floor),
    )


def _state(unserved: Estimate, *, index: float, trend: float, floor: float) -> tuple[State, str]:
    """Return the state and why, from how fast the number in flight and the latencies grow."""
    value, low = unserved.value or 0.0, unserved.low if unserved.low is not None else -np.inf
    said = f"{100 * value:.0f} % of what arrived was not served in time"
    if low > 0 and index > floor:
        return "saturated", f"{said}, and the later half of the requests took {100 * trend:.0f} % longer"
    if index > floor:
        return "unclear", f"{said}, which may be chance in so short a run"
    return "stable", "as much was served as arrived"


def _burst(n: int, backlog: int, *, span_us: float, ends: Floats) -> Saturation:
    """Return the verdict on requests that all came before the first were answered: a backlog by design."""
    drained = float(np.quantile(ends, 0.9) - ends.min())
    first = float(ends.min())
    queues = drained > max(span_us, 0.0) and backlog * 2 > n and first > 0
    state: State = "saturated" if queues else "unclear"
    return Saturation(
        state=state,
        reason=f"almost all {n} requests were sent at once: {backlog} were in flight when the last one was sent",
        n=n,
        slope_per_s=Estimate(value=None),
        unserved_frac=Estimate(value=None),
        backlog=backlog,
        trend=None,
        index=1.0,
        floor=float(1 / np.sqrt(n)),
    )


def _bins(arrival: Floats, end: Floats, *, window: tuple[float, float]) -> tuple[Floats, Floats]:
    """Return arrivals and completions in equal spans of time within the window."""
    inside = np.count_nonzero((arrival > window[0]) & (arrival <= window[1]))
    edges = np.linspace(*window, int(np.clip(inside // LEAST_IN_BIN, 2, MOST_BINS)) + 1)
    arrived, done = (np.histogram(times, edges)[0].astype(np.float64) for times in (arrival, end))
    return arrived, done


def _growth(
    arrived: Floats, done: Floats, *, window_us: float, seed: int, level: float
) -> tuple[Estimate, Estimate]:
    """Return the share of arrivals that was not served, and the slope of the number in flight per second.

    Bins are redrawn in blocks; since requests not served in one are served in the next, the interval is rather too
    wide.
    """
    gained, n = arrived - done, len(arrived)
    share = float(gained.sum() / arrived.sum()) if arrived.sum() else 0.0
    slope = float(gained.sum() / window_us * 1e6)
    totals, gains = over_resamples(
        lambda counts: np.column_stack([weighted_sums(counts, arrived), weighted_sums(counts, gained)]),
        n,
        block_length(gained),
        seed=seed,
        stream=STREAM,
    ).T
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.where(totals > 0, gains / totals, np.nan)
    slopes = gains / window_us * 1e6
    return interval(share, shares, level=level), interval(slope, slopes, level=level)


def _nothing(state: State, reason: str, *, n: int) -> Saturation:
    return Saturation(
        state=state,
        reason=reason,
        n=n,
        slope_per_s=Estimate(value=None),
        unserved_frac=Estimate(value=None),
        backlog=None,
        trend=None,
        index=None,
        floor=None,
    )
