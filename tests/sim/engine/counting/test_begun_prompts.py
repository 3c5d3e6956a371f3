"""Several prompts that are computed side by side: blocks that are counted give the bits of blocks handed out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sim import Blackbox, EngineConfig, InvalidConfig, simulate
from sim.kv_cache_groups import KVCacheGroup
from tests.conformance.compare import difference_of_outcomes
from tests.conformance.recording import read_recording
from tests.conformance.test_recordings import RECORDINGS
from tests.examples import examples
from tests.sim.engine.counting.test_counted_run import ROOMY, assert_same_looks, assert_same_run, counted
from tests.sim.strategies import Case, Pick, Row, any_model, picks, requests_of, with_ends

__all__ = ["counted"]

FULL, STATE = KVCacheGroup(kind="full"), KVCacheGroup(kind="state", mode="align")
SAVED = replace(STATE, num_prefill_checkpoint_blocks=1, prefill_checkpoint_alignment=1)
WINDOW = KVCacheGroup(kind="sliding", window=9)
GROUPS = (
    (FULL, STATE),
    (FULL, STATE, STATE, STATE),
    (STATE, STATE),
    (FULL, WINDOW, STATE),
    (FULL, SAVED),
    (SAVED, FULL, STATE),
)
VERSIONS = ("0.33.0", "0.32.0", "0.31.0", "0.29.0", "0.26.0", "0.24.0", "0.17.0", "0.15.0")


def long_rows(pick: Pick) -> list[Row]:
    """Pick requests most of whose prompts take several steps; some end with their first token."""
    gap, rows = pick((0, 30, 200, 900)), []
    arrival_us = 0
    longest = pick((20, 90, 300))
    for _ in range(pick((12, 20, 6, 3))):
        arrival_us += gap * pick((0, 0, 1, 3))
        prompt = pick((1, 2, 7, *[pick(range(1, longest + 1))] * 4))
        rows.append({"arrival_us": arrival_us, "prompt": prompt, "output": pick((1, 1, 2, 5, 30))})
        rows[-1]["priority"] = pick((0, 1, 2))
    return rows


@st.composite
def works_in_parts(draw: st.DrawFn, *, has_groups: bool = False) -> Case:
    """Draw requests of which several prompts are begun at once: for a threshold, or for states."""
    pick = draw(picks())
    rows = long_rows(pick)
    version = pick(VERSIONS)
    knows_all = version in VERSIONS[:3]
    thresholds = (0, 0, 0, 5, 33) if has_groups else (1, 3, 5, 20, 33)
    config = EngineConfig.for_version(
        version,
        max_num_seqs=pick((12, 5, 3, 16)),
        max_num_batched_tokens=pick((17, 24, 40, 64, 150)),
        num_gpu_blocks=ROOMY,
        block_size=pick((4, 8, 16, 2, 1)),
        max_model_len=1000,
        long_prefill_token_threshold=pick(thresholds),
        long_prefill_token_threshold_adaptive=knows_all and pick((False, True)),
        scheduler_reserve_full_isl=knows_all and pick((True, False)),
        watermark=pick((0.0, 0.1)) if knows_all else 0.0,
        scheduling_policy=pick(("fcfs", "fcfs", "priority")),
        async_scheduling=pick((False, True)),
    )
    if has_groups:
        try:
            config = replace(config, kv_cache_groups=pick(GROUPS))
        except InvalidConfig:
            assume(False)
    latency = replace(any_model(pick), alpha3=pick((0.0, 1.0, 7.5)))
    loop = pick((None, None, (1, 0), (4, 100), (7, 0)))
    case = Case(requests=requests_of(rows), config=config, latency=latency, closed_loop=loop)
    if loop is None:
        case = replace(case, max_concurrency=pick((None, None, 3, 9)))
    return with_ends(pick, case) if pick((True, False)) else case


works = works_in_parts()
works_of_states = works_in_parts(has_groups=True)


sizes = st.sampled_from((0.0, 0.0, 1.0, 1.5, 2.5))
"""Of the cache, in what the longest request needs; 0: nothing comes near its end."""


def sized(case: Case, size: float) -> Case:
    """Return a case in a cache of a size."""
    if size == 0:
        return case
    tokens = int((case.requests.prompt_tokens + case.requests.output_tokens).max()) + 1
    num_groups, length = max(len(case.config.kv_cache_groups), 1), case.config.block_size
    return case.under(num_gpu_blocks=2 + int(size * num_groups * -(-tokens // length)))


@examples(500)
@given(works, sizes)
def test_prompts_side_by_side_are_counted_as_they_are_computed(case: Case, size: float) -> None:
    """The smaller caches hold the longest request, and not many: where a block lacks, ``run`` goes on."""
    assert_same_run(sized(case, size))


@examples(200)
@given(works, sizes, st.integers(1, 99))
def test_a_horizon_cuts_prompts_side_by_side(case: Case, size: float, percent: int) -> None:
    case = sized(case, size)
    assert_same_run(replace(case, until_us=max(case.run().duration_us * percent // 100, 1)))


@examples(200)
@given(works, sizes)
def test_looks_see_prompts_side_by_side(case: Case, size: float) -> None:
    assert_same_looks(sized(case, size))


@examples(500)
@given(works_of_states, sizes)
def test_prompts_that_end_where_states_are_kept_are_counted(case: Case, size: float) -> None:
    assert_same_run(sized(case, size))


def crowd(**changes: Any) -> Case:  # noqa: ANN401 - settings of any kind
    """Return 200 requests whose prompts take up to eight steps, more than are served at once."""
    random = np.random.default_rng(5)
    rows: list[dict[str, Any]] = []
    for number in range(200):
        prompt, output = random.integers(1, 400, 2).tolist()
        rows.append({"arrival_us": 3000 * number, "prompt": prompt, "output": 1 + output // 20})
    settings = {"num_gpu_blocks": ROOMY, "max_num_seqs": 64, "max_num_batched_tokens": 256}
    config = EngineConfig(**{**settings, **changes})
    return Case(requests=requests_of(rows), config=config, latency=Blackbox(beta0=500, beta1=1, beta2=2))


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize(
    "changes",
    [
        {"long_prefill_token_threshold": 50},
        {"long_prefill_token_threshold": 20, "long_prefill_token_threshold_adaptive": True},
        {"kv_cache_groups": (FULL, STATE, STATE, STATE)},
        {"kv_cache_groups": (FULL, STATE), "block_size": 64},
    ],
    ids=["threshold", "adaptive", "states", "large blocks"],
)
def test_such_a_crowd_is_counted_to_its_end(
    counted: list[bool],
    is_async: bool,
    changes: dict[str, Any],
) -> None:
    assert_same_run(crowd(async_scheduling=is_async, **changes))
    assert counted == [True]


@pytest.mark.parametrize(
    "name", ["04_long_prefill_threshold", "05_long_prefill_adaptive", "hybrid_h6_chunks"]
)
def test_vllm_s_scheduler_had_the_same_outcomes(counted: list[bool], name: str) -> None:
    folder = RECORDINGS / name
    recording = read_recording(folder, folder, is_async=False)
    done = simulate(recording.requests, recording.config, recording.latency)
    assert difference_of_outcomes(recording, done) is None
    assert counted == [True]


def test_a_client_s_next_request_goes_with_whoever_was_admitted_first(counted: list[bool]) -> None:
    """The long prompt ends with its first token, in the step that gives one behind it its last: it is seen later."""
    rows = [{"arrival_us": 0, "prompt": 12, "output": 1}, {"arrival_us": 0, "prompt": 4, "output": 3}]
    rows += [{"arrival_us": 0, "prompt": 1 + number, "output": 2} for number in range(2)]
    config = EngineConfig(num_gpu_blocks=50, long_prefill_token_threshold=4, async_scheduling=False)
    latency = Blackbox(beta0=100, beta1=1, alpha2=7, alpha3=1000)
    assert_same_run(Case(requests=requests_of(rows), config=config, latency=latency, closed_loop=(2, 5)))
    assert counted == [True]
