"""KV blocks in host memory as vLLM has them; `tests/conformance` proves the decisions, this the rest."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from sim import Blackbox, Engine, EngineConfig, InvalidConfig, KVCacheGroup, Requests, simulate
from sim.cluster import ClusterConfig, ClusterWork, Pool, simulate_cluster
from sim.config import UNBOUNDED
from tests.examples import examples

LATENCY = Blackbox(beta0=6000, beta1=18.5, beta2=95)
NATIVE = EngineConfig(
    kv_offloading="native",
    num_cpu_blocks=60,
    kv_load_us_per_block=400.5,
    kv_store_us_per_block=900.0,
    num_gpu_blocks=40,
    block_size=16,
    max_num_seqs=5,
    max_num_batched_tokens=128,
    max_model_len=600,
    async_scheduling=False,
)


def requests_of(drawn: list[tuple[int, int, int, int, int]]) -> Requests:
    """Return requests of (µs since the one before, prefix, its blocks, own prompt tokens, output tokens)."""
    gaps, groups, shared, own, outputs = (np.array(column, np.int64) for column in zip(*drawn, strict=True))
    arrival_us = np.cumsum(gaps)
    ids = [100 * group + np.arange(num) for group, num in zip(groups, shared, strict=True)]
    return Requests(
        arrival_us=arrival_us,
        prompt_tokens=16 * shared + own,
        output_tokens=outputs,
        priority=groups % 3,
        hash_offsets=np.concatenate([[0], np.cumsum(shared)]).astype(np.int64),
        hash_ids=np.concatenate(ids).astype(np.int64),
        deadline_us=np.where(groups == 1, arrival_us + 40_000, -1),
    )


DRAWN = st.lists(
    st.tuples(
        st.integers(0, 60_000), st.integers(0, 3), st.integers(0, 12), st.integers(1, 60), st.integers(1, 40)
    ),
    min_size=1,
    max_size=25,
)


def assert_nothing_is_left(state: Any) -> None:  # noqa: ANN401 - the engine's arrays
    """Check that blocks and rows are free, and that chunks, jobs and fences agree with each other."""
    queues, kv = state.engine[0].queues, state.engine[0].kv_transfers
    assert queues.num_running == queues.num_waiting == kv.num_holding == kv.num_ready == 0
    is_pinned = state.chunks["ref_cnt"][1 : state.engine[0].kv_offload.num_chunks + 1] != 0
    assert state.engine[0].kv_offload.num_evictable == (~is_pinned).sum()
    if len(state.chunk_heap):
        assert_heap_is_of(state, is_pinned)
    held = state.chunks["key"][1 : len(is_pinned) + 1]
    assert len(set(held)) == len(held)
    assert [state.cpu_slot_of_key[key] for key in held] == list(range(1, len(held) + 1))
    assert (state.cpu_slot_of_key != 0).sum() == len(held)
    assert kv.num_deferred == 0
    if kv.num_delayed == 0:  # else who went while it was loading has blocks until the next step
        assert queues.num_free_blocks == len(state.blocks) - 1
        assert not state.blocks["ref_cnt"].any()


def assert_heap_is_of(state: Any, is_pinned: NDArray[np.bool_]) -> None:  # noqa: ANN401 - likewise
    """Assert that the chunks that no transfer needs are in the heap, and none goes before the one above it."""
    length = state.engine[0].kv_offload.heap_length
    heap = state.chunk_heap[1 : length + 1]
    assert sorted(heap) == list(np.flatnonzero(~is_pinned) + 1)
    assert list(state.chunks["heap_at"][heap]) == list(range(1, length + 1))
    ranks = list(zip(state.chunks["rank"][heap], state.chunks["order"][heap], strict=True))
    assert all(ranks[(at + 1) // 2 - 1] <= ranks[at] for at in range(1, length))


LAYERS: dict[str, dict[str, Any]] = {
    "one group": {},
    "states": {
        "kv_cache_groups": (KVCacheGroup(kind="full"), *[KVCacheGroup(kind="state", mode="align")] * 2),
        "num_gpu_blocks": 45,
    },
    "drafts": {
        "num_speculative_tokens": 2,
        "num_lookahead_tokens": 2,
        "use_eagle": True,
        "synthetic_acceptance_rates": (0.7, 0.2),
    },
}
LAYERS["states and drafts"] = LAYERS["states"] | LAYERS["drafts"]


@examples(120)
@given(
    drawn=DRAWN,
    layers=st.sampled_from(tuple(LAYERS)),
    is_async=st.booleans(),
    threshold=st.integers(0, 2),
    num_cpu_blocks=st.sampled_from((3, 20, 200)),
    policy=st.sampled_from(("fcfs", "priority")),
    version=st.sampled_from(("0.31.0", "0.32.0", "0.33.0")),
)
def test_jumps_change_nothing_and_nothing_is_left_behind_though_clients_go_away(
    drawn: list[tuple[int, int, int, int, int]],
    layers: str,
    is_async: bool,
    threshold: int,
    num_cpu_blocks: int,
    policy: Literal["fcfs", "priority"],
    version: str,
) -> None:
    config = replace(
        NATIVE,
        vllm_version=version,
        async_scheduling=is_async,
        kv_store_threshold=threshold,
        num_cpu_blocks=num_cpu_blocks,
        scheduling_policy=policy,
        **LAYERS[layers],
    )
    requests = requests_of(drawn)
    plain = simulate(requests, config, LATENCY, coalesce=False, record="steps")
    jumped = simulate(requests, config, LATENCY, record="spans")
    for name in ("status", "last_token_us", "num_cached_tokens"):
        np.testing.assert_array_equal(getattr(plain.outcomes, name), getattr(jumped.outcomes, name))
    for name in ("num_kv_loads", "num_kv_stores", "num_kv_offloads", "kv_load_wait_us", "num_steps"):
        assert getattr(plain, name) == getattr(jumped, name)
    assert_nothing_is_left(plain.written.state)
    steps = plain.steps()
    assert sum(n for step in steps for _, n in step.loads or []) == plain.num_kv_reloads
    assert sum(n for step in steps for _, n in step.stores or []) == plain.num_kv_offloads


@examples(40)
@given(
    drawn=DRAWN,
    sent_to=st.lists(st.integers(0, 2), min_size=25, max_size=25),
    is_async=st.booleans(),
    layers=st.sampled_from(("one group", "states")),
)
def test_each_instance_of_a_cluster_has_a_tier_of_its_own(
    drawn: list[tuple[int, int, int, int, int]], sent_to: list[int], is_async: bool, layers: str
) -> None:
    """Whatever goes to an instance comes out as from a server that gets nothing else."""
    config = replace(NATIVE, async_scheduling=is_async, **LAYERS[layers])
    requests = replace(requests_of(drawn), deadline_us=None)
    sent = np.array(sent_to[: len(requests)], np.int64)
    cluster = ClusterConfig(pools=(Pool(engine=config, latency=LATENCY, instances=3),))
    together = simulate_cluster(ClusterWork(requests=requests), cluster, forced=sent)
    for instance in range(3):
        rows = np.flatnonzero(sent == instance)
        alone = simulate(requests.take(rows), config, LATENCY)
        for name in ("last_token_us", "num_cached_tokens", "num_loaded_tokens", "load_wait_us"):
            found_by_rows = getattr(together.outcomes, name)[rows]
            np.testing.assert_array_equal(found_by_rows, getattr(alone.outcomes, name), err_msg=name)
        found = together.instances[instance]
        assert (found.num_kv_loads, found.num_kv_stores) == (alone.num_kv_loads, alone.num_kv_stores)


def talks_of_two() -> Requests:
    """Return requests of two long prefixes in turn, of which the GPU holds one."""
    return requests_of([(300_000, 2 * (i % 2), 30, 8, 4) for i in range(8)])


def test_a_prefix_comes_back_from_host_memory() -> None:
    config = replace(NATIVE, num_cpu_blocks=70)
    simulation = simulate(talks_of_two(), config, LATENCY)
    assert simulation.num_kv_offloads == 60
    assert simulation.num_kv_loads > 0
    cached = simulation.outcomes.num_cached_tokens
    assert list(cached[:2]) == [0, 0]
    assert list(cached[2:]) == [480] * 6
    assert simulation.num_kv_loaded_tokens == simulation.num_kv_reloads * 16
    slower = simulate(talks_of_two(), replace(config, kv_load_us_per_block=2000.0), LATENCY)
    assert slower.kv_load_wait_us > simulation.kv_load_wait_us
    assert (slower.outcomes.first_token_us[2:] > simulation.outcomes.first_token_us[2:]).any()


def test_of_states_the_last_one_comes_back_and_each_prompt_leaves_its_own() -> None:
    """A request brings its blocks of the full group, and of each group of states one."""
    config = replace(NATIVE, num_cpu_blocks=400, max_num_batched_tokens=64, **LAYERS["states"])
    simulation = simulate(talks_of_two(), config, LATENCY, record="steps")
    loads = [num for step in simulation.steps() for _, num in step.loads or []]
    assert loads
    assert set(loads) == {30 + 2}
    assert list(simulation.outcomes.num_cached_tokens[2:]) == [480] * 6
    stores = [num for step in simulation.steps() for _, num in step.stores or []]
    assert stores.count(1) == 2 * 2 * 8  # both prompts: a state of each group in each of their chunks
    alone = replace(config, prefix_cache_retention_interval=0)
    simulation = simulate(talks_of_two(), alone, LATENCY, record="steps")
    assert [num for step in simulation.steps() for _, num in step.stores or []].count(1) == 2 * 2


def test_a_shared_store_has_no_drafts() -> None:
    with pytest.raises(
        InvalidConfig, match="shared cannot be combined with num_speculative_tokens 2, expected 0"
    ):
        replace(NATIVE, kv_offloading="shared", **LAYERS["drafts"])


def test_it_jumps_and_an_engine_that_is_looked_at_says_what_it_moved() -> None:
    engine = Engine(talks_of_two(), NATIVE, LATENCY)
    engine.advance()
    view = engine.view()
    assert view.num_jumps > 0
    assert view.num_kv_stores > 0


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "enable_prefix_caching",
            False,
            "native cannot be combined with enable_prefix_caching false, expected true",
        ),
        ("pipeline_parallel_size", 2, "native cannot be combined with pipeline_parallel_size 2, expected 1"),
        ("vllm_version", "0.28.0", "native with vllm_version 0.28.0, expected blis"),
        ("kv_load_us_per_block", -1.0, "kv_load_us_per_block: got -1.0, expected a number in"),
        ("kv_store_us_per_block", 2e6, "kv_store_us_per_block: got 2000000.0, expected a number in"),
        ("kv_store_threshold", -1, "kv_store_threshold: got -1, expected an integer >= 0"),
        ("kv_offloading", "lmcache", "kv_offloading: got 'lmcache', expected one of native, shared, blis"),
    ],
)
def test_what_is_not_simulated_beside_it_is_refused(name: str, value: object, message: str) -> None:
    settings: dict[str, Any] = {name: value}
    if name == "vllm_version":
        settings |= {"long_prefill_token_threshold_adaptive": False}
    with pytest.raises(InvalidConfig, match=message):
        replace(NATIVE, **settings)


def test_without_a_limit_nothing_goes_there() -> None:
    config = replace(NATIVE, num_gpu_blocks=UNBOUNDED)
    assert not config.has_native_offloading
    assert simulate(talks_of_two(), config, LATENCY).num_kv_stores == 0
