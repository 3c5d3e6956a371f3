"""Pools of two kinds of requests, worked out line by line beside the module: each figure to 1e-9."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sim.fleet import GpuProfile, Lengths
from sim.fleet.disaggregated import Transfer, disaggregated_at
from sim.fleet.sizing import pool_at
from sim.fleet.split import Splits
from tests.sim.fleet.one_pool import simulate_slots

LENGTHS = Lengths(input_tokens=np.array([100.0, 300.0]), output_tokens=np.array([10.0, 30.0]))
PROFILE = GpuProfile(
    w_s=0.01,
    h_s=0.002,
    calibration_context=1000,
    chunk_tokens=100,
    block_size=16,
    num_blocks=10_000,
    max_slots=4,
    cost_per_hour=2.0,
    prefill_token_s=1e-5,
    prefill_pair_s=1e-7,
)
EXACT = 1e-9


def erlangs(servers: int, load: float) -> float:
    """Return the share that waits in M/M/c, from the sum in every textbook."""
    sums = math.fsum(load**k / math.factorial(k) for k in range(servers))
    last = load**servers / math.factorial(servers) * servers / (servers - load)
    return last / (sums + last)


def last_hundredth(own: tuple[float, float], share: float, decay: float) -> float:
    """Return x so that the wait and one of two own times, equally likely, exceed it in 1 of 100: x beyond both."""
    x = math.log(share / 2 / 0.01 * sum(math.exp(decay * each) for each in own)) / decay
    assert x >= max(own)
    return x


def test_what_a_split_saves_is_of_prices_where_both_pools_have_one_and_else_of_gpus() -> None:
    """Three and two instances in place of ten: of 2.0 and 0.5 an hour 7 in place of 5; of 1 and 4 GPUs 11 of 40."""
    size: Any = SimpleNamespace
    split: Any = SimpleNamespace(short=size(provisioned=3), long=size(provisioned=2), cost_per_hour=7.0)
    long = replace(PROFILE, cost_per_hour=0.5, num_gpus=4)
    priced = Splits(one=size(provisioned=10), profiles=(PROFILE, long), splits=(), is_one_best=False)
    assert priced.has_prices
    assert (priced.amount(split), priced.one_amount) == (7.0, 5.0)
    assert priced.saving(split) == pytest.approx(1 - 7 / 5)
    free = replace(priced, profiles=(PROFILE, replace(long, cost_per_hour=0.0)))
    assert not free.has_prices
    assert (free.amount(split), free.one_amount) == (11, 40)
    assert free.saving(split) == pytest.approx(1 - 11 / 40)
    cheap = replace(priced, profiles=(replace(PROFILE, cost_per_hour=0.25), long))
    assert cheap.has_prices
    alone: Any = SimpleNamespace(short=None, long=size(provisioned=2), cost_per_hour=1.0)
    assert free.gpus(alone) == 8


@pytest.mark.parametrize(
    ("num_blocks", "context", "slots"),
    [(10_000, 400, 4), (68, 400, 4), (67, 400, 3), (25, 400, 1), (33, 400, 1), (34, 400, 2), (24, 400, 0)],
)
def test_slots_without_a_reserve_by_hand(num_blocks: int, context: int, slots: int) -> None:
    """(10 · 105 + 30 · 315) / 40 is 262.5 tokens while they run, 17 blocks; the longest, 400 tokens, takes 25."""
    profile = replace(PROFILE, num_blocks=num_blocks, reserves_context=False)
    assert profile.slots_for(LENGTHS, context) == slots


def test_a_pool_of_two_kinds_of_requests_by_hand() -> None:
    """Iterations 1 + 10 and 3 + 30, tokens 110 and 330; 4 slots at 1,000 tokens are 10 at 400."""
    rate, engines, slots = 46.0, 2, 10
    resident = (11 * 110 + 33 * 330) / 44
    compute = [1e-5 * n + 1e-7 * n * (n + 1) / 2 for n in (100, 300)]
    decode_s, prefill_s = 0.002 * resident / 1000, sum(compute) / 44
    mean, cv2 = 22.0, (11.0**2) / 22.0**2
    service = mean * (0.01 + slots * (decode_s + prefill_s))
    share = erlangs(engines * slots, rate * service)
    decay = 2 * (engines * slots / service - rate) / (1 + cv2)
    load = rate / engines * mean
    active = load * 0.01 / (1 - load * (decode_s + prefill_s))
    own = [k * (0.01 + active * decode_s) + each for k, each in zip((1, 3), compute, strict=True)]

    seen = pool_at(PROFILE, LENGTHS, rate, context=400, engines=engines)
    assert seen.slots == slots
    assert seen.service_s == pytest.approx(service, rel=EXACT)
    assert seen.throughput == pytest.approx(slots / service, rel=EXACT)
    assert seen.utilization == pytest.approx(rate * service / 20, rel=EXACT)
    assert seen.active == pytest.approx(active, rel=EXACT)
    assert seen.tpot_s == pytest.approx(0.01 + active * (decode_s + prefill_s), rel=EXACT)
    assert share > 0.01
    assert seen.wait_p99_s == pytest.approx(math.log(share / 0.01) / decay, rel=EXACT)
    assert seen.ttft_p99_s == pytest.approx(last_hundredth((own[0], own[1]), share, decay), abs=2e-6)


@pytest.mark.parametrize("arrival_cv2", [0.25, 1.0, 3.0])
def test_prefill_and_decode_pools_of_two_kinds_of_requests_by_hand(arrival_cv2: float) -> None:
    """A prompt alone on its engine: its iterations, and its compute."""
    rate, engines, slots = 38.0, (2, 3), 10
    alone = [k * 0.01 + 1e-5 * n + 1e-7 * n * (n + 1) / 2 for k, n in ((1, 100), (3, 300))]
    mean = sum(alone) / 2
    spread = ((alone[0] - mean) ** 2 + (alone[1] - mean) ** 2) / 2 / mean**2
    share = erlangs(2, rate * mean / 0.9)
    decay = 2 * (2 * 0.9 / mean - rate) / (arrival_cv2 + spread)
    weight, total = (9, 29), (109, 329)  # the first token is the prefill's
    resident = sum(w * t for w, t in zip(weight, total, strict=True)) / 38
    service = 19 * (0.01 + 0.002 * resident / 1000 * slots) / 0.92
    decode_share = erlangs(3 * slots, rate * service)
    decode_decay = 2 * (3 * slots / service - rate) / (arrival_cv2 + (10.0**2) / 19.0**2)
    load = rate / 3 * 19
    active = load * 0.01 / (1 - load * 0.002 * resident / 1000)

    seen = disaggregated_at(
        (PROFILE, replace(PROFILE, cost_per_hour=3.0)),
        replace(LENGTHS, arrival_cv2=arrival_cv2),
        rate,
        engines=engines,
        context=400,
        transfer=Transfer(alpha_prefill=0.9, alpha_decode=0.92, beta_ttft=1.8),
    )
    assert seen.prefill_utilization == pytest.approx(rate * mean / 0.9 / 2, rel=EXACT)
    assert seen.decode_utilization == pytest.approx(rate * service / 30, rel=EXACT)
    assert seen.rate_per_s == pytest.approx(min(2 * 0.9 / mean, 30 / service), rel=EXACT)
    expected = math.log(decode_share / 0.01) / decode_decay if decode_share > 0.01 else 0.0
    assert seen.decode_wait_p99_s == pytest.approx(expected, rel=EXACT)
    assert seen.tpot_s == pytest.approx(0.01 + 0.002 * resident / 1000 * active, rel=EXACT)
    assert seen.ttft_p99_s == pytest.approx(
        1.8 * last_hundredth((alone[0], alone[1]), share, decay), abs=4e-6
    )
    assert seen.cost_per_hour == 2 * 2.0 + 3 * 3.0


def test_the_wait_for_a_decode_slot_has_the_spread_of_the_answers() -> None:
    """At a load where one of a hundred waits: the decay is of arrivals and answers together."""
    rate, engines = 30.0, 1
    seen = disaggregated_at((PROFILE, PROFILE), LENGTHS, rate, engines=(4, engines), context=400)
    resident = (9 * 109 + 29 * 329) / 38
    service = 19 * (0.01 + 0.02 * resident / 1000) / 0.92
    share, spread = erlangs(10, rate * service), 100 / 361
    assert 0.01 < share < 1
    decay = 2 * (10 / service - rate) / (1 + spread)
    assert seen.decode_wait_p99_s == pytest.approx(math.log(share / 0.01) / decay, rel=EXACT)


def test_attention_of_a_prompt_is_of_each_pair_once() -> None:
    pairs = replace(PROFILE, prefill_token_s=0.0, prefill_pair_s=1.0)
    few = Lengths(input_tokens=np.array([0.0, 1.0, 2.0, 5.0]), output_tokens=np.ones(4))
    assert pairs.prefill_compute_s(few) == pytest.approx([0, 1, 3, 15], rel=EXACT)


SLOTS = GpuProfile(
    w_s=0.01,
    h_s=0.001,
    calibration_context=100,
    chunk_tokens=100,
    block_size=10,
    num_blocks=60,
    max_slots=100,
)


def test_slots_by_hand() -> None:
    """Each iteration of a request is as long as the requests that are there at its start make it."""
    lengths = Lengths(input_tokens=np.array([100.0, 150.0]), output_tokens=np.array([10.0, 5.0]))
    seen = simulate_slots(SLOTS, lengths, np.array([0.0, 0.05]), context=200, gpus=1)
    first, second = 0.01 + 0.001 * 1.1, 0.01 + 0.001 * (110 + 155) / 100
    assert seen.first_token_s == pytest.approx([first, 0.05 + 2 * second], rel=EXACT)
    assert seen.end_s == pytest.approx([11 * first, 0.05 + 7 * second], rel=EXACT)
    assert seen.busy_slot_s == pytest.approx(11 * first + 7 * second, rel=EXACT)


def test_of_several_longer_ones_the_longest_gives_its_place_and_waits_for_it() -> None:
    """60 blocks hold 300, 200 and 100 tokens. 150 more take the place of the 300, not of the 200, which would do."""
    lengths = Lengths(input_tokens=np.array([290.0, 190.0, 90.0, 140.0]), output_tokens=np.full(4, 10.0))
    seen = simulate_slots(SLOTS, lengths, np.array([0.0, 0.01, 0.02, 0.03]), context=100, gpus=1)
    assert seen.num_preemptions == 1
    assert seen.start_s[1:] == pytest.approx([0.01, 0.02, 0.03], rel=EXACT)
    ends = [
        0.01 + 12 * (0.01 + 0.001 * (300 + 200) / 100),
        0.02 + 11 * (0.01 + 0.001 * (300 + 200 + 100) / 100),
        0.03 + 12 * (0.01 + 0.001 * (200 + 100 + 150) / 100),
    ]
    assert seen.end_s[1:] == pytest.approx(ends, rel=EXACT)
    # 15 blocks are free; 20 more, where 30 are needed, when the 200 tokens have gone
    assert seen.start_s[0] == pytest.approx(ends[0], rel=EXACT)


def test_what_was_preempted_is_the_next_before_those_that_waited() -> None:
    """Two slots. 250 tokens take the place of 400 once 200 have ended; 50 waited, and go behind the 400."""
    two = replace(SLOTS, max_slots=2)
    lengths = Lengths(
        input_tokens=np.array([340.0, 190.0, 240.0, 40.0]), output_tokens=np.array([60.0, 10.0, 10.0, 10.0])
    )
    seen = simulate_slots(two, lengths, np.array([0.0, 0.01, 0.02, 0.03]), context=100, gpus=1)
    assert seen.num_preemptions == 1
    first = 0.01 + 12 * (0.01 + 0.001 * (400 + 200) / 100)
    second = first + 13 * (0.01 + 0.001 * 250 / 100)
    assert seen.end_s[1] == pytest.approx(first, rel=EXACT)
    assert seen.start_s[2] == pytest.approx(first, rel=EXACT)
    assert seen.end_s[2] == pytest.approx(second, rel=EXACT)
    assert seen.start_s[[0, 3]] == pytest.approx([second, second], rel=EXACT)
