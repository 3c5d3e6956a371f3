"""Power of a pool, and what shedding some of it does: worked out beside the module, for prompts of two lengths."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest

from sim.fleet import Lengths
from sim.fleet.energy import Curtailment, _lasts_s, curtail, energy
from sim.fleet.sizing import Objective
from tests.sim.fleet.test_by_hand import EXACT, LENGTHS, PROFILE, erlangs, last_hundredth

POWERED = replace(PROFILE, idle_w=100.0, nominal_w=500.0, power_k=0.8, power_x0=2.0)
RATE, ENGINES, SLOTS, MEAN = 46.0, 2, 10, 22.0
"""Two engines of ten slots; a request has 1 + 10 or 3 + 30 iterations."""
DECODE_S = 0.002 * (11 * 110 + 33 * 330) / 44 / 1000
COMPUTE_S = (0.001505, 0.007515)
EACH_S = DECODE_S + sum(COMPUTE_S) / 44
ACTIVE = 23 * MEAN * 0.01 / (1 - 23 * MEAN * EACH_S)


def watts(active: float) -> float:
    return 100 + 400 / (1 + math.exp(-0.8 * (math.log2(active) - 2)))


@dataclass(frozen=True)
class Left:
    """What is to be seen of two engines with so many slots each."""

    slots: int

    @property
    def capacity(self) -> float:
        return 2 * self.slots / (MEAN * (0.01 + self.slots * EACH_S))

    @property
    def own_s(self) -> tuple[float, float]:
        """Seconds from slot to first token of either prompt."""
        beside = 0.01 + min(ACTIVE, self.slots) * DECODE_S
        return beside + COMPUTE_S[0], 3 * beside + COMPUTE_S[1]

    @property
    def ttft_s(self) -> float:
        load = RATE * 2 * self.slots / self.capacity
        decay = 2 * (self.capacity - RATE) / (1 + 0.25)  # cv² of 11 and 33 iterations: (11 / 22)²
        return last_hundredth(self.own_s, erlangs(2 * self.slots, load), decay)


def cut_to(active: float, *, ttft_p99_s: float = 1.0) -> Curtailment:
    """Shed as much as leaves the power of so many requests per engine."""
    share = 1 - watts(active) / watts(ACTIVE)
    (cut,) = curtail(
        POWERED, LENGTHS, RATE, Objective(ttft_p99_s=ttft_p99_s), context=400, engines=2, shares=[share]
    )
    assert cut.shed_frac == share
    assert cut.shed_w == pytest.approx(2 * (watts(ACTIVE) - watts(active)), rel=EXACT)
    return cut


def test_what_a_pool_draws_by_hand() -> None:
    seen = energy(POWERED, LENGTHS, RATE, context=400, engines=2)
    assert seen.power_w == pytest.approx(2 * watts(ACTIVE), rel=EXACT)
    assert seen.tokens_per_joule == pytest.approx(46 * 20 / (2 * watts(ACTIVE)), rel=EXACT)
    assert seen.kwh_per_year == pytest.approx(2 * watts(ACTIVE) * 24 * 365.25 / 1000, rel=EXACT)


def test_less_than_a_watt_is_power_and_none_gives_no_tokens_per_joule() -> None:
    little = replace(PROFILE, idle_w=0.25, nominal_w=0.25)
    assert energy(little, LENGTHS, RATE, context=400, engines=2).tokens_per_joule == pytest.approx(920 / 0.5)
    assert math.isnan(energy(PROFILE, LENGTHS, RATE, context=400, engines=2).tokens_per_joule)


def test_where_nothing_is_shed_all_slots_are_left() -> None:
    """Eight requests are there on average, and ten may be."""
    (kept,) = curtail(POWERED, LENGTHS, RATE, Objective(ttft_p99_s=1.0), context=400, engines=2, shares=[0.0])
    assert (kept.slots, kept.shed_w, kept.lasts_s) == (SLOTS, 0.0, math.inf)
    assert kept.utilization == pytest.approx(RATE / Left(SLOTS).capacity, rel=EXACT)
    assert kept.ttft_p99_s == pytest.approx(Left(SLOTS).ttft_s, abs=2e-6)


def test_less_power_leaves_fewer_slots_and_a_queue_that_grows() -> None:
    """At the power of 7.5 requests 7 fit. The queue may grow until it is served within the limit less the prefill."""
    cut, left = cut_to(7.5), Left(7)
    assert cut.slots == 7
    assert cut.utilization == pytest.approx(RATE / left.capacity, rel=EXACT)
    assert cut.ttft_p99_s == math.inf
    expected = (1.0 - left.own_s[1]) * left.capacity / (RATE - left.capacity)
    assert cut.lasts_s == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("number", range(1, 9))
def test_the_power_of_a_whole_number_of_requests_leaves_so_many(number: int) -> None:
    """Whatever the last bit of the logarithm says. One is still served."""
    cut, left = cut_to(float(number)), Left(number)
    assert cut.slots == number
    assert cut.utilization == pytest.approx(RATE / left.capacity, rel=EXACT)
    assert cut.lasts_s > 0


def test_power_for_less_than_one_request_serves_none() -> None:
    cut = cut_to(0.7)
    assert (cut.slots, cut.utilization, cut.ttft_p99_s, cut.lasts_s) == (0, math.inf, math.inf, 0.0)


def test_a_limit_that_is_just_met_is_kept_for_ever_and_one_below_it_not_at_all() -> None:
    (kept,) = curtail(POWERED, LENGTHS, RATE, Objective(ttft_p99_s=1.0), context=400, engines=2, shares=[0.0])
    for limit, lasts in ((kept.ttft_p99_s, math.inf), (kept.ttft_p99_s * 0.999, 0.0)):
        (again,) = curtail(
            POWERED, LENGTHS, RATE, Objective(ttft_p99_s=limit), context=400, engines=2, shares=[0.0]
        )
        assert again.lasts_s == lasts


def test_a_queue_that_stays_as_long_as_it_is_has_broken_its_limit_already() -> None:
    assert _lasts_s(3.0, 3.0, ttft=2.0, unqueued=0.5, limit=1.0) == 0.0
    assert _lasts_s(4.0, 3.0, ttft=2.0, unqueued=0.5, limit=1.0) == 1.5


def test_a_limit_below_the_prefill_holds_no_moment_though_the_queue_is_short() -> None:
    assert cut_to(7.5, ttft_p99_s=Left(7).own_s[1] * 0.99).lasts_s == 0.0
    assert cut_to(7.5, ttft_p99_s=Left(7).own_s[1] * 1.01).lasts_s > 0.0


def test_the_prefill_beside_the_queue_is_the_99th_percentile_and_not_the_longest() -> None:
    """One prompt of 200 has 90 iterations, the others one. What is left of a limit of 0.5 s is that of the others."""
    lengths = Lengths(input_tokens=np.array([100.0] * 199 + [9000.0]), output_tokens=np.array([10.0] * 200))
    plain = replace(POWERED, prefill_token_s=0.0, prefill_pair_s=0.0, reserves_context=False)
    busy = plain.busy(lengths)
    rate = 100.0
    (cut,) = curtail(plain, lengths, rate, Objective(ttft_p99_s=0.5), context=9010, engines=1, shares=[0.2])
    assert cut.slots == 2
    capacity = cut.slots / (busy.mean_iterations * busy.iteration_s(cut.slots))
    own = 0.01 + cut.slots * busy.decode_s
    assert 90 * own > 0.5
    shown, step = 1 - 0.005 / 0.995 / (1 - math.exp(-cut.slots)), busy.iteration_s(cut.slots)
    unqueued = own + shown * step  # what is left of 1 of 100 beside the long one comes late in a step
    assert cut.lasts_s == pytest.approx((0.5 - unqueued) * capacity / (rate - capacity), rel=1e-4)
