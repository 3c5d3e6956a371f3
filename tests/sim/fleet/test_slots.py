"""A pool of slots whose iterations take one second each, so that every start and end is seen at once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sim.fleet import GpuProfile, Lengths
from sim.fleet.slot_simulation import SlotPool, SlotRun
from tests.sim.fleet.one_pool import simulate_slots

SECOND = GpuProfile(
    w_s=1.0,
    h_s=0.0,
    calibration_context=100,
    chunk_tokens=100,
    block_size=10,
    num_blocks=40,
    max_slots=100,
)
ONE_SLOT = replace(SECOND, max_slots=1)


def of(*tokens: tuple[float, float]) -> Lengths:
    """Return requests of (prompt, output) tokens."""
    return Lengths(
        input_tokens=np.array([each[0] for each in tokens]),
        output_tokens=np.array([each[1] for each in tokens]),
    )


def run(
    profile: GpuProfile,
    arrival_s: list[float],
    *tokens: tuple[float, float],
    gpus: int = 1,
    context: int = 100,
) -> SlotRun:
    return simulate_slots(profile, of(*tokens), np.array(arrival_s), context=context, gpus=gpus)


def test_blocks_are_whole_and_a_request_of_all_of_them_is_taken() -> None:
    """Of 40 blocks 11 tokens take two and 400 all; 401 fit into none."""
    few = run(SECOND, [0.0, 0.0], (5.0, 6.0), (5.0, 5.0))
    assert (few.most_blocks, few.most_slots) == (3, 2)
    all_of_them = run(SECOND, [0.0, 100.0], (390.0, 10.0), (5.0, 5.0))
    assert all_of_them.most_blocks == 40
    assert all_of_them.end_s.tolist() == [14.0, 106.0]
    more = run(SECOND, [0.0, 0.0], (391.0, 10.0), (5.0, 5.0))
    assert more.gpu.tolist() == [-1, 0]
    assert np.isnan(more.start_s).tolist() == [True, False]


def test_a_slot_of_its_own_is_enough_and_none_takes_nobody() -> None:
    """Requests of 1 + 4 iterations, one after the other."""
    seen = run(ONE_SLOT, [0.0, 1.0, 2.0], *[(10.0, 4.0)] * 3)
    assert seen.start_s.tolist() == [0.0, 5.0, 10.0]
    assert seen.end_s.tolist() == [5.0, 10.0, 15.0]
    assert seen.ttft_s.tolist() == [1.0, 5.0, 9.0]
    assert seen.busy_slot_s == 15.0
    none = run(SECOND, [0.0], (10.0, 4.0), context=401)
    assert none.gpu.tolist() == [-1]


def test_who_ends_at_the_moment_of_an_arrival_has_left() -> None:
    """Two GPUs of one slot. The first is free again at 5 s, so the request of that moment goes there."""
    seen = run(ONE_SLOT, [0.0, 5.0, 6.0], *[(10.0, 4.0)] * 3, gpus=2)
    assert seen.gpu.tolist() == [0, 0, 1]
    assert seen.start_s.tolist() == [0.0, 5.0, 6.0]


def test_requests_per_gpu_and_per_slot_are_those_that_run_and_wait() -> None:
    lengths = of(*[(10.0, 4.0)] * 5)
    pool = SlotPool(replace(SECOND, max_slots=2), lengths, np.zeros(5), context=100, gpus=2)
    for request in range(5):
        pool.advance(0.0)
        pool.accept(request, 0.0)
    assert (pool.pressure(), pool.load_frac()) == (2.5, 1.25)
    assert pool.gpu.tolist() == [0, 1, 0, 1, 0]
    pool.advance(5.0)
    assert (pool.pressure(), pool.load_frac()) == (0.5, 0.25)
    single = SlotPool(ONE_SLOT, lengths, np.zeros(5), context=100, gpus=1)
    for request in range(3):
        single.accept(request, 0.0)
    assert (single.pressure(), single.load_frac()) == (3.0, 3.0)
    full = SlotPool(SECOND, lengths, np.zeros(5), context=401, gpus=1)
    full.accept(0, 0.0)
    assert full.load_frac() == 0.0


def test_one_as_long_as_the_newcomer_keeps_its_place() -> None:
    """Each takes 25 of 40 blocks, and 3 + 10 iterations."""
    seen = run(SECOND, [0.0, 1.0], (240.0, 10.0), (240.0, 10.0))
    assert seen.num_preemptions == 0
    assert seen.start_s.tolist() == [0.0, 13.0]


def test_only_one_that_is_longer_gives_its_place() -> None:
    """The 190 tokens take the place of 200, which start again when 180 end, at 8 s. The other way round they wait."""
    seen = run(SECOND, [0.0, 1.0, 2.0], (195.0, 5.0), (175.0, 5.0), (185.0, 5.0))
    assert seen.num_preemptions == 1
    assert seen.start_s.tolist() == [8.0, 1.0, 2.0]
    assert seen.most_blocks == 39
    seen = run(SECOND, [0.0, 1.0, 2.0], (185.0, 5.0), (175.0, 5.0), (195.0, 5.0))
    assert seen.num_preemptions == 0
    assert seen.start_s.tolist() == [0.0, 1.0, 7.0]


def test_of_two_that_are_as_long_the_first_gives_its_place() -> None:
    seen = run(SECOND, [0.0, 1.0, 2.0], (195.0, 5.0), (195.0, 5.0), (185.0, 5.0))
    assert seen.start_s.tolist() == [8.0, 1.0, 2.0]


def test_the_end_that_was_due_before_a_preemption_is_none() -> None:
    """300 tokens, due at 43 s, give their place at 1 s and start again at 14 s: 3 + 40 iterations once more."""
    seen = run(SECOND, [0.0, 1.0], (260.0, 40.0), (240.0, 10.0))
    assert seen.num_preemptions == 1
    assert seen.start_s.tolist() == [14.0, 1.0]
    assert seen.end_s.tolist() == [14.0 + 43.0, 14.0]
    assert seen.busy_slot_s == 1.0 + 13.0 + 43.0


def test_a_prompts_compute_comes_before_its_first_token_and_in_the_time_of_its_slot() -> None:
    """0.5 s per token and 0.01 s per pair: 10 prompt tokens take 5.55 s beside their iterations."""
    seen = run(replace(SECOND, prefill_token_s=0.5, prefill_pair_s=0.01), [2.0], (10.0, 4.0))
    assert seen.first_token_s == pytest.approx([2 + 1 + 5.55])
    assert seen.end_s == pytest.approx([2 + 5 + 5.55])


def test_a_first_token_waits_for_the_outputs_before_it() -> None:
    """4 of 5 iterations bring an output, handed on in 0.1 s; the last token is never before the first."""
    slow = replace(SECOND, handed_on_s=0.1)
    seen = run(slow, [0.0, 0.5, 0.75], *[(10.0, 4.0)] * 3)
    plain = run(SECOND, [0.0, 0.5, 0.75], *[(10.0, 4.0)] * 3)
    assert (seen.first_token_s - plain.first_token_s).tolist() == pytest.approx([0.1, 0.18, 0.26])
    assert seen.end_s.tolist() == plain.end_s.tolist()
    late = run(replace(SECOND, handed_on_s=5.0), [0.0], (10.0, 4.0))
    assert late.end_s.tolist() == late.first_token_s.tolist() == [6.0]
