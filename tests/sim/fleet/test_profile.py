"""What a GPU is to the formulas: numbers that may be none, slots, times and power by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from sim import KVCacheGroup
from sim.config import InvalidConfig
from sim.fleet import GpuProfile, Lengths
from sim.fleet.profile import Busy

PROFILE = GpuProfile(
    w_s=0.01,
    h_s=0.002,
    calibration_context=1000,
    chunk_tokens=100,
    block_size=16,
    num_blocks=100,
    max_slots=4,
    idle_w=100.0,
    nominal_w=500.0,
    power_k=0.5,
    power_x0=3.0,
    prefill_token_s=1e-5,
    prefill_pair_s=1e-7,
)
ABOVE_NOTHING = (
    *("w_s", "calibration_context", "chunk_tokens", "block_size", "num_blocks", "max_slots"),
    "max_concurrent_batches",
)
WINDOW = KVCacheGroup(kind="sliding", window=33)


@pytest.mark.parametrize("name", [name for name in GpuProfile.__slots__ if name != "kv_cache_groups"])
def test_a_figure_is_a_number_and_nothing_only_where_that_can_be(name: str) -> None:
    for value in (-0.5, math.inf, math.nan, *((0.0,) if name in ABOVE_NOTHING else ())):
        with pytest.raises(InvalidConfig, match=rf"profile\.{name}: got {value}"):
            replace(PROFILE, **{name: value})  # type: ignore[arg-type] # no such figure
    for value in (0.5, *(() if name in ABOVE_NOTHING else (0.0,))):
        replace(PROFILE, **{name: value})  # type: ignore[arg-type] # a number is enough


@pytest.mark.parametrize(
    ("context", "held", "slots"),
    [
        (16, 100, 100),
        (17, 50, 50),
        (33, 33, 33),
        (150, 10, 10),
        (400, 4, 4),
        (1000, 1, 1),
        (1600, 1, 1),
        (1601, 0, 0),
    ],
)
def test_a_request_takes_whole_blocks(context: int, held: int, slots: int) -> None:
    """100 blocks of 16 tokens; 4 slots of 1,000 tokens are no more than 4,000 / context."""
    assert PROFILE.kv_limit(context) == held
    assert PROFILE.num_slots(context) == slots
    few = replace(PROFILE, max_slots=1)
    assert few.num_slots(context) == min(held, 1000 // context)


@pytest.mark.parametrize(("num_blocks", "slots"), [(1049, 3), (1051, 3), (1052, 4), (262, 1), (9999, 9)])
def test_without_a_reserve_a_request_holds_its_prompt_and_half_its_answer(
    num_blocks: int, slots: int
) -> None:
    """(10 · 105 + 30 · 315) / 40 is 262.5 tokens while they run, 263 blocks of one token. The longest has 250."""
    single = replace(PROFILE, block_size=1, num_blocks=num_blocks, max_slots=9, reserves_context=False)
    lengths = Lengths(input_tokens=np.array([100.0, 300.0]), output_tokens=np.array([10.0, 30.0]))
    assert single.slots_for(lengths, 250) == slots
    assert single.slots_for(lengths, num_blocks + 1) == 0


def test_a_group_that_cannot_be_is_told() -> None:
    with pytest.raises(InvalidConfig, match=r"profile\.kv_cache_groups\[1\]\.window: got 0"):
        replace(PROFILE, kv_cache_groups=(WINDOW, replace(WINDOW, window=0)))


def test_groups_share_the_blocks() -> None:
    """160 tokens take 10 blocks of a full group, and of a window 32 + 100 tokens in flight: 9, and one more.

    While it decodes, 33 tokens lie in 3 blocks on average, and all 160.5 in 10.5. With its first token it holds 6
    blocks and twice 3, and its prompt's 15 for one iteration.
    """
    groups = (KVCacheGroup(kind="full"), WINDOW, WINDOW)
    shared = replace(PROFILE, kv_cache_groups=groups, num_blocks=500, max_slots=99, reserves_context=False)
    assert [shared.kv_limit(context) for context in (160, 320)] == [500 // 30, 500 // 40]
    lengths = Lengths(input_tokens=np.array([80.0]), output_tokens=np.array([160.0]))
    assert shared.slots_for(lengths, 240) == int(500 / ((160 * (10.5 + 2 * 3) + 12 + 3) / 161))
    assert replace(shared, kv_cache_groups=()).slots_for(lengths, 240) == 500 // 10


def test_times_of_a_request_by_hand() -> None:
    """250 prompt tokens are three iterations, 30 more of the answer; its 280 tokens stay all the time."""
    lengths = Lengths(input_tokens=np.array([250.0, 0.0, 100.0]), output_tokens=np.array([30.0, 1.0, 2.0]))
    assert PROFILE.prefill_iterations(lengths).tolist() == [3, 1, 1]
    assert PROFILE.iterations(lengths).tolist() == [33, 2, 3]
    compute = 250e-5 + 1e-7 * 250 * 251 / 2
    each = 0.002 * 280 / 1000 + compute / 33
    assert PROFILE.iteration_s(4.0, 280.0) == pytest.approx(0.01 + 4 * 0.002 * 0.28)
    assert PROFILE.service_s(250, 30, 300) == pytest.approx(33 * (0.01 + 5 * each))
    assert PROFILE.throughput(250, 30, 300) == pytest.approx(5 / (33 * (0.01 + 5 * each)))
    assert PROFILE.throughput(250, 30, 1600) == pytest.approx(1 / (33 * (0.01 + each)))
    assert PROFILE.throughput(250, 30, 1601) == 0.0
    assert PROFILE.num_slots(300) == 5


def test_a_mix_is_weighted_by_how_long_each_stays() -> None:
    lengths = Lengths(input_tokens=np.array([100.0, 300.0]), output_tokens=np.array([9.0, 27.0]))
    busy = PROFILE.busy(lengths)
    compute = 400e-5 + 1e-7 * (100 * 101 + 300 * 301) / 2
    assert busy.mean_iterations == 20
    assert busy.cv2 == pytest.approx((10 / 20) ** 2)
    assert busy.decode_s == pytest.approx(0.002 * (10 * 109 + 30 * 327) / 40 / 1000)
    assert busy.prefill_s == pytest.approx(compute / 40)
    assert busy.iteration_s(3.0) == pytest.approx(0.01 + 3 * (busy.decode_s + busy.prefill_s))


def test_requests_pile_up_where_their_own_work_takes_all_the_time() -> None:
    busy = replace(PROFILE, h_s=1.0, prefill_token_s=0.0, prefill_pair_s=0.0).busy(
        Lengths(input_tokens=np.array([120.0]), output_tokens=np.array([5.0]))
    )
    assert busy.decode_s == 0.125
    assert busy.mean_iterations == 7
    assert busy.active(1.0) == pytest.approx(7 * 0.01 / (1 - 0.875))
    assert busy.active(8 / 7 - 1e-3) < math.inf
    assert busy.active(8 / 7 + 1e-9) == math.inf
    assert busy.active(2.0) == math.inf
    full = Busy(w_s=0.01, decode_s=0.125, prefill_s=0.0, mean_iterations=8.0, cv2=0.0)
    assert full.active(1.0) == math.inf


def test_power_by_hand() -> None:
    """Half way at 8 requests; at 2 and 32 it is two doublings from there: 1 / (1 + e) and 1 / (1 + 1 / e)."""
    share = 1 / (1 + math.e)
    expected = [100, 100 + 400 / (1 + math.exp(1.5)), 100 + 400 * share, 300, 500 - 400 * share]
    assert [PROFILE.power_w(active) for active in (0.0, 1.0, 2.0, 8.0, 32.0)] == pytest.approx(expected)
    assert PROFILE.power_w(0.5) == pytest.approx(100 + 400 / (1 + math.exp(2.0)))
    assert PROFILE.active_at_power(100 + 400 * share) == pytest.approx(2)
    assert PROFILE.active_at_power(500 - 400 * share) == pytest.approx(32)
    assert [PROFILE.active_at_power(watts) for watts in (99.0, 100.0, 500.0, 501.0)] == [
        0,
        0,
        math.inf,
        math.inf,
    ]
