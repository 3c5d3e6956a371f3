"""Arrays with a row per request are declared once: none is missing, and a row that is given again is a new one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sim.cluster.client_plans import closed_loop
from sim.cluster.cluster_config import ClusterConfig, Pool
from sim.cluster.cluster_work import ClusterWork
from sim.cluster.fleet import ROWS_OF_TABLE
from sim.cluster.gateway.eviction import ROWS_OF_SHEDDABLE
from sim.cluster.gateway.flow_config import FlowControl
from sim.cluster.gateway.queue import ROWS_OF_QUEUE
from sim.cluster.live.cluster import LiveCluster
from sim.cluster.run.beginning.prepare import new_world
from sim.cluster.run.world import ROWS_OF_WORLD, World
from sim.cluster.transfer.disaggregation_config import Disaggregation
from sim.cluster.transfer.kv_links import ROWS_OF_LINKS
from sim.config import EngineConfig
from sim.engine.dtypes import NEVER
from sim.engine.state import (
    PER_REQUEST,
    SCRATCH_OF_REQUESTS,
    columns,
    rows_taken,
)
from sim.latency import Blackbox
from sim.requests import Images, Requests
from sim.resumable import Engine

NUM = 7919
"""A prime that no other array's length is."""

LATENCY = Blackbox(beta0=1000, beta1=10, beta2=10)
SMALL = {
    "max_num_seqs": 4,
    "num_gpu_blocks": 64,
    "max_model_len": 256,
    "block_size": 16,
    "language_model_only": True,
}
CONFIGS = {
    "plain": EngineConfig(**SMALL),  # type: ignore[arg-type]
    "speculating": EngineConfig(num_speculative_tokens=2, synthetic_acceptance_rates=(0.5, 0.25), **SMALL),  # type: ignore[arg-type]
    "staged": EngineConfig(pipeline_parallel_size=2, **SMALL),  # type: ignore[arg-type]
    "offloading": EngineConfig(
        kv_offloading="native",
        num_cpu_blocks=9,
        async_scheduling=False,
        **SMALL,  # type: ignore[arg-type]
    ),
    "pinning": EngineConfig(session_kv_ttl_us=5000, **SMALL),  # type: ignore[arg-type]
    "seeing": EngineConfig(**SMALL | {"language_model_only": False}),  # type: ignore[arg-type]
    "costly": EngineConfig(guided_compile_us=50, guided_mask_us=3.0, lora_load_us=10, max_loras=2, **SMALL),  # type: ignore[arg-type]
}


def everything(num: int) -> Requests:
    """Return requests that ask for every array there is."""
    return Requests(
        arrival_us=np.arange(num, dtype=np.int64) * 100,
        prompt_tokens=np.full(num, 20),
        output_tokens=np.full(num, 3),
        priority=np.zeros(num, np.int64),
        hash_offsets=np.zeros(num + 1, np.int64),
        hash_ids=np.zeros(0, np.int64),
        deadline_us=np.arange(num, dtype=np.int64) * 100 + 10_000_000,
        max_tokens=np.full(num, 9),
        is_guided=np.arange(num) % 2 == 0,
        adapter=np.arange(num, dtype=np.int64) % 3,
        images=Images(
            starts=np.arange(num, dtype=np.int64) % 2,
            counts=np.arange(num, dtype=np.int64) % 2,
            position=np.array([0, 4]),
            num_tokens=np.array([3, 3]),
            content=np.array([0, 1]),
        ),
        kv_number=np.where(np.arange(num) < 5, np.arange(num), -1),
        goes_on_from=np.where(np.arange(num) >= 5, np.arange(num) % 5, -1),
    )


def long_arrays(parts: Any, num: int) -> set[str]:  # noqa: ANN401 - any tuple of arrays
    """Return the names of the arrays that are about as long as there are requests."""
    return {
        name
        for name in parts._fields
        if isinstance(array := getattr(parts, name), np.ndarray)
        and array.ndim
        and num <= len(array) <= num + 1
    }


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_every_array_of_an_engine_that_is_as_long_as_the_requests_is_declared(config: EngineConfig) -> None:
    state = Engine(everything(NUM), config, LATENCY)._state
    found = long_arrays(state, NUM)
    assert found <= set(PER_REQUEST) | set(SCRATCH_OF_REQUESTS)
    expected = {name for name, each in PER_REQUEST.items() if each.exists(config)}
    assert expected <= found
    assert ("images_of" in found) == config.encodes_images
    assert {"deadline_us", "requests"} <= found


def declared_of(world: World) -> Iterator[tuple[Any, tuple[str, ...]]]:
    """Yield the parts of a world, and which of their arrays are declared."""
    yield (
        world,
        (*ROWS_OF_WORLD, "arrivals", "arrivals_us"),
    )  # the last two: in the order of time, never given again
    yield world.requests, ROWS_OF_TABLE
    yield world.queue, ROWS_OF_QUEUE
    yield world.sheddable, ROWS_OF_SHEDDABLE
    yield world.links, ROWS_OF_LINKS
    yield (
        world.clients,
        ("due_us", "think_us", "num_awaited", "session", "wave"),
    )  # of plans for rows known beforehand
    for rest in (world.fleet, world.router, world.admission, world.prefill_fleet, world.prefill_router):
        yield rest, ()


def test_every_array_of_a_cluster_that_is_as_long_as_the_requests_is_declared() -> None:
    pool = Pool(engine=CONFIGS["costly"], latency=LATENCY)
    config = ClusterConfig(
        pools=(replace(pool, name="p", role="prefill"), replace(pool, name="d", role="decode")),
        flow_control=FlowControl(evicts=True),
        disaggregation=Disaggregation(kv_bytes_per_token=1),
    )
    requests = everything(NUM)
    work = ClusterWork(requests=requests, clients=closed_loop(NUM, concurrency=NUM))
    world, states = new_world(work, config, forced=np.full(NUM, NEVER), runs_engines=False)
    for parts, names in declared_of(world):
        assert long_arrays(parts, NUM) <= set(names), type(parts).__name__
    for state in states:
        assert long_arrays(state, NUM) <= set(PER_REQUEST) | set(SCRATCH_OF_REQUESTS)


def test_a_live_cluster_gives_rows_again_as_nobody_has_had_them() -> None:
    live = LiveCluster(ClusterConfig(pools=(Pool(engine=CONFIGS["plain"], latency=LATENCY),)), num_keys=2)
    rows = live._rows
    before = {name: columns(array)[5].tobytes() for name, array in rows._arrays().items()}
    for array in rows._arrays().values():
        if len(array) == len(rows):
            columns(array)[: len(rows) // 2].view(np.uint8)[:] = 0x55
    columns(live._driver.states[0].requests)["slot"] = NEVER
    columns(live._driver.states[0].requests)["next_waiting"] = NEVER
    columns(live._driver.world.journeys)["exit"] = 1
    rows.is_known[:] = False
    rows._find_span()
    after = {name: columns(array)[5].tobytes() for name, array in rows._arrays().items()}
    assert after == before
    assert any(name.startswith("state 0 ") for name in after)


def test_rows_that_are_taken_are_taken_of_every_array() -> None:
    state = Engine(everything(9), CONFIGS["costly"], LATENCY)._state
    rows = np.array([1, 4])
    own = rows_taken(state, rows)
    for name in PER_REQUEST:
        array = getattr(state, name)
        np.testing.assert_array_equal(getattr(own, name), array[rows] if len(array) else array, err_msg=name)
