"""Speculative decoding: vLLM's own decisions, and what must be true whatever is accepted."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sim import Blackbox, Engine, EngineConfig, InvalidConfig, Status, simulate
from sim.records.run_results import view_of
from tests.conformance.compare import as_recorded, difference_of_steps
from tests.conformance.recording import SETTINGS, dense_hashes
from tests.examples import examples
from tests.sim.strategies import Case, assert_same_outcomes, cases, requests_of

RECORDINGS = sorted((Path(__file__).parent / "speculative").glob("*.json.gz"))
COLUMNS = ("num_output_tokens", "scheduled_us", "first_token_us", "last_token_us", "num_preemptions")


def recorded_case(recording: dict[str, Any]) -> Case:
    """Return what vLLM was given."""
    settings, rows = recording["settings"], recording["rows"]
    config = EngineConfig(
        **{name: settings[name] for name in SETTINGS if name in settings},  # older recordings have no stages
        scheduling_policy=settings["policy"],
        synthetic_acceptance_rates=tuple(settings["rates"]),
        num_lookahead_tokens=settings["num_lookahead_tokens"],
    )
    offsets, ids = dense_hashes(rows, config.block_size)
    named = [{**row, "prompt": row["prompt_len"], "output": row["output_len"]} for row in rows]
    requests = replace(requests_of(named), hash_offsets=offsets, hash_ids=ids)
    latency = Blackbox(beta0=settings["beta0"], beta1=settings["beta1"], beta2=settings["beta2"])
    return Case(requests=requests, config=config, latency=latency)


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.name.split(".")[0])
def test_every_step_and_every_block_table_is_vllm_s(path: Path) -> None:
    recording = json.loads(gzip.decompress(path.read_bytes()))
    case = recorded_case(recording)
    ours = as_recorded(case.run(record="blocks"), has_blocks=True)
    for step in ours:
        del step["free_queue"]
    assert difference_of_steps(recording["steps"], ours) is None
    outcomes = case.run().outcomes
    for name in COLUMNS:
        theirs = [-1 if row[name] is None else row[name] for row in recording["outcomes"]]
        assert getattr(outcomes, name).tolist() == theirs, name


@st.composite
def speculating(draw: st.DrawFn) -> Case:
    """Draw cases that speculate, drafting model or not."""
    k = draw(st.sampled_from((1, 2, 3, 5)))
    rates = draw(st.lists(st.sampled_from((0.0, 0.3, 0.7, 1.0)), min_size=k, max_size=k))
    return draw(cases(closed=None)).under(
        num_speculative_tokens=k,
        synthetic_acceptance_rates=tuple(sorted(rates, reverse=True)),
        num_lookahead_tokens=draw(st.sampled_from((0, k))),
        use_eagle=draw(st.booleans()),
        seed=draw(st.integers(0, 3)),
    )


@examples(100)
@given(speculating())
def test_every_request_that_ends_has_the_tokens_that_it_asked_for(case: Case) -> None:
    assume(
        case.config.enable_chunked_prefill
    )  # without, a prompt beyond the budget may wait for company for ever
    outcomes = case.run().outcomes
    plain = case.under(
        num_speculative_tokens=0, synthetic_acceptance_rates=(), num_lookahead_tokens=0, use_eagle=False
    )
    wanted = plain.under(num_gpu_blocks=0).run().outcomes
    done = outcomes.status == Status.OK
    np.testing.assert_array_equal(outcomes.num_output_tokens[done], wanted.num_output_tokens[done])


def short_answers() -> Case:
    """Return requests whose last token and its drafts are in flight while the next drafts get their blocks."""
    named = [{"arrival_us": 0, "prompt": i % 3 + 1, "output": i % 4 + 1} for i in range(8)]
    config = EngineConfig(
        max_num_seqs=4,
        max_num_batched_tokens=50,
        num_gpu_blocks=80,
        block_size=1,
        max_model_len=1000,
        num_speculative_tokens=5,
        synthetic_acceptance_rates=(0.0,) * 5,
        num_lookahead_tokens=5,
    )
    return Case(requests=requests_of(named), config=config, latency=Blackbox(beta0=50, beta1=50, beta2=50))


def test_plain_python_which_checks_every_index_gives_the_same_with_drafts_in_flight() -> None:
    program = (
        f"from {__name__} import short_answers; print(short_answers().run().outcomes.last_token_us.tolist())"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        cwd=Path(__file__).parents[4],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == short_answers().run().outcomes.last_token_us.tolist()


@examples(100)
@given(speculating())
def test_no_step_computes_past_max_model_len_and_all_blocks_come_back(case: Case) -> None:
    case = case.under(frontend="openai")
    simulation = case.run(record="steps")
    for step in simulation.steps():
        assert step.P + step.D == sum(n for _, n, _, _ in step.sched) <= case.config.max_num_batched_tokens
        assert all(before + n < case.config.max_model_len for _, n, before, _ in step.sched)
    view = view_of(simulation.written.state)
    assert view.num_running > 0 or view.kv_cache_usage_frac == 0


@examples(60)
@given(speculating())
def test_one_call_and_many_small_ones_give_the_same(case: Case) -> None:
    case = replace(case, closed_loop=None)
    whole = case.run().outcomes
    engine = Engine(case.requests, case.config, case.latency, record="tokens")
    while (now_us := engine.next_time_us()) is not None:
        engine.advance(now_us + 1)
    sliced = engine.outcomes()
    sliced.status[sliced.status == Status.UNFINISHED] = Status.STUCK
    assert_same_outcomes(sliced, whole)
    assert len(engine.written().tokens()[0]) == whole.num_output_tokens.sum()


ALONE = EngineConfig(
    async_scheduling=False, num_speculative_tokens=3, synthetic_acceptance_rates=(0.8, 0.5, 0.1)
)
LATENCY = Blackbox(beta0=1000, beta1=1, beta2=1)


def steps_of(outputs: int, rates: tuple[float, ...]) -> list[tuple[int, int]]:
    """Return (prefill tokens, decode tokens) of every step of a lone request."""
    row = {"arrival_us": 0, "prompt": 50, "output": outputs}
    config = replace(ALONE, synthetic_acceptance_rates=rates)
    simulation = simulate(requests_of([row]), config, LATENCY, record="steps")
    return [(step.P, step.D) for step in simulation.steps()]


def test_when_all_drafts_hold_a_step_gives_k_plus_one_tokens() -> None:
    assert steps_of(9, (1.0,)) == [(50, 0), (0, 4), (0, 4)]
    assert steps_of(10, (1.0,)) == [(50, 0), (0, 4), (0, 4), (0, 4)]


def test_when_none_holds_every_step_computes_the_drafts_for_nothing() -> None:
    assert steps_of(5, (0.0,)) == [(50, 0), *[(0, 4)] * 4]


@examples(60)
@given(cases(is_async=False))
def test_drafts_that_cost_nothing_and_never_hold_change_nothing(case: Case) -> None:
    """No time per decode token, room for all of them: what is left is the engine without speculation."""
    free = replace(case.latency, beta2=0)
    roomy = replace(case, latency=free).under(
        num_gpu_blocks=0,
        max_num_batched_tokens=100_000,
        long_prefill_token_threshold=0,
        max_model_len=100_000,
    )
    fully_hit = (1,)  # an admission of one token is padded, and padding counts as prefill
    requests = replace(
        roomy.requests,
        prompt_tokens=np.where(
            np.isin(roomy.requests.prompt_tokens, fully_hit), 2, roomy.requests.prompt_tokens
        ),
        hash_ids=np.zeros(0, np.int64),
        hash_offsets=np.zeros(len(roomy.requests) + 1, np.int64),
    )
    plain = replace(roomy, requests=requests)
    drafting = plain.under(num_speculative_tokens=4, synthetic_acceptance_rates=(0.0,))
    assert_same_outcomes(drafting.run().outcomes, plain.run().outcomes)


def test_drafts_are_accepted_at_their_rates() -> None:
    """20,000 steps; four standard errors of a share of at most a half are 0.0142."""
    row = {"arrival_us": 0, "prompt": 50, "output": 40_000}
    config = replace(ALONE, max_model_len=100_000)
    simulation = simulate(requests_of([row]), config, LATENCY, record="tokens")
    _, time_us = simulation.tokens()
    sizes = Counter(Counter(time_us.tolist()[1:-4]).values())
    total = sum(sizes.values())
    for i, rate in enumerate((0.8, 0.5, 0.1), start=1):
        share = sum(count for size, count in sizes.items() if size > i) / total
        assert share == pytest.approx(rate, abs=0.0142)
    assert simulation.num_accepted_tokens / simulation.num_draft_tokens == pytest.approx(1.4 / 3, abs=0.0142)


def test_one_rate_is_the_chance_of_each_draft_whose_predecessors_held() -> None:
    assert replace(ALONE, synthetic_acceptance_rates=(0.5,)).acceptance_rates == (0.5, 0.25, 0.125)


def test_what_is_accepted_depends_on_the_request_alone_and_on_the_seed() -> None:
    rows = [{"arrival_us": 0, "prompt": 50, "output": 200} for _ in range(8)]

    def sizes(**changes: int) -> list[list[int]]:
        config = replace(ALONE, **changes)  # type: ignore[arg-type]
        request, time_us = simulate(requests_of(rows), config, LATENCY, record="tokens").tokens()
        return [list(Counter(time_us[request == r].tolist()).values()) for r in range(8)]

    assert sizes(max_num_seqs=1) == sizes(max_num_seqs=8) == sizes(async_scheduling=True)
    assert sizes(seed=1) != sizes(seed=2)
    assert len({tuple(one) for one in sizes()}) == 8


def test_tokens_given_at_once_share_their_gap() -> None:
    """Four tokens per step of 1004 µs: 251 each."""
    row = {"arrival_us": 0, "prompt": 50, "output": 9}
    config = replace(ALONE, synthetic_acceptance_rates=(1.0,))
    gaps = simulate(requests_of([row]), config, LATENCY, record="spans").inter_token_latencies()
    assert gaps.gaps_us.tolist() == [251]
    assert gaps.counts.tolist() == [8]
    assert (gaps.mean_us[0], gaps.p99_us[0]) == (251, 251)


@examples(60)
@given(speculating())
def test_gaps_add_up_to_the_time_between_first_and_last_token(case: Case) -> None:
    simulation = case.run(record="spans")
    outcomes, gaps = simulation.outcomes, simulation.inter_token_latencies()
    several = outcomes.num_output_tokens > 1
    spans = (outcomes.last_token_us - outcomes.first_token_us)[several]
    assume(
        int(case.latency.engine_coefficients()[0]) > 0
    )  # tokens of steps that take no time come at one moment
    counts = outcomes.num_output_tokens[several] - 1
    np.testing.assert_allclose(gaps.mean_us[several] * counts, spans, atol=0.1)
    delay = int(case.latency.output_delay_us(np.array([1]))[0])
    alpha = case.latency.output_delay_us(outcomes.num_output_tokens)[several] - delay
    assert (gaps.gaps_us * gaps.counts).sum() == (spans - alpha + delay * counts).sum()
    assert gaps.counts.sum() == counts.sum()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"synthetic_acceptance_rates": (0.5, 0.7, 0.1)},
            "synthetic_acceptance_rates: got [0.5, 0.7, 0.1], expected 3 non-increasing numbers in [0, 1], or one",
        ),
        (
            {"synthetic_acceptance_rates": ()},
            "synthetic_acceptance_rates: got [], expected 3 non-increasing numbers in [0, 1], or one",
        ),
        (
            {"num_speculative_tokens": 0},
            "synthetic_acceptance_rates: got (0.8, 0.5, 0.1) with num_speculative_tokens 0, expected none",
        ),
    ],
)
def test_rates_that_cannot_be_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidConfig) as error:
        replace(ALONE, **changes)
    assert str(error.value) == message
