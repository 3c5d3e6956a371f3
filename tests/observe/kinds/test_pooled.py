"""Embeddings, classes and scores on a live server: what is sent, what is measured, and what is no answer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from observe.kinds.pooling import as_completion
from observe.plan.request_body import BodyShape
from observe.result.json_document import summarize_observed
from observe.result.summary_table import table
from observe.senders.exchange import answer_limit
from observe.senders.request_kinds import KINDS
from tests.observe.kind_answers import SHAPES, texts_of
from tests.observe.servers import Behaviour, observed, serving
from tests.observe.workloads import every, only_error, statuses, workload
from traces import TraceError, read_trace
from traces.workload import Api

POOLED = [api for api, kind in KINDS.items() if not kind.generates]
PAIRS = ("rerank", "score")
NO_ANSWERS: dict[str, tuple[str, Api, str]] = {
    "fewer embeddings than inputs": (
        "fewer results",
        "embeddings",
        "data: got 2 results, expected 3, one an input",
    ),
    "embeddings without numbers": ("empty results", "embeddings", "data[0]: got no value, expected one of"),
    "a list in place of an answer": ("no object", "embeddings", "body: got '[]', expected a JSON object"),
    "an error in place of embeddings": ("status 500", "embeddings", "HTTP 500"),
    "fewer documents than were sent to be ranked": (
        "fewer results",
        "rerank",
        "results: got 2 results, expected 3",
    ),
    "scores without numbers": ("empty results", "score", "data[0]: got no value, expected one of"),
    "a response that fails half-way": ("error event", "responses", "engine died"),
    "an error in place of a response": ("status 500", "responses", "HTTP 500"),
    "a message that fails half-way": ("error event", "messages", "engine died"),
    "an error in place of a message": ("status 500", "messages", "HTTP 500"),
    "a transcription that fails half-way": ("error event", "transcriptions", "engine died"),
    "an error in place of a transcription": ("status 500", "transcriptions", "HTTP 500"),
}
"""What a server may send in place of an answer of each kind, and what the row says."""


def test_each_api_has_one_entry() -> None:
    assert set(KINDS) == set(get_args(Api))
    assert {KINDS[api].path for api in POOLED} == set(SHAPES)


@pytest.mark.parametrize("api", POOLED)
@pytest.mark.parametrize("num_inputs", [1, 3])
async def test_a_request_has_its_inputs_and_its_answer_no_tokens(
    api: Api, num_inputs: int, tmp_path: Path
) -> None:
    requests = workload(every(3000, 4), input_tokens=40)
    async with serving(Behaviour(ttft_s=0.02, tokenize=True)) as server:
        await observed(server, requests, api=api, num_inputs=num_inputs, output=tmp_path / "o")
        sent = [each for each in server.requests if each.path == KINDS[api].path]
    trace = read_trace(tmp_path / "o")
    assert statuses(trace) == ["ok"] * 4
    for each in sent[-4:]:
        texts = texts_of(each.body)
        assert len(texts) == num_inputs == len({str(text) for text in texts})
        sizes = {len(text) if isinstance(text, list) else len(text.split(" ")) for text in texts}
        assert sizes == {40} if api not in PAIRS else all(25 <= size <= 45 for size in sizes)
        assert not {"max_tokens", "stream", "temperature", "ignore_eos"} & set(each.body)
    assert len({str(each.body) for each in sent[-4:]}) == 4
    summary = summarize_observed(trace)
    assert summary["ttft_us"]["mean"] is summary["tpot_us"]["mean"] is summary["itl_us"]["mean"] is None
    assert summary["output_tokens"]["mean"] is summary["output_token_throughput"] is None
    assert (summary["api"], summary["num_inputs"]) == (api, num_inputs)
    assert 20_000 <= (summary["e2e_us"]["mean"] or 0) < 200_000
    rate = summary["request_throughput"] or 0
    assert summary["input_throughput"] == pytest.approx(num_inputs * rate)
    tokens = summary["prompt_tokens"]["mean"] or 0
    assert summary["prompt_token_throughput"] == pytest.approx(tokens * rate)
    assert list(trace.column("input_tokens")) == [40 * num_inputs] * 4
    shown = table(summary)
    assert "inputs/s" in shown and "E2E, ms" in shown
    assert not any(word in shown for word in ("TTFT", "TPOT", "ITL", "output tokens"))
    assert not [note for note in summary["notes"] if "usage" in note or "tokens" in note]
    assert not (tmp_path / "o.itl.csv").exists()


@pytest.mark.parametrize("name", NO_ANSWERS)
async def test_what_is_no_answer_is_a_failed_request(name: str) -> None:
    fault, api, said = NO_ANSWERS[name]
    behaviour = Behaviour(fault=fault, fault_on=frozenset({1}), tokenize=True)  # type: ignore[arg-type]  # one of its faults
    async with serving(behaviour) as server:
        how = (
            {"num_inputs": 3}
            if not KINDS[api].generates
            else {"audio_seconds": 0.01}
            if KINDS[api].is_sound
            else {}
        )
        seen = await observed(server, workload(every(1000, 3)), api=api, **how)
    assert statuses(seen.trace) == ["ok", "error", "ok"]
    assert said in only_error(seen.trace)


def test_an_answer_has_room_for_all_its_vectors_and_choices() -> None:
    shape = BodyShape(api="embeddings", model="m", num_inputs=1000)
    longest = 1000 * 4096 * len("-0.0123456789012345,")
    assert answer_limit(shape.longest_answer(1)).num_bytes > longest > answer_limit(1).num_bytes
    assert replace(shape, api="chat", num_choices=4).longest_answer(100) == 400


async def test_a_server_that_takes_no_token_ids_is_sent_texts() -> None:
    async with serving(Behaviour(text_prompts_only=True, tokenize=True, is_vllm=False)) as server:
        seen = await observed(server, workload(every(1000, 2), input_tokens=30), api="embeddings")
        assert all(isinstance(each.body["input"], str) for each in server.requests[-2:])
    assert statuses(seen.trace) == ["ok", "ok"]
    assert list(seen.trace.column("server_input_tokens")) == [30, 30]
    assert any("does not accept token ids" in note for note in seen.notes)


async def test_what_builds_on_answers_or_has_no_place_for_inputs_is_refused() -> None:
    rounds = workload([0, None], new_input_tokens=[8, 8], session_id=["a", "a"], round_index=[0, 1])
    blocks = workload([0], prefix_hashes=["1"], header={"hash_block_size": 4})
    async with serving() as server:
        with pytest.raises(TraceError, match="--api embeddings: got rounds"):
            await observed(server, rounds, api="embeddings")
        with pytest.raises(TraceError, match="--batch-inputs: got a workload of block hashes"):
            await observed(server, blocks, api="embeddings", num_inputs=2)


def test_a_value_may_be_zero_and_usage_may_state_the_total_alone() -> None:
    read = as_completion("rerank", 1)
    said = read({"results": [{"relevance_score": 0.0}], "usage": {"total_tokens": 7}})
    assert isinstance(said, dict) and said["usage"]["prompt_tokens"] == 7
    assert "usage" not in read({"results": [{"relevance_score": 0.0}]})
    assert read({"results": None}) == "results: got 'None', expected a list of 1"
    assert isinstance(as_completion("embeddings", 1)({"data": [{"embedding": []}]}), str)
