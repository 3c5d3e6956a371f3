"""Prefix hits that end inside a block: how long they are, and what holds of any; which blocks, conformance compares."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sim import Blackbox, EngineConfig, InvalidConfig, KVCacheGroup, simulate
from sim.cluster.cluster_config import ClusterConfig, Pool, Role, SnapshotIntervals
from sim.cluster.cluster_simulation import simulate_cluster
from sim.cluster.cluster_work import ClusterWork
from sim.cluster.infrastructure.infrastructure_config import Failure, Failures
from sim.cluster.routing.routing_policies import Weighted
from sim.cluster.transfer.disaggregation_config import Disaggregation
from sim.engine_ready import needed_variant
from sim.resumable import Engine
from tests.examples import examples
from tests.sim.engine.kv_cache.groups.repeated_prompts import repeated
from tests.sim.strategies import Case, any_model, assert_same_outcomes, cases

FULL, STATE = KVCacheGroup(kind="full"), KVCacheGroup(kind="state", mode="align")
WINDOW = KVCacheGroup(kind="sliding", window=40)
BLOCK, PROMPT = 64, 151


def hits(prompts: list[int], *groups: KVCacheGroup, unit: int | None, version: str = "0.32.0") -> list[int]:
    config = EngineConfig(
        kv_cache_groups=groups,
        block_size=BLOCK,
        num_gpu_blocks=100,
        prefix_match_unit=unit,
        vllm_version=version,
    )
    outcomes = simulate(repeated(config.hash_block_size, prompts), config, Blackbox(beta0=1000)).outcomes
    return [int(number) for number in outcomes.num_cached_tokens]


@pytest.mark.parametrize("version", ["0.32.0", "0.33.0"])
@pytest.mark.parametrize(
    ("groups", "unit", "found"),
    [
        ((FULL, STATE), None, 128),
        ((FULL, STATE), 64, 128),
        ((FULL, STATE), 16, 144),
        ((STATE, FULL, STATE), 4, 148),
        ((STATE, STATE), 2, 150),
        ((FULL, STATE, WINDOW), 16, 128),
        ((FULL, WINDOW), 16, 128),
    ],
)
def test_a_prompt_that_comes_again_is_found_up_to_its_last_whole_unit(
    groups: tuple[KVCacheGroup, ...], unit: int | None, found: int, version: str
) -> None:
    """The last token is computed again; windows want whole blocks, and without states nothing ends inside one."""
    assert hits([PROMPT, PROMPT, PROMPT], *groups, unit=unit, version=version) == [0, found, found]


def test_a_prompt_finds_what_ends_where_another_ended_and_nothing_else_inside_a_block() -> None:
    """Units between a prompt's last one and its last block are not kept: a state is one place."""
    assert hits([PROMPT, 145, 300], FULL, STATE, unit=16) == [0, 144, 144]
    assert hits([PROMPT, 140, 170], FULL, STATE, unit=16) == [0, 128, 144]


def test_only_such_hits_take_the_whole_engine() -> None:
    plain = EngineConfig(kv_cache_groups=(FULL, STATE), block_size=BLOCK)
    finer = EngineConfig(kv_cache_groups=(FULL, STATE), block_size=BLOCK, prefix_match_unit=16)
    hashed = EngineConfig(kv_cache_groups=(FULL, WINDOW), block_size=BLOCK, prefix_match_unit=16)
    assert [needed_variant(each) for each in (plain, finer, hashed)] == ["hybrid", "whole", "hybrid"]


def cluster_of(engine: EngineConfig, **settings: object) -> ClusterConfig:
    pool = Pool(engine=engine, latency=Blackbox(beta0=1000), instances=3)
    return ClusterConfig(pools=(pool,), **settings)  # type: ignore[arg-type]  # checked by the class


@pytest.mark.parametrize("unit", [None, 64, 16])
@pytest.mark.parametrize("cache_interval_us", [0, 1_000_000])
def test_a_router_that_asks_caches_counts_whole_blocks(unit: int | None, cache_interval_us: int) -> None:
    """A block's content is that of its last unit, so a router that looks at each unit would find none."""
    engine = EngineConfig(
        kv_cache_groups=(FULL, STATE), block_size=BLOCK, num_gpu_blocks=100, prefix_match_unit=unit
    )
    policy = Weighted(scorers={"precise-prefix-cache": 1})
    config = cluster_of(
        engine, routing=policy, snapshot_interval_us=SnapshotIntervals(cache=cache_interval_us)
    )
    requests = repeated(engine.hash_block_size, [PROMPT] * 6)
    found = simulate_cluster(ClusterWork(requests=requests), config)
    assert len(set(found.instance.tolist())) == 1
    assert (found.outcomes.num_cached_tokens[1:] > 0).all()


def test_an_instance_that_starts_again_has_no_content_inside_a_block_either() -> None:
    engine = EngineConfig(
        kv_cache_groups=(FULL, STATE), block_size=BLOCK, num_gpu_blocks=100, prefix_match_unit=16
    )
    pool = Pool(engine=engine, latency=Blackbox(beta0=1000), instances=1)
    before, after = [700, 300, 90, PROMPT], [90, PROMPT, 300, 300, 90, 90, 700, 700, PROMPT]
    failures = Failures(
        schedule=(Failure(instance=0, at_us=10_000_000 * len(before) - 5_000_000, down_us=1),)
    )
    found = []
    for prompts, settings in ((before + after, {"failures": failures}), (after, {})):
        work = ClusterWork(requests=repeated(engine.hash_block_size, prompts))
        outcomes = simulate_cluster(work, ClusterConfig(pools=(pool,), **settings)).outcomes
        found.append(outcomes.num_cached_tokens.tolist())
    assert found[0][len(before) :] == found[1]


def test_what_pools_cannot_have_is_refused() -> None:
    engine = EngineConfig(kv_cache_groups=(FULL, STATE), block_size=BLOCK, prefix_match_unit=16)
    coarse = Pool(name="other", engine=replace(engine, prefix_match_unit=None), latency=Blackbox(beta0=1000))
    with pytest.raises(InvalidConfig, match="pools: got different prefix_match_unit, expected one"):
        ClusterConfig(pools=(Pool(engine=engine, latency=Blackbox(beta0=1000)), coarse))
    roles: tuple[Role, ...] = ("prefill", "decode")
    pools = tuple(Pool(name=role, role=role, engine=engine, latency=Blackbox(beta0=1000)) for role in roles)
    with pytest.raises(InvalidConfig, match="prefix_match_unit: 16 cannot be combined with a prefill pool"):
        ClusterConfig(pools=pools, disaggregation=Disaggregation(kv_bytes_per_token=1))


@examples(60)
@given(
    cases(closed=None, model=any_model),
    st.sampled_from([(FULL, STATE), (STATE, FULL, STATE), (STATE, STATE)]),
    st.sampled_from([2, 4]),
)
def test_any_run_gives_all_blocks_back_and_jumps_as_it_steps(
    case: Case, groups: tuple[KVCacheGroup, ...], times: int
) -> None:
    size = case.config.block_size
    blocks = case.config.num_gpu_blocks and len(groups) * case.config.num_gpu_blocks
    try:
        finer = case.under(
            kv_cache_groups=groups, block_size=times * size, num_gpu_blocks=blocks, prefix_match_unit=size
        )
    except InvalidConfig:
        assume(False)
    assume(finer.config.matches_inside_blocks)
    assert_same_outcomes(finer.run().outcomes, finer.run(coalesce=False).outcomes)
    engine = Engine(finer.requests, finer.config, finer.latency)
    engine.advance()
    state = engine._state
    if state.engine[0].queues.num_running == 0:
        assert state.engine[0].queues.num_free_blocks == len(state.blocks) - 1
        assert not state.blocks["ref_cnt"].any()
        keys = state.partial_hashes["hash_id"]
        assert set(keys[keys >= 0]) <= set(np.flatnonzero(state.hashes["oldest"]))
