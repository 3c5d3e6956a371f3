"""Sessions of agents: small files by hand, against the rows that they mean."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

import vtwin
from traces import TraceError, prompt_tokens, read_trace, session_tree, write_trace
from traces.importers import read_public
from traces.importers.weka import MOST_S, MOST_SHARED_TOKENS, SLACK_US, read_weka
from traces.tables.hash_chains import whole_hashes
from traces.trace_summary import prefix_hit_ceiling_frac

Entry = dict[str, Any]


def request(
    t: float, hashes: list[int], *, out: int = 5, api: float | None = 2.0, think: float | None = None
) -> Entry:
    entry: Entry = {
        "t": t,
        "type": "s",
        "model": "m",
        "in": 4 * len(hashes) + 1,
        "out": out,
        "hash_ids": hashes,
    }
    return (
        entry | ({} if api is None else {"api_time": api}) | ({} if think is None else {"think_time": think})
    )


def session(name: str, requests: list[Entry], **keys: object) -> Entry:
    return {"id": name, "block_size": 4, "hash_id_scope": "local", "requests": requests, **keys}


WITH_SUBAGENTS = session(
    "a",
    [
        request(0, [1, 2, 3]),
        request(5, [1, 2, 3, 4], think=3.0),
        {
            "t": 15.0,
            "duration_ms": 7000,
            "agent_id": "x",
            "tool_tokens": 4,
            "requests": [request(0, [7, 8]), request(3, [7, 8, 9], think=1.0)],
        },
        {"t": 8.5, "agent_id": "y", "requests": [request(0, [1, 5])]},
        request(20, [1, 2, 6]),
    ],
    tool_tokens=4,
    system_tokens=5,
)


def written(folder: Path, *documents: object) -> Path:
    folder.mkdir(exist_ok=True)
    for number, document in enumerate(documents):
        (folder / f"{number}.json.gz").write_bytes(gzip.compress(json.dumps(document).encode()))
    return folder


def test_subagents_branch_off_and_the_parent_waits_for_them(tmp_path: Path) -> None:
    trace = read_public("weka", written(tmp_path / "in", WITH_SUBAGENTS))
    rows = {
        name: trace.cells(name).values.tolist()
        for name in (
            "request_id",
            "parent_request_id",
            "awaited_request_ids",
            "arrival_time_us",
            "think_time_us",
        )
    }
    assert rows["request_id"] == ["a/0", "a/1", "a/2", "a/3", "a/4", "a/5"]
    assert rows["parent_request_id"] == [None, "a/0", "a/1", "a/2", "a/1", "a/1"]
    assert rows["awaited_request_ids"] == [None, None, None, None, None, "a/3 a/4"]
    assert [time / 1e6 for time in rows["arrival_time_us"]] == [0, 5, 8, 11, 8.5, 20]
    # a/2 begins a second after a/1's answer at 7; a/5 seven after that of a/3, at 13, the last that it waits for
    assert [time / 1e6 for time in rows["think_time_us"]] == [0, 3, 1, 1, 1.5, 7]
    waiting, awaited = session_tree(trace.table).edges()
    assert list(zip(waiting.tolist(), awaited.tolist(), strict=True)) == [
        *((1, 0), (2, 1), (3, 2), (4, 1), (5, 1), (5, 3), (5, 4)),
    ]


def test_prompts_keep_what_is_new(tmp_path: Path) -> None:
    trace = read_public("weka", written(tmp_path / "in", WITH_SUBAGENTS))
    assert trace.cells("num_parent_hashes").values.tolist() == [0, 3, 0, 2, 1, 2]
    whole = [text.split() for text in whole_hashes(trace.table) if text]
    assert [len(hashes) for hashes in whole] == [3, 4, 2, 3, 2, 3]
    assert whole[1][:3] == whole[0]
    assert whole[5][:2] == whole[0][:2]
    assert whole[4][0] == whole[0][0]
    # the subagent's tools are as long as the parent's, but the file has another number for them
    assert whole[2][0] not in whole[0]
    # found again: 12 of a/1's tokens, 8 of a/3's, 4 of a/4's, 8 of a/5's
    assert prefix_hit_ceiling_frac(trace) == 32 / prompt_tokens(trace).sum()


def test_equal_tools_and_system_prompts_are_equal_blocks_of_all_sessions(tmp_path: Path) -> None:
    """Four tokens of tools and five of a system prompt are two whole blocks; with other tools none is shared."""
    keys = {"tool_tokens": 4, "system_tokens": 5}
    files = [session(name, [request(0, [11, 12, 13])], **keys) for name in ("a", "b")]
    other = session("c", [request(0, [11, 12, 13])], tool_tokens=8, system_tokens=5)
    whole = [
        (text or "").split()
        for text in whole_hashes(read_public("weka", written(tmp_path / "in", *files, other)).table)
    ]
    assert whole[0][:2] == whole[1][:2]
    assert whole[0][2] != whole[1][2]
    assert not set(whole[2]) & {*whole[0], *whole[1]}
    everywhere = [session(name, [request(0, [1, 2])], hash_id_scope="global") for name in ("a", "b")]
    trace = read_public("weka", written(tmp_path / "global", *everywhere))
    assert len(set(whole_hashes(trace.table))) == 1


def test_a_subagent_that_runs_on_is_not_waited_for(tmp_path: Path) -> None:
    entries = [
        request(0, [1]),
        {"t": 3.0, "requests": [request(0, [2], api=60.0)]},
        request(10, [1, 3], think=8.0),
    ]
    trace = read_public("weka", written(tmp_path / "in", session("a", entries)))
    assert trace.cells("awaited_request_ids").known().tolist() == []
    assert trace.cells("think_time_us").values.tolist() == [0, 1_000_000, 8_000_000]
    assert trace.header.source is not None
    assert any("1 subagents had not ended" in note for note in trace.header.source.notes)


def test_a_trace_of_sessions_is_written_and_read(tmp_path: Path) -> None:
    trace = read_public("weka", written(tmp_path / "in", WITH_SUBAGENTS))
    for stem in ("plain", "table.parquet"):
        write_trace(trace, tmp_path / stem)
        again = read_trace(tmp_path / stem)
        assert whole_hashes(again.table) == whole_hashes(trace.table)
        assert session_tree(again.table).parent.tolist() == [-1, 0, 1, 2, 1, 1]


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        ([], "got no requests, expected a session of an agent"),
        (session("a", [request(-1, [1])]), "requests[0]: t: got -1, expected seconds >= 0"),
        (
            session("a", [request(0, [1], think=float("nan"))]),
            "requests[0]: think_time: got nan, expected seconds",
        ),
        (session("a", [request(0, ["x"])]), "requests[0]: hash_ids: got 'x', expected integers"),  # type: ignore[list-item]
        (session("a", [request(0, [1]) | {"in": 1.5}]), "requests[0]: in: got 1.5, expected an integer >= 0"),
        (session("a", [{"t": 0, "requests": 7}]), "requests[0].: requests: got 7, expected a list"),
        (
            session("a", [request(0, [1, 2, 3]) | {"in": 5}]),
            "prefix_hashes: got 3 hashes, expected at most 2",
        ),
        (session("a", [request(0, [1])], block_size=0), "block_size: got 0, expected an integer >= 1"),
        (
            session("a", [{"t": 1.0, "duration_ms": "x", "requests": [request(0, [1])]}]),
            "duration_ms: got 'x', expected seconds >= 0",
        ),
        (
            session("a", [{"t": 1.0, "duration_ms": True, "requests": [request(0, [1])]}]),
            "duration_ms: got True, expected seconds >= 0",
        ),
        (session("a", [request(1.001 * MOST_S, [1])]), "expected seconds >= 0"),
    ],
)
def test_what_no_session_holds_is_refused_in_one_line(
    tmp_path: Path, document: object, complaint: str
) -> None:
    with pytest.raises(TraceError) as refusal:
        read_public("weka", written(tmp_path / "in", document))
    assert complaint in str(refusal.value)
    assert "\n" not in str(refusal.value)


HEADER = "tool: vtwin\nhash_block_size: 4\n"
COLUMNS = (
    "request_id,session_id,round_index,prefix_length,input_tokens,output_tokens,arrival_time_us,think_time_us,"
    "parent_request_id,awaited_request_ids,num_parent_hashes,prefix_hashes"
)


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        (
            ["0,s,0,0,9,1,0,,1,,,", "1,s,1,0,9,1,,,0,,,"],
            "parent_request_id: got '1', expected the request_id of an earlier",
        ),
        (["0,s,0,0,9,1,0,,,,,", "1,s,1,0,9,1,,,gone,,,"], "parent_request_id: got 'gone', expected"),
        (["0,s,0,0,9,1,0,,,,,", "1,t,0,0,9,1,,,0,,,"], "parent_request_id: got '0', expected"),
        (
            ["0,s,0,0,9,1,0,,,,,", "1,s,1,0,9,1,,,0,0 2,,"],
            "awaited_request_ids: got '0 2', expected request_ids of earlier",
        ),
        (
            ["0,s,0,0,9,1,0,,,,,1 2", "1,s,1,0,9,1,,,0,,3,"],
            "num_parent_hashes: got 3, expected at most the 2",
        ),
        (["0,s,0,0,9,1,0,,,,1,1 2"], "num_parent_hashes: got 1, expected parent_request_id with it"),
        (
            ["0,s,0,0,9,1,0,,,,,1 2", "1,s,1,0,9,1,,-5,0,,2,"],
            "think_time_us: got -5, expected an integer >= 0",
        ),
    ],
)
def test_a_tree_that_is_none_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], rows: list[str], complaint: str
) -> None:
    (tmp_path / "t.yaml").write_text(HEADER)
    (tmp_path / "t.csv").write_text("\n".join([COLUMNS, *rows]) + "\n")
    assert vtwin.main(["trace", "check", str(tmp_path / "t")]) == 1
    assert complaint in capsys.readouterr().out


def test_rows_count_from_0_and_say_whether_they_streamed(tmp_path: Path) -> None:
    entries = [request(0, [1], out=0) | {"type": "n"}, request(3, [1, 2], out=1), request(9, [1], think=0.0)]
    entries[2]["in"] = 1
    trace = read_public("weka", written(tmp_path / "in", session("a", entries, block_size=1)))
    assert trace.header.hash_block_size == 1
    assert trace.cells("round_index").values.tolist() == [0, 1, 2]
    assert trace.cells("streaming").values.tolist() == [False, True, True]
    assert trace.cells("output_tokens").values.tolist() == [1, 1, 5]
    assert trace.cells("num_parent_hashes").values.tolist() == [0, 1, 1]  # the shorter prompt is all known
    assert trace.cells("think_time_us").values.tolist() == [0, 1_000_000, 0]
    assert trace.header.source is not None
    assert trace.header.source.notes[2:] == ("1 answers of 0 tokens are of 1: no server is asked for none",)


def test_a_subagent_counts_as_unawaited_by_itself(tmp_path: Path) -> None:
    """Three subagents, one that ends in time and two that run on."""
    agents: list[Entry] = [{"t": 3.0, "requests": [request(0, [2], api=api)]} for api in (1.0, 60.0, 70.0)]
    trace = read_public(
        "weka", written(tmp_path / "in", session("a", [request(0, [1]), *agents, request(10, [1])]))
    )
    assert trace.header.source is not None
    assert trace.header.source.notes[2].startswith("2 subagents had not ended")


def test_a_subagent_begins_no_earlier_than_its_parent(tmp_path: Path) -> None:
    """``t`` is its end: five seconds of a subagent that ended after three began at 0."""
    first = {"t": 3.0, "duration_ms": 5000, "requests": [request(0, [2])]}
    inner = session("a", [first, request(10, [1])])
    trace = read_public("weka", written(tmp_path / "in", inner))
    assert trace.cells("arrival_time_us").values.tolist() == [0, 10_000_000]


def test_the_blocks_of_tools_and_prompt_have_a_limit(tmp_path: Path) -> None:
    keys = {"tool_tokens": MOST_SHARED_TOKENS, "block_size": 1 << 20}
    entry = {**request(0, [1]), "in": 1 << 20}
    read_public("weka", written(tmp_path / "most", session("a", [entry], **keys)))
    with pytest.raises(TraceError, match=r"tool_tokens: got .*, expected at most .* with system_tokens"):
        read_public("weka", written(tmp_path / "more", session("a", [entry], **keys, system_tokens=1)))
    alone = session("a", [entry], block_size=1 << 20, system_tokens=MOST_SHARED_TOKENS + 1)
    with pytest.raises(TraceError, match=r"expected at most .* with system_tokens"):
        read_public("weka", written(tmp_path / "alone", alone))


def test_a_block_has_64_tokens_where_a_session_does_not_say(tmp_path: Path) -> None:
    silent = {
        key: value for key, value in session("a", [request(MOST_S, [1])]).items() if key != "block_size"
    }
    trace = read_public("weka", written(tmp_path / "in", silent))
    assert trace.header.hash_block_size == 64


def test_of_a_subagent_with_one_of_its_own_the_last_request_is_waited_for(tmp_path: Path) -> None:
    inner = {"t": 1.0, "requests": [request(0, [3], api=1.0)]}
    outer = {"t": 5.0, "requests": [request(0, [2], api=4.0), inner]}
    trace = read_public(
        "weka", written(tmp_path / "in", session("a", [request(0, [1]), outer, request(20, [1])]))
    )
    assert trace.cells("awaited_request_ids").known().tolist() == ["a/1"]


def test_sessions_have_one_size_of_block_and_a_folder_has_a_file(tmp_path: Path) -> None:
    two = [session("a", [request(0, [1])]), session("b", [request(0, [1])], block_size=5)]
    with pytest.raises(TraceError, match=r"got block_size \[4, 5\], expected one for all sessions"):
        read_public("weka", written(tmp_path / "in", *two))
    (tmp_path / "none").mkdir()
    with pytest.raises(TraceError, match="got no file, expected sessions"):
        read_weka(tmp_path / "none")


def test_models_are_told_where_there_are_several(tmp_path: Path) -> None:
    entries = [request(0, [1]), request(3, [1]) | {"model": "n"}, request(6, [1]) | {"model": 7}]
    trace = read_public("weka", written(tmp_path / "in", session("a", entries)))
    assert trace.header.source is not None
    assert trace.header.source.notes[-1].endswith("(m 1, n 1, none 1)")
    assert len(trace.header.source.notes) == 3


def test_two_models_are_told_and_one_is_not(tmp_path: Path) -> None:
    for model, num_notes in (("m", 2), ("n", 3)):
        entries = [request(0, [1]), request(3, [1]) | {"model": model}]
        trace = read_public("weka", written(tmp_path / model, session("a", entries)))
        assert trace.header.source is not None
        assert len(trace.header.source.notes) == num_notes


def test_who_begins_before_the_answer_did_not_think(tmp_path: Path) -> None:
    trace = read_public("weka", written(tmp_path / "in", session("a", [request(0, [1]), request(1, [1, 2])])))
    assert trace.cells("think_time_us").values.tolist() == [0, 0]


def test_a_session_without_an_id_has_its_files_name_and_blocks_count_from_0(tmp_path: Path) -> None:
    nameless = {key: value for key, value in session("a", [request(0, [7, 9])]).items() if key != "id"}
    trace = read_public("weka", written(tmp_path / "in", nameless))
    assert trace.cells("session_id").values.tolist() == ["0"]
    assert trace.cells("request_id").values.tolist() == ["0/0"]
    assert trace.cells("prefix_hashes").values.tolist() == ["0 1"]


def test_a_subagent_that_ends_within_the_clocks_slack_is_waited_for(tmp_path: Path) -> None:
    for late_us, awaited in ((SLACK_US, ["a/1"]), (SLACK_US + 1, [])):
        agent = {"t": 3.0, "requests": [request(0, [2], api=7.0 + late_us / 1e6)]}
        entries = [request(0, [1]), agent, request(10, [1])]
        trace = read_public("weka", written(tmp_path / str(late_us), session("a", entries)))
        assert trace.cells("awaited_request_ids").known().tolist() == awaited
