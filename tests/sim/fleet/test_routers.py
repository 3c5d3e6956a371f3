"""Routers of a fleet, at the level of slots: each sends requests where its rule says, and nobody is lost."""

from __future__ import annotations

import numpy as np
import pytest

from sim.config import InvalidConfig
from sim.fleet import GpuProfile, Lengths
from sim.fleet.routers import ROUTERS, FleetPool, FleetRouter, simulate_routed
from tests.sim.fleet.one_pool import simulate_slots

A100 = GpuProfile(0.008, 0.00065, 8192, 512, 16, 65_536, 128)
POOLS = (FleetPool(profile=A100, context=1024, gpus=2), FleetPool(profile=A100, context=8192, gpus=4))


def drawn(
    number: int, rate: float, *, seed: int = 1
) -> tuple[Lengths, np.ndarray[tuple[int, ...], np.dtype[np.float64]]]:
    rng = np.random.default_rng(seed)
    total = np.clip(rng.lognormal(6.6, 0.9, number), 20, 8000)
    lengths = Lengths(input_tokens=np.ceil(0.8 * total), output_tokens=np.ceil(0.2 * total))
    return lengths, np.cumsum(rng.exponential(1 / rate, number))


@pytest.mark.parametrize("name", [name for name in ROUTERS if name != "label"])
def test_every_request_goes_to_a_pool_that_holds_it_and_ends(name: str) -> None:
    lengths, arrival = drawn(2000, 40.0)
    router = FleetRouter(name=name, spill_per_gpu=2)  # type: ignore[arg-type]
    run = simulate_routed(POOLS, lengths, arrival, router)
    assert np.isfinite(run.end_s).all()
    assert (run.pool >= 0).all()
    limit = 1024 * (1.5 if name == "compress" else 1)
    assert (lengths.total_tokens[run.pool == 0] <= limit).all()


def test_a_request_that_no_pool_holds_is_in_none_and_never_ends() -> None:
    lengths = Lengths(input_tokens=np.array([1e6, 100.0]), output_tokens=np.array([10.0, 10.0]))
    run = simulate_routed(POOLS, lengths, np.array([0.0, 1.0]), FleetRouter(name="length"))
    assert run.pool.tolist() == [-1, 0]
    assert np.isnan(run.end_s).tolist() == [True, False]
    assert np.isnan(run.ttft_s).tolist() == [True, False]


def test_by_length_each_pool_is_a_pool_of_its_own() -> None:
    lengths, arrival = drawn(1500, 40.0)
    run = simulate_routed(POOLS, lengths, arrival, FleetRouter(name="length"))
    short = lengths.total_tokens <= 1024
    assert np.array_equal(run.pool == 0, short)
    alone = simulate_slots(A100, lengths.where(short), arrival[short], context=1024, gpus=2)
    assert np.array_equal(run.end_s[short], alone.end_s)


def test_overflow_goes_to_the_long_pool_only_under_pressure() -> None:
    lengths, arrival = drawn(2000, 60.0)
    calm = simulate_routed(POOLS, lengths, arrival, FleetRouter(name="spillover", spill_per_gpu=1e9))
    eager = simulate_routed(POOLS, lengths, arrival, FleetRouter(name="spillover", spill_per_gpu=5))
    plain = simulate_routed(POOLS, lengths, arrival, FleetRouter(name="length"))
    assert np.array_equal(calm.pool, plain.pool)
    assert (eager.pool == 1).sum() > (plain.pool == 1).sum()


def test_compression_moves_requests_to_the_short_pool() -> None:
    lengths, arrival = drawn(1000, 20.0)
    plain = simulate_routed(POOLS, lengths, arrival, FleetRouter(name="length"))
    pressed = simulate_routed(POOLS, lengths, arrival, FleetRouter(name="compress", factor=2.0))
    moved = (plain.pool == 1) & (pressed.pool == 0)
    assert moved.any()
    assert ((lengths.total_tokens[moved] > 1024) & (lengths.total_tokens[moved] <= 2048)).all()


def test_least_loaded_is_balanced_and_random_is_in_proportion_to_slots() -> None:
    pools = (FleetPool(profile=A100, context=8192, gpus=1), FleetPool(profile=A100, context=8192, gpus=3))
    lengths, arrival = drawn(4000, 40.0)
    for name in ("least-loaded", "random"):
        run = simulate_routed(pools, lengths, arrival, FleetRouter(name=name))  # type: ignore[arg-type]
        assert (run.pool == 1).mean() == pytest.approx(0.75, abs=0.03)


def test_labels_decide_where_a_classifier_says() -> None:
    lengths, arrival = drawn(200, 5.0)
    labels = np.arange(200) % 2
    run = simulate_routed(POOLS, lengths, arrival, FleetRouter(name="label"), labels=labels)
    assert np.array_equal(run.pool, labels)
    with pytest.raises(InvalidConfig, match="labels: got none"):
        simulate_routed(POOLS, lengths, arrival, FleetRouter(name="label"))


@pytest.mark.parametrize(
    "settings",
    [
        {"name": "fastest"},
        {"name": "compress", "factor": 0.5},
        {"name": "spillover"},
        {"name": "spillover", "spill_per_gpu": 0},
    ],
)
def test_what_is_no_router_is_refused(settings: dict[str, object]) -> None:
    with pytest.raises(InvalidConfig, match="got"):
        FleetRouter(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "settings", [{"name": "spillover", "spill_per_gpu": 0.5}, {"name": "compress", "factor": 1}]
)
def test_the_least_that_is_a_router_is_taken(settings: dict[str, object]) -> None:
    FleetRouter(**settings)  # type: ignore[arg-type]


def test_a_pool_is_full_with_so_many_requests_per_gpu() -> None:
    router = FleetRouter(name="spillover", spill_per_gpu=2.0)
    assert [router.spills(number, 3) for number in (5.9, 6.0, 6.1)] == [False, True, True]
    assert not FleetRouter(name="length").spills(1e9, 1)


SECOND = GpuProfile(w_s=1.0, h_s=0.0, calibration_context=100, block_size=10, num_blocks=1000, max_slots=2)


def rows(*total_tokens: float) -> Lengths:
    """Return requests of ten output tokens, and so of 11 s."""
    total = np.array(total_tokens)
    return Lengths(input_tokens=total - 10, output_tokens=np.full(len(total), 10.0))


def routed(
    router: FleetRouter,
    contexts_gpus: list[tuple[int, int]],
    lengths: Lengths,
    arrival_s: list[float] | None = None,
) -> list[int]:
    """Return the pool of each request, all there at once where nothing else is said."""
    pools = [FleetPool(profile=SECOND, context=context, gpus=gpus) for context, gpus in contexts_gpus]
    arrival = np.array(arrival_s or [0.0] * len(lengths))
    return simulate_routed(pools, lengths, arrival, router).pool.tolist()


def test_a_full_pool_spills_into_the_next_that_holds_the_request_and_no_further() -> None:
    """One and a half requests per GPU of the short pool's two, running and waiting: the fourth finds three."""
    router = FleetRouter(name="spillover", spill_per_gpu=1.5)
    pools = [(100, 2), (200, 1), (300, 1)]
    assert routed(router, pools, rows(*[50.0] * 9)) == [0, 0, 0, 1, 1, 1, 1, 1, 1]
    assert routed(router, pools, rows(*[250.0] * 5)) == [2] * 5, "the last pool has no next"
    assert routed(router, pools, rows(*[150.0] * 4)) == [1, 1, 2, 2]
    later = routed(router, pools, rows(*[50.0] * 5), [0.0, 0.0, 0.0, 10.9, 11.0])
    assert later == [0, 0, 0, 1, 0], "at 11 s the first three have ended"


def test_the_least_loaded_has_the_fewest_requests_per_slot_and_the_first_of_equals_gets_them() -> None:
    """Pools of 2 and 4 slots at 100 tokens, of 1 and 2 at 200."""
    router = FleetRouter(name="least-loaded")
    assert routed(router, [(100, 1), (100, 2)], rows(*[50.0] * 6)) == [0, 1, 1, 0, 1, 1]
    assert routed(router, [(200, 1), (200, 2)], rows(*[50.0] * 6)) == [0, 1, 1, 0, 1, 1]
    assert routed(router, [(100, 1), (200, 1)], rows(*[150.0] * 3)) == [1, 1, 1]


def test_at_random_in_proportion_to_the_slots_of_the_pools_that_hold_it() -> None:
    """3 · 2 slots at 100 tokens, 4 · 1 at 200 and 2 · 1 at 200: a half, a third, a sixth; 2 to 1 for long requests."""
    lengths = rows(*[50.0] * 200, *[150.0] * 200)
    draws = np.random.Generator(np.random.Philox(9)).random(400).tolist()
    expected = [0 if each < 1 / 2 else 1 if each < 5 / 6 else 2 for each in draws[:200]]
    expected += [1 if each < 2 / 3 else 2 for each in draws[200:]]
    assert routed(FleetRouter(name="random", seed=9), [(100, 3), (200, 4), (200, 2)], lengths) == expected


def test_pools_come_with_the_shortest_context_first_or_not_at_all() -> None:
    assert routed(FleetRouter(name="length"), [(100, 1), (100, 1)], rows(50.0)) == [0]
    for contexts in ([], [(200, 1), (100, 1)]):
        with pytest.raises(InvalidConfig, match="expected the shortest context first"):
            routed(FleetRouter(name="length"), contexts, rows(50.0))


@pytest.mark.parametrize("labels", [[0, 2], [2, 0], [0], [0, 1, 0]])
def test_a_label_is_the_number_of_a_pool_for_each_request(labels: list[int]) -> None:
    pools = [FleetPool(profile=SECOND, context=100, gpus=1)] * 2
    with pytest.raises(InvalidConfig, match="labels: got none, or numbers without a pool"):
        simulate_routed(
            pools, rows(50.0, 50.0), np.zeros(2), FleetRouter(name="label"), labels=np.array(labels)
        )


def test_a_prompt_up_to_so_many_times_too_long_is_cut_and_no_other() -> None:
    router = FleetRouter(name="compress", factor=1.5)
    assert routed(router, [(100, 1), (1000, 1)], rows(100.0, 150.0, 151.0)) == [0, 0, 1]
    assert routed(FleetRouter(name="length"), [(100, 1), (1000, 1)], rows(100.0, 101.0)) == [0, 1]
