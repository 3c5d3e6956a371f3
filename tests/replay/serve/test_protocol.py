from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from replay.serve.protocol import (
    UNASKED_LENGTHS,
    Job,
    Refusal,
    chat_tokens,
    check_model,
    parse_body,
    parse_chat,
    parse_completion,
    plan_answer,
)
from replay.serve.replies import ReplyHead, TokenUsage
from replay.serve.tokens import decode, encode

USER = {"role": "user", "content": "hello"}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
FIELDS = (
    *("response_format", "structured_outputs", "tools"),
    "prompt",
    "messages",
    "max_tokens",
    "min_tokens",
    "stop",
    "stream",
    "stream_options",
    "n",
    "priority",
    "echo",
)


def job(**body: object) -> Job:
    return parse_completion({"prompt": [1, 2, 3], **body})


def test_the_defaults_are_the_apis() -> None:
    assert job().max_tokens == 16
    assert job(max_tokens=None).max_tokens is None
    assert parse_chat({"messages": [USER]}).max_tokens is None
    assert parse_chat({"messages": [USER], "max_tokens": 5, "max_completion_tokens": 7}).max_tokens == 7


@pytest.mark.parametrize(
    ("prompt", "lengths"),
    [("hello world", [2]), ([5, 6, 7], [3]), (["a", "b c"], [1, 2]), ([[1], [2, 3]], [1, 2])],
)
def test_a_prompt_is_text_or_ids_or_a_list_of_either(prompt: object, lengths: list[int]) -> None:
    assert [len(tokens) for tokens in parse_completion({"prompt": prompt}).prompts] == lengths


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": 7}, "prompt"),
        ({"prompt": [1, "a"]}, "prompt"),
        ({"prompt": [[1], [-1]]}, "prompt"),
        ({"prompt": [True]}, "prompt"),
        ({"prompt": "a", "max_tokens": 0}, "max_tokens"),
        ({"prompt": "a", "max_tokens": "5"}, "max_tokens"),
        ({"prompt": "a", "max_tokens": True}, "max_tokens"),
        ({"prompt": "a", "min_tokens": -1}, "min_tokens"),
        ({"prompt": "a", "max_tokens": 3, "min_tokens": 4}, "min_tokens"),
        ({"prompt": "a", "n": 2}, "n"),
        ({"prompt": "a", "best_of": 3}, "best_of"),
        ({"prompt": "a", "echo": True}, "echo"),
        ({"prompt": "a", "logprobs": 1}, "logprobs"),
        ({"prompt": "a", "logprobs": True}, "logprobs"),
        ({"prompt": "a", "stream": "yes"}, "stream"),
        ({"prompt": "a", "stream_options": {"include_usage": True}}, "stream_options"),
        ({"prompt": "a", "stream": True, "stream_options": 1}, "stream_options"),
        ({"prompt": "a", "stop": 3}, "stop"),
    ],
)
def test_a_bad_body_is_refused_with_400_and_the_name_of_the_field(
    body: dict[str, object], param: str
) -> None:
    with pytest.raises(Refusal) as caught:
        parse_completion(body)
    assert (caught.value.status, caught.value.param) == (400, param)
    assert caught.value.body()["error"]["code"] == 400  # type: ignore[index]


@pytest.mark.parametrize("raw", [b"", b"{", b"[1]", b"\xff", b'"text"'])
def test_a_body_that_is_no_json_object_is_refused(raw: bytes) -> None:
    with pytest.raises(Refusal, match="expected a JSON object"):
        parse_body(raw)


@settings(
    suppress_health_check=[HealthCheck.too_slow]
)  # the first draw compiles its strategies, slowly on a busy machine
@given(st.dictionaries(st.sampled_from(FIELDS), JSON))
def test_whatever_a_body_holds_it_is_read_or_refused(body: dict[str, object]) -> None:
    for parse in (parse_completion, parse_chat):
        try:
            parsed = parse(body)
            for prompt in parsed.prompts:
                plan_answer(parsed, prompt, max_model_len=512)
        except Refusal as refusal:
            json.dumps(refusal.body())


def test_features_that_are_asked_for_but_off_are_let_through() -> None:
    job(n=1, best_of=1, echo=False, logprobs=None, use_beam_search=False, suffix="", temperature=0.7)
    parse_chat({"messages": [USER], "logprobs": False, "top_logprobs": 0})


def test_another_model_is_not_found_and_no_model_means_the_one_there_is() -> None:
    check_model({}, "tiny")
    check_model({"model": "tiny"}, "tiny")
    with pytest.raises(Refusal) as caught:
        check_model({"model": "large"}, "tiny")
    assert (caught.value.status, caught.value.kind) == (404, "NotFoundError")


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "outputs"),
    [(4000, 500, 96), (4095, 5, 1), (4000, 4096, 96), (10, 16, 16)],
)
def test_max_tokens_is_cut_to_what_fits_behind_the_prompt(prompt: int, max_tokens: int, outputs: int) -> None:
    """The first two rows were seen on a real vLLM 0.32 server with max_model_len 4096."""
    answer = plan_answer(job(max_tokens=max_tokens), np.arange(prompt), max_model_len=4096)
    assert (len(answer.texts), answer.finish_reason) == (outputs, "length")


@pytest.mark.parametrize(
    ("prompt", "asked", "param"),
    [
        (4096, {}, "input_tokens"),
        (9000, {}, "input_tokens"),
        (0, {}, "prompt"),
        (10, {"max_tokens": 4097}, "max_tokens"),
        (4090, {"max_tokens": 20, "min_tokens": 10}, "min_tokens"),
    ],
)
def test_lengths_that_cannot_be_are_refused(prompt: int, asked: dict[str, object], param: str) -> None:
    with pytest.raises(Refusal) as caught:
        plan_answer(job(**asked), np.arange(prompt), max_model_len=4096)
    assert caught.value.param == param


@pytest.mark.parametrize(
    ("fields", "guided"),
    [
        ({}, False),
        ({"response_format": None, "structured_outputs": None, "tools": []}, False),
        ({"response_format": {"type": "text"}}, False),
        ({"response_format": {"type": "json_object"}}, True),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {}}}}, True),
        ({"structured_outputs": {"regex": "a+"}}, True),
        ({"structured_outputs": {"json": {"type": "object"}}, "response_format": {"type": "text"}}, True),
    ],
)
def test_a_request_for_a_grammar_is_known(fields: dict[str, object], guided: bool) -> None:
    assert job(**fields).guided is guided
    assert parse_chat({"messages": [USER], **fields}).guided is guided


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": {"type": "structural_tag"}}, "response_format"),
        ({"response_format": "json"}, "response_format"),
        ({"response_format": {"type": "json_schema"}}, "response_format"),
        ({"structured_outputs": {}}, "structured_outputs"),
        ({"structured_outputs": {"regex": "a", "choice": ["b"]}}, "structured_outputs"),
        ({"structured_outputs": {"structural_tag": "{}"}}, "structured_outputs"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"functions": [{"name": "f"}]}, "functions"),
    ],
)
def test_grammars_and_tools_that_are_not_emulated_are_refused(fields: dict[str, object], param: str) -> None:
    with pytest.raises(Refusal) as caught:
        parse_chat({"messages": [USER], **fields})
    assert (caught.value.status, caught.value.param) == (400, param)


def test_without_max_tokens_an_answer_ends_by_itself_unless_eos_is_ignored() -> None:
    lengths = set()
    for seed in range(50):
        answer = plan_answer(job(max_tokens=None), np.array([seed]), max_model_len=4096)
        assert answer.finish_reason == "stop"
        lengths.add(len(answer.texts))
    assert min(lengths) >= UNASKED_LENGTHS[0]
    assert max(lengths) < UNASKED_LENGTHS[1]
    assert len(lengths) > 10
    endless = plan_answer(job(max_tokens=None, ignore_eos=True), np.array([1]), max_model_len=4096)
    assert (len(endless.texts), endless.finish_reason) == (4095, "length")
    longer = plan_answer(job(max_tokens=None, min_tokens=1000), np.array([1]), max_model_len=4096)
    assert (len(longer.texts), longer.finish_reason) == (1000, "stop")


def test_a_stop_text_ends_the_answer_before_it() -> None:
    whole = plan_answer(job(max_tokens=40), np.arange(3), max_model_len=4096)
    text = whole.text(0, 40)
    stop = whole.texts[9][1:] + whole.texts[10][:3]  # begins inside a token, ends inside the next
    cut = plan_answer(job(max_tokens=40, stop=["never said", stop]), np.arange(3), max_model_len=4096)
    at = text.index(stop)
    assert cut.text(0, len(cut.texts)) == text[:at]
    assert (cut.finish_reason, cut.stop_reason) == ("stop", stop)
    assert len(whole.text(0, len(cut.texts))) >= at + len(stop) > len(whole.text(0, len(cut.texts) - 1))


def test_a_stop_text_before_min_tokens_does_not_count() -> None:
    whole = plan_answer(job(max_tokens=40), np.arange(3), max_model_len=4096)
    stop = whole.texts[0]
    cut = plan_answer(job(max_tokens=40, min_tokens=5, stop=stop), np.arange(3), max_model_len=4096)
    assert len(cut.texts) > 5


def test_a_chat_continues_the_tokens_of_the_chat_before_it() -> None:
    """So the prefix cache finds the earlier turns, the answer's tokens included."""
    first = chat_tokens({"messages": [USER]})
    said = plan_answer(parse_chat({"messages": [USER], "max_tokens": 30}), first, max_model_len=4096)
    reply = {"role": "assistant", "content": said.text(0, 30)}
    second = chat_tokens({"messages": [USER, reply, USER]})
    both = np.concatenate([first, said.tokens])
    assert second[: len(both)].tolist() == both.tolist()


def test_a_chats_content_may_be_parts_of_text_only() -> None:
    parts = {"role": "user", "content": [{"type": "text", "text": "hel"}, {"type": "text", "text": "lo"}]}
    assert chat_tokens({"messages": [parts]}).tolist() == chat_tokens({"messages": [USER]}).tolist()
    for bad in ({"content": "x"}, {"role": "user", "content": [{"type": "image_url"}]}, 3):
        with pytest.raises(Refusal, match="messages"):
            chat_tokens({"messages": [bad]})


def test_the_chunks_of_a_stream_put_together_are_the_whole_answer() -> None:
    prompt = encode("tell me")
    answer = plan_answer(job(max_tokens=7), prompt, max_model_len=100)
    usage = TokenUsage(prompt_tokens=2, completion_tokens=7, cached_tokens=0)
    reply = ReplyHead(id="cmpl-0", model="tiny", created=1, chat=False)
    chunks = [json.loads(reply.chunk(0, answer.text(i, i + 1)).removeprefix(b"data: ")) for i in range(7)]
    whole = json.loads(reply.whole([answer], usage))
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == whole["choices"][0]["text"]
    assert whole["choices"][0]["text"] == decode(answer.tokens.tolist())
    assert {key: whole[key] for key in ("id", "object", "created", "model")} == {
        "id": "cmpl-0",
        "object": "text_completion",
        "created": 1,
        "model": "tiny",
    }
    assert whole["usage"]["total_tokens"] == 9
