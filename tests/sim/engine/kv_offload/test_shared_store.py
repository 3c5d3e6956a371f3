"""One KV store behind several instances, held against a dictionary that knows nothing of engines but their log."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sim import Blackbox, EngineConfig, InvalidConfig, KVCacheGroup, Requests, Step, simulate
from sim.cluster import ClusterConfig, ClusterSimulation, ClusterWork, LiveCluster, Pool, simulate_cluster
from tests.examples import examples
from tests.sim.engine.kv_offload.test_native_offloading import DRAWN, requests_of

LATENCY = Blackbox(beta0=6000, beta1=18.5, beta2=95)
SIZE = 16
SHARED = EngineConfig(
    kv_offloading="shared",
    num_cpu_blocks=400,
    kv_load_us_per_block=40.5,
    kv_store_us_per_block=90.0,
    num_gpu_blocks=60,
    block_size=SIZE,
    max_num_seqs=5,
    max_num_batched_tokens=128,
    max_model_len=600,
)
NEVER = 1 << 60


@dataclass
class Store:
    """What is in a store of ``capacity`` blocks: per content when it is there; the least recently used first."""

    capacity: int
    ready_us: dict[object, int] = field(default_factory=dict)
    busy_us: dict[object, int] = field(default_factory=lambda: defaultdict(int))
    held_us: dict[object, int] = field(default_factory=lambda: defaultdict(int))

    def run(self, keys: list[object], now_us: int) -> int:
        """Return how many leading contents are there."""
        there = [self.ready_us.get(key, NEVER) <= now_us for key in keys]
        return there.index(False) if False in there else len(there)

    def use(self, keys: list[object]) -> None:
        for key in reversed(keys):
            if key in self.ready_us:
                self.ready_us[key] = self.ready_us.pop(key)

    def put(self, keys: list[object], now_us: int) -> list[object] | None:
        """Take room for what is missing of an offer; return that, None where there is no room."""
        wanted = [key for key in keys if key not in self.ready_us]
        may_go = [
            k for k in self.ready_us if k not in keys and max(self.busy_us[k], self.ready_us[k]) <= now_us
        ]
        lacking = len(self.ready_us) + len(wanted) - self.capacity
        if lacking > len(may_go):
            return None
        for key in may_go[: max(0, lacking)]:
            del self.ready_us[key]
        for key in reversed(keys):
            self.ready_us[key] = self.ready_us.pop(key, NEVER)
        return wanted


@dataclass
class Instance:
    """What an engine's log does not say: when its link to the store is free, and what it has offered."""

    device_us: int = 0
    free_us: int = 0
    waiting: list[list[object]] = field(default_factory=list)
    offered: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    loaded: dict[int, int] = field(default_factory=dict)
    departed: list[int] = field(default_factory=list)
    loading: list[list[object]] = field(default_factory=list)
    loads_free_us: int = 0


def keys_of(requests: Requests, request: int) -> list[object]:
    """Return the contents of a prompt's full blocks; what nobody else can ask for is the request's own."""
    start, end = requests.hash_offsets[request : request + 2]
    shared: list[object] = requests.hash_ids[start:end].tolist()
    return shared + [(request, i) for i in range(len(shared), int(requests.prompt_tokens[request]) // SIZE)]


def hand_over(store: Store, instance: Instance, step: Step, config: EngineConfig) -> None:
    """Give what the steps before have ordered to the link."""
    for keys in instance.waiting:
        begins_us = max(step.t, instance.device_us, instance.free_us)
        instance.free_us = begins_us + round(config.kv_store_us_per_block * len(keys))
        store.ready_us.update(dict.fromkeys(keys, instance.free_us))
    instance.waiting = []


def check_loads(store: Store, instance: Instance, step: Step, requests: Requests) -> int:
    """Check what a step loads, and that what it admits without a load has nothing to load; return the blocks."""
    num_loaded = 0
    for request, num in step.loads or []:
        keys = keys_of(requests, request)
        first = next(i for i in range(len(keys) - num + 1) if store.run(keys[i:], step.t) == num)
        store.use(keys[first : first + num])
        instance.loaded[request] = instance.offered[request] = first + num
        num_loaded += num
        store.busy_us.update(dict.fromkeys(keys[first : first + num], NEVER))
        instance.loading.append(keys[first : first + num])
    for request, computed in step.hits:
        if request not in instance.loaded:
            assert store.run(keys_of(requests, request)[computed // SIZE :], step.t) == 0, (step, request)
    return num_loaded


def note_load_ends(store: Store, instance: Instance, step: Step, config: EngineConfig) -> None:
    """Note until when what a step loads cannot go: an async engine's loads come behind the step."""
    begins_us = step.exec_end if step.exec_end is not None else step.exec
    for keys in instance.loading:
        assert begins_us is not None
        instance.loads_free_us = max(begins_us, instance.loads_free_us) + round(
            config.kv_load_us_per_block * len(keys)
        )
        for key in keys:
            store.held_us[key] = store.busy_us[key] = max(store.held_us[key], instance.loads_free_us)
    instance.loading = []


def check_stores(store: Store, instance: Instance, step: Step, requests: Requests) -> int:
    """Check what a step orders to be stored; return the blocks."""
    stores = []
    for request, num_tokens, before, _ in step.sched:
        end = min(before + num_tokens, int(requests.prompt_tokens[request])) // SIZE
        first = instance.offered[request]
        if end <= first:
            continue
        wanted = store.put(keys_of(requests, request)[first:end], step.t)
        if wanted is not None:
            instance.offered[request] = end
        if wanted:
            stores.append((request, len(wanted)))
            instance.waiting.append(wanted)
    for request in instance.departed:  # what there was no room for is offered once more
        wanted = store.put(keys_of(requests, request)[instance.offered[request] :], step.t)
        if wanted:
            assume(step.flushed == 0)  # else who has got the blocks waits, which the log does not say of each
            stores.append((request, len(wanted)))
            instance.waiting.append(wanted)
    instance.departed = []
    assert stores == step.stores, step
    return sum(num for _, num in stores)


def follow(steps: list[tuple[int, Step]], requests: Requests, config: EngineConfig) -> tuple[int, int]:
    """Check every load and every store of a run against the dictionary; return how many blocks of each it saw."""
    store, instances = Store(config.num_cpu_blocks), defaultdict[int, Instance](Instance)
    num_loaded = num_stored = 0
    ended: list[tuple[int, int, list[int]]] = []
    for number, step in sorted(steps, key=lambda each: (each[1].t, each[0], each[1].step)):
        instance = instances[number]
        for each in [each for each in ended if each[1] == number and each[0] <= step.t]:
            instance.departed += each[2]
            ended.remove(each)
        hand_over(store, instance, step, config)
        num_loaded += check_loads(store, instance, step, requests)
        num_stored += check_stores(store, instance, step, requests)
        note_load_ends(store, instance, step, config)
        ended.append((step.t_end, number, step.finished))
        if step.sched and step.exec_end is not None:
            instance.device_us = step.exec_end
    return num_loaded, num_stored


def simulated(requests: Requests, config: EngineConfig, sent: Any) -> ClusterSimulation:  # noqa: ANN401 - an array
    cluster = ClusterConfig(pools=(Pool(engine=config, latency=LATENCY, instances=3),))
    return simulate_cluster(ClusterWork(requests=requests), cluster, forced=sent, record="steps")


@examples(60)
@given(
    drawn=DRAWN,
    sent_to=st.lists(st.integers(0, 2), min_size=25, max_size=25),
    is_async=st.booleans(),
    num_cpu_blocks=st.sampled_from((12, 30, 400)),
)
def test_each_load_finds_what_any_instance_has_put_there_and_nothing_else(
    drawn: list[tuple[int, int, int, int, int]], sent_to: list[int], is_async: bool, num_cpu_blocks: int
) -> None:
    config = replace(SHARED, async_scheduling=is_async, num_cpu_blocks=num_cpu_blocks, num_gpu_blocks=200)
    if (
        num_cpu_blocks < 400
    ):  # what is being loaded cannot go: a load takes no time, else a second one may hold it
        config = replace(config, kv_load_us_per_block=0.0)
    requests = replace(requests_of(drawn), deadline_us=None)
    together = simulated(requests, config, np.array(sent_to[: len(requests)], np.int64))
    steps = [
        (number, step) for number, each in enumerate(together.instances) for step in each.written.steps()
    ]
    found = follow(steps, requests, config)
    assert found == (
        sum(each.num_kv_reloads for each in together.instances),
        sum(each.num_kv_offloads for each in together.instances),
    )


def a_prefix_on_each() -> Requests:
    """Return requests of one long prefix, so far apart that each is stored before the next comes."""
    return replace(requests_of([(400_000, 0, 30, 8, 4) for _ in range(6)]), deadline_us=None)


def test_it_does_not_matter_which_instance_has_put_a_block_there() -> None:
    requests, sent = a_prefix_on_each(), np.array([0, 1, 2, 0, 1, 2], np.int64)
    shared = simulated(requests, SHARED, sent)
    assert shared.outcomes.num_loaded_tokens.tolist() == [0, 480, 480, 0, 0, 0]
    assert shared.outcomes.num_cached_tokens.tolist() == [0] + [480] * 5
    alone = simulated(requests, replace(SHARED, kv_offloading="native"), sent)
    assert alone.outcomes.num_cached_tokens.tolist() == [0, 0, 0, 480, 480, 480]
    slow = simulated(requests, replace(SHARED, kv_load_us_per_block=4000.0), sent)
    later_us = slow.outcomes.first_token_us - shared.outcomes.first_token_us
    assert later_us[1:3].tolist() == [30 * 4000 - round(30 * 40.5)] * 2 or (later_us[1:3] > 100_000).all()
    assert (later_us[[0, 3, 4, 5]] == 0).all()


def test_one_instance_finds_what_it_finds_in_a_tier_of_its_own() -> None:
    requests = a_prefix_on_each()
    small = replace(SHARED, num_gpu_blocks=36)
    own = replace(small, kv_offloading="native")
    shared, alone = (simulate(requests, config, LATENCY).outcomes for config in (small, own))
    np.testing.assert_array_equal(shared.num_cached_tokens, alone.num_cached_tokens)


GROUPS: dict[str, dict[str, Any]] = {
    "windows": {"kv_cache_groups": (KVCacheGroup(kind="full"), KVCacheGroup(kind="sliding", window=50))},
    "windows alone": {"kv_cache_groups": (KVCacheGroup(kind="sliding", window=50),) * 2},
    "chunks": {"kv_cache_groups": (KVCacheGroup(kind="chunked", chunk=64), KVCacheGroup(kind="full"))},
    "states": {
        "kv_cache_groups": (KVCacheGroup(kind="full"), *[KVCacheGroup(kind="state", mode="align")] * 2)
    },
    "unlike sizes": {
        "kv_cache_groups": (
            KVCacheGroup(kind="full", block_size=32),
            KVCacheGroup(kind="sliding", window=40, block_size=16),
        )
    },
}


@examples(40)
@given(
    drawn=DRAWN,
    groups=st.sampled_from(tuple(GROUPS)),
    is_async=st.booleans(),
    interval=st.sampled_from((None, 0)),
    num_gpu_blocks=st.sampled_from((100, 160, 400)),
)
def test_of_groups_one_instance_finds_what_it_finds_in_a_tier_of_its_own(
    drawn: list[tuple[int, int, int, int, int]],
    groups: str,
    is_async: bool,
    interval: int | None,
    num_gpu_blocks: int,
) -> None:
    """One request after the other, nothing is given up: so the two differ in nothing."""
    one_by_one = [(700_000, *rest) for _, *rest in drawn]
    requests = replace(requests_of(one_by_one), deadline_us=None)
    shared = replace(
        SHARED,
        num_cpu_blocks=4000,
        num_gpu_blocks=num_gpu_blocks,
        async_scheduling=is_async,
        prefix_cache_retention_interval=interval,
        **GROUPS[groups],
    )
    ours, tier = (
        simulate(requests, each, LATENCY) for each in (shared, replace(shared, kv_offloading="native"))
    )
    for name in ("num_cached_tokens", "num_loaded_tokens", "first_token_us", "last_token_us"):
        np.testing.assert_array_equal(
            getattr(ours.outcomes, name), getattr(tier.outcomes, name), err_msg=name
        )
    for name in ("num_kv_loads", "num_kv_reloads", "num_kv_stores", "num_kv_offloads"):
        assert getattr(ours, name) == getattr(tier, name), name


@pytest.mark.parametrize(
    ("groups", "num_loaded"),
    [("windows", 30 + 4), ("chunks", 30 + 2), ("states", 30 + 2), ("unlike sizes", 15 + 3)],
)
def test_of_groups_it_does_not_matter_which_instance_has_put_a_block_there(
    groups: str, num_loaded: int
) -> None:
    """What the next token reads is loaded: all of a full group, the rest of a window or a chunk, a state."""
    config = replace(
        SHARED,
        num_gpu_blocks=150,
        prefix_cache_retention_interval=None,
        vllm_version="0.32.0",
        **GROUPS[groups],
    )
    shared = simulated(a_prefix_on_each(), config, np.array([0, 1, 2, 0, 1, 2], np.int64))
    assert shared.outcomes.num_loaded_tokens.tolist() == [0, 480, 480, 0, 0, 0]
    assert shared.outcomes.num_cached_tokens.tolist() == [0] + [480] * 5
    assert [each.num_kv_reloads for each in shared.instances] == [0, num_loaded, num_loaded]


def test_what_goes_first_of_groups_is_what_ends_last_whichever_group_has_it() -> None:
    """Of 16 blocks of one prompt 4 go for another one: the first six of each group are left, a hit of all."""
    alike = (KVCacheGroup(kind="full"), KVCacheGroup(kind="sliding", window=10_000))
    config = replace(SHARED, num_gpu_blocks=150, num_cpu_blocks=20, kv_cache_groups=alike)
    requests = requests_of([(400_000, 0, 8, 8, 4), (400_000, 2, 4, 8, 4), (400_000, 0, 8, 8, 4)])
    shared = simulated(replace(requests, deadline_us=None), config, np.array([0, 0, 1], np.int64))
    assert shared.outcomes.num_loaded_tokens.tolist() == [0, 0, 96]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"num_cpu_blocks": 7}, "got shared with num_cpu_blocks 7, 400, expected one store of one size"),
        (
            GROUPS["windows"],
            "got shared with blocks or kv_cache_groups that differ, expected pools with the same",
        ),
        ({"kv_store_threshold": 2}, "kv_store_threshold: got 2 with kv_offloading shared, expected 0"),
    ],
)
def test_what_a_shared_store_cannot_be_is_refused(other: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        ClusterConfig(
            pools=(
                Pool(engine=SHARED, latency=LATENCY, name="a"),
                Pool(engine=replace(SHARED, **other), latency=LATENCY, name="b"),
            )
        )


def test_real_clients_have_no_shared_store() -> None:
    with pytest.raises(InvalidConfig, match="kv_offloading: got shared for clients that are real"):
        LiveCluster(ClusterConfig(pools=(Pool(engine=SHARED, latency=LATENCY),)), num_keys=3)
