"""The command's options for kinds of requests: what they send, show and refuse."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import vtwin
from tests.observe.servers import Behaviour, FakeServer, serving_in_thread
from traces import read_trace

LOAD = ("--rate", "400", "--num-requests", "6", "--prompt-tokens", "20")
SOUNDS = ("--api", "transcriptions", "--audio-seconds", "0.01")
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


@pytest.fixture(scope="module")
def server() -> Iterator[FakeServer]:
    with serving_in_thread(Behaviour(tokenize=True)) as running:
        yield running


def observe(server: FakeServer, output: Path, *arguments: str) -> int:
    return vtwin.main(["observe", "--url", server.url, "--output", str(output), *LOAD, *arguments])


def test_embeddings_have_a_table_a_document_and_a_trace_without_tokens(
    server: FakeServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("--api", "embeddings", "--batch-inputs", "4", "--slo", "e2e=1s", "--json", "--processes", "2")
    assert observe(server, tmp_path / "o", *asked) == 0
    out, err = capsys.readouterr()
    said = json.loads(out)
    assert (said["api"], said["num_inputs"], said["num_by_status"]) == ("embeddings", 4, {"ok": 6})
    assert said["input_throughput"] == pytest.approx(4 * said["request_throughput"])
    assert said["goodput"]["good_frac"] == 1.0
    assert "inputs/s, 4 a request" in err and "TTFT" not in err
    client = read_trace(tmp_path / "o").header.client
    assert client is not None and (client.num_inputs, client.num_without_usage) == (4, None)
    assert vtwin.main(["trace", "check", str(tmp_path / "o")]) == 0
    assert vtwin.main(["report", str(tmp_path / "o"), "--output", str(tmp_path / "page.html")]) == 0


def test_a_sweep_of_embeddings_has_a_row_for_each_load(
    server: FakeServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("--api", "rerank", "--sweep", "200,400")
    assert observe(server, tmp_path / "o", *asked[:2], *asked[2:]) == 2  # --rate beside --sweep
    assert (
        vtwin.main(["observe", "--url", server.url, "--output", str(tmp_path / "p"), *LOAD[2:], *asked]) == 0
    )
    head, *rows = capsys.readouterr().out.splitlines()
    assert "inputs/s" in head and len(rows) == 2 and all(row.split()[3] == row.split()[4] for row in rows)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("--api", "embeddings", "--output-tokens", "5"),
            "--output-tokens: cannot be combined with --api embeddings",
        ),
        (("--api", "score", "--no-streaming"), "--no-streaming: cannot be combined with --api score"),
        (("--api", "rerank", "--slo", "ttft=1s"), "--slo: got ttft with --api rerank, expected e2e"),
        (("--api", "classify", "--n", "2"), "--n: got --api classify, expected completions or chat"),
        (
            ("--api", "pooling", "--tools", "TOOLS"),
            "--tools: got --api pooling, expected chat, responses or messages",
        ),
        (("--audio-seconds", "0.04"), "--audio-seconds: needs --api chat or transcriptions"),
        (("--api", "transcriptions"), "--api transcriptions: needs --audio-seconds"),
        ((*SOUNDS, "--guided", "SCHEMA"), "--guided: cannot be combined with --api transcriptions"),
        ((*SOUNDS, "--class-priority"), "--class-priority: got --api transcriptions, which has no"),
        (("--api", "messages", "--video-frames", "4"), "--video-frames: needs --api chat"),
        (("--image-side", "28"), "--image-side: needs --api chat or responses or messages"),
        (("--api", "chat", "--video-frames", "4"), "--video-frames: needs --image-side"),
        (("--api", "chat", "--audio-seconds", "30"), "--audio-seconds"),
        (("--api", "messages", "--class-priority"), "--class-priority: got --api messages, which has no"),
        (("--api", "messages", "--n", "2"), "--n: got --api messages, expected completions or chat"),
        (("--api", "chat", "--batch-inputs", "2"), "--batch-inputs: got --api chat, expected one that"),
        (("--api", "chat", "--tool-choice", "auto"), "--tool-choice: needs --tools"),
        (
            ("--api", "chat", "--tools", "TOOLS", "--tool-choice", "hide"),
            "--tool-choice: got 'hide', expected one of",
        ),
        (("--api", "chat", "--tools", "EMPTY"), "--tools: got no array with tools in it"),
        (("--api", "chat", "--tools", "NAMELESS"), "--tools: tool 0: got no name"),
        (("--api", "chat", "--tools", "nowhere.json"), "--tools: got No such file"),
        (
            ("--api", "pooling", "--cancel-share", "0.5", "--cancel-after", "3tokens"),
            "--cancel-after: cannot be combined with --api pooling",
        ),
    ],
)
def test_what_an_api_has_not_is_refused_before_anything_is_sent(
    server: FakeServer,
    tmp_path: Path,
    arguments: tuple[str, ...],
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    files: dict[str, object] = {
        "TOOLS": [TOOL],
        "SCHEMA": {"type": "object"},
        "EMPTY": [],
        "NAMELESS": [{"type": "function"}],
    }
    for name, tools in files.items():
        (tmp_path / name).write_text(json.dumps(tools))
    before = len(server.asked)
    named = [str(tmp_path / each) if each in files else each for each in arguments]
    assert observe(server, tmp_path / "o", *named) == 2
    assert said in capsys.readouterr().err
    assert len(server.asked) == before


def test_tools_and_choices_are_in_the_header_and_the_document(
    server: FakeServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tools.json").write_text(json.dumps([TOOL]))
    asked = (
        "--api",
        "chat",
        "--tools",
        str(tmp_path / "tools.json"),
        "--n",
        "3",
        "--output-tokens",
        "4",
        "--json",
    )
    assert observe(server, tmp_path / "o", *asked) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["num_choices"], said["num_called_tools"], said["output_tokens"]["mean"]) == (3, 0, 12)
    client = read_trace(tmp_path / "o").header.client
    assert client is not None and (client.tools, client.num_choices, client.ignore_eos) == (
        "tools.json",
        3,
        False,
    )


def test_a_sweep_sends_each_text_once_and_cuts_a_share_of_each_load(
    server: FakeServer, tmp_path: Path
) -> None:
    path = tmp_path / "texts.txt"
    path.write_text("".join(f"text number {place}\n\n" for place in range(20)))
    before = len(server.requests)
    asked = ["--texts", str(path), "--num-requests", "8", "--output-tokens", "6", "--sweep", "200,400"]
    cut = ["--cancel-share", "0.5", "--cancel-after", "2tokens"]
    assert vtwin.main(["observe", "--url", server.url, "--output", str(tmp_path / "o"), *asked, *cut]) == 0
    prompts = [str(each.body["prompt"]) for each in server.requests[before:]]
    assert len(prompts) == len(set(prompts)) == 16
    for name in sorted((tmp_path / "o").glob("*.yaml")):
        assert read_trace(name.with_suffix("")).column("cancel_after_tokens").notna().sum() == 4
