"""Images: what a step may encode, what the encoder cache keeps, by hand; invariants and other ways at random.

vLLM's own recordings are in ``tests/conformance``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim import (
    Blackbox,
    Engine,
    EngineConfig,
    Images,
    InvalidConfig,
    KVCacheGroup,
    Requests,
    Simulation,
    simulate,
)
from sim.cluster import ClusterConfig, Pool, simulate_cluster
from sim.cluster.cluster_work import ClusterWork
from sim.cluster.infrastructure.infrastructure_config import Failure, Failures, Retries
from sim.cluster.transfer.disaggregation_config import Disaggregation
from sim.engine.state import State
from tests.examples import examples
from tests.sim.strategies import Case, assert_same_outcomes, cases, requests_of

Placed = tuple[int, int, int]
"""(position, tokens, content)."""

SYNC = EngineConfig(async_scheduling=False)
MS = Blackbox(beta0=1000)


def images_of(shown: Sequence[Sequence[Placed]]) -> Images:
    """Return the images of prompts."""
    counts = np.array([len(images) for images in shown], np.int64)
    columns = np.array([image for images in shown for image in images], np.int64).reshape(-1, 3)
    return Images(
        starts=np.cumsum(counts) - counts,
        counts=counts,
        position=columns[:, 0],
        num_tokens=columns[:, 1],
        content=columns[:, 2],
    )


def shown(*rows: tuple[int, int, list[Placed]]) -> Requests:
    """Return requests of (arrival_us, prompt, images), each of one token of answer."""
    requests = requests_of([{"arrival_us": a, "prompt": p, "output": 1} for a, p, _ in rows])
    return replace(requests, images=images_of([images for _, _, images in rows]))


def run(requests: Requests, **settings: object) -> Simulation:
    return simulate(requests, replace(SYNC, **settings), MS, record="steps")  # type: ignore[arg-type]


def prefills(requests: Requests, **settings: object) -> list[int]:
    """Return the prompt tokens of each step."""
    return [step.P for step in run(requests, **settings).steps()]


TWO = shown((0, 100, [(10, 40, 0), (50, 40, 1)]))


def test_a_share_ends_before_an_image_that_its_step_cannot_encode() -> None:
    assert prefills(TWO) == [100]
    assert prefills(TWO, max_num_encoder_input_tokens=79) == [50, 50]
    assert prefills(TWO, max_num_encoder_input_tokens=80) == [100]


def test_budget_and_cache_hold_the_largest_image_whatever_they_are() -> None:
    assert prefills(TWO, max_num_encoder_input_tokens=1, encoder_cache_size=1) == [50, 50]


def test_without_a_word_they_are_max_num_batched_tokens() -> None:
    """Sixty tokens a step: the second image does not fit beside the first, which is kept until its end."""
    assert prefills(TWO, max_num_batched_tokens=60) == [50, 50]
    assert prefills(shown((0, 100, [(0, 100, 0)])), max_num_batched_tokens=60) == [60, 40]


def test_an_image_is_kept_until_its_last_token_is_computed_and_others_wait_for_its_room() -> None:
    """Both images come in one step of 30 tokens each; the second one's room is the first one's."""
    requests = shown((0, 30, [(0, 30, 0)]), (0, 30, [(0, 30, 1)]))
    assert prefills(requests, max_num_batched_tokens=45, encoder_cache_size=30) == [30, 30]
    assert prefills(requests, max_num_batched_tokens=45, encoder_cache_size=60) == [30, 30]
    assert prefills(
        requests, max_num_batched_tokens=45, max_num_encoder_input_tokens=60, encoder_cache_size=60
    ) == [
        45,
        15,
    ]


def test_requests_share_what_the_encoder_made_and_its_time_counts_once() -> None:
    """Three steps: an image, the same one of another request, and another image."""
    requests = shown((0, 40, [(0, 40, 7)]), (0, 40, [(0, 40, 7)]), (5000, 40, [(0, 40, 8)]))
    done = run(requests, encoder_token_us=1.0, max_num_seqs=1)
    assert [step.dur for step in done.steps()] == [1040, 1000, 1040]


TIMES = {"encoder_step_us": 500.0, "encoder_token_us": 2.0, "encoder_token_pair_us": 0.25}
"""An image of 40 tokens takes 80 + 400 µs, and its step 500 once."""


def test_a_step_that_encodes_pays_once_and_for_the_pairs_of_each_image() -> None:
    assert [step.dur for step in run(TWO, **TIMES).steps()] == [1000 + 500 + 2 * 480]
    alone = run(TWO, max_num_encoder_input_tokens=40, **TIMES)
    assert [step.dur for step in alone.steps()] == [1000 + 500 + 480] * 2


def test_images_of_several_requests_in_a_step_add_up_and_what_is_cached_takes_nothing() -> None:
    requests = shown((0, 40, [(0, 40, 0)]), (0, 40, [(0, 20, 1)]), (0, 40, [(0, 40, 0)]), (9000, 9, []))
    assert [step.dur for step in run(requests, **TIMES).steps()] == [1000 + 500 + 480 + 140, 1000]


def test_gpus_that_share_images_out_wait_for_the_largest() -> None:
    """Of 40, 20 and 20 tokens: 760 µs of work, 480 of it one image's."""
    requests = shown((0, 40, [(0, 40, 0)]), (0, 40, [(0, 20, 1), (20, 20, 2)]))
    for number, takes_us in ((1, 760), (2, 480), (8, 480)):
        done = run(requests, **{**TIMES, "encoder_data_parallel_size": number})
        assert [step.dur for step in done.steps()] == [1500 + takes_us]


def test_what_nobody_has_held_for_longest_is_evicted_first() -> None:
    """Room for two of three images; the first is used again before the third comes, so the second one goes."""
    order = [0, 1, 0, 2, 0, 1]
    requests = shown(*((10_000 * i, 40, [(0, 40, content)]) for i, content in enumerate(order)))
    done = run(requests, encoder_token_us=1.0, encoder_cache_size=80, enable_prefix_caching=False)
    assert [step.dur for step in done.steps()] == [1040, 1040, 1000, 1040, 1000, 1040]


def test_an_image_that_a_prefix_hit_covers_is_not_encoded() -> None:
    rows = [{"arrival_us": 10_000 * i, "prompt": 64, "output": 1, "hash_ids": [0, 1]} for i in range(2)]
    requests = replace(requests_of(rows), images=images_of([[(0, 32, 0)], [(0, 32, 1)]]))
    assert [step.dur for step in run(requests, encoder_token_us=1.0).steps()] == [1032, 1000]
    halfway = replace(requests, images=images_of([[(0, 40, 0)], [(0, 40, 1)]]))
    assert [step.dur for step in run(halfway, encoder_token_us=1.0).steps()] == [1040, 1040]


def test_disable_chunked_mm_input_keeps_an_image_in_one_step() -> None:
    requests = shown((0, 100, [(50, 40, 0)]))
    assert prefills(requests, max_num_batched_tokens=70) == [70, 30]
    assert prefills(requests, max_num_batched_tokens=70, disable_chunked_mm_input=True) == [50, 50]


def test_with_language_model_only_images_are_text() -> None:
    settings = {"language_model_only": True, "max_num_encoder_input_tokens": 1, "encoder_token_us": 9.0}
    assert prefills(TWO, **settings) == [100]
    assert run(TWO, **settings).duration_us == 1000


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (
            {"session_kv_ttl_us": 5},
            "session_kv_ttl_us: 5 cannot be combined with images, expected 0, or language_model_only true: images are "
            "then text",
        ),
        (
            {"num_cpu_blocks": 9, "num_gpu_blocks": 9, "kv_offloading": "shared"},
            "kv_offloading: shared cannot be combined with images, expected none, or language_model_only true: images "
            "are then text",
        ),
        (
            {"disable_chunked_mm_input": True, "max_num_batched_tokens": 39},
            "disable_chunked_mm_input: got true with an image of 40 tokens, expected images of at most 39 "
            "(max_num_batched_tokens)",
        ),
    ],
)
def test_what_images_are_not_simulated_with_is_refused_in_one_line(
    settings: dict[str, object], line: str
) -> None:
    with pytest.raises(InvalidConfig) as refused:
        run(TWO, **settings)
    assert str(refused.value) == line


def test_states_at_block_ends_and_whole_images_are_refused_as_vllm_does() -> None:
    groups = (KVCacheGroup(kind="full"), KVCacheGroup(kind="state", mode="align"))
    with pytest.raises(InvalidConfig, match="disable_chunked_mm_input: got true with states in mode align"):
        EngineConfig(kv_cache_groups=groups, disable_chunked_mm_input=True)


def test_prompts_that_other_instances_compute_are_refused() -> None:
    pools = tuple(Pool(engine=SYNC, latency=MS, name=role, role=role) for role in ("prefill", "decode"))  # type: ignore[arg-type]
    config = ClusterConfig(pools=pools, disaggregation=Disaggregation(kv_bytes_per_token=1))
    with pytest.raises(InvalidConfig, match="disaggregation: cannot be combined with images"):
        simulate_cluster(ClusterWork(requests=TWO), config)


# -- at random ---------------------------------------------------------------------------------------------------


def with_images(case: Case, seed: int) -> Case:
    """Return a case whose prompts show images, of a few contents, beside an encoder that is small or large."""
    rng = Random(seed)
    longest = int(case.requests.prompt_tokens.max(initial=1))
    sizes = [rng.randint(1, max(1, longest // 3)) for _ in range(rng.choice([2, 5, 12]))]
    rows: list[list[Placed]] = []
    for prompt in case.requests.prompt_tokens.tolist():
        images, position = [], 0
        for _ in range(rng.choice([0, 1, 2, 14])):
            content = rng.randrange(len(sizes))
            position += rng.choice([0, 0, 3])
            if position + sizes[content] <= prompt:
                images.append((position, sizes[content], content))
                position += sizes[content]
        rows.append(images)
    shows = replace(case, requests=replace(case.requests, images=images_of(rows)))
    return shows.under(
        max_num_encoder_input_tokens=rng.choice([1, longest]),
        encoder_cache_size=rng.choice([1, longest]),
        encoder_step_us=rng.choice([0.0, 40.0]),
        encoder_token_us=rng.choice([0.0, 1.5]),
        encoder_token_pair_us=rng.choice([0.0, 0.25]),
        encoder_data_parallel_size=rng.choice([1, 2]),
    )


def assert_nobody_holds_images(state: State) -> None:
    """Check that all of the encoder cache can be given to others."""
    encoder, settings = state.engine[0].encoder, state.engine[0].settings
    assert encoder.num_freeable_slots == settings.encoder_cache_size
    assert not state.encoder_cache["num_refs"].any()
    assert not state.images["is_held"].any()
    cached = int(state.encoder_cache["num_embeds"].sum())
    assert encoder.num_free_slots == settings.encoder_cache_size - cached


@given(cases(impatient=True), st.integers(0, 10**6))
@examples(150)
def test_jumps_take_the_same_steps_and_who_is_gone_holds_no_image(case: Case, seed: int) -> None:
    case = with_images(case, seed)
    jumped, stepped = case.run(), case.run(coalesce=False)
    assert_same_outcomes(jumped.outcomes, stepped.outcomes)
    assert jumped.num_steps == stepped.num_steps
    if case.closed_loop is None and case.max_concurrency is None and case.requests.images is not None:
        engine = Engine(case.requests, case.config, case.latency)
        engine.advance()
        view = engine.view()
        if view.num_running + view.num_waiting == 0 and len(engine._state.encoder_cache):
            assert_nobody_holds_images(engine._state)


def crowd(number: int) -> Requests:
    """Return requests that come fast, with one to four images of six contents each."""
    rng = Random(3)
    rows = [
        (500 * i, 200, [(50 * j, 40, rng.randrange(6)) for j in range(rng.randint(1, 4))])
        for i in range(number)
    ]
    return shown(*rows)


def test_a_cluster_of_one_is_the_engine_alone_and_several_share_the_requests() -> None:
    engine = EngineConfig(
        max_num_batched_tokens=128, max_num_seqs=4, num_gpu_blocks=60, encoder_cache_size=60
    )
    requests = crowd(60)
    alone = simulate(requests, engine, MS)
    pool = Pool(engine=engine, latency=MS)
    one = simulate_cluster(ClusterWork(requests=requests), ClusterConfig(pools=(pool,)))
    assert_same_outcomes(one.outcomes, alone.outcomes)
    two = ClusterConfig(pools=(replace(pool, instances=2),))
    done = simulate_cluster(ClusterWork(requests=requests), two)
    for instance in range(2):
        rows = np.flatnonzero(done.instance == instance)
        own = simulate(requests.take(rows), engine, MS)
        assert own.outcomes.last_token_us.tolist() == done.outcomes.last_token_us[rows].tolist()


def test_an_instance_that_fails_begins_with_an_empty_encoder_cache() -> None:
    """It knows the image of the first request no longer, and shows so in the time of the second."""
    requests = shown((0, 40, [(0, 40, 0)]), (500_000, 40, [(0, 40, 0)]))
    engine = replace(SYNC, encoder_token_us=100.0)
    pool = Pool(engine=engine, latency=MS)
    failure = Failures(schedule=(Failure(at_us=100_000, instance=0, down_us=1000),))
    for failures, takes_us in ((None, 1000), (failure, 5000)):
        config = ClusterConfig(pools=(pool,), failures=failures, retries=Retries(on=("lost",)))
        outcomes = simulate_cluster(ClusterWork(requests=requests), config).outcomes
        assert int(outcomes.last_token_us[1] - outcomes.scheduled_us[1]) == takes_us
