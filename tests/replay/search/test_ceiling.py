"""The most that is answered, against servers that are a formula, and against a long overload."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from replay.search.ceiling import (
    MOST_REPEATED,
    Ceiling,
    Told,
    _is_outrun,
    _pushed,
    _refined,
    _told,
    ceiling_of,
    find_ceiling,
)
from replay.search.evaluation import NOTHING_CAME
from replay.search.load import Pushed, answered_per_s
from replay.verdict.growth import Growth
from replay.verdict.judge import FEW, SETTLED, SHORT
from replay.verdict.judged import MARGIN
from sim import Status
from tests.replay.verdict.test_verdict_by_hand import outcomes_of


class Formula:
    """A load on a server that answers so many of 3000 requests per second, whatever comes."""

    scaling_us = 0

    def __init__(self, capacity: float, *, own: float) -> None:
        self.capacity, self.own_rate_per_s = capacity, own
        self.first = np.ones(3000, bool)
        self.rates: list[float] = []

    def __len__(self) -> int:
        return 3000

    def num_possible(self) -> int:
        return 3000

    def growth(self, rate_per_s: float, *, laps: int) -> Growth:
        self.rates.append(rate_per_s)
        share = max(0.0, 1 - self.capacity / rate_per_s)
        return Growth(
            num_sent=3000 * laps,
            sent_per_s=rate_per_s,
            in_system=round(3000 * laps * share) + 10,
            growth_frac=share,
            waiting_frac=share,
            generations=100,
            falls_back=share == 0,
            waiting_falls_back=share == 0,
        )

    def pushed(self, rate_per_s: float, *, laps: int) -> Pushed | None:
        grown = self.growth(rate_per_s, laps=laps)
        if grown is None:  # as a load may, which comes all at once
            return None
        rounds = len(self) / int(self.first.sum())
        return Pushed(growth=grown, answered_per_s=rounds * grown.served_per_s)


@pytest.mark.parametrize("own", [0.01, 1.0, 9.9, 10.1, 500.0])
def test_the_most_that_is_answered_is_found_from_either_side(own: float) -> None:
    load: Any = Formula(10.0, own=own)
    assert ceiling_of([load]) == pytest.approx(10.0, rel=1e-9)
    strides = [later / earlier for earlier, later in zip(load.rates, load.rates[1:], strict=False)]
    assert strides[0] == pytest.approx(4.0 if own < 11 else 0.25)
    assert load.rates[-1] < 12.2  # looked at near to it, where a tenth and some are too much


@pytest.mark.parametrize(
    ("num_sent", "in_system", "laps"),
    [
        (3000, 600, [1]),  # a fifth is under way: it tells
        (3000, 601, [1, 2]),  # 1.202 times would be long enough: twice at least
        (3000, 2000, [1, 4]),  # six times two thirds
        (3000, 3000, [1, 6]),
    ],
)
def test_a_run_is_repeated_until_it_tells(num_sent: int, in_system: int, laps: list[int]) -> None:
    asked: list[int] = []

    def pushed(_: float, *, laps: int) -> Pushed:
        asked.append(laps)
        there = in_system if laps == 1 else 10
        growth = replace(NOTHING_CAME, num_sent=num_sent * laps, in_system=there)
        return Pushed(growth=growth, answered_per_s=1.0)

    load: Any = Formula(10.0, own=10.0)
    load.pushed = pushed
    assert _pushed(load, 1.0) is not None
    assert asked == laps


def test_who_is_never_answered_is_lost() -> None:
    """Of 3000 that an idle server answers a twentieth may be: 2850 are left."""
    load: Any = Formula(10.0, own=10.0)
    assert not _is_outrun(replace(NOTHING_CAME, num_sent=2850), num_possible=3000, load=load)
    assert _is_outrun(replace(NOTHING_CAME, num_sent=2849), num_possible=3000, load=load)
    assert not _is_outrun(replace(NOTHING_CAME, num_sent=5700), num_possible=3000, load=load)
    assert _is_outrun(replace(NOTHING_CAME, num_sent=5699), num_possible=3000, load=load)


def test_the_most_that_is_answered_is_the_mean_over_the_draws() -> None:
    loads: Any = [Formula(10.0, own=10.0), Formula(11.0, own=1.0), Formula(9.0, own=1.0)]
    assert ceiling_of(loads) == pytest.approx(10.0, rel=1e-9)
    assert len(loads[1].rates) == len(loads[2].rates) == 1


def test_requests_that_are_too_long_for_the_server_are_not_lost_by_the_load() -> None:
    load: Any = Formula(10.0, own=10.0)
    assert not _is_outrun(replace(NOTHING_CAME, num_sent=1500), num_possible=1500, load=load)
    assert _is_outrun(replace(NOTHING_CAME, num_sent=1400), num_possible=1500, load=load)
    load.num_possible = lambda: 0
    assert find_ceiling([load]) is None
    assert load.rates == []


def test_what_an_overload_answers_is_the_ceiling_and_not_what_was_offered() -> None:
    """At 10.8/s, eight per cent too many, a run tells nothing: it counts as kept up with, and 10/s are answered."""
    load: Any = Formula(10.0, own=10.0)
    pushed = load.pushed

    def tolerant(rate_per_s: float, *, laps: int) -> Pushed:
        found = pushed(rate_per_s, laps=laps)
        assert found is not None
        if rate_per_s > 10.8:
            return found
        return replace(found, growth=replace(NOTHING_CAME, num_sent=3000 * laps, falls_back=True))

    load.pushed = tolerant
    assert ceiling_of([load]) == pytest.approx(10.0, rel=1e-9)


def test_answers_are_counted_from_one_time_to_another() -> None:
    status = [Status.OK, Status.OK, Status.OK, Status.REJECTED]
    outcomes = outcomes_of([0, 0, 0, 0], [0, 0, 0, -1], [1_000_000, 2_000_000, 3_000_000, -1], status=status)
    assert answered_per_s(outcomes, (1_000_000, 3_000_000)) == 1.0


def test_the_interval_of_a_ceiling_is_that_of_the_draws() -> None:
    one = Ceiling(per_s=10.0, overloaded_per_s=10.0, of_loads=(10.0,))
    assert one.interval == (None, None)
    low, high = replace(one, of_loads=(9.0, 10.0, 11.0)).interval
    assert low is not None
    assert high is not None
    assert low < 9.0
    assert high > 11.0


class Held(Formula):
    """A load of ``num`` requests whose runs leave a share of them in the system while they are short of ``enough``."""

    def __init__(self, num: int, *, enough: int, share: float = 0.5, scaling_us: int = 0) -> None:
        super().__init__(10.0, own=10.0)
        self.num, self.enough, self.share, self.scaling_us = num, enough, share, scaling_us  # type: ignore[misc]
        self.first = np.ones(num, bool)
        self.laps: list[int] = []

    def __len__(self) -> int:
        return self.num

    def pushed(self, _: float, *, laps: int) -> Pushed | None:
        self.laps.append(laps)
        there = 0 if laps * self.num >= self.enough else round(laps * self.num * self.share)
        growth = replace(NOTHING_CAME, num_sent=laps * self.num, in_system=there)
        return Pushed(growth=growth, answered_per_s=1.0)


@pytest.mark.parametrize(
    ("num", "laps"), [(SHORT, 1), (SHORT - 1, math.ceil(FEW / (SHORT - 1))), (10, FEW // 10), (FEW, 1)]
)
def test_a_short_load_is_repeated_until_it_has_the_fewest_that_tell(num: int, laps: int) -> None:
    load: Any = Held(num, enough=0)
    assert _pushed(load, 1.0) is not None
    assert load.laps == [laps]


def test_a_run_lasts_four_times_as_long_as_a_fleet_scales() -> None:
    """3000 requests at 10 per second are 300 s; 1000 s of scaling are 4000, fourteen times."""
    for scaling_us, laps in (
        (1_000_000_000, 14),
        (75_000_000, 1),
        (75_000_001, 2),
        (10**13, MOST_REPEATED // 3000),
    ):
        load: Any = Held(3000, enough=0, scaling_us=scaling_us)
        assert _pushed(load, 10.0) is not None
        assert load.laps == [laps]


def test_each_time_a_run_is_at_least_twice_as_long_until_it_would_be_too_long() -> None:
    load: Any = Held(3000, enough=50_000, share=0.21)
    assert _pushed(load, 1.0) is not None
    assert load.laps == [1, 2, 4, 8, 16, 32]
    load = Held(MOST_REPEATED // 2, enough=MOST_REPEATED)
    assert _pushed(load, 1.0) is not None
    assert load.laps == [1, 2]
    load = Held(MOST_REPEATED // 2 + 1, enough=MOST_REPEATED * 4)
    assert _pushed(load, 1.0) is None  # and it is not overloaded either
    assert load.laps == [1]


def test_a_run_of_which_none_came_tells_nothing() -> None:
    load: Any = Held(3000, enough=0)
    load.pushed = lambda *_, **__: None
    assert _pushed(load, 1.0) is None
    assert find_ceiling([load]) is None


def test_what_piles_up_counts_after_some_generations_unless_the_queue_falls_back() -> None:
    load: Any = Formula(10.0, own=10.0)

    def is_outrun(**said: Any) -> bool:  # noqa: ANN401
        grown = replace(NOTHING_CAME, num_sent=3000, generations=SETTLED, growth_frac=MARGIN * 1.01, **said)
        return _is_outrun(grown, num_possible=3000, load=load)

    assert is_outrun(falls_back=False)
    assert not is_outrun(falls_back=True)
    few = replace(NOTHING_CAME, num_sent=3000, growth_frac=MARGIN * 1.01, falls_back=False)
    assert not _is_outrun(replace(few, generations=0), num_possible=3000, load=load)
    assert not _is_outrun(replace(few, generations=SETTLED, growth_frac=MARGIN), num_possible=3000, load=load)


def told(rate: float, answered: float, *, outrun: bool) -> Told:
    return Told(rate_per_s=rate, is_outrun=outrun, answered_per_s=(answered,))


@pytest.mark.parametrize(
    ("followed", "outrun", "asked"),
    [
        ((4.0, 4.0), (16.0, 10.0), [11.0]),  # a tenth above what was answered
        ((10.9, 10.9), (16.0, 10.0), [math.sqrt(10.9 * 16)]),  # too near to what is kept up with
        ((4.0, 4.0), (11.2, 10.0), [math.sqrt(4.0 * 11.2)]),  # and to what is not
    ],
)
def test_a_rate_is_looked_at_a_tenth_above_what_was_answered_or_between(
    followed: tuple[float, float], outrun: tuple[float, float], asked: list[float]
) -> None:
    load: Any = Formula(10.0, own=10.0)
    low, high = _refined(load, told(*followed, outrun=False), told(*outrun, outrun=True), possible=3000)
    assert load.rates[: len(asked)] == pytest.approx(asked)
    assert not low.is_outrun
    assert high.is_outrun


def test_a_ceiling_is_of_most_loads_and_the_higher_one_of_a_server_that_loses_its_caches() -> None:
    loads: Any = [Formula(10.0, own=10.0), Formula(20.0, own=10.0)]
    found = _told(loads, 15.0, 3000)
    assert found is not None
    assert not found.is_outrun  # one of two
    assert found.answered_per_s == pytest.approx((10.0, 15.0), rel=0.01)
    assert _told([*loads, loads[0]], 15.0, 3000).is_outrun  # type: ignore[union-attr]


def test_an_interval_is_that_of_the_draws_made_wider_and_that_of_another_overload() -> None:
    found = Ceiling(per_s=10.0, overloaded_per_s=10.0, of_loads=(9.0, 10.0, 11.0))
    logs = np.log([9.0, 10.0, 11.0])
    t_of_three = 2.92  # 90 %, two degrees of freedom
    reach = math.hypot(1.3 * t_of_three * logs.std(ddof=1) / math.sqrt(3), 0.0015)
    assert found.interval == pytest.approx((10 * math.exp(-reach), 10 * math.exp(reach)), rel=1e-4)


def test_a_run_is_asked_for_as_long_as_customers_stay_rounded_up() -> None:
    """601 of 3000 in the system, of six times the customers: 1.202 laps of three are 3.6, so four; of ten 12.02, 13."""
    for share, laps in ((0.667, [1, 5]), (0.35, [1, 3])):
        load: Any = Held(3000, enough=3001, share=share)
        assert _pushed(load, 1.0) is not None
        assert load.laps == laps


def test_an_overload_is_known_at_once_only_where_departures_tell_its_speed() -> None:
    """A queue tells by itself; seats that fill tell after some generations."""
    asked: list[int] = []
    passed: list[int] = []

    def pushed(_: float, *, laps: int) -> Pushed:
        asked.append(laps)
        grown = replace(
            NOTHING_CAME,
            num_sent=3000 * laps,
            in_system=3000 * laps if laps == 1 else 0,
            growth_frac=1.0,
            falls_back=False,
        )
        return Pushed(growth=replace(grown, generations=passed[-1]), answered_per_s=1.0)

    load: Any = Formula(10.0, own=10.0)
    load.pushed = pushed
    for generations, laps in ((SETTLED, [1]), (SETTLED - 1, [1, 6])):
        asked.clear()
        passed.append(generations)
        assert _pushed(load, 1.0) is not None
        assert asked == laps


def test_the_search_ends_where_the_rate_is_near_or_nothing_more_is_told() -> None:
    """Near is 1.1 times 1.05 of what was answered; or the two rates are within a twentieth."""
    load: Any = Formula(10.0, own=10.0)
    _refined(load, told(4.0, 4.0, outrun=False), told(16.0, 10.0, outrun=True), possible=3000)
    assert load.rates == pytest.approx([11.0])  # 11 < 11.55
    load = Formula(10.0, own=10.0)
    _refined(load, told(10.5, 10.0, outrun=False), told(11.0, 9.0, outrun=True), possible=3000)
    assert len(load.rates) == 1  # 10.75 is within a twentieth of 10.5, though 9 * 1.155 is less
    load.pushed = lambda *_, **__: None
    low, high = told(4.0, 4.0, outrun=False), told(16.0, 10.0, outrun=True)
    assert _refined(load, low, high, possible=3000) == (low, high)


def test_two_draws_have_an_interval_and_a_ceiling_of_their_mean() -> None:
    found = Ceiling(per_s=10.0, overloaded_per_s=10.0, of_loads=(9.0, 11.0))
    t_of_two = 6.314  # 90 %, one degree of freedom
    reach = math.hypot(1.3 * t_of_two * np.log([9.0, 11.0]).std(ddof=1) / math.sqrt(2), 0.0015)
    assert found.interval == pytest.approx((10 * math.exp(-reach), 10 * math.exp(reach)), rel=1e-3)
    loads: Any = [Formula(10.0, own=10.0), Formula(11.0, own=1.0)]
    both = find_ceiling(loads)
    assert both is not None
    assert both.of_loads == pytest.approx((10.0, 11.0), rel=0.01)


def test_a_run_is_not_made_longer_than_the_longest() -> None:
    load: Any = Held(MOST_REPEATED // 4 + 1, enough=MOST_REPEATED * 4)
    pushed = load.pushed

    def counted(rate_per_s: float, *, laps: int) -> Pushed | None:
        assert len(load.laps) < 9
        return pushed(rate_per_s, laps=laps)

    load.pushed = counted
    assert _pushed(load, 1.0) is None
    assert load.laps == [1, 3]


class Losing(Formula):
    """A load of ``num`` customers of whom ``num_sent`` are answered, with nothing left over."""

    def __init__(self, num: int, *, num_sent: int) -> None:
        super().__init__(10.0, own=10.0)
        self.first, self.num_sent = np.ones(num, bool), num_sent

    def pushed(self, _: float, *, laps: int) -> Pushed | None:
        return Pushed(growth=replace(NOTHING_CAME, num_sent=laps * self.num_sent), answered_per_s=1.0)


@pytest.mark.parametrize(("num_sent", "is_outrun"), [(713, False), (712, True)])
def test_a_load_that_loses_more_than_a_twentieth_of_those_an_idle_server_answers_is_outrun(
    num_sent: int, is_outrun: bool
) -> None:
    """Of each load in proportion to its customers: 1500 of the first's 3000 are 750 of another's 1500."""
    first: Any = Losing(3000, num_sent=2 * num_sent - 1 if is_outrun else 2 * num_sent)
    other: Any = Losing(1500, num_sent=num_sent)
    for loads in ([first], [first, other, other], [Losing(3000, num_sent=1500), other, other]):
        found = _told(loads, 1.0, 1500)
        assert found is not None
        assert found.is_outrun == is_outrun
