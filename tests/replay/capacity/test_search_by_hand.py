"""A search for a capacity, call by call: what is drawn, searched and simulated, on servers that are a formula."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from replay.capacity import binding, capacity
from replay.capacity.binding import GAIN, _changed, _of_one
from replay.capacity.capacity import (
    APART,
    BURSTS,
    DRAWN_CURVE,
    MOST_DRAWN,
    MOST_TRIES,
    ROUGHLY,
    WIDER,
    Capacity,
    Sureness,
    _interval,
    _of_parts,
    _outline,
    answered,
    capacity_of_draws,
    crossing_of,
    num_drawn,
    searched,
    short_run_note,
    sureness_of,
)
from replay.capacity.capacity import _curve as around
from replay.capacity.text import _answer
from replay.numbers.t_interval import half_width
from replay.search.ceiling import Ceiling
from replay.search.evaluation import FAILED, GROWN, THROUGHPUT, TOO_SHORT, Evaluation
from replay.search.highest import TOLERANCE, Above, HighestRate
from replay.search.workload_draws import Drawing
from replay.twin.twin_config import TwinConfig, with_cluster
from sim import Blackbox, EngineConfig
from sim.config import UNBOUNDED
from tests.replay.capacity.test_capacity_by_hand import LIMITS, TTFT, Known, evaluation


class Draw:
    """A draw of so many requests: a trace, and its load."""

    def __init__(self, number: int, seed: int = 0) -> None:
        self.number, self.seed = number, seed

    def __len__(self) -> int:
        return self.number

    def scale_per_s(self) -> float:
        return 8.0


class Formula(Known):
    """Of any draws: seed i breaks TTFT's limit at 10 / sqrt(1 + i / 10), all together where their mean does.

    The five stretches of a single draw differ by hundredths.
    """

    def __init__(self, *, loads: Sequence[Any], limits: Any, runs: Any = None) -> None:  # noqa: ANN401
        own = [1 + each.seed / 10 for each in loads]
        factors = own if len(own) > 1 else [own[0] * each for each in (0.98, 0.99, 1.0, 1.01, 1.02)]
        super().__init__([], factors, capacity=10.0)
        self.loads, self.limits = list(loads), limits
        self.was = runs

    def at(self, rate: float) -> Evaluation:
        parts = [100_000 * (rate / 10) ** 2 * each for each in self.factors]
        self.seen.setdefault(rate, evaluation(rate, float(np.mean(parts)), parts=parts))
        return self.seen[rate]

    def with_more(self, loads: Sequence[Any]) -> Formula:
        return Formula(loads=[*self.loads, *loads], limits=self.limits, runs="those of before")


class Searches:
    """What a capacity asked for: draws, searches, how many requests make a run long enough."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, asks: Sequence[int] = (0,)) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.asks = list(asks)
        search, among = capacity.highest, capacity.highest_among

        def highest(evaluator: Any, **given: Any) -> HighestRate:  # noqa: ANN401
            self.calls.append(("search", len(evaluator.loads), *given.values()))
            return search(evaluator, **given)

        def highest_among(evaluator: Any, rates: Sequence[float], *, near: HighestRate) -> HighestRate:  # noqa: ANN401
            self.calls.append(("among", len(evaluator.loads), rates == sorted(rates), evaluator.was))
            return among(evaluator, rates, near=near)

        def requests_to_last(_evaluator: Any, _found: HighestRate) -> int:  # noqa: ANN401
            return self.asks.pop(0) if len(self.asks) > 1 else self.asks[0]

        monkeypatch.setattr(capacity, "highest", highest)
        monkeypatch.setattr(capacity, "highest_among", highest_among)
        monkeypatch.setattr(capacity, "requests_to_last", requests_to_last)
        monkeypatch.setattr(capacity, "Evaluator", Formula)
        monkeypatch.setattr(capacity, "load_of", lambda trace, _twin: trace)
        monkeypatch.setattr(capacity, "loads_of", lambda traces, _twin, **_: list(traces))
        most = Ceiling(per_s=12.0, overloaded_per_s=12.0, of_loads=(12.0,))
        monkeypatch.setattr(capacity, "find_ceiling", lambda _loads: most)
        monkeypatch.setattr(capacity, "after_a_burst_at", lambda _load, _rate: None)
        monkeypatch.setattr(capacity, "binding_of", lambda trace, _twin, _limits: ("bound", trace))

    def drawing(self, *, seeds: int, most: int, longest: int = 10**9) -> Drawing:
        def draw(number: int, seeds: int) -> list[Any]:
            self.calls.append(("draw", number, seeds))
            return [Draw(min(number, longest), seed) for seed in range(seeds)]

        return Drawing(draw=draw, seeds=seeds, most_seeds=most)

    def found(self, traces: list[Draw], *, limits: Any = LIMITS, **options: Any) -> Capacity:  # noqa: ANN401
        return capacity_of_draws(traces, None, limits, **options)  # type: ignore[arg-type] # no twin is simulated


def test_a_recorded_load_is_searched_once_and_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    searches = Searches(monkeypatch)
    trace = Draw(500)
    found = searches.found([trace])
    assert searches.calls == [("search", 1, TOLERANCE)]
    assert found.rate_per_s == pytest.approx(10, rel=0.006)
    assert (found.num_seeds, found.num_requests, found.is_by_seeds) == (1, 500, False)
    assert found.binding == ("bound", trace)  # type: ignore[comparison-overlap] # what stands for it here
    assert found.num_parts == len(found.of_parts) == 5
    assert found.ceiling_per_s == 12.0
    assert found.limiting == TTFT
    assert found.curve
    assert [each.rate_per_s for each in found.evaluations] == sorted(
        {each.rate_per_s for each in (*found.evaluations, *found.curve)}
    )
    assert found.at_capacity.rate_per_s == found.rate_per_s


def test_given_draws_are_searched_roughly_one_and_then_all(monkeypatch: pytest.MonkeyPatch) -> None:
    searches = Searches(monkeypatch)
    found = searches.found([Draw(500), Draw(500, 1)], with_curve=False, with_binding=False)
    assert [call[:3] for call in searches.calls[:1]] == [("search", 1, ROUGHLY)]
    assert searches.calls[1][:2] == ("search", 2)
    assert searches.calls[1][2].low == pytest.approx(10, rel=0.03)  # from where the first was found
    assert len(searches.calls) == 2
    assert (found.curve, found.binding, found.num_seeds) == ((), None, 2)
    assert found.is_by_seeds
    assert found.of_parts == pytest.approx([10, 10 / math.sqrt(1.1)], rel=1e-6)


def test_a_workload_is_drawn_as_often_as_it_takes_and_those_of_before_are_not_simulated_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two seeds are far apart for their t: as many as there may be are drawn."""
    searches = Searches(monkeypatch)
    found = searches.found([Draw(500)], drawing=searches.drawing(seeds=2, most=5), least=2001)
    assert searches.calls[0] == ("search", 1, ROUGHLY)
    assert searches.calls[1] == ("draw", 1001, 2)
    assert searches.calls[2][:2] == ("search", 2)
    assert searches.calls[3:] == [("draw", 1001, 5), ("among", 5, True, "those of before")]
    assert found.num_seeds == found.num_parts == 5
    assert found.of_parts == pytest.approx([10 / math.sqrt(1 + i / 10) for i in range(5)], rel=1e-6)
    assert found.rate_per_s == pytest.approx(10 / math.sqrt(1.2), rel=0.006)


def test_where_all_seeds_are_drawn_none_is_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    searches = Searches(monkeypatch)
    searches.found([Draw(500)], drawing=searches.drawing(seeds=3, most=3), least=300)
    assert [call[0] for call in searches.calls] == ["search", "draw", "search"]
    searches = Searches(monkeypatch)
    found = searches.found([Draw(500)], drawing=searches.drawing(seeds=1, most=1), least=300)
    assert [call[0] for call in searches.calls] == ["search", "draw", "search"]
    assert found.num_requests == 300  # of the draw, not of the first look


def test_where_nothing_meets_the_limits_nothing_binds(monkeypatch: pytest.MonkeyPatch) -> None:
    searches = Searches(monkeypatch)
    found = searches.found([Draw(500)], limits=[replace(each, limit_us=1e-9) for each in LIMITS])
    assert (found.rate_per_s, found.low, found.high, found.binding) == (None, None, None, None)
    assert (found.curve, found.of_parts, found.ceiling_per_s) == ((), (), None)
    assert found.at_capacity is found.idle


def test_where_an_idle_server_breaks_a_limit_nothing_more_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    searches = Searches(monkeypatch)
    drawing = searches.drawing(seeds=8, most=16)
    found = searches.found(
        [Draw(500)], limits=[replace(each, limit_us=1e-9) for each in LIMITS], drawing=drawing
    )
    assert found.rate_per_s is None
    assert [call[0] for call in searches.calls] == ["search"]
    assert _answer(found, LIMITS).startswith("none: an idle server has tpot_p99")


# -- the first look ------------------------------------------------------------------------------------------


def test_a_draw_that_is_long_enough_is_not_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    searches = Searches(monkeypatch, asks=[500])
    pilot = searched(Draw(500), None, LIMITS, drawing=searches.drawing(seeds=2, most=2))  # type: ignore[arg-type]
    assert searches.calls == [("search", 1, ROUGHLY)]
    assert (pilot.asks, len(pilot.trace)) == (500, 500)


def test_a_draw_is_drawn_longer_three_times_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    searches = Searches(monkeypatch, asks=[501, 1000, 9000])
    pilot = searched(Draw(500), None, LIMITS, drawing=searches.drawing(seeds=2, most=2))  # type: ignore[arg-type]
    assert MOST_TRIES == 3
    drawn = [call for call in searches.calls if call[0] == "draw"]
    assert drawn == [("draw", 602, 1), ("draw", 1200, 1), ("draw", 10800, 1)]
    assert (pilot.asks, len(pilot.trace)) == (9000, 1200)
    searches = Searches(monkeypatch, asks=[9000])
    searched(Draw(500), None, LIMITS, drawing=searches.drawing(seeds=2, most=2, longest=500))  # type: ignore[arg-type]
    assert [call[0] for call in searches.calls] == ["search", "draw"]  # there are no more
    searches = Searches(monkeypatch, asks=[9000])
    assert len(searched(Draw(500), None, LIMITS).trace) == 500  # type: ignore[arg-type]
    assert searches.calls == [("search", 1, ROUGHLY)]


def test_a_fifth_more_is_drawn_than_a_run_must_have() -> None:
    assert num_drawn(101, seeds=2, least=100) == 122
    assert num_drawn(10, seeds=3, least=100) == 34


# -- how sure ------------------------------------------------------------------------------------------------


def test_a_run_of_as_many_requests_as_it_takes_is_long_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    known: Any = Formula(loads=[Draw(700), Draw(700, 1)], limits=LIMITS)
    found = HighestRate(low=9.0, broken=known.at(10.0), idle=known.at(9.0))
    for asks, is_too_short in ((700, False), (701, True)):
        monkeypatch.setattr(capacity, "requests_to_last", lambda _evaluator, _found, asks=asks: asks)
        sure = sureness_of(known, found)
        assert (sure.asks, sure.is_too_short) == (asks, is_too_short)
        assert (sure.of_parts == ()) is (sure.low is None) is is_too_short


def test_an_interval_without_both_ends_asks_for_no_more_seeds() -> None:
    drawing = Drawing(draw=lambda _number, _seeds: [], seeds=4, most_seeds=16)
    for low, high in ((1.0, None), (None, 2.0)):
        sure = Sureness(asks=0, is_too_short=False, of_parts=(), low=low, high=high)
        assert sure.wanted_seeds(drawing) == 4


def test_an_interval_begins_at_the_last_rate_that_held_where_the_crossing_is_far_above_it() -> None:
    known: Any = Known([8.0, 12.0], [1.0, 1.001], capacity=10.0)
    found = HighestRate(low=8.0, broken=known.at(12.0), idle=known.at(8.0))
    low, high = _interval(known, found, [9.99, 10.0, 10.01])
    reach = BURSTS * half_width(np.log([9.99, 10.0, 10.01]))
    assert (low, high) == (8.0, pytest.approx(10 * math.exp(reach)))
    wide = [5.0, 10.0, 20.0]
    assert _interval(known, found, wide)[0] == pytest.approx(
        10 * math.exp(-BURSTS * half_width(np.log(wide)))
    )
    assert _interval(known, found, ()) == (None, None)
    assert _interval(known, HighestRate(low=None, broken=None, idle=known.at(8.0)), wide) == (None, None)


def test_the_rate_at_which_all_break_is_not_below_the_last_that_held() -> None:
    known: Any = Known([8.0, 12.0], [1.0], capacity=10.0)

    def crossed(low: float | None, broken: Evaluation | None) -> float:
        return crossing_of(known, HighestRate(low=low, broken=broken, idle=known.at(8.0)))

    assert crossed(8.0, known.at(12.0)) == pytest.approx(10.0)
    assert crossed(10.5, known.at(12.0)) == 10.5
    assert crossed(None, known.at(12.0)) == 0.0
    below: Any = Known([8.0, 9.0], [1.0], capacity=10.0)
    found = HighestRate(low=8.5, broken=below.at(9.0), idle=below.at(8.0))
    assert crossing_of(below, found) == 8.5  # nothing breaks: infinity


def test_single_seeds_have_capacities_where_a_latency_breaks_or_several_pile_up() -> None:
    """Behind at 11/s: what piles up, over what is chance, is 1 at 10 for the first seed and at 9.5 for the second."""

    def parts_of(seeds: int, broken: Evaluation) -> tuple[float, ...]:
        known: Any = SimpleNamespace(limits=LIMITS, loads=[0] * seeds, num_parts=seeds, seen={})
        for rate in (9.0, 10.0, 11.0):
            grown = tuple(GROWN * (rate / (10.0 - 0.5 * seed)) ** 3 for seed in range(seeds))
            known.seen[rate] = replace(evaluation(rate, 1000, parts=[1000] * seeds), growths=grown)
        known.at = known.seen.get
        return _of_parts(known, HighestRate(low=9.0, broken=broken, idle=known.seen[9.0]))

    behind = evaluation(11, 1000, grown=0.5)
    assert behind.worst(LIMITS) == THROUGHPUT
    assert parts_of(2, behind) == pytest.approx([10.0, 9.5])
    assert parts_of(1, behind) == ()
    failed = replace(evaluation(11, 1000), failed_frac=0.9)
    assert failed.worst(LIMITS) == FAILED
    assert parts_of(2, failed) == ()
    short = replace(evaluation(11, 1000), under_way_frac=0.9)
    assert parts_of(2, short) == ()


def test_rates_further_away_are_simulated_only_on_the_side_where_a_seed_needs_them() -> None:
    """One seed breaks at 11.8, above 10.2: 4 and 10 % wider are not enough, a quarter is; none is needed below."""
    known: Any = Known([10.0, 10.2], [1.0, (10.1 / 11.8) ** 2], capacity=10.1)
    found = HighestRate(low=10.0, broken=known.at(10.2), idle=known.at(10.0))
    assert _of_parts(known, found) == pytest.approx([10.1, 11.8])
    assert sorted(known.seen) == pytest.approx([10.0, 10.2, 10.4, 11.0, 12.5])
    known = Known([10.0, 10.2], [1.0, (10.1 / 9.3) ** 2], capacity=10.1)
    found = HighestRate(low=10.0, broken=known.at(10.2), idle=known.at(10.0))
    assert _of_parts(known, found) == pytest.approx([10.1, 9.3])
    assert sorted(known.seen) == pytest.approx([10 / 1.1, 10 / 1.04, 10.0, 10.2])
    known = Known([10.0, 10.2], [1.0, 100.0], capacity=10.1)  # the second breaks from 1.01 on, below the half
    found = HighestRate(low=10.0, broken=known.at(10.2), idle=known.at(10.0))
    assert _of_parts(known, found) == ()
    slow: Any = Known([0.5, 0.6], [1.0, 1.1], capacity=0.55)
    found = HighestRate(low=0.5, broken=slow.at(0.6), idle=slow.at(0.5))
    assert _of_parts(slow, found) == pytest.approx([0.55, 0.55 / math.sqrt(1.1)])
    assert WIDER == (1.04, 1.1, 1.25, 1.5, 2.0)


def test_what_is_met_is_below_all_that_is_not() -> None:
    seen = tuple(evaluation(rate, 100_000 * (rate / 10) ** 2) for rate in (8, 10, 12, 14))
    found = capacity_of(10.0, seen)
    assert [found.is_met(each, LIMITS) for each in seen] == [True, True, False, False]
    assert found.is_met(evaluation(11.9, 1e9), LIMITS)
    assert capacity_of(10.0, seen[:2]).is_met(seen[3], LIMITS)  # nothing that was looked at is broken
    assert found.at_capacity is seen[1]
    assert capacity_of(None, seen).at_capacity is found.idle


def capacity_of(rate: float | None, seen: tuple[Evaluation, ...], *, is_too_short: bool = False) -> Capacity:
    return Capacity(
        rate_per_s=rate,
        low=None,
        high=None,
        limiting=TTFT,
        ceiling_per_s=None,
        idle=evaluation(0.01, 1.0) if not seen else seen[0],
        curve=(),
        evaluations=seen,
        binding=None,
        num_seeds=1,
        num_parts=5,
        of_parts=(),
        num_requests=100,
        requests_to_last=12_300,
        is_too_short=is_too_short,
    )


def test_a_short_run_is_told_and_how_many_requests_are_better() -> None:
    seen = (evaluation(10, 1.0),)
    assert short_run_note(capacity_of(10.0, seen), 50) is None
    short = capacity_of(10.0, seen, is_too_short=True)
    said = short_run_note(short, MOST_DRAWN - 1)
    assert said == (
        "199,999 requests are too few: the run ends before queues have grown, and the capacity comes out too high. "
        "--num-requests 12300 is better"
    )
    said = short_run_note(short, MOST_DRAWN)
    assert said is not None
    assert said.endswith("--num-requests 12300 is better, more than a search takes by itself")
    cut = replace(short, limiting=TOO_SHORT)
    assert short_run_note(cut, 50) == (
        "50 requests are too few: beyond that rate a run ends before it could tell whether the server keeps up. "
        "--num-requests 12300 or more would tell"
    )
    assert _answer(cut, LIMITS) == "10 requests/s or more: the runs are too short to tell"
    none = short_run_note(capacity_of(None, seen, is_too_short=True), 50)
    assert none is not None
    assert "before it could tell whether the server keeps up" in none


# -- around the capacity -------------------------------------------------------------------------------------


def most_of(overloaded: float, *, per_s: float | None = None) -> Ceiling:
    return Ceiling(
        per_s=overloaded if per_s is None else per_s,
        overloaded_per_s=overloaded,
        of_loads=(0.99 * overloaded, 1.01 * overloaded),
    )


def test_a_capacity_is_not_above_what_is_answered() -> None:
    known: Any = Known([], [1.0, 1.0], capacity=100.0)
    sure = Sureness(asks=0, is_too_short=False, of_parts=(1.0, 1.0), low=10.0, high=10.4)
    full = evaluation(10.3, 1000, grown=0.5)
    found = HighestRate(low=10.2, broken=full, idle=evaluation(0.01, 1))
    capped, sure_of_it, most = answered(known, found, sure, most_of(10.0))
    assert capped.low == 10.0  # two per cent more pile up too little to be seen
    assert most is not None
    assert (sure_of_it.low, sure_of_it.high) == most.interval  # the load ends it: the ceiling is the capacity
    slow = HighestRate(low=9.0, broken=evaluation(9.1, 1e9), idle=evaluation(0.01, 1))
    assert answered(known, slow, sure, most_of(10.0))[:2] == (slow, sure)  # a latency ends it, far below
    assert answered(known, slow, sure, None) == (slow, sure, None)
    late = HighestRate(low=10.2, broken=evaluation(10.3, 1e9), idle=evaluation(0.01, 1))
    capped, sure_of_it, _ = answered(known, late, sure, most_of(10.0))
    assert capped.low == 10.0
    assert (sure_of_it.low, sure_of_it.high) == pytest.approx((10.0 / 1.02, 10.4 / 1.02))


@pytest.mark.parametrize(("kept", "ceiling"), [(9.95, 10.0), (9.0, 9.0)])
def test_a_server_that_keeps_up_with_more_than_it_answers_in_an_overload_has_the_higher_ceiling(
    kept: float, ceiling: float
) -> None:
    known: Any = Known([], [1.0], capacity=100.0)
    known.kept_per_s = lambda _rate: kept
    sure = Sureness(asks=0, is_too_short=False, of_parts=(), low=None, high=None)
    found = HighestRate(low=10.0, broken=evaluation(10.1, 1e9), idle=evaluation(0.01, 1))
    capped, _, most = answered(known, found, sure, most_of(7.0, per_s=8.0))
    assert most is not None
    assert (capped.low, most.per_s) == (ceiling, ceiling)


def test_ten_thousand_requests_draw_the_curve() -> None:
    assert DRAWN_CURVE == 10_000
    for number, num_loads, used in ((3000, 8, 4), (5000, 8, 2), (20_000, 8, 1)):
        known: Any = Formula(loads=[Draw(number)] * num_loads, limits=LIMITS)
        assert len(_outline(known).loads) == used
    for number, num_loads in ((5000, 2), (3000, 4), (100, 3)):
        known = Formula(loads=[Draw(number)] * num_loads, limits=LIMITS)
        assert _outline(known) is known


def test_the_ends_of_what_is_near_a_capacity() -> None:
    """Of 100/s: 88 and 112 are not near; 93 is exactly three hundredths from 90, which it stands for."""
    assert APART * 100 == 3.0
    known: Any = Known([0.88 * 100, 93.0, 1.12 * 100], [1.0], capacity=100.0)
    curve = around(known, known, 100.0)
    assert [each.rate_per_s for each in curve] == pytest.approx([20, 40, 60, 70, 80, 93, 110, 120])


# -- what binds ----------------------------------------------------------------------------------------------

TWIN = TwinConfig(
    engine=EngineConfig(max_num_seqs=8, max_num_batched_tokens=512, num_gpu_blocks=100),
    latency=Blackbox(beta0=1000),
)


def test_twice_as_much_of_what_has_a_bound() -> None:
    twice = _changed(TWIN, ("max_num_seqs", "num_gpu_blocks"), doubles=True)
    assert twice is not None
    assert (twice.engine.max_num_seqs, twice.engine.num_gpu_blocks) == (16, 200)
    assert twice.engine.max_num_batched_tokens == 512
    without = replace(TWIN, engine=replace(TWIN.engine, num_gpu_blocks=UNBOUNDED))
    assert _changed(without, ("num_gpu_blocks",), doubles=True) is None
    more = _changed(without, ("max_num_seqs", "num_gpu_blocks"), doubles=True)
    assert more is not None
    assert (more.engine.max_num_seqs, more.engine.num_gpu_blocks) == (16, UNBOUNDED)
    cluster = with_cluster(TWIN, instances=1, routing=None)
    grown = _changed(cluster, ("max_num_seqs",), doubles=True)
    assert grown is not None
    assert [pool.engine.max_num_seqs for pool in grown.cluster.pools] == [16]
    assert grown.engine.max_num_seqs == 16
    assert (
        _changed(with_cluster(without, instances=1, routing=None), ("num_gpu_blocks",), doubles=True) is None
    )
    assert _changed(TWIN, ("guided_compile_us", "draft_us"), doubles=False) is None
    slow = replace(TWIN, engine=replace(TWIN.engine, guided_compile_us=3, guided_mask_us=5.0))
    less = _changed(slow, ("guided_compile_us", "guided_mask_us"), doubles=False)
    assert less is not None
    assert (less.engine.guided_compile_us, less.engine.guided_mask_us) == (1, 2.5)


def test_more_of_a_resource_is_looked_for_from_a_hundredth_above_what_there_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[float] = []

    def highest_above(_trace: Any, _twin: Any, _limits: Any, *, least: float) -> Above:  # noqa: ANN401
        asked.append(least)
        return Above(rate_per_s=None if least > 20 else 30.0, asks=0)

    monkeypatch.setattr(binding, "highest_above", highest_above)
    trace: Any = None
    assert GAIN == 0.02
    assert _of_one(trace, TWIN, LIMITS, around=None) == 30.0
    assert _of_one(trace, TWIN, LIMITS, around=10.0) == 30.0
    assert _of_one(trace, TWIN, LIMITS, around=20.0) == 20.0
    assert asked == pytest.approx([0.0, 10.1, 20.2])
    monkeypatch.setattr(binding, "highest_above", lambda *_given, **_least: Above(rate_per_s=None, asks=0))
    assert _of_one(trace, TWIN, LIMITS, around=None) == 0.0


def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the settings, and "faster", stand for the twins with more of them; nothing is simulated."""
    monkeypatch.setattr(binding, "_changed", lambda _twin, settings, doubles: settings if doubles else None)
    monkeypatch.setattr(binding, "paced", lambda _twin, _factor: "faster")


def test_where_not_even_an_idle_server_keeps_the_limits_nothing_gains(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alone(monkeypatch)
    monkeypatch.setattr(binding, "_of_one", lambda *_given, **_around: 0.0)
    found = binding.binding_of(None, None, LIMITS)  # type: ignore[arg-type] # nothing is simulated
    assert (found.resource, found.base_per_s) == ("nothing", 0.0)
    monkeypatch.setattr(binding, "_changed", lambda _twin, _settings, doubles: None)  # noqa: ARG005
    found = binding.binding_of(None, None, LIMITS)  # type: ignore[arg-type]
    assert (found.resource, found.with_twice) == ("nothing", {"step_time": 0.0})


def test_a_share_of_a_slow_server_s_rate_is_a_gain_like_any(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a request per second, and a tenth more with twice the seats."""
    alone(monkeypatch)
    monkeypatch.setattr(
        binding,
        "_of_one",
        lambda _trace, twin, _limits, around: 0.55 if around and twin == ("max_num_seqs",) else 0.5,
    )
    assert binding.binding_of(None, None, LIMITS).resource == "seats"  # type: ignore[arg-type]
