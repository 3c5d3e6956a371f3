"""KV cache groups: what can be asked for, and what holds of any; which blocks, ``tests/conformance`` compares."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim import Blackbox, EngineConfig, InvalidConfig, Requests, Simulation, Status, simulate
from sim.cluster import ClusterConfig, LiveCluster, Pool
from sim.engine.beginning.first_groups import group_records
from sim.engine.records.group_records import UNSHARED
from sim.kv_cache_groups import KVCacheGroup, alignment_of, sizes_of
from sim.versions import rules_of

FULL, STATE, ALIGNED = (
    KVCacheGroup(kind="full"),
    KVCacheGroup(kind="state"),
    KVCacheGroup(kind="state", mode="align"),
)
LATENCY = Blackbox(beta0=5000, beta1=20, beta2=100)


def sliding(window: int, *, block_size: int = 0) -> KVCacheGroup:
    return KVCacheGroup(kind="sliding", window=window, block_size=block_size)


def chunked(chunk: int) -> KVCacheGroup:
    return KVCacheGroup(kind="chunked", chunk=chunk)


def requests_of(*, prompt: list[int], output: list[int], gap_us: int = 20_000) -> Requests:
    """Return requests of which no two begin alike."""
    n = len(prompt)
    return Requests(
        arrival_us=np.arange(n, dtype=np.int64) * gap_us,
        prompt_tokens=np.array(prompt, np.int64),
        output_tokens=np.array(output, np.int64),
        priority=np.zeros(n, np.int64),
        hash_offsets=np.zeros(n + 1, np.int64),
        hash_ids=np.zeros(0, np.int64),
    )


def run(requests: Requests, *groups: KVCacheGroup, record: str = "blocks", **config: object) -> Simulation:
    chosen = EngineConfig(kv_cache_groups=groups, **config)  # type: ignore[arg-type]
    return simulate(requests, chosen, LATENCY, record=record)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("groups", "config", "said"),
    [
        ([sliding(0)], {}, r"kv_cache_groups\[0\].window: got 0, expected an integer from 1 to"),
        ([FULL, chunked(-1)], {}, r"kv_cache_groups\[1\].chunk: got -1, expected an integer from 1 to"),
        (
            [KVCacheGroup(kind="full", window=8)],
            {},
            r"window: got 8, expected none: a full group has no window",
        ),
        (
            [KVCacheGroup(kind="full", mode="align")],
            {},
            r"mode: got align, expected none: only a state group",
        ),
        ([KVCacheGroup(kind="ring")], {}, r"kind: got 'ring', expected one of full, sliding"),  # type: ignore[arg-type]
        (
            [FULL, STATE],
            {},
            r"got a state group of mode none with enable_prefix_caching true, expected mode align",
        ),
        (
            [FULL, ALIGNED],
            {"enable_prefix_caching": False},
            r"enable_prefix_caching false, expected mode none",
        ),
        ([STATE, ALIGNED], {}, r"got state groups of both modes"),
        (
            [KVCacheGroup(kind="full", block_size=32), chunked(64)],
            {},
            r"got block sizes \[16, 32\] with a chunked",
        ),
        ([KVCacheGroup(kind="full", block_size=32), ALIGNED], {}, r"got block sizes \[16, 32\] with a state"),
        ([FULL] * 65, {}, r"kv_cache_groups: got 65, expected at most 64"),
        (
            [FULL, sliding(64)],
            {"num_cpu_blocks": 5, "num_gpu_blocks": 9},
            r"groups cannot be combined with num_cpu_blocks 5",
        ),
        (
            [FULL, sliding(64)],
            {"pipeline_parallel_size": 2},
            r"groups cannot be combined with pipeline_parallel_size 2",
        ),
        (
            [FULL, KVCacheGroup(kind="sliding", window=64, is_eagle_group=True)],
            {"num_speculative_tokens": 2, "synthetic_acceptance_rates": (0.5,)},
            r"kv_cache_groups\[1\].is_eagle_group: got true with use_eagle false, expected use_eagle true",
        ),
        (
            [FULL, chunked(64)],
            {"num_speculative_tokens": 2, "synthetic_acceptance_rates": (0.5,), "use_eagle": True},
            r"kv_cache_groups: got a chunked group with use_eagle true, expected is_eagle_group at another group",
        ),
        (
            [FULL, sliding(64)],
            {
                "num_speculative_tokens": 20,
                "synthetic_acceptance_rates": (0.5,),
                "use_eagle": True,
                "num_prefill_lookahead_tokens": 20,
            },
            r"num_prefill_lookahead_tokens: got 20 with prefix hits at multiples of 16 tokens, expected at most 16",
        ),
        (
            [FULL, sliding(64)],
            {
                "num_speculative_tokens": 2,
                "synthetic_acceptance_rates": (0.5,),
                "num_prefill_lookahead_tokens": 3,
            },
            r"num_prefill_lookahead_tokens: got 3 with num_speculative_tokens 2, expected at most 2",
        ),
        (
            [FULL],
            {"num_prefill_lookahead_tokens": 3},
            r"num_prefill_lookahead_tokens: got 3 with num_speculative_tokens 0, expected none",
        ),
    ],
)
def test_groups_that_cannot_be_are_refused(
    groups: list[KVCacheGroup], config: dict[str, object], said: str
) -> None:
    with pytest.raises(InvalidConfig, match=said):
        EngineConfig(kv_cache_groups=tuple(groups), **config)  # type: ignore[arg-type]


def test_one_full_group_is_what_an_engine_has_anyway() -> None:
    assert EngineConfig(kv_cache_groups=(FULL,)) == EngineConfig()


def test_one_full_group_is_said_where_several_modules_draft() -> None:
    drafts = {"num_speculative_tokens": 3, "synthetic_acceptance_rates": (0.5,), "use_eagle": True}
    marked = KVCacheGroup(kind="full", is_eagle_group=True)
    assert EngineConfig(kv_cache_groups=(marked,), **drafts) == EngineConfig(**drafts)  # type: ignore[arg-type]
    several = EngineConfig(num_prefill_lookahead_tokens=3, **drafts)  # type: ignore[arg-type]
    assert several.kv_cache_groups == (FULL,)


DRAFTS = {"num_speculative_tokens": 2, "synthetic_acceptance_rates": (1.0,), "use_eagle": True}


def cached_of_second(*groups: KVCacheGroup, **config: object) -> int:
    """Return how much of 64 tokens that two requests share the second one finds, in blocks of 16."""
    twice = Requests(
        arrival_us=np.array([0, 10**7], np.int64),
        prompt_tokens=np.array([64, 100], np.int64),
        output_tokens=np.array([3, 3], np.int64),
        priority=np.zeros(2, np.int64),
        hash_offsets=np.array([0, 4, 8], np.int64),
        hash_ids=np.array([0, 1, 2, 3] * 2, np.int64),
    )
    done = run(twice, *groups, **config)
    assert done.outcomes.status.tolist() == [Status.OK, Status.OK]
    return int(done.outcomes.num_cached_tokens[1])


def test_a_hit_loses_a_block_in_the_groups_that_drafts_use() -> None:
    marked = KVCacheGroup(kind="full", is_eagle_group=True)
    assert cached_of_second(FULL, sliding(17)) == 64
    assert cached_of_second(FULL, sliding(17), **DRAFTS) == 48
    assert cached_of_second(marked, sliding(17), **DRAFTS) == 48
    assert cached_of_second(FULL, sliding(17), **{**DRAFTS, "use_eagle": False}) == 64


def test_a_state_has_a_block_more_for_each_draft() -> None:
    """1 + k with mode none; with align the state before the newest beside them, until its tokens are processed."""
    done = run(
        requests_of(prompt=[40], output=[30]),
        FULL,
        STATE,
        enable_prefix_caching=False,
        async_scheduling=False,
        **DRAFTS,
    )
    assert set(held(done, 1)) == {3}
    done = run(requests_of(prompt=[40], output=[30]), FULL, ALIGNED, async_scheduling=False, **DRAFTS)
    assert set(held(done, 1)) == {3, 4}


@pytest.mark.parametrize("groups", [(FULL,), (FULL, sliding(64))])
def test_a_chunk_ends_a_prompt_or_leaves_what_several_modules_read_ahead(
    groups: tuple[KVCacheGroup, ...],
) -> None:
    """66 tokens in chunks of 32: the second would leave 2, and 3 modules read further."""
    many = {**DRAFTS, "num_speculative_tokens": 3, "num_prefill_lookahead_tokens": 3}
    asked = requests_of(prompt=[66], output=[1])
    done = run(asked, *groups, max_num_seqs=4, max_num_batched_tokens=32, async_scheduling=False, **many)
    assert [[entry[1] for entry in step.sched] for step in done.steps()] == [[32], [31], [3]]


def test_the_gate_counts_what_a_window_keeps_for_several_modules() -> None:
    """80 tokens before the newest one, a step of 16 and 2 more: 98 lie in 8 blocks, 96 in 7 (vLLM's cdiv + 1)."""
    for ahead, most in ((0, 7), (3, 8)):
        config = EngineConfig(
            kv_cache_groups=(FULL, sliding(81)),
            max_num_seqs=4,
            max_num_batched_tokens=16,
            async_scheduling=False,
            num_prefill_lookahead_tokens=ahead,
            num_speculative_tokens=3,
            synthetic_acceptance_rates=(0.5,),
            use_eagle=True,
        )
        assert group_records(config, rules_of(config.vllm_version))["most_blocks"][1] == most


def test_a_window_keeps_what_several_modules_may_read_again() -> None:
    """Of 81 + 2 tokens more blocks than of 81: the window alone begins with a block, two tokens before it end one."""
    many = {**DRAFTS, "num_speculative_tokens": 3, "synthetic_acceptance_rates": (0.0,)}
    asked = requests_of(prompt=[96], output=[2])
    plain = run(asked, FULL, sliding(81), async_scheduling=False, **many)
    several = run(asked, FULL, sliding(81), async_scheduling=False, num_prefill_lookahead_tokens=3, **many)
    assert held(several, 1)[-1] == held(plain, 1)[-1] + 1


def test_blocks_of_unlike_sizes_meet_at_their_multiple_and_are_hashed_by_their_divisor() -> None:
    groups = (KVCacheGroup(kind="full", block_size=48), sliding(64, block_size=32))
    assert sizes_of(groups, block_size=16, max_model_len=4096) == [48, 32]
    assert alignment_of([48, 32]) == (96, 16)
    assert EngineConfig(kv_cache_groups=groups).hash_block_size == 16


def held(simulation: Simulation, group: int) -> list[int]:
    """Return how many blocks the first request holds in a group, by step."""
    tables = [(step.block_ids or {}).get(0) for step in simulation.steps()]
    return [sum(block != 0 for block in table[group]) for table in tables if table is not None]  # type: ignore[union-attr]


def test_a_window_holds_what_its_tokens_lie_in_and_a_full_group_everything() -> None:
    """128 tokens lie in 9 blocks at most, or in 8 where one has just filled; nothing is in flight."""
    done = run(requests_of(prompt=[300], output=[100]), FULL, sliding(128), async_scheduling=False)
    assert held(done, 0)[-1] == -(-399 // 16)
    assert held(done, 1)[0] == -(-300 // 16)  # the prompt's own step reads all of it
    assert set(held(done, 1)[1:]) == {8, 9}


def test_a_chunk_is_let_go_when_the_next_begins() -> None:
    done = run(requests_of(prompt=[250], output=[20]), FULL, chunked(64), async_scheduling=False)
    assert held(done, 1)[1] == 1 + (250 - 192) // 16  # of 192 to 250
    assert held(done, 1)[-1] == 1  # 256 and on


def test_a_state_is_one_block_whatever_the_length() -> None:
    done = run(requests_of(prompt=[900], output=[50]), FULL, STATE, enable_prefix_caching=False)
    assert set(held(done, 1)) == {1}


def test_a_request_that_only_windows_could_hold_is_admitted() -> None:
    """1,000 tokens are 63 blocks; windows of 128 behind chunks of 64 need 13 of a pool of 19."""
    asked = requests_of(prompt=[1000], output=[10])
    config = {"num_gpu_blocks": 20, "max_num_batched_tokens": 64, "async_scheduling": False}
    assert run(asked, sliding(128), **config).outcomes.status.tolist() == [Status.OK]
    assert run(asked, FULL, sliding(128), **config).outcomes.status.tolist() == [Status.STUCK]


def test_what_a_request_let_go_is_not_kept_for_the_next_one_of_its_row() -> None:
    config = EngineConfig(kv_cache_groups=(FULL, sliding(32)), num_gpu_blocks=100, max_model_len=1024)
    pools = (Pool(engine=config, latency=LATENCY),)
    live = LiveCluster(ClusterConfig(pools=pools), num_keys=1, num_rows=8)
    first, _ = live.submit(0, prompt_tokens=200, output_tokens=40)
    row, now_us = live._row_of[first], 10**7
    assert len(live.tokens(now_us)) == 40

    def owned() -> int:
        blocks = live._driver.states[0].blocks
        return int(((blocks["hash_id"] == UNSHARED) & (blocks["next_same_hash"] == row)).sum())

    assert owned() > 0
    live.forget(first)
    given = None
    while given != row:
        number, _ = live.submit(now_us, prompt_tokens=5, output_tokens=9)
        given = live._row_of[number]
        live.tokens(now_us := now_us + 10**6)
        live.forget(number)
    assert owned() == 0


def test_a_served_engine_has_a_place_for_the_state_of_each_content() -> None:
    config = EngineConfig(kv_cache_groups=(FULL, ALIGNED), num_gpu_blocks=100, max_model_len=1024)
    live = LiveCluster(ClusterConfig(pools=(Pool(engine=config, latency=LATENCY),)), num_keys=50, num_rows=8)
    state = live._driver.states[0]
    assert len(state.step_of_key) == len(state.hashes)


ANY_GROUPS = st.lists(
    st.one_of(
        st.just(FULL),
        st.integers(2, 200).map(sliding),
        st.integers(1, 12).map(lambda blocks: chunked(16 * blocks)),
        st.just(ALIGNED),
    ),
    min_size=1,
    max_size=4,
).filter(lambda groups: groups != [FULL])


@settings(deadline=None, max_examples=25)
@given(
    groups=ANY_GROUPS,
    lengths=st.lists(st.tuples(st.integers(1, 400), st.integers(1, 60)), min_size=1, max_size=12),
    is_async=st.booleans(),
    spare=st.integers(0, 60),
)
def test_every_block_comes_back_and_jumps_change_nothing(
    groups: list[KVCacheGroup], lengths: list[tuple[int, int]], is_async: bool, spare: int
) -> None:
    prompt, output = [list(column) for column in zip(*lengths, strict=True)]
    most = max(-(-(p + o) // 16) for p, o in lengths)
    config = {
        "num_gpu_blocks": 2 + len(groups) * (most + 2) + spare,
        "max_num_seqs": 6,
        "max_num_batched_tokens": 256,
        "async_scheduling": is_async,
    }
    asked = requests_of(prompt=prompt, output=output)
    done = run(asked, *groups, **config)
    last = done.steps()[-1]
    assert last.free_end == config["num_gpu_blocks"] - 1
    for step in done.steps():
        tables = [table for tables in (step.block_ids or {}).values() for table in tables]
        taken = {block for table in tables for block in table if block}  # type: ignore[union-attr]
        assert taken.isdisjoint(step.free_queue or [])
    jumped = run(asked, *groups, record="none", **config)
    for name in ("scheduled_us", "first_token_us", "last_token_us", "num_preemptions"):
        assert (getattr(jumped.outcomes, name) == getattr(done.outcomes, name)).all(), name
