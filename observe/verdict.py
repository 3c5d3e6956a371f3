"""Whether the numbers are the server's: what the client can be blamed for, and when it is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from observe.plan import SendPlan
from observe.progress import LogHistogram, Progress
from observe.run import RunFacts
from traces.header import ProcessInfo

BOUNDS: Mapping[str, float] = {"own_lag_p99_us": 10_000, "loop_lag_p99_us": 10_000, "cpu_frac": 0.9}
"""Beyond any of these a run is client-limited. 10 ms: the lag that an idle machine keeps at 200 requests/s; a
core that is busy for more than nine tenths of the time queues its own events."""

FINISHED = "finished"
"""The outcome of a process that did all that it was told."""

_QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Rate (1/s) and coefficient of variation of the gaps between requests; None of fewer than two."""

    rate_per_s: float | None
    gap_cv: float | None


def quantiles_of(values: NDArray[np.int64]) -> dict[str, float]:
    """Return p50, p90, p99 and max, empty of nothing."""
    if len(values) == 0:
        return {}
    return {name: float(np.quantile(values, q)) for name, q in _QUANTILES.items()}


def quantiles_of_histogram(histogram: LogHistogram) -> dict[str, float]:
    """Return p50, p90, p99 and max to 1 %, empty of nothing."""
    found = {name: histogram.quantile(q) for name, q in _QUANTILES.items()}
    return {name: round(value, 1) for name, value in found.items() if value is not None}


def pace_of(times_us: NDArray[np.int64]) -> Pace:
    """Return the pace of requests at these times."""
    gaps = np.diff(np.sort(times_us))
    if len(gaps) == 0 or gaps.sum() == 0:
        return Pace(rate_per_s=None, gap_cv=None)
    mean = float(gaps.mean())
    return Pace(rate_per_s=1e6 / mean, gap_cv=float(gaps.std()) / mean)


def asked_pace(plan: SendPlan) -> Pace:
    """Return the pace that the plan asks for; a closed loop asks for none."""
    if plan.closed_loop is not None:
        return Pace(rate_per_s=None, gap_cv=None)
    return pace_of(np.array([due for due in plan.due_us if due is not None], dtype=np.int64))


def achieved_pace(progress: Progress) -> Pace:
    """Return the pace at which requests were handed to the socket."""
    return pace_of(np.array(progress.dispatched_ns, dtype=np.int64) // 1000)


def busy_frac(facts: RunFacts) -> float:
    """Return the share of a core that the run took, nan for a run of no time."""
    return facts.cpu_s * 1e9 / facts.duration_ns if facts.duration_ns > 0 else float("nan")


def process_info(
    plan: SendPlan, progress: Progress, *, facts: RunFacts | None, outcome: str = FINISHED
) -> ProcessInfo:
    """Return how a process did that had this plan; ``facts`` None: it did not live to tell them."""
    cpu_frac = float("nan") if facts is None else busy_frac(facts)
    reason = blame(plan, progress, cpu_frac=cpu_frac)
    return ProcessInfo(
        num_planned=len(plan),
        num_sent=len(progress.dispatched_ns),
        own_lag_us=quantiles_of(np.array(progress.own_lag_us, dtype=np.int64)),
        loop_lag_us=quantiles_of_histogram(progress.loop_lag),
        cpu_frac=None if math.isnan(cpu_frac) else round(cpu_frac, 4),
        limited=reason is not None,
        reason=reason,
        outcome=outcome,
    )


def blame_all(processes: Sequence[ProcessInfo]) -> str | None:
    """Return by what bounds which processes limited the run, or None where none did."""
    blamed = [f"process {i}: {each.reason}" for i, each in enumerate(processes, start=1) if each.limited]
    return "; ".join(blamed) or None


def blame(plan: SendPlan, progress: Progress, *, cpu_frac: float) -> str | None:
    """Return by what bounds the client limited the run, or None where it did not.

    Requests that are all due at once are sent as fast as the client can: their lag is what was asked for.
    """
    at_once = plan.closed_loop is None and asked_pace(plan).rate_per_s is None and len(plan) > 1
    own = quantiles_of(np.array(progress.own_lag_us, dtype=np.int64)).get("p99")
    loop = quantiles_of_histogram(progress.loop_lag).get("p99")
    measured = {
        "own_lag_p99_us": None if at_once else own,
        "loop_lag_p99_us": loop,
        "cpu_frac": None if math.isnan(cpu_frac) else cpu_frac,
    }
    beyond = [
        f"{name} {value:.3g} > {BOUNDS[name]:g}"
        for name, value in measured.items()
        if value is not None and value > BOUNDS[name]
    ]
    return "; ".join(beyond) or None
