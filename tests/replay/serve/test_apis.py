"""Requests that are no completions, to the served twin: by ``vtwin observe``, and by hand where it sends no such."""

from __future__ import annotations

import base64
import json
from contextlib import suppress
from dataclasses import replace
from typing import Any

import aiohttp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from observe import Settings, observe_with, parse_endpoint
from observe.kinds import transcriptions
from observe.media.drawn_sounds import wav
from observe.senders.request_kinds import KINDS
from observe.server.prometheus_text import parse_metrics
from replay import simulate_trace
from replay.serve.apis.served_transcriptions import form_fields
from replay.serve.chat_parts import part_reader
from replay.serve.protocol import Refusal
from replay.serve.request_limits import RequestLimits
from replay.twin.twin_config import TwinConfig
from sim import Blackbox, EngineConfig
from tests.observe.workloads import every, statuses, workload
from tests.replay.serve.test_serve import LATENCY, events_of, served
from traces import Trace
from traces.workload import Api

POOLED = tuple(api for api in KINDS if not KINDS[api].generates)
SLOW = Blackbox(alpha0=0, alpha1=0, alpha2=0, beta0=2000, beta1=200, beta2=5)
"""A token of a prompt takes 0.2 ms."""
SIDE = 28
SECONDS = 0.01


async def measured(url: str, requests: Trace, **how: object) -> Trace:
    settings = replace(Settings(endpoint=parse_endpoint(url)), **how)  # type: ignore[arg-type]  # its fields
    return (await observe_with(requests, settings)).trace


async def said(client: aiohttp.ClientSession, path: str, **body: object) -> tuple[int, dict[str, Any]]:
    async with client.post(path, json=body) as response:
        return response.status, await response.json()


@pytest.mark.parametrize("api", [api for api in KINDS if KINDS[api].module is not None])
async def test_observe_measures_each_api_of_the_served_twin(api: Api) -> None:
    requests = workload(every(20_000, 3), input_tokens=48, output_tokens=6)
    sounds = {"audio_seconds": SECONDS} if KINDS[api].is_sound else {}
    limits = RequestLimits(read_part=part_reader(None, SECONDS))
    async with served(latency=SLOW, limits=limits) as (listening, client):
        trace = await measured(listening.url, requests, api=api, **sounds)
        page = parse_metrics(await (await client.get("/metrics")).text())
    assert statuses(trace) == ["ok"] * 3
    counted = trace.cells("server_input_tokens")
    assert all(abs(each - 48) <= 4 for each in counted.values[counted.is_known].tolist())
    assert counted.is_known.all() or KINDS[api].is_sound
    (prompt_tokens,) = [each.value for each in page if each.name == "vllm:prompt_tokens_total"]
    assert prompt_tokens >= 3 * 44  # and those of requests that measure words
    took = (trace.column("last_token_time_us") - trace.column("send_time_us")).tolist()
    prefill_us = 2000 + 200 * 44
    if api in POOLED:
        assert trace.cells("output_tokens").is_known.sum() == 0
        assert all(prefill_us <= each for each in took)
    else:
        assert list(trace.column("output_tokens")) == [6] * 3
        assert list(trace.column("finish_reason")) == ["length"] * 3
        assert all(0 < each <= 6 for each in trace.column("num_token_chunks"))
        first = (trace.column("content_first_time_us") - trace.column("send_time_us")).tolist()
        assert all(prefill_us <= each for each in first)
        assert all(prefill_us + 5 * 2000 <= each for each in took)


@pytest.mark.parametrize("api", ["embeddings", "score"])
async def test_each_input_is_a_prefill_of_its_own(api: Api) -> None:
    """Eight inputs of 40 tokens are longer than the longest request, and none of them is."""
    engine = {"max_model_len": 96, "max_num_batched_tokens": 64}
    async with served(latency=SLOW, engine=engine) as (listening, _):
        trace = await measured(listening.url, workload([0], input_tokens=40), api=api, num_inputs=8)
    assert statuses(trace) == ["ok"]
    assert abs(trace.cells("server_input_tokens").values[0] - 8 * 40) <= 8 * 4
    computed = 8 * 36 if KINDS[api].num_texts == 1 else 36 + 7 * 20  # the query is in the prefix cache
    took = trace.column("last_token_time_us")[0] - trace.column("send_time_us")[0]
    assert took >= computed / 64 * 2000 + 200 * computed


async def test_an_embedding_takes_what_replay_says_of_its_trace() -> None:
    async with served(latency=SLOW) as (listening, client):
        trace = await measured(listening.url, workload([0], input_tokens=100), api="embeddings")
        page = parse_metrics(await (await client.get("/metrics")).text())
    engine = EngineConfig(num_gpu_blocks=500, max_model_len=1024, async_scheduling=False)
    _, simulation = simulate_trace(trace, TwinConfig(engine=engine, latency=SLOW))
    took_us = int(simulation.outcomes.last_token_us[0] - simulation.outcomes.arrival_us[0])
    (served_s,) = [each.value for each in page if each.name == "vllm:e2e_request_latency_seconds_sum"]
    assert took_us == 2000 + 200 * 100 == round(served_s * 1e6)


async def test_vectors_follow_from_the_input_and_have_the_asked_form() -> None:
    async with served() as (_, client):
        one = (await said(client, "/v1/embeddings", input=["a b", "c"], dimensions=64))[1]
        two = (await said(client, "/v1/embeddings", input="c", dimensions=64))[1]
        packed = (await said(client, "/v1/embeddings", input="c", dimensions=64, encoding_format="base64"))[1]
        chat = await said(client, "/v1/embeddings", messages=[{"role": "user", "content": "hi"}])
    assert [each["index"] for each in one["data"]] == [0, 1]
    vectors = [np.array(each["embedding"]) for each in one["data"]]
    assert all(0.7 < float(np.linalg.norm(vector)) < 1.3 and vector.shape == (64,) for vector in vectors)
    assert two["data"][0]["embedding"] == one["data"][1]["embedding"] != one["data"][0]["embedding"]
    floats = np.frombuffer(base64.b64decode(packed["data"][0]["embedding"]), "<f4")
    assert floats == pytest.approx(vectors[1], abs=1e-6)
    assert one["usage"] == {"prompt_tokens": 3, "total_tokens": 3} and one["id"].startswith("embd-")
    assert chat[0] == 200 and len(chat[1]["data"][0]["embedding"]) == 1024


async def test_ranks_are_from_the_best_and_scores_are_of_pairs() -> None:
    documents = ["a", "b", "c", "d"]
    async with served() as (_, client):
        ranks = (await said(client, "/v1/rerank", query="q", documents=documents))[1]["results"]
        best = (await said(client, "/rerank", query="q", documents=documents, top_n=2))[1]["results"]
        scores = (await said(client, "/score", text_1="q", text_2=documents))[1]["data"]
        two_by_two = (await said(client, "/v1/score", queries=["q", "r"], documents=["a", "b"]))[1]["data"]
        classes = (await said(client, "/classify", input=[[97, 98], [99]]))[1]["data"]
    told = [each["relevance_score"] for each in ranks]
    assert told == sorted(told, reverse=True) and best == ranks[:2]
    assert [documents[each["index"]] for each in ranks] == [each["document"]["text"] for each in ranks]
    assert {each["index"]: each["relevance_score"] for each in ranks} == {
        each["index"]: each["score"] for each in scores
    }
    assert two_by_two[0]["score"] == scores[0]["score"] and len(two_by_two) == 2
    assert all(sum(each["probs"]) == pytest.approx(1) for each in classes)
    assert {each["label"] for each in classes} <= {"LABEL_0", "LABEL_1"}


MESSAGES = [{"role": "user", "content": "hi"}]
WRONG: tuple[tuple[str, dict[str, object], str], ...] = (
    ("/v1/embeddings", {}, "input: got nothing"),
    ("/v1/embeddings", {"input": [1.5]}, "input: got a list with something else"),
    ("/v1/embeddings", {"input": "a", "encoding_format": "x"}, "encoding_format"),
    ("/v1/embeddings", {"input": "a", "dimensions": 0}, "dimensions"),
    ("/v1/embeddings", {"input": ["a"] * 100, "dimensions": 65_536}, "dimensions: got 100 inputs"),
    ("/pooling", {"input": "a", "truncate_prompt_tokens": 4}, "truncate_prompt_tokens"),
    ("/classify", {"input": ["a"] * 129}, "129 prompts, expected at most 128"),
    ("/v1/rerank", {"query": ["a", "b"], "documents": ["a"]}, "query: got 2 texts"),
    ("/v1/rerank", {"query": "a", "documents": [1]}, "documents: got a list"),
    ("/v1/rerank", {"query": "a", "documents": ["a"], "top_n": -1}, "top_n"),
    ("/v1/score", {"text_1": ["a", "b"], "text_2": ["a"]}, "text_1: got 2 texts, expected 1 or 1"),
    ("/v1/score", {"text_1": "a"}, "text_2: got nothing"),
    ("/v1/responses", {}, "input: got nothing"),
    ("/v1/responses", {"input": [{"type": "function_call"}]}, "input: got an item that is no message"),
    ("/v1/responses", {"input": "a", "background": True}, "background"),
    ("/v1/responses", {"input": "a", "tools": [{}]}, "tools: got"),
    ("/v1/messages", {"messages": MESSAGES}, "max_tokens: got nothing"),
    ("/v1/messages", {"max_tokens": 4}, "messages: got nothing"),
    ("/v1/messages", {"max_tokens": 4, "messages": [5]}, "messages: got a number"),
    ("/v1/messages", {"max_tokens": 4, "messages": MESSAGES, "tools": [{}]}, "tools: got"),
    ("/v1/messages/count_tokens", {}, "messages: got nothing"),
)


async def test_what_cannot_be_answered_is_an_error_that_names_the_field() -> None:
    async with served() as (_, client):
        for path, body, why in WRONG:
            status, answer = await said(client, path, **body)
            assert status == 400 and why in answer["error"]["message"], (path, answer)
            assert (answer.get("type") == "error") == path.startswith("/v1/messages")
        assert (await said(client, "/v1/embeddings", model="other", input="a"))[0] == 404


async def test_a_response_and_a_message_are_the_chats_words() -> None:
    system, asked = "be brief " * 20, [{"type": "text", "text": "hi"}]
    chat = [{"role": "system", "content": system}, {"role": "user", "content": "hi"}]
    items = [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}]
    turns = [{"role": "user", "content": asked}]
    async with served() as (_, client):
        own = (await said(client, "/v1/chat/completions", messages=chat, max_tokens=7))[1]
        limit = {"max_output_tokens": 7, "instructions": system}
        response = (await said(client, "/v1/responses", input=items, **limit))[1]
        message = (await said(client, "/v1/messages", messages=turns, system=system, max_tokens=7))[1]
        counted = (await said(client, "/v1/messages/count_tokens", messages=turns, system=system))[1]
        word = own["choices"][0]["message"]["content"].split()[3]
        stop = {"max_tokens": 7, "stop_sequences": [word]}
        stopped = (await said(client, "/v1/messages", messages=turns, system=system, **stop))[1]
    text = own["choices"][0]["message"]["content"]
    assert response["output"][0]["content"][0]["text"] == message["content"][0]["text"] == text
    assert (response["status"], response["incomplete_details"]) == (
        "incomplete",
        {"reason": "max_output_tokens"},
    )
    assert (message["stop_reason"], message["usage"]["output_tokens"]) == ("max_tokens", 7)
    assert (stopped["stop_reason"], stopped["stop_sequence"]) == ("stop_sequence", word)
    number = own["usage"]["prompt_tokens"]
    assert response["usage"]["input_tokens"] == counted["input_tokens"] == number
    assert message["usage"]["cache_read_input_tokens"] >= 16
    assert message["usage"]["input_tokens"] + message["usage"]["cache_read_input_tokens"] == number


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/responses", {"input": "hello", "max_output_tokens": 5}),
        ("/v1/messages", {"messages": MESSAGES, "max_tokens": 5}),
    ],
)
async def test_a_streams_pieces_are_the_whole_answer(path: str, body: dict[str, Any]) -> None:
    async with served() as (_, client):
        whole = (await said(client, path, **body))[1]
        async with client.post(path, json={**body, "stream": True}) as response:
            blocks = (await response.text()).strip().split("\n\n")
    names = [block.split("\n")[0].removeprefix("event: ") for block in blocks]
    events = [json.loads(block.split("\n")[1].removeprefix("data: ")) for block in blocks]
    assert names == [event["type"] for event in events]
    if path == "/v1/responses":
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        text = "".join(event["delta"] for event in events if event["type"].endswith("text.delta"))
        assert names[:4] == [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
        ]
        last = events[-1]["response"]
        assert last["output"][0]["content"][0]["text"] == text == whole["output"][0]["content"][0]["text"]
        assert last["usage"]["output_tokens"] == 5
    else:
        text = "".join(event["delta"]["text"] for event in events if event["type"] == "content_block_delta")
        assert (names[0], names[-2:]) == ("message_start", ["message_delta", "message_stop"])
        assert text == whole["content"][0]["text"]
        assert events[-2]["usage"]["output_tokens"] == 5


@pytest.mark.parametrize("api", ["responses", "messages"])
async def test_an_image_has_its_tokens_in_each_api(api: Api) -> None:
    pytest.importorskip("PIL", reason="the extra images is not installed")
    requests = workload([0], input_tokens=100, output_tokens=4).with_columns(image_tokens=[64])
    limits = RequestLimits(read_part=part_reader(SIDE, None))
    async with served(latency=LATENCY, limits=limits) as (listening, _):
        trace = await measured(listening.url, requests, api=api, image_side=SIDE)
    assert statuses(trace) == ["ok"]
    assert abs(trace.cells("server_input_tokens").values[0] - 100) <= 2


def form(sound: bytes, **fields: str) -> aiohttp.FormData:
    """Return a form by aiohttp, which is another's writer."""
    said = aiohttp.FormData(fields)
    said.add_field("file", sound, filename="a.wav", content_type="audio/wav")
    return said


async def test_a_transcription_is_a_prompt_of_its_sounds_tokens() -> None:
    sound, limits = wav(40 * SECONDS, key=(1,)), RequestLimits(read_part=part_reader(None, SECONDS))
    async with served(limits=limits) as (_, client):
        data = form(sound, max_completion_tokens="5", stream="true", stream_include_usage="true")
        async with client.post("/v1/audio/transcriptions", data=data) as response:
            events = await events_of(response)
        async with client.post(
            "/v1/audio/transcriptions", data=form(sound, max_completion_tokens="5")
        ) as answer:
            whole = await answer.json()
    assert events[-1]["usage"]["prompt_tokens"] == 40  # type: ignore[index]  # JSON
    assert events[-1]["usage"]["completion_tokens"] == 5  # type: ignore[index]  # JSON
    text = "".join(each["choices"][0]["delta"]["content"] for each in events[:-1])  # type: ignore[index]  # JSON
    assert whole == {"text": text, "usage": {"type": "duration", "seconds": 1}}


async def test_a_form_that_cannot_be_is_an_error_of_its_client() -> None:
    sound, limits = wav(SECONDS, key=(1,)), RequestLimits(read_part=part_reader(None, SECONDS))
    kind = {"Content-Type": "multipart/form-data; boundary=b"}
    cases: list[tuple[Any, dict[str, str] | None, str]] = [
        (b"{}", {"Content-Type": "application/json"}, "Content-Type: expected multipart"),
        (b"", kind, "body: got a form without an end"),
        (b"--b\r\n\r\na\r\n--b--\r\n", kind, "body: got a part without a name"),
        (b"--b\r\n" * 100, kind, "body: got a form without an end"),
        (form(b"RIFF"), None, "file: got no sound"),
        (aiohttp.FormData({"file": "a", "model": "vtwin"}), None, "Content-Type"),
        (form(sound, stream="maybe"), None, "stream: expected true or false"),
        (form(sound, max_completion_tokens="-1"), None, "max_completion_tokens"),
    ]
    async with served(limits=limits) as (_, client):
        for data, headers, why in cases:
            async with client.post("/v1/audio/transcriptions", data=data, headers=headers) as response:
                assert response.status == 400 and why in (await response.json())["error"]["message"], why
        async with client.post("/v1/audio/transcriptions", data=form(sound, model="other")) as response:
            assert response.status == 404
    async with served() as (_, client), client.post("/v1/audio/transcriptions", data=form(sound)) as response:
        said = (await response.json())["error"]["message"]
        assert response.status == 400 and "--audio-seconds" in said


@given(st.binary(max_size=200), st.sampled_from([b"", b"\r\n--x", b"--x--", b"\r\n", b"\r"]))
def test_a_forms_file_is_what_was_sent_to_the_byte(middle: bytes, around: bytes) -> None:
    sound = around + middle + around
    body = transcriptions.body("transcriptions", sound, {"model": "m", "stream": False})
    fields = form_fields(body, content_type=KINDS["transcriptions"].content_type)
    assert fields == {"model": "m", "stream": "false", "file": sound}


@given(st.binary(max_size=200), st.text(max_size=60))
def test_whatever_a_form_is_it_is_read_or_refused(raw: bytes, kind: str) -> None:
    for said in (kind, f"multipart/form-data; boundary={kind}", "multipart/form-data; boundary=b"):
        with suppress(Refusal):
            form_fields(b"--b" + raw + b"\r\n--b--", content_type=said)
