"""Texts of a data set: which are sent, how long they are, and what the server receives."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import orjson
import pytest

import vtwin
from observe import Settings, observe_with, parse_endpoint
from observe.plan.prompts import TokenPrompts
from observe.plan.request_body import BodyShape
from observe.plan.send_plan import make_plan
from observe.settings import TextColumns, TextSource
from observe.text_options import TextOptions, parse_columns
from observe.texts.sent_texts import SentTexts, choose_texts
from observe.texts.token_counts import GuessedCounts
from tests.observe.servers import Behaviour, serving
from tests.observe.workloads import every, workload
from traces import ConfigError, Trace, TraceError
from traces.workload import Api, WorkloadOptions

WORDS = ["one", "one two three", "a b c d e f", "g h"]


def data_set(folder: Path, *, answers: bool = True) -> Path:
    """Write four prompts of 1, 3, 6 and 2 words with answers twice as long, in characters."""
    rows = [{"prompt": text, **({"answer": text + text} if answers else {})} for text in WORDS]
    path = folder / "texts.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def chosen(requests: Trace, source: TextSource, *, chat: bool = False) -> SentTexts:
    """Return the texts for ``requests``, lengths guessed by characters."""
    return asyncio.run(choose_texts(requests, source, counts=GuessedCounts(), chat=chat))


def test_each_text_is_sent_once_in_an_order_of_the_seed(tmp_path: Path) -> None:
    path = data_set(tmp_path)
    orders = {
        seed: [
            orjson.loads(text)
            for text in chosen(workload(every(1, 4)), TextSource(path=path, seed=seed)).prompts
        ]
        for seed in range(6)
    }
    assert all(sorted(order) == sorted(WORDS) for order in orders.values())
    assert len({tuple(order) for order in orders.values()}) > 1
    again = chosen(workload(every(1, 4)), TextSource(path=path, seed=3))
    assert [orjson.loads(text) for text in again.prompts] == orders[3]


def test_lengths_are_those_of_the_texts(tmp_path: Path) -> None:
    sent = chosen(workload(every(1, 4)), TextSource(path=data_set(tmp_path), seed=0))
    texts = [orjson.loads(prompt) for prompt in sent.prompts]
    assert sent.workload.column("input_tokens").tolist() == [max(round(len(text) / 4), 1) for text in texts]
    assert sent.workload.column("output_tokens").tolist() == [max(round(len(text) / 2), 1) for text in texts]
    assert sent.workload.column("prefix_length").tolist() == [0] * 4


def test_output_lengths_by_option_or_where_there_is_no_answer(tmp_path: Path) -> None:
    requests = workload(every(1, 4), output_tokens=77)
    by_option = chosen(requests, TextSource(path=data_set(tmp_path), seed=0, drawn_outputs=True))
    assert set(by_option.workload.column("output_tokens")) == {77}
    unknown = chosen(requests, TextSource(path=data_set(tmp_path, answers=False), seed=0))
    assert set(unknown.workload.column("output_tokens")) == {77}
    assert "4 texts have no answer: theirs are as long as --output-tokens draws" in unknown.notes


def test_bounds_leave_texts_out(tmp_path: Path) -> None:
    path = data_set(tmp_path)
    for bounds, kept in (
        ({"prompt": (2, None)}, {"one two three", "a b c d e f"}),
        ({"prompt": (1, 2)}, {"one", "g h"}),
        ({"output": (1, 2)}, {"one", "g h"}),
        ({"output": (6, None)}, {"one two three", "a b c d e f"}),
        ({"total": 3}, {"one", "g h"}),
    ):
        sent = chosen(workload(every(1, 4)), TextSource(path=path, seed=0, **bounds))  # type: ignore[arg-type]
        assert {orjson.loads(text) for text in sent.prompts} == kept, bounds
    with pytest.raises(TraceError, match="4 texts and none within the bounds"):
        chosen(workload(every(1, 4)), TextSource(path=path, seed=0, total=1))


def test_a_text_that_is_sent_again_shares_its_prefix_with_itself(tmp_path: Path) -> None:
    sent = chosen(workload(every(1, 8)), TextSource(path=data_set(tmp_path), seed=0))
    groups, shared = (
        sent.workload.column("prefix_group").tolist(),
        sent.workload.column("prefix_length").tolist(),
    )
    whole = sent.workload.column("input_tokens") + sent.workload.column("prefix_length")
    assert sent.prompts[:4] == sent.prompts[4:]
    assert whole.tolist()[:4] == whole.tolist()[4:]
    for group, length, text in zip(groups, shared, sent.prompts, strict=True):
        tokens = max(round(len(orjson.loads(text)) / 4), 1)
        assert length == tokens - 1
        assert (group is not None and isinstance(group, str)) == (tokens > 1)
    assert groups[:4] == groups[4:]
    assert any("4 texts for 8 requests: texts are sent again" in note for note in sent.notes)


def test_prompts_that_build_on_answers_have_no_texts(tmp_path: Path) -> None:
    rounds = workload(every(1, 2), new_input_tokens=[None, 4])
    with pytest.raises(TraceError, match="got a workload whose prompts build on answers"):
        chosen(rounds, TextSource(path=data_set(tmp_path), seed=0))


def test_a_plan_sends_the_text_of_each_row(tmp_path: Path) -> None:
    sent = chosen(workload(every(1, 4)), TextSource(path=data_set(tmp_path), seed=0), chat=True)
    shape = BodyShape(api="chat", model="m")
    plan = make_plan(sent.workload, prompts=TokenPrompts(1), shape=shape, texts=sent.prompts)
    bodies = [orjson.loads(plan.take_body(row)) for row in range(4)]
    assert [body["messages"] for body in bodies] == [orjson.loads(text) for text in sent.prompts]
    assert [body["max_tokens"] for body in bodies] == sent.workload.column("output_tokens").tolist()


@pytest.mark.parametrize("api", ["completions", "chat"])
async def test_the_server_counts_and_receives_the_texts(tmp_path: Path, api: Api) -> None:
    async with serving(Behaviour(tokenize=True, overhead=2)) as server:
        source = TextSource(path=data_set(tmp_path), seed=0)
        settings = Settings(endpoint=parse_endpoint(server.url), api=api, texts=source)
        seen = await observe_with(workload(every(1000, 4)), settings)
        received = [
            request.body["prompt" if api == "completions" else "messages"] for request in server.requests
        ]
    trace, client = seen.trace, seen.trace.header.client
    assert client is not None
    assert client.prompt_source == "texts of texts.jsonl, counted by the server's /tokenize"
    sent = sorted(text if api == "completions" else text[0]["content"] for text in received)
    assert sent == sorted(WORDS)
    assert trace.column("input_tokens").tolist() == trace.column("server_input_tokens").tolist()
    assert any(
        note.startswith("prompts are 4 of the 4 texts of texts.jsonl (sha256 ") for note in client.notes
    )


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"rounds": 3}, "--rounds: cannot be combined with --texts"),
        ({"prompt_tokens": 9}, "--prompt-tokens: cannot be combined with --texts"),
        ({"like": Path("x")}, "--like: cannot be combined with --texts"),
    ],
)
def test_options_that_contradict_texts(tmp_path: Path, given: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        TextOptions(texts=data_set(tmp_path)).source(WorkloadOptions(**given), resume=False)  # type: ignore[arg-type]


def test_other_faults_of_the_options(tmp_path: Path) -> None:
    plain = WorkloadOptions()
    with pytest.raises(ConfigError, match="needs --texts PATH"):
        TextOptions(texts_columns="prompt=a").source(plain, resume=False)
    with pytest.raises(ConfigError, match="no such file or folder"):
        TextOptions(texts=tmp_path / "none").source(plain, resume=False)
    with pytest.raises(ConfigError, match="--resume: cannot be combined with --texts"):
        TextOptions(texts=data_set(tmp_path)).source(plain, resume=True)
    for text in ("prompt", "prompt=", "x=y", "prompt=a,prompt=b"):
        with pytest.raises(ConfigError, match="expected prompt=COLUMN, answer=COLUMN or both"):
            parse_columns(text)
    assert parse_columns("answer=b, prompt=a") == TextColumns(prompt="a", answer="b")


def test_bounds_choose_texts_and_clip_nothing(tmp_path: Path) -> None:
    asked = WorkloadOptions(prompt_tokens_max=50, output_tokens_min=3, total_tokens_max=60, seed=5)
    texts = TextOptions(texts=data_set(tmp_path))
    assert texts.without_bounds(asked) == WorkloadOptions(seed=5)
    assert TextOptions().without_bounds(asked) == asked
    source = texts.source(asked, resume=False)
    assert source is not None
    assert (source.prompt, source.output, source.total, source.seed) == ((1, 50), (3, None), 60, 5)


def test_a_data_set_that_is_missing_is_told_before_the_server_is_asked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = vtwin.main(
        ["observe", "--url", "http://127.0.0.1:9", "--rate", "1", "--texts", "none.json", "--output", "o"]
    )
    assert code == 2
    assert capsys.readouterr().err.startswith("ConfigError: --texts: got no such file or folder")
