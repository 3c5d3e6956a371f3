"""When the client, not the server, limited a run."""

from __future__ import annotations

from array import array
from dataclasses import replace

import numpy as np
import pytest

from observe.result.client_verdict import achieved_pace, asked_pace, due_pace, limiting_bounds, pace_of
from observe.run.run_counts import Progress
from tests.observe.workloads import every, plan_of
from traces import ClosedLoop

MS = 1_000_000


def ran(own_lag_us: int = 0, *, loop_lag_us: int = 0) -> Progress:
    progress = Progress(num_planned=100)
    progress.own_lag_us = array("q", [own_lag_us] * 100)
    progress.loop_lag.add(loop_lag_us, 100)
    return progress


def test_a_client_within_its_bounds_is_not_to_blame() -> None:
    assert limiting_bounds(plan_of(every(1000, 3)), ran(9_000, loop_lag_us=9_000), cpu_frac=0.5) is None


@pytest.mark.parametrize(
    ("progress", "cpu_frac", "named"),
    [
        (ran(11_000), 0.1, "send lag of the client, p99: 11 ms, more than 10 ms"),
        (ran(loop_lag_us=11_000), 0.1, "event-loop lag, p99: 11 ms, more than 10 ms"),
        (ran(), 0.95, "CPU use of its core: 95.0%, more than 90%"),
    ],
)
def test_a_client_beyond_one_bound_is_to_blame_by_its_name(
    progress: Progress, cpu_frac: float, named: str
) -> None:
    reason = limiting_bounds(plan_of(every(1000, 3)), progress, cpu_frac=cpu_frac)
    assert reason == named


@pytest.mark.parametrize("late", [ran(11_000), ran(loop_lag_us=11_000), ran(40_000, loop_lag_us=19_000)])
def test_a_client_that_is_late_and_keeps_the_pace_did_not_limit_the_run(late: Progress) -> None:
    plan = plan_of(every(1000, 200))
    kept = sent([row * 1.0 for row in range(200)], 200)
    kept.own_lag_us, kept.loop_lag = late.own_lag_us, late.loop_lag
    assert limiting_bounds(plan, kept, cpu_frac=0.1) is None
    behind = sent([row * 1.02 for row in range(200)], 200)
    behind.own_lag_us, behind.loop_lag = late.own_lag_us, late.loop_lag
    assert (limiting_bounds(plan, behind, cpu_frac=0.1) or "").startswith("rate differs from the schedule")


def test_a_lag_limits_a_run_too_short_to_tell_its_pace_only_where_it_is_longer_than_a_gap() -> None:
    late = ran(40_000)
    assert limiting_bounds(plan_of(every(100_000, 20)), late, cpu_frac=0.1) is None
    assert (limiting_bounds(plan_of(every(20_000, 20)), late, cpu_frac=0.1) or "").startswith(
        "send lag of the client"
    )


UPTIME_NS = 5_900 * 10**9


def sent(times_ms: list[float], planned: int) -> Progress:
    """Return a run that began long after the clock's zero, as the system's clock has it."""
    progress = Progress(num_planned=planned, start_ns=UPTIME_NS)
    progress.num_launched = len(times_ms)
    progress.paced_ns = array("q", [UPTIME_NS + round(time * MS) for time in times_ms])
    return progress


def test_a_rate_that_was_not_delivered_is_the_clients_fault() -> None:
    plan = plan_of(every(1000, 200))
    assert limiting_bounds(plan, sent([row * 1.0 for row in range(200)], 200), cpu_frac=0.1) is None
    slow = limiting_bounds(plan, sent([row * 1.02 for row in range(200)], 200), cpu_frac=0.1)
    assert slow is not None
    assert slow.startswith("rate differs from the schedule by: 2.0%, more than 1%")


def test_gaps_that_were_not_delivered_are_the_clients_fault() -> None:
    plan = plan_of(every(1000, 200))
    bursts = sent([row - row % 2 * 0.9 for row in range(200)], 200)
    assert (limiting_bounds(plan, bursts, cpu_frac=0.1) or "").startswith("variation of the gaps differs")


@pytest.mark.parametrize("why", ["cut short", "held back", "retried", "few"])
def test_a_run_that_did_not_send_its_plan_is_not_held_against_it(why: str) -> None:
    number = 20 if why == "few" else 200
    progress = sent([row * 2.0 for row in range(number)], number)
    progress.num_launched -= why == "cut short"
    progress.num_held_back, progress.num_retried = int(why == "held back"), int(why == "retried")
    assert limiting_bounds(plan_of(every(1000, number)), progress, cpu_frac=0.1) is None


def test_a_closed_loop_that_was_not_kept_full_is_the_clients_fault() -> None:
    plan = plan_of([0, 0, *[None] * 198], loop=ClosedLoop(concurrency=2))
    progress = Progress(num_planned=200)
    progress.num_launched = 200
    for row in range(100):  # two at once for 6 of every 10 ms
        progress.dispatched_ns.extend([row * 10 * MS] * 2)
        progress.ended_ns.extend([row * 10 * MS + 6 * MS] * 2)
    assert progress.mean_in_flight == pytest.approx(1.2)
    assert (limiting_bounds(plan, progress, cpu_frac=0.1) or "").startswith(
        "fewer requests in flight than users, by: 40.0%, more than 10%"
    )
    thinking = plan_of([0, 0, *[None] * 198], loop=ClosedLoop(concurrency=2, think_time_us=5))
    assert limiting_bounds(thinking, progress, cpu_frac=0.1) is None


def test_requests_all_due_at_once_are_late_by_no_fault_of_the_client() -> None:
    assert limiting_bounds(plan_of([0, 0, 0]), ran(50_000), cpu_frac=0.1) is None


def test_pace_is_rate_and_spread_of_the_gaps() -> None:
    constant = pace_of(np.array([0, 10_000, 20_000, 30_000]))
    assert (constant.rate_per_s, constant.gap_cv) == (100, 0)
    assert pace_of(np.array([5])).rate_per_s is None
    gaps = np.random.default_rng(1).exponential(10_000, 20_000).cumsum().astype(np.int64)
    assert pace_of(gaps).gap_cv == pytest.approx(1, abs=0.03)
    progress = Progress(num_planned=3)
    progress.dispatched_ns = array("q", [0, 10 * MS, 20 * MS])
    assert achieved_pace(plan_of([0, 5]), progress).rate_per_s == 100
    progress.paced_ns = array("q", [0, 20 * MS])
    assert achieved_pace(plan_of([0, 5]), progress).rate_per_s == 50
    assert asked_pace(plan_of([0, None], loop=ClosedLoop(concurrency=1))).rate_per_s is None


def test_gaps_from_the_run_s_start_are_the_rate_that_they_were_drawn_for() -> None:
    plan = plan_of(every(1000, 200)[1:])  # the first at 1 ms
    drawn = replace(plan, trace=plan.trace.with_header(rate_per_s=1000.0))
    late = sent([40 + row * 1.0 for row in range(199)], 199)  # all of it 39 ms later
    for each in (drawn, replace(plan, trace=plan.trace.with_header(rate_per_s=500.0))):
        assert asked_pace(each).rate_per_s == pytest.approx(1000)
    assert achieved_pace(drawn, late).rate_per_s == pytest.approx(1e3 * 199 / 238)
    assert asked_pace(plan_of([300, 1300])).rate_per_s == 1000


def test_a_run_that_was_cut_short_is_held_against_what_was_due_of_it() -> None:
    plan = plan_of([0, 100_000, 200_000, 1_000_000, 2_000_000])
    assert asked_pace(plan).rate_per_s == pytest.approx(2)
    assert due_pace(plan, sent([0, 100, 200], planned=5)).rate_per_s == pytest.approx(10)
