"""Pools behind a router, by the token-level engine: who gets what, and that slots and engines agree."""

from __future__ import annotations

import math

import numpy as np
import pytest

from replay.fleet.check.pool import cells_of, most_of_cell
from replay.fleet.check.routed import EnginePool, RoutedCheck, verify_routed
from replay.fleet.check.steady import STAYS_A_BATCH, RunLength
from replay.fleet.inputs.profiles import from_profile, of_context, shipped_profiles
from sim.fleet import Lengths
from sim.fleet.routers import FleetPool, FleetRouter, RouterName, simulate_routed

LENGTHS = Lengths(
    input_tokens=np.array([180.0, 380.0, 900.0, 3000.0]), output_tokens=np.array([20.0, 20.0, 50.0, 60.0])
)
A100 = shipped_profiles()["A100"]
RATE = 100.0


def pool(context: int, engines: int, share: float = 1.0) -> EnginePool:
    source = from_profile("A100", A100, context=context)
    return EnginePool(
        source=source, context=context, engines=engines, slots=A100.num_slots(context), share=share
    )


def routed(name: RouterName, *pools: EnginePool, spill: float = 64.0, factor: float = 1.5) -> RoutedCheck:
    return verify_routed(
        pools,
        FleetRouter(name=name, spill_per_gpu=spill, factor=factor),
        LENGTHS,
        RATE,
        stay_s=2.0,
        seed=1,
        asked=RunLength(num_requests=900),
    )


def test_by_length_a_pool_has_the_requests_that_it_is_the_shortest_to_hold() -> None:
    found = routed("length", pool(512, 2), pool(4096, 4))
    assert found.shares == pytest.approx((0.5, 0.5), abs=0.06)
    assert [each.num_requests for each in found.pools] == [
        round(share * found.whole.num_requests) for share in found.shares
    ]
    assert found.whole.failed_frac == 0


def test_spillover_sends_on_from_so_many_requests_per_engine() -> None:
    pools = (pool(512, 2), pool(4096, 4))
    never, always = routed("spillover", *pools, spill=1e6), routed("spillover", *pools, spill=1e-3)
    assert never.shares == routed("length", *pools).shares
    assert always.shares[0] < 0.35 < never.shares[0]
    some = routed("spillover", *pools, spill=2)
    assert always.shares[0] < some.shares[0] < never.shares[0]
    assert some.pools[0].active <= 2


def test_least_loaded_evens_out_the_requests_per_slot() -> None:
    found = routed("least-loaded", pool(4000, 3), pool(4096, 1))
    per_slot = [
        each.active / A100.num_slots(limit) for each, limit in zip(found.pools, (4000, 4096), strict=True)
    ]
    assert per_slot[0] == pytest.approx(per_slot[1], rel=0.25)
    assert found.shares[0] == pytest.approx(0.75, abs=0.1)


def test_random_deals_by_the_pools_shares_among_those_that_hold_a_request() -> None:
    found = routed("random", pool(512, 2, share=3), pool(4096, 4, share=1))
    assert found.shares[0] == pytest.approx(0.5 * 0.75, abs=0.06)


def test_prompts_that_are_a_little_too_long_are_cut_for_the_short_pool() -> None:
    found = routed("compress", pool(512, 2), pool(4096, 4), factor=2.0)
    assert found.shares[0] == pytest.approx(0.75, abs=0.06)
    assert found.whole.failed_frac == 0


def test_requests_that_no_pool_holds_are_left_out() -> None:
    found = routed("length", pool(256, 1), pool(2048, 2))
    assert found.whole.rate_per_s == pytest.approx(0.75 * RATE, rel=0.07)


@pytest.mark.parametrize("name", ["length", "spillover", "least-loaded"])
def test_slots_and_engines_tell_the_same_of_a_router(name: RouterName) -> None:
    """A profile's engine does what the profile says: the share of the short pool, and TTFT within 15 %."""
    pools = (pool(512, 2), pool(4096, 4))
    by_engines = routed(name, *pools, spill=2)
    rng = np.random.Generator(np.random.Philox(1))
    arrival_s = np.cumsum(rng.exponential(1 / RATE, 1500))
    rows = rng.integers(0, len(LENGTHS), 1500)
    by_slots = simulate_routed(
        [FleetPool(profile=A100, context=each.context, gpus=each.engines) for each in pools],
        LENGTHS.at(rows),
        arrival_s,
        FleetRouter(name=name, spill_per_gpu=2),
    )
    assert by_engines.shares[0] == pytest.approx((by_slots.pool == 0).mean(), abs=0.08)
    assert by_engines.whole.ttft_p50.value == pytest.approx(np.median(by_slots.ttft_s[300:]), rel=0.15)


def test_a_pool_of_the_table_has_seats_for_its_own_longest_request() -> None:
    """Shorter requests have more slots: a pool for them is simulated with as many seats as its formula has slots."""
    wide = from_profile("A100", A100, context=8192)
    assert (wide.engine.max_num_seqs, of_context(wide, 2048).engine.max_num_seqs) == (128, 512)


@pytest.mark.parametrize(
    ("engines", "cells"),
    [((200, 50), 1), ((400, 400), 4), ((500, 1), 1), ((1000, 3), 3), ((1000, 5), 1), ((500, 12), 2)],
)
def test_cells_lose_no_pool_more_than_a_fiftieth(engines: tuple[int, int], cells: int) -> None:
    assert cells_of(engines) == cells
    assert all(each // cells * cells >= 0.98 * each for each in engines)


@pytest.mark.parametrize(
    ("engines", "number", "most"),
    [(200, 1e9, 256), (512, 1e5, 256), (1000, 3e6, 100), (100_000, 1.45e9, 32), (10_000, 1e7, 256)],
)
def test_cells_of_very_large_fleets_have_no_more_requests_than_it_takes(
    engines: int, number: float, most: int
) -> None:
    """A fleet of up to 256 engines is one cell, whatever it costs; a cell of a larger one has 32 at least."""
    assert most_of_cell(engines, number) == most


def test_the_measured_part_leaves_out_filling_and_drain() -> None:
    whole = routed("length", pool(512, 2), pool(4096, 4)).whole
    window = whole.window
    assert window.is_steady
    assert (window.begins_s, window.ends_s) == pytest.approx((3.0, window.last_s - 2.0))
    assert whole.num_measured < whole.num_requests
    assert window.needed_s(whole.ttft_p99) > 0
    assert math.isclose(window.batch_s, (window.ends_s - window.begins_s) / window.num_batches)
    assert window.batch_s >= STAYS_A_BATCH * window.stay_s
