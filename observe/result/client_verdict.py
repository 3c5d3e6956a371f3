"""Whether the numbers are the server's: the client's own faults, and the bounds on them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from lazy_dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from observe.plan.send_plan import SendPlan
from observe.run.dispatch import RunFacts
from observe.run.run_counts import LogHistogram, Progress
from traces import ClientInfo, ProcessInfo, is_from_start

BOUNDS: Mapping[str, float] = {
    "own_lag_p99_us": 10_000,
    "loop_lag_p99_us": 10_000,
    "cpu_frac": 0.9,
    "rate_error_frac": 0.01,
    "gap_cv_error": 0.03,
    "in_flight_shortfall_frac": 0.1,
}
"""Beyond any of these a run is client-limited; beyond the lags alone it is late, and limited only where it cannot be
told whether the load was sent at its pace all the same. 10 ms: the lag that an idle machine keeps at 200 requests/s; a
core that is busy for more than nine tenths of the time queues its own events. The last three hold what came about
against what was asked: the rate, the gaps' coefficient of variation (relative to it, or to 1 where it is smaller), and
the requests in flight of a closed loop whose users do not think."""

LATE_US = BOUNDS["own_lag_p99_us"]
"""A client whose lag, p99, is longer was late: its stamps may be, too."""

_MEANINGS: Mapping[str, str] = {
    "own_lag_p99_us": "send lag of the client, p99",
    "loop_lag_p99_us": "event-loop lag, p99",
    "cpu_frac": "CPU use of its core",
    "rate_error_frac": "rate differs from the schedule by",
    "gap_cv_error": "variation of the gaps differs from the schedule by",
    "in_flight_shortfall_frac": "fewer requests in flight than users, by",
}

_ENOUGH = 100
"""Requests from which on a rate and a spread are more than a handful of gaps."""

FINISHED = "finished"
"""The outcome of a process that finished its job."""

_QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class SendingPace:
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


def pace_of(times_us: NDArray[np.int64], *, from_start: bool = False) -> SendingPace:
    """Return the pace of requests at these times.

    ``from_start``: the gap before the first counts in the rate, too; times count from the run's start.
    """
    gaps = np.diff(np.sort(times_us))
    if len(gaps) == 0 or gaps.sum() == 0:
        return SendingPace(rate_per_s=None, gap_cv=None)
    mean = float(gaps.mean())
    rate = len(times_us) / float(times_us.max()) if from_start else 1 / mean
    return SendingPace(rate_per_s=rate * 1e6, gap_cv=float(gaps.std()) / mean)


def asked_pace(plan: SendPlan) -> SendingPace:
    """Return the plan's pace; a closed loop has none."""
    if plan.closed_loop is not None:
        return SendingPace(rate_per_s=None, gap_cv=None)
    return pace_of(_begins_us(plan), from_start=_is_from_start(plan))


def due_pace(plan: SendPlan, progress: Progress) -> SendingPace:
    """Return the pace of the requests due until the run was cut short: the part of the plan that was sent."""
    if plan.closed_loop is not None:
        return SendingPace(rate_per_s=None, gap_cv=None)
    return pace_of(np.sort(_begins_us(plan))[: len(progress.paced_ns)], from_start=_is_from_start(plan))


def _is_from_start(plan: SendPlan) -> bool:
    return is_from_start(_begins_us(plan), plan.trace.header.rate_per_s)


def _begins_us(plan: SendPlan) -> NDArray[np.int64]:
    begins = [plan.due_us[row] for chain in plan.chains for row in plan.begins_of(chain)]
    return np.array([due for due in begins if due is not None], dtype=np.int64)


def achieved_pace(plan: SendPlan, progress: Progress) -> SendingPace:
    """Return the pace at which requests were handed to the socket; of sessions, at which they were begun."""
    if len(progress.paced_ns) == 0 or plan.closed_loop is not None:
        return pace_of(np.array(progress.dispatched_ns, dtype=np.int64) // 1000)
    sent_ns = np.array(progress.paced_ns, dtype=np.int64)
    if progress.start_ns is None:  # it never began
        return pace_of(sent_ns // 1000)
    return pace_of((sent_ns - progress.start_ns) // 1000, from_start=_is_from_start(plan))


def asked_in_flight(plan: SendPlan) -> int | None:
    """Return how many requests a closed loop keeps in flight, None where users think, branch or wait for each other."""
    loop = plan.closed_loop
    if loop is None or loop.in_waves or plan.waits_for or any(plan.think_us):
        return None
    return min(loop.concurrency, len(plan.chains))


def _departures(plan: SendPlan, progress: Progress) -> dict[str, float | None]:
    """Return how far the sent load is from the requested one, as far as that is known.

    Nothing is known of a run that was cut short, held back by a cap or retried: it did not send the plan as it is.
    """
    done: dict[str, float | None] = {}
    if progress.num_launched < max(len(plan), _ENOUGH) or progress.num_held_back or progress.num_retried:
        return done
    asked, achieved = asked_pace(plan), achieved_pace(plan, progress)
    if asked.rate_per_s and achieved.rate_per_s and len(progress.paced_ns) >= _ENOUGH:
        done["rate_error_frac"] = abs(achieved.rate_per_s / asked.rate_per_s - 1)
    if asked.gap_cv is not None and achieved.gap_cv is not None and len(progress.paced_ns) >= _ENOUGH:
        done["gap_cv_error"] = abs(achieved.gap_cv - asked.gap_cv) / max(asked.gap_cv, 1.0)
    users, mean = asked_in_flight(plan), progress.mean_in_flight
    if users is not None and mean is not None:
        done["in_flight_shortfall_frac"] = 1 - mean / users
    return done


def busy_frac(facts: RunFacts) -> float:
    """Return the share of a core that the run took, nan for a run of no time."""
    return facts.cpu_s * 1e9 / facts.duration_ns if facts.duration_ns > 0 else float("nan")


def process_info(
    plan: SendPlan, progress: Progress, *, facts: RunFacts | None, outcome: str = FINISHED
) -> ProcessInfo:
    """Return the result of a process with this plan; ``facts`` None: it ended without reporting them."""
    cpu_frac = float("nan") if facts is None else busy_frac(facts)
    reason = limiting_bounds(plan, progress, cpu_frac=cpu_frac)
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


def process_name(number: int, process: ProcessInfo) -> str:
    """Return what a process is called, with its machine if that is another."""
    return f"process {number}" if process.machine is None else f"process {number} ({process.machine})"


def limiting_bounds_of_processes(processes: Sequence[ProcessInfo]) -> str | None:
    """Return which processes limited the run and by which bounds, or None if none did."""
    blamed = [
        f"{process_name(i, each)}: {each.reason}" for i, each in enumerate(processes, start=1) if each.limited
    ]
    return "; ".join(blamed) or None


def limiting_bounds(plan: SendPlan, progress: Progress, *, cpu_frac: float) -> str | None:
    """Return by which bounds the client limited the run, or None if it did not.

    Requests that are all due at once are sent as fast as the client can: their lag is intended. A lag limits only a run
    that is too short, or was held back too much, to measure its pace, and only if it is longer than a gap.
    """
    at_once = plan.closed_loop is None and asked_pace(plan).rate_per_s is None and len(plan) > 1
    own = quantiles_of(np.array(progress.own_lag_us, dtype=np.int64)).get("p99")
    loop = quantiles_of_histogram(progress.loop_lag).get("p99")
    departures = _departures(plan, progress)
    asked = asked_pace(plan).rate_per_s
    if departures or (asked is not None and max(own or 0.0, loop or 0.0) <= 1e6 / asked):
        own = loop = None  # late, but at the requested pace
    measured = {
        "own_lag_p99_us": None if at_once else own,
        "loop_lag_p99_us": loop,
        "cpu_frac": None if math.isnan(cpu_frac) else cpu_frac,
        **departures,
    }
    beyond = [
        _sentence(name, value)
        for name, value in measured.items()
        if value is not None and value > BOUNDS[name]
    ]
    if progress.num_client_failures:
        beyond.insert(0, f"{progress.num_client_failures} requests failed for want of descriptors or ports")
    return "; ".join(beyond) or None


def late_by_us(client: ClientInfo) -> float:
    """Return the 99th percentile of the client's own lag, of sends with a time of their own, or of its loop's, µs."""
    is_paced = client.rate_asked_per_s is not None  # else sent as fast as it can, or as answers come
    own = client.own_lag_us.get("p99", 0.0) if is_paced else 0.0
    return max(own, client.loop_lag_us.get("p99", 0.0))


def with_lateness(client: ClientInfo) -> ClientInfo:
    """Return the client's part with ``late`` filled in: at the requested pace, and later than the bounds on lags."""
    return replace(client, late=not client.limited and late_by_us(client) > LATE_US)


ClientWord = Literal["kept up", "late", "limited"]


def client_word(client: ClientInfo) -> ClientWord:
    """Return the verdict on the client in a word."""
    return "limited" if client.limited else "late" if client.late else "kept up"


def _sentence(name: str, value: float) -> str:
    """Return by how much a bound is passed, in words: "its own lag, p99: 11.2 ms, more than 10 ms"."""
    bound = BOUNDS[name]
    if name.endswith("_us"):
        return f"{_MEANINGS[name]}: {value / 1e3:.3g} ms, more than {bound / 1e3:g} ms"
    return f"{_MEANINGS[name]}: {value:.1%}, more than {bound:.0%}"
