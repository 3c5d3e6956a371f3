"""Which rates a search looks at, and what one rate comes to: seeds counted, gaps kept, latencies limited."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from replay import TwinConfig
from replay.search import evaluation as evaluations
from replay.search import highest, load
from replay.search.ceiling import MOST_REPEATED, SCALED, _is_outrun, _pushed, _told, ceiling_of
from replay.search.evaluation import (
    FAILED,
    NOTHING_CAME,
    NUM_PARTS,
    Evaluation,
    Evaluator,
    MeasuredRequests,
    _all_gaps,
    _measured,
    _no_gaps,
    _pooled,
    _token_rate,
)
from replay.search.highest import (
    NEAR_STEP,
    HighestRate,
    _narrowed,
    bisect,
    highest_above,
    highest_among,
)
from replay.search.highest import highest as search
from replay.search.load import IDLE
from replay.trace.pacing import Pacing
from replay.verdict.growth import Growth
from sim import Blackbox, EngineConfig, InterTokenLatencies, Status
from sim.cluster import ClusterConfig
from tests.replay.capacity.test_capacity_by_hand import LIMITS, Known, evaluation
from tests.replay.search.test_ceiling import Formula
from tests.replay.verdict.test_verdict_by_hand import outcomes_of
from tests.traces.made import small_trace
from traces import Trace
from traces.run_slo import parse_run_slo
from traces.slo import MOST_FAILED

NAN = math.nan


def known_of(capacity: float, *, scale: float) -> Any:  # noqa: ANN401 - looks and walks like an evaluator
    known = Known([], [1.0], capacity=capacity)
    known.loads = [SimpleNamespace(scale_per_s=lambda: scale)]
    return known


# -- from the first rate on ----------------------------------------------------------------------------------


def test_a_search_begins_at_what_all_at_once_comes_to_or_at_a_rate_that_holds() -> None:
    known = known_of(10.0, scale=0.5)
    assert search(known).low == pytest.approx(10, rel=0.006)
    assert list(known.seen)[:3] == [0.5 * IDLE, 0.5, 1.0]
    known = known_of(10.0, scale=99.0)
    assert search(known, least=0.75).low == pytest.approx(10, rel=0.006)
    assert list(known.seen)[:3] == [0.75 * IDLE, 0.75, 0.75 * NEAR_STEP]
    known.loads = [SimpleNamespace(scale_per_s=lambda each=each: each) for each in (2.0, 4.0)]
    known.seen.clear()
    search(known)
    assert list(known.seen)[:2] == [3.0 * IDLE, 3.0]  # the mean over the draws


def test_a_server_that_answers_nothing_is_looked_at_once() -> None:
    known = known_of(10.0, scale=0.0)
    found = search(known)
    assert (found.low, list(known.seen)) == (None, [1.0])
    assert found.broken is found.idle is known.seen[1.0]


def test_where_an_idle_server_breaks_a_limit_nothing_is_searched_but_from_a_rate_that_holds() -> None:
    known = known_of(1e-9, scale=4.0)
    found = search(known)
    assert (found.low, list(known.seen)) == (None, [4.0 * IDLE])
    assert found.broken is found.idle
    known = known_of(10.0, scale=4.0)
    known.seen[0.5 * IDLE] = evaluation(0.5 * IDLE, 1e9)  # alone, it is too slow: nothing is cached
    assert search(known, least=0.5).low == pytest.approx(10, rel=0.006)


def test_a_search_for_more_than_a_rate_says_none_after_one_simulation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = known_of(10.0, scale=4.0)
    known.loads = trace = [0] * 30
    trace_of: Any = trace
    monkeypatch.setattr(highest, "load_of", lambda trace, _twin: trace)
    monkeypatch.setattr(highest, "Evaluator", lambda **_given: known)
    monkeypatch.setattr(highest, "requests_to_last", lambda _evaluator, _found: 700)
    twin: Any = None
    found = highest_above(trace_of, twin, LIMITS, least=11.0)
    assert (found.rate_per_s, found.asks, list(known.seen)) == (None, 0, [11.0])
    known.seen[0.5] = replace(evaluation(0.5, 1000), under_way_frac=0.9)
    assert highest_above(trace_of, twin, LIMITS, least=0.5).asks == 120  # four times as many would tell
    del known.seen[0.5]
    found = highest_above(trace_of, twin, LIMITS, least=9.0)
    assert (found.rate_per_s, found.asks) == (pytest.approx(10, rel=0.006), 700)
    known.seen.clear()
    found = highest_above(trace_of, twin, LIMITS, least=9.0, alike=(9.5, 10.5))
    assert (found.rate_per_s, list(known.seen)) == (9.5, [9.0, 9.5, 10.5, 9.5 * IDLE])
    assert found.found is not None
    assert found.found.broken is known.seen[10.5]
    for beside in ((9.2, 9.5), (10.5, 11.0)):  # the capacity is above both, or below both
        found = highest_above(trace_of, twin, LIMITS, least=9.0, alike=beside)
        assert found.rate_per_s == pytest.approx(10, rel=0.006)


def aimed(known: Any, low: float, high: float, *, tolerance: float) -> list[float]:  # noqa: ANN401
    """Return the rates that are simulated between two others."""
    for rate in (low, high):
        known.at(rate)
    _narrowed(known, low, high, tolerance=tolerance)
    return [rate for rate in known.seen if rate not in (low, high)]


def test_the_line_between_two_rates_is_followed_up_to_twice_the_lower_one() -> None:
    known = known_of(100.0, scale=1.0)
    assert aimed(known, 60.0, 120.0, tolerance=0.15)[0] == pytest.approx(95)  # halving would be 90
    assert aimed(known_of(100.0, scale=1.0), 59.9, 120.0, tolerance=0.15)[0] == pytest.approx(89.95)
    far = known_of(100.0, scale=1.0)
    assert aimed(far, 97.0, 120.0, tolerance=0.03)[0] == pytest.approx(99)  # 100 is two tolerances above 97
    at_limit = known_of(100.0, scale=1.0)
    assert aimed(at_limit, 100.0, 120.0, tolerance=0.03)[0] == pytest.approx(102.7)


def test_where_no_line_leads_anywhere_two_rates_are_halved() -> None:
    def first(low: Evaluation, high: Evaluation, limits: Any) -> float:  # noqa: ANN401
        known = known_of(100.0, scale=1.0)
        known.limits = limits
        known.seen |= {low.rate_per_s: low, high.rate_per_s: high}
        return aimed(known, low.rate_per_s, high.rate_per_s, tolerance=0.03)[0]

    fine, behind = evaluation(80, 64_000), evaluation(120, 144_000, grown=0.5)
    assert first(fine, behind, []) == 100  # without a limit nothing is a share of one
    assert first(fine, evaluation(120, NAN), LIMITS) == 100
    assert first(fine, replace(evaluation(120, 100_000), under_way_frac=0.9), LIMITS) == 100
    assert first(fine, evaluation(120, 144_000), LIMITS) == pytest.approx(99)


def test_more_than_four_times_apart_is_far_apart() -> None:
    asked: list[float] = []

    def holds(rate: float) -> bool:
        asked.append(rate)
        return True

    bisect(holds, 4.0, 17.0, tolerance=0.6)
    assert asked == [math.sqrt(68)]


# -- with more draws -----------------------------------------------------------------------------------------


def among(capacity: float, rates: Sequence[float], *, low: float, idle: float) -> Any:  # noqa: ANN401
    """Return what is found among rates, and those that are simulated."""
    known: Any = Known([], [1.0], capacity=capacity)
    near = HighestRate(low=low, broken=None, idle=evaluation(idle, 1000))
    return highest_among(known, list(rates), near=near).low, known.seen


def test_rates_are_looked_at_one_by_one_downwards_and_then_upwards() -> None:
    _, seen = among(9.5, [8.0, 9.0, 10.0, 11.0], low=10.0, idle=0.01)
    assert 8.0 not in seen
    assert 11.0 not in seen
    low, seen = among(11.5, [8.0, 9.0, 10.0, 11.0, 12.0], low=8.0, idle=0.01)
    assert low == pytest.approx(11.5, rel=0.006)
    assert {8.0, 9.0, 10.0, 11.0, 12.0} <= set(seen)
    assert not [rate for rate in seen if 8 < rate < 11 and rate != round(rate)]
    low, seen = among(8.5, [8.0, 9.0], low=8.0, idle=0.01)
    assert low == pytest.approx(8.5, rel=0.006)
    assert max(seen) == 9.0


def test_an_idle_server_is_no_rate_to_go_down_to() -> None:
    """All from 10 on break: from there it is searched anew, by steps of a twenty-fifth."""
    low, seen = among(9.0, [1.0, 10.0, 11.0], low=10.0, idle=1.0)
    assert low == pytest.approx(9, rel=0.006)
    assert 10 / 1.04 in seen


# -- the most that is answered -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("own", "rates"),
    [
        (8.0, [8, 32, 11]),  # a tenth above what is answered at 32: near enough
        (1.0, [1, 4, 16, 11]),
        (40.0, [40, 10, 11]),
        (10.9, [10.9, 2.725, 5.45]),  # 11 is above it: between both
        (2.7, [2.7, 10.8, 5.4]),
    ],
)
def test_the_rates_that_tell_the_most_that_is_answered(own: float, rates: list[float]) -> None:
    load: Any = Formula(10.0, own=own)
    assert ceiling_of([load]) == pytest.approx(10.0, rel=1e-9)
    assert load.rates == pytest.approx(rates)


class Collapsing(Formula):
    """Of more than 10.5/s only six are answered: caches are emptied."""

    def growth(self, rate_per_s: float, *, laps: int) -> Growth:
        self.capacity = 10.0 if rate_per_s <= 10.5 else 6.0
        return super().growth(rate_per_s, laps=laps)


def middles(low: float, high: float, ups: str) -> list[float]:
    """Return geometric means, from each of which it goes up or down."""
    found = []
    for up in ups:
        found.append(math.sqrt(low * high))
        low, high = (found[-1], high) if up == "+" else (low, found[-1])
    return found


def test_a_server_that_answers_less_when_it_is_overrun_has_the_most_that_it_answers_while_it_follows() -> (
    None
):
    load: Any = Collapsing(10.0, own=9.0)
    due = middles(9, 36, "---++")
    assert ceiling_of([load]) == pytest.approx(min(due[-1], 10.0))  # never what was offered
    assert load.rates == pytest.approx([9, 36, *due])
    load = Collapsing(10.0, own=5.0)
    due = middles(6.6, 20, "-++-+")  # first to 1.1 times the six
    assert ceiling_of([load]) == pytest.approx(min(due[-1], 10.0))  # never what was offered
    assert load.rates == pytest.approx([5, 20, 6.6, *due])


def test_a_search_for_the_most_ends_where_a_run_tells_nothing() -> None:
    class Silent(Formula):
        def growth(self, rate_per_s: float, *, laps: int) -> Growth:
            found = super().growth(rate_per_s, laps=laps)
            return None if 9 < rate_per_s < 12 else found  # type: ignore[return-value] # as a load may

    load: Any = Silent(10.0, own=8.0)
    assert ceiling_of([load]) == pytest.approx(10.0)
    assert load.rates == [8, 32, 11]
    load = Silent(10.0, own=10.0)
    assert ceiling_of([load]) is None
    load = Formula(math.inf, own=1.0)
    assert ceiling_of([load]) is None
    assert load.rates == [4.0**step for step in range(25)]
    two: Any = [Formula(10.0, own=8.0), Silent(10.0, own=8.0)]
    assert ceiling_of(two) is None


def test_two_draws_of_a_load_are_both_asked() -> None:
    loads: Any = [Formula(10.0, own=8.0), Formula(11.0, own=1.0)]
    assert ceiling_of(loads) == pytest.approx(10.5)
    assert (loads[0].rates, loads[1].rates) == ([8, 32, 11, 11], [11])


def test_a_rate_is_too_much_where_it_is_for_most_draws() -> None:
    def is_outrun(*capacities: float) -> bool:
        told = _told([Formula(each, own=1.0) for each in capacities], 15.0, 3000)  # type: ignore[misc] # like loads
        assert told is not None
        return told.is_outrun

    assert [is_outrun(10, 20), is_outrun(10, 10, 20), is_outrun(20, 20, 10), is_outrun(10)] == [
        False,
        True,
        False,
        True,
    ]


def test_of_rounds_of_a_session_what_is_served_counts_all() -> None:
    """Only every third comes by itself: of 10 sessions/s 30 requests."""
    load: Any = Formula(10.0, own=1.0)
    load.first = np.arange(3000) % 3 == 0
    told = _told([load], 20.0, 1000)
    assert told is not None
    assert told.answered_per_s == pytest.approx((30.0,))


def test_what_piles_up_is_too_much_from_a_twentieth_on_after_three_generations() -> None:
    load: Any = Formula(10.0, own=1.0)
    grown = replace(NOTHING_CAME, num_sent=3000, growth_frac=0.051, generations=3, falls_back=False)
    assert _is_outrun(grown, num_possible=3000, load=load)
    assert not _is_outrun(replace(grown, falls_back=True), num_possible=3000, load=load)
    assert not _is_outrun(replace(grown, generations=2), num_possible=3000, load=load)
    assert not _is_outrun(replace(grown, growth_frac=0.05), num_possible=3000, load=load)
    queue = replace(grown, growth_frac=0.0, waiting_frac=0.2, waiting_falls_back=False)
    assert _is_outrun(queue, num_possible=3000, load=load)


def asked_laps(*in_system: int, number: int = 3000, scaling_us: int = 0, rate: float = 1.0) -> Any:  # noqa: ANN401
    """Return how often a load was sent, of which so many were under way each time, and whether a growth came out."""
    laps_asked: list[int] = []

    def growth(_rate: float, *, laps: int) -> Growth | None:
        laps_asked.append(laps)
        there = in_system[min(len(laps_asked), len(in_system)) - 1]
        return replace(NOTHING_CAME, num_sent=number * laps, in_system=there * laps)

    load: Any = Formula(10.0, own=10.0)
    load.growth, load.scaling_us = growth, scaling_us
    load.__class__ = type("Sized", (Formula,), {"__len__": lambda _self: number})
    return _pushed(load, rate) is not None, laps_asked


def test_short_runs_and_fleets_that_scale_are_sent_more_often_from_the_start() -> None:
    assert asked_laps(10, number=2000) == (True, [1])
    assert asked_laps(10, number=1999) == (True, [3])  # up to four thousand
    assert asked_laps(10, number=100) == (True, [40])
    assert SCALED == 4
    assert asked_laps(10, scaling_us=1_000_000, rate=1.0) == (True, [1])  # 3000 s, of which 4 s are nothing
    assert asked_laps(10, scaling_us=10**9, rate=1.0) == (True, [2])  # 1000 s to scale: 4000 s
    assert asked_laps(10, scaling_us=10**9, rate=2.0) == (True, [3])  # 2.67 times
    assert asked_laps(10, scaling_us=1_500_000_000) == (True, [2])
    assert asked_laps(10, scaling_us=1_500_001_000) == (True, [3])  # a little more than twice
    assert asked_laps(10, scaling_us=10**15) == (True, [MOST_REPEATED // 3000])


def test_a_run_that_never_tells_is_given_up_at_the_most_requests() -> None:
    """Half are always under way: three times as many, until twice of it would be more than 400,000."""
    told, laps = asked_laps(1500)
    assert not told
    assert laps == [1, 3, 9, 27, 81]
    assert MOST_REPEATED < 2 * 81 * 3000
    told, laps = asked_laps(1500, number=200_000)
    assert (told, laps) == (True, [1])  # under way: under a hundredth
    told, laps = asked_laps(100_000, number=200_000)
    assert (told, laps) == (False, [1, 2])


def test_an_overload_that_tells_the_rate_is_not_repeated() -> None:
    over = replace(
        NOTHING_CAME,
        num_sent=3000,
        in_system=2900,
        growth_frac=0.5,
        waiting_frac=0.5,
        generations=9,
        falls_back=False,
        waiting_falls_back=False,
    )
    load: Any = Formula(10.0, own=10.0)
    asked: list[int] = []

    def growth(_rate: float, *, laps: int) -> Growth | None:
        asked.append(laps)
        return over if laps == 1 else None

    load.growth = growth
    assert (_pushed(load, 1.0) or load).growth is over
    assert asked == [1]
    over = replace(
        over, waiting_frac=0.05, generations=2
    )  # overloaded or not, it does not tell how fast it is
    asked.clear()
    assert _pushed(load, 1.0) is None
    assert asked == [1, 6]


# -- what a rate comes to ------------------------------------------------------------------------------------


def test_without_a_limit_nothing_is_over_one() -> None:
    each = evaluation(10, 1e9)
    assert (each.worst_latency([]), each.worst_of_part(0, [])) == (0.0, 0.0)
    assert each.meets([])
    at_most = replace(evaluation(10, 1000), failed_frac=MOST_FAILED)
    assert FAILED not in at_most.ratios(LIMITS)
    assert at_most.meets(LIMITS)


def gaps(*values: int) -> InterTokenLatencies:
    return InterTokenLatencies(
        mean_us=np.array([float(np.mean(values))]),
        p99_us=np.array([float(max(values))]),
        gaps_us=np.array(sorted(values)),
        counts=np.arange(1, len(values) + 1),
    )


def measured(
    ttft: list[float], *, generations: int = 5, in_system: int = 1, waiting: float = 0.0
) -> MeasuredRequests:
    return MeasuredRequests(
        latencies_us={name: np.array(ttft) for name in ("ttft", "tpot", "e2e")},
        gaps=lambda: gaps(10, 20),
        failed_frac=0.0,
        output_tokens_per_s=1.0,
        num_preemptions=0,
        growth=replace(
            NOTHING_CAME, num_sent=10, in_system=in_system, generations=generations, waiting_frac=waiting
        ),
    )


class Counted:
    """What the loads 0, 1, 2, … come to; which of them are simulated is kept."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.runs: list[tuple[int, float, str]] = []
        monkeypatch.setattr(evaluations, "_measured", self)

    def __call__(self, load: int, rate: float, *, record: str) -> MeasuredRequests:
        self.runs.append((load, rate, record))
        return measured(
            [1000.0 * (load + 1)] * 10, generations=9 - load, in_system=1 + load, waiting=0.01 * load
        )


def test_draws_that_were_simulated_are_kept_but_where_a_limit_is_on_gaps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted = Counted(monkeypatch)
    loads: Any = [0, 1]
    first = Evaluator(loads=loads, limits=LIMITS)
    first.at(5.0)
    more: Any = [2]
    found = first.with_more(more).at(5.0)
    assert counted.runs == [(0, 5.0, "none"), (1, 5.0, "none"), (2, 5.0, "none")]
    assert found.parts_us["ttft_p99"] == [1000, 2000, 3000]
    assert found.generations == 7
    assert found.under_way_frac == pytest.approx(0.2)
    assert found.waiting_frac == pytest.approx(0.01)
    assert found.growths == (0.0, 0.0, 0.0)
    with pytest.raises(AssertionError):
        first.runs[5.0][0].gaps()
    counted.runs.clear()
    on_gaps = Evaluator(loads=loads, limits=parse_run_slo("itl_p99=1s"))
    assert on_gaps.at(5.0).values_us["itl_p99"] == 20
    on_gaps.with_more(more).at(5.0)
    assert counted.runs == [(load, 5.0, "spans") for load in (0, 1, 0, 1, 2)]
    one: Any = [0]
    assert (first.num_parts, Evaluator(loads=one, limits=LIMITS).num_parts) == (2, NUM_PARTS)
    assert len(Evaluator(loads=one, limits=LIMITS).at(1.0).parts_us["ttft_p99"]) == NUM_PARTS == 5


def test_a_limit_on_gaps_is_on_all_of_them_and_of_a_part_on_requests_means() -> None:
    mean, p50 = parse_run_slo("itl_mean=1s,itl_p50=1s")
    run = measured([3.0, 5.0])
    assert run.value(mean) == pytest.approx((10 + 2 * 20) / 3)
    assert run.value(p50) == gaps(10, 20).pooled_percentiles_us([50.0])[0]
    part = run.stretches(2)[1]
    assert part.value(mean) == 5.0
    both = _pooled([run, replace(run, gaps=lambda: gaps(30))])
    assert both.value(mean) == pytest.approx((10 + 2 * 20 + 30) / 4)
    assert both.growth is run.growth
    pooled = _all_gaps([gaps(20, 40), gaps(10, 30)])
    assert (pooled.gaps_us.tolist(), pooled.counts.tolist()) == ([10, 20, 30, 40], [1, 1, 2, 2])
    assert pooled.mean_us.tolist() == [30, 20]
    assert pooled.p99_us.tolist() == [40, 30]


def test_the_first_fifth_to_arrive_is_simulated_and_not_measured() -> None:
    """Ten in another order than they came: the two that came first are left out, one of the others is not answered."""
    order = np.array([3, 0, 9, 1, 8, 2, 7, 4, 6, 5])
    status = [Status.REJECTED if each == 5 else Status.OK for each in order]
    outcomes = outcomes_of(
        (1000 * order).tolist(),
        (1000 * order + 10).tolist(),
        (1000 * order + 100 + order).tolist(),
        first=(1000 * order + 50 + order).tolist(),
        status=status,
        tokens=6,
    )
    load: Any = SimpleNamespace(
        at=lambda rate: rate, serve=lambda _sent, _record: (outcomes, _no_gaps, 7), session=None
    )
    found = _measured(load, 2.0, record="none")
    assert found.latencies_us["ttft"] == pytest.approx([52, 53, 54, NAN, 56, 57, 58, 59], nan_ok=True)
    assert found.latencies_us["e2e"] == pytest.approx([102, 103, 104, NAN, 106, 107, 108, 109], nan_ok=True)
    assert found.latencies_us["tpot"] == pytest.approx([10, 10, 10, NAN, 10, 10, 10, 10], nan_ok=True)
    assert (found.failed_frac, found.num_preemptions) == (pytest.approx(1 / 8), 7)
    assert found.output_tokens_per_s == pytest.approx(60 / 9109e-6)
    assert _token_rate(outcomes_of([0], [0], [0])) == 0.0
    assert _token_rate(outcomes_of([0], [0], [1], tokens=3)) == 3e6


def test_a_gateway_draws_anew_for_each_draw_of_the_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds, real = [], load._load

    def noted(trace: Trace, cluster: ClusterConfig, pacing: Pacing) -> load.Load:
        seeds.append(cluster.seed)
        return real(trace, cluster, pacing)

    monkeypatch.setattr(load, "_load", noted)
    twin = TwinConfig(engine=EngineConfig(), latency=Blackbox(beta0=9000), seed=7)
    load.loads_of([small_trace()] * 3, twin)
    load.loads_of([small_trace()] * 2, twin, first=3)
    assert seeds == [7, 8, 9, 10, 11]
