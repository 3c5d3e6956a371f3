"""Routers of a fleet, at the level of slots: each sends requests where its rule says, and nobody is lost."""

from __future__ import annotations

import numpy as np
import pytest

from sim.config import InvalidConfig
from sim.fleet import GpuProfile, Lengths
from sim.fleet.routers import ROUTERS, FleetPool, Router, simulate_routed
from sim.fleet.slots import simulate_slots

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
    router = Router(name=name, spill_per_gpu=2)  # type: ignore[arg-type]
    run = simulate_routed(POOLS, lengths, arrival, router)
    assert np.isfinite(run.end_s).all()
    assert (run.pool >= 0).all()
    limit = 1024 * (1.5 if name == "compress" else 1)
    assert (lengths.total_tokens[run.pool == 0] <= limit).all()


def test_a_request_that_no_pool_holds_is_in_none_and_never_ends() -> None:
    lengths = Lengths(input_tokens=np.array([1e6, 100.0]), output_tokens=np.array([10.0, 10.0]))
    run = simulate_routed(POOLS, lengths, np.array([0.0, 1.0]), Router(name="length"))
    assert run.pool.tolist() == [-1, 0]
    assert np.isnan(run.end_s).tolist() == [True, False]
    assert np.isnan(run.ttft_s).tolist() == [True, False]


def test_by_length_each_pool_is_a_pool_of_its_own() -> None:
    lengths, arrival = drawn(1500, 40.0)
    run = simulate_routed(POOLS, lengths, arrival, Router(name="length"))
    short = lengths.total_tokens <= 1024
    assert np.array_equal(run.pool == 0, short)
    alone = simulate_slots(A100, lengths.where(short), arrival[short], context=1024, gpus=2)
    assert np.array_equal(run.end_s[short], alone.end_s)


def test_overflow_goes_to_the_long_pool_only_under_pressure() -> None:
    lengths, arrival = drawn(2000, 60.0)
    calm = simulate_routed(POOLS, lengths, arrival, Router(name="spillover", spill_per_gpu=1e9))
    eager = simulate_routed(POOLS, lengths, arrival, Router(name="spillover", spill_per_gpu=5))
    plain = simulate_routed(POOLS, lengths, arrival, Router(name="length"))
    assert np.array_equal(calm.pool, plain.pool)
    assert (eager.pool == 1).sum() > (plain.pool == 1).sum()


def test_compression_moves_requests_to_the_short_pool() -> None:
    lengths, arrival = drawn(1000, 20.0)
    plain = simulate_routed(POOLS, lengths, arrival, Router(name="length"))
    pressed = simulate_routed(POOLS, lengths, arrival, Router(name="compress", factor=2.0))
    moved = (plain.pool == 1) & (pressed.pool == 0)
    assert moved.any()
    assert ((lengths.total_tokens[moved] > 1024) & (lengths.total_tokens[moved] <= 2048)).all()


def test_least_loaded_is_balanced_and_random_is_in_proportion_to_slots() -> None:
    pools = (FleetPool(profile=A100, context=8192, gpus=1), FleetPool(profile=A100, context=8192, gpus=3))
    lengths, arrival = drawn(4000, 40.0)
    for name in ("least-loaded", "random"):
        run = simulate_routed(pools, lengths, arrival, Router(name=name))  # type: ignore[arg-type]
        assert (run.pool == 1).mean() == pytest.approx(0.75, abs=0.03)


def test_labels_decide_where_a_classifier_says() -> None:
    lengths, arrival = drawn(200, 5.0)
    labels = np.arange(200) % 2
    run = simulate_routed(POOLS, lengths, arrival, Router(name="label"), labels=labels)
    assert np.array_equal(run.pool, labels)
    with pytest.raises(InvalidConfig, match="labels: got none"):
        simulate_routed(POOLS, lengths, arrival, Router(name="label"))


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
        Router(**settings)  # type: ignore[arg-type]
