"""States that are saved inside a prompt's chunk: a step fewer, and hits; which blocks, conformance compares."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sim import Blackbox, EngineConfig, InvalidConfig, KVCacheGroup, simulate
from sim.engine_ready import needed_variant
from sim.resumable import Engine
from tests.examples import examples
from tests.sim.engine.kv_cache.groups.repeated_prompts import repeated
from tests.sim.strategies import Case, any_model, assert_same_outcomes, cases

FULL, STATE = KVCacheGroup(kind="full"), KVCacheGroup(kind="state", mode="align")
SAVED = replace(STATE, num_prefill_checkpoint_blocks=1, prefill_checkpoint_alignment=1)
BLOCK, PROMPT = 64, 151


def steps_and_hits(
    prompts: list[int],
    *groups: KVCacheGroup,
    version: str = "0.32.0",
    unit: int | None = None,
    interval: int | None = None,
) -> tuple[int, list[int]]:
    """Return how many steps a server takes for these, one after the other, and what each finds of its prompt."""
    config = EngineConfig(
        kv_cache_groups=groups,
        block_size=BLOCK,
        num_gpu_blocks=100,
        async_scheduling=False,
        prefix_match_unit=unit,
        prefix_cache_retention_interval=interval,
        vllm_version=version,
    )
    found = simulate(repeated(config.hash_block_size, prompts), config, Blackbox(beta0=1000), record="steps")
    return len(found.steps()), [int(number) for number in found.outcomes.num_cached_tokens]


@pytest.mark.parametrize("version", ["0.29.0", "0.30.0", "0.31.0", "0.32.0", "0.33.0"])
def test_a_chunk_is_not_cut_at_the_last_state_that_is_saved_inside(version: str) -> None:
    cut, found = steps_and_hits([PROMPT], FULL, STATE, version=version)
    saved, found_again = steps_and_hits([PROMPT, PROMPT], FULL, SAVED, version=version)
    assert (cut, found) == (6, [0])
    assert (saved, found_again) == (10, [0, 128])


def test_what_is_kept_at_prompts_ends_alone_is_forgotten_in_0_30_unless_the_prompt_is_of_whole_blocks() -> (
    None
):
    found = {
        (version, prompt): steps_and_hits([prompt, prompt], FULL, SAVED, version=version, interval=0)[1][1]
        for version in ("0.29.0", "0.30.0", "0.31.0", "0.32.0")
        for prompt in (PROMPT, 192)
    }
    assert {key: found[key] for key in found if key[1] == PROMPT} == {
        ("0.29.0", PROMPT): 128,
        ("0.30.0", PROMPT): 0,
        ("0.31.0", PROMPT): 128,
        ("0.32.0", PROMPT): 128,
    }
    assert found["0.30.0", 192] == found["0.32.0", 192] == 128


def test_a_state_is_saved_inside_a_block_where_hits_end_there() -> None:
    assert steps_and_hits([PROMPT, PROMPT, 300], FULL, SAVED, unit=16)[1] == [0, 144, 144]
    cut, _ = steps_and_hits([PROMPT], FULL, STATE, unit=16)
    saved, _ = steps_and_hits([PROMPT], FULL, SAVED, unit=16)
    assert cut - saved == 2


def test_a_kernel_that_is_aligned_otherwise_saves_none() -> None:
    coarse = replace(SAVED, prefill_checkpoint_alignment=48)
    assert steps_and_hits([PROMPT], FULL, coarse) == steps_and_hits([PROMPT], FULL, STATE)


def test_one_group_of_states_that_saves_none_has_all_chunks_cut() -> None:
    assert steps_and_hits([PROMPT, PROMPT], FULL, SAVED, STATE) == (10 + 1, [0, 128])


def test_such_states_are_no_reason_for_the_whole_engine() -> None:
    config = EngineConfig(kv_cache_groups=(FULL, STATE), num_gpu_blocks=100)
    assert needed_variant(config) == "hybrid"
    assert needed_variant(replace(config, kv_cache_groups=(FULL, SAVED))) == "hybrid"


@examples(40)
@given(
    cases(closed=None, model=any_model),
    st.sampled_from([(FULL, SAVED), (SAVED, FULL, STATE), (SAVED, SAVED)]),
    st.sampled_from(["0.29.0", "0.30.0", "0.31.0", "0.32.0", "0.33.0"]),
)
def test_any_run_gives_all_blocks_back_and_jumps_as_it_steps(
    case: Case, groups: tuple[KVCacheGroup, ...], version: str
) -> None:
    blocks = case.config.num_gpu_blocks and len(groups) * case.config.num_gpu_blocks
    try:
        saving = case.under(kv_cache_groups=groups, num_gpu_blocks=blocks, vllm_version=version)
    except InvalidConfig:
        assume(False)
    assert_same_outcomes(saving.run().outcomes, saving.run(coalesce=False).outcomes)
    engine = Engine(saving.requests, saving.config, saving.latency)
    engine.advance()
    state = engine._state
    if state.engine[0].queues.num_running == 0:
        assert state.engine[0].queues.num_free_blocks == len(state.blocks) - 1
        assert not state.blocks["ref_cnt"].any()
