"""aiperf's sessions in Mooncake's format: small files by hand, an excerpt of a published one, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from replay.trace.request_columns import requests_from_trace
from traces import Trace, TraceError
from traces.importers import read_public
from traces.trace_summary import prefix_hit_ceiling_frac

PUBLISHED = Path("traces/samples/aiperf_agentic_code_20.jsonl")
Line = dict[str, Any]


def converted(folder: Path, *lines: Line) -> Trace:
    path = folder / "f.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return read_public("mooncake", path)


def turn(name: str | None, new: int, out: int, hashes: list[int] | None = None, **keys: object) -> Line:
    return {"session_id": name, "input_length": new, "output_length": out, "hash_ids": hashes, **keys}


SESSIONS = (
    turn("a", 1100, 30, [7, 8, 9], timestamp=2.5),
    turn("b", 600, 5, [7, 1], timestamp=4),
    turn("a", 200, 400, [20], delay=1500.25),
    turn(None, 10, 3),
    turn("a", 50, 1),
)


def test_turns_add_to_what_was_said_before_them(tmp_path: Path) -> None:
    trace = converted(tmp_path, *SESSIONS)
    rows = trace.requests.set_index("request_id")
    a = rows[rows["session_id"] == "a"]
    assert list(a["input_tokens"]) == [1100, 1100 + 30 + 200, 1330 + 400 + 50]
    assert list(a["new_input_tokens"]) == [1100, 200, 50]
    assert list(a["round_index"]) == [0, 1, 2]
    assert list(a["think_time_us"].iloc[1:]) == [1_500_250, 0]
    assert a["arrival_time_us"].iloc[0] == 2500
    assert a["arrival_time_us"].iloc[1:].isna().all()
    assert list(a["prefix_hashes"].fillna("")) == [
        "7 8",
        "",
        "",
    ]  # of the third hash's block 76 tokens are there
    assert rows.loc["line 4/0", "arrival_time_us"] == 0


def test_later_turns_have_times_where_all_of_them_have(tmp_path: Path) -> None:
    timed = (turn("a", 5, 1, timestamp=1), turn("a", 5, 1, timestamp=9), turn("b", 5, 1, timestamp=2))
    trace = converted(tmp_path, *timed)
    assert list(trace.column("arrival_time_us")) == [1000, 9000, 2000]
    assert trace.header.source is not None
    assert trace.header.source.notes[0] == "every turn has its time"
    mixed = converted(tmp_path, *timed, turn("b", 5, 1, delay=3))
    assert list(mixed.column("arrival_time_us").fillna(-1)) == [1000, -1, 2000, -1]
    assert list(mixed.column("think_time_us").fillna(-1)) == [-1, 0, -1, 3000]


def test_whole_prompts_stay_whole(tmp_path: Path) -> None:
    whole = {"context_mode": "message_array_with_responses"}
    trace = converted(
        tmp_path,
        turn("a", 1100, 30, [7, 8, 9], timestamp=0, **whole),
        turn("a", 1600, 30, [7, 8, 10, 11], delay=1, **whole),
    )
    assert list(trace.column("input_tokens")) == [1100, 1600]
    assert list(trace.column("prefix_hashes")) == ["7 8", "7 8 10"]
    assert trace.column("new_input_tokens").isna().all()


def test_requests_share_what_the_hashes_and_the_sessions_say() -> None:
    """The published excerpt, against prompts written out token by token."""
    trace = read_public("mooncake", PUBLISHED)
    said: dict[str, list[object]] = {}
    texts: list[list[object]] = []
    for line in map(json.loads, PUBLISHED.read_text().splitlines()):
        name, text = line["session_id"], said.setdefault(line["session_id"], [])
        if "timestamp" in line:
            whole = line["input_length"] // 512
            text += [(number, i) for number in line["hash_ids"][:whole] for i in range(512)]
            text += [(name, i) for i in range(line["input_length"] - 512 * whole)]
        else:
            text += [(name, len(text) + i) for i in range(line["input_length"])]
        texts.append(list(text))
        text += [(name, len(text) + i) for i in range(line["output_length"])]
    requests = requests_from_trace(trace, block_size=16, closed_loop=True)
    assert list(requests.prompt_tokens) == [len(text) for text in texts]
    contents: dict[int, tuple[object, ...]] = {}
    for row, text in enumerate(texts):
        start, count = requests.hash_starts[row], requests.num_hashes[row]
        assert count >= 83 * 32
        for place, number in enumerate(requests.hash_ids[start : start + count].tolist()):
            block = tuple(text[16 * place : 16 * place + 16])
            if len(block) == 16:  # the answer behind the prompt is in the next prompt
                assert contents.setdefault(number, block) == block
    assert len(set(contents.values())) == len(contents)
    assert prefix_hit_ceiling_frac(trace) == pytest.approx(
        ceiling(
            texts, [int(each) for each in trace.column("output_tokens")], list(trace.column("session_id"))
        )
    )


def ceiling(texts: list[list[object]], outputs: list[int], names: list[str]) -> float:
    """The share of tokens that an earlier line had in the same place, hashes by whole blocks of 512."""
    hit = 0
    for row, text in enumerate(texts):
        best = 0
        for before in range(row):
            if names[before] == names[row]:
                best = max(best, min(len(texts[before]) + outputs[before], len(text)))
                continue
            pairs = zip(texts[before], text, strict=False)
            same = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(texts[before]), len(text)))
            is_first = names[row] not in names[:row]
            best = max(best, same // 512 * 512) if is_first else best
        hit += best
    return hit / sum(map(len, texts))


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (
            [turn("a", 5, 1, delay=-1)],
            "session 'a', turn 0: delay: got -1, expected a time from 0",
        ),
        (
            [turn("a", 5, 1, context_mode="deltas_with_responses")],
            "session 'a': context_mode: got deltas_with_responses, expected one of deltas_without_responses and",
        ),
        (
            [turn("a", 5, 1), turn("a", 6, 1, context_mode="message_array_with_responses")],
            "got deltas_without_responses, message_array_with_responses, expected one of",
        ),
        ([turn("a", 5, 1), turn(None, 5, 1, session_id=7)], "f.jsonl:2: session_id: got 7, expected text"),
        (
            [turn("a", 5, 1, [1, 2, 3])],
            "session 'a', turn 0: hash_ids: got 3 hashes, expected at most 2 for 5 tokens in blocks of 512",
        ),
        ([{"messages": [], "session_id": "a"}], "f.jsonl:1: input_length: got nothing, expected an integer"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, lines: list[Line], expected: str) -> None:
    with pytest.raises(TraceError) as error:
        converted(tmp_path, *lines)
    assert expected in str(error.value)


def test_lines_without_a_session_have_a_time_all_or_none(tmp_path: Path) -> None:
    line = {"input_length": 5, "output_length": 1, "hash_ids": [1]}
    with pytest.raises(TraceError, match=r"f\.jsonl:1: timestamp: got nothing, expected a number"):
        converted(tmp_path, line, line | {"timestamp": 3})
    source = converted(tmp_path, line).header.source
    assert source is not None
    assert source.load_unknown == "no timestamp, so when requests are due is not in the file"


def test_hashes_of_later_rounds_win_over_what_they_add(tmp_path: Path) -> None:
    grown = converted(tmp_path, *SESSIONS)
    assert num_hashes(grown) == [2, 3, 3, 1, 0]
    said = grown.with_columns(prefix_hashes=["7 8", "7 10", "7 8 9", None, None])
    assert num_hashes(said) == [2, 1, 2, 0, 0]


def num_hashes(trace: Trace) -> list[int]:
    """Return how many whole blocks of each request another may share."""
    return list(requests_from_trace(trace, block_size=512, closed_loop=True).num_hashes)
