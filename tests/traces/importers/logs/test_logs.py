"""Public logs: columns in any order, conversations that stay conversations, failed rows that are told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from traces import Trace, TraceError, check_trace, format_of, prefix_hit_ceiling_frac, read_trace, write_trace
from traces.conversion import convert
from traces.errors import ConfigError
from traces.header import Source
from traces.importers.reading_options import ReadingOptions

NEW_BURST = """\
Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type
118,s2,9.1,GPT-4,417,276,693,Conversation log
5,s1,3.2,ChatGPT,472,18,490,Conversation log
45,s1,7.5,ChatGPT,1087,230,1317,Conversation log
150,s2,4.0,ChatGPT,880,0,970,Conversation log
180,,4,ChatGPT,95,120,215,API log
"""
PANDAS_AZURE = (
    '"","TIMESTAMP","ContextTokens","GeneratedTokens"\n'
    "0,2024-05-10 00:00:00.009930+00:00,2162,5\n"
    "1,2024-05-10T02:00:01.5+02:00,2399,6\n"
    "2,2024-05-10T00:00:03Z,76,15\n"
    "3,2024-05-10T00:00:04.123456789Z,76,0\n"
)


def chat(
    number: int, at_s: float, length: int, ids: list[int] | None, *, parent: int = -1
) -> dict[str, object]:
    row: dict[str, object] = {"chat_id": number, "parent_chat_id": parent, "timestamp": at_s}
    row |= {"input_length": length, "output_length": 10, "type": "text", "turn": 1 if parent < 0 else 2}
    return row if ids is None else row | {"hash_ids": ids}


CHATS = [
    chat(2, 9.5, 60, [5, 6, 8, 9], parent=1),
    chat(1, 0.5, 33, [5, 6, 7]),
    chat(3, 10.5, 20, [6, 1], parent=99),
]


def written(path: Path, rows: list[dict[str, object]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def kept(trace: Trace, tmp_path: Path) -> Trace:
    write_trace(trace, tmp_path / "kept")
    assert check_trace(tmp_path / "kept") == []
    return read_trace(tmp_path / "kept")


def source_of(trace: Trace) -> Source:
    assert trace.header.source is not None
    return trace.header.source


def test_burstgpts_sessions_are_rounds_in_the_order_of_their_times(tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_text(NEW_BURST)
    assert format_of(tmp_path / "b.csv") == "burstgpt"
    trace = kept(convert("burstgpt", tmp_path / "b.csv"), tmp_path)
    assert trace.column("session_id").fillna("").tolist() == ["s1", "s1", "s2", ""]
    assert trace.column("round_index").fillna(-1).tolist() == [0, 1, 0, -1]
    assert trace.column("arrival_time_us").tolist() == [0, 40_000_000, 113_000_000, 175_000_000]
    source = source_of(trace)
    assert source.left_out == {"without a response": 1}
    assert "1 request without a response left out" in source.lines()
    assert "Log Type: Conversation log 3, API log 1" in source.notes
    assert trace.column("new_input_tokens").fillna(-1).tolist() == [472, 597, -1, -1]
    assert any("each prompt is taken to hold the prompt and the answer" in note for note in source.notes)


def test_burstgpts_rounds_that_cannot_hold_each_other_are_told(tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_text(NEW_BURST.replace("1087", "80"))
    trace = convert("burstgpt", tmp_path / "b.csv")
    assert trace.column("new_input_tokens").isna().all()
    assert any("what rounds share is not known" in note for note in source_of(trace).notes)


def test_burstgpts_columns_stand_in_any_order_and_empty_answers_block_nothing(tmp_path: Path) -> None:
    text = "Response tokens,Timestamp,Request tokens\n18,5,472\n,6,30\n0,7,30\n12,8,0\n230.0,45,1087\n"
    (tmp_path / "b.csv").write_text(text)
    assert format_of(tmp_path / "b.csv") == "burstgpt"
    trace = kept(convert("burstgpt", tmp_path / "b.csv"), tmp_path)
    assert trace.column("output_tokens").tolist() == [18, 230]
    gone = {"without a response": 2, "with a response, without prompt tokens,": 1}
    assert source_of(trace).left_out == gone


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("45,s1", ",s1", r"b\.csv:4: Timestamp: got an empty cell"),
        ("45,s1", "-45,s1", r"b\.csv:4: Timestamp: got -45"),
        ("1087", "10.5", r"b\.csv:4: Request tokens: got 10\.5, expected an integer"),
        ("Timestamp", "Time", "column Timestamp: got a table without it"),
    ],
)
def test_a_wrong_cell_of_burstgpt_is_named(tmp_path: Path, before: str, after: str, said: str) -> None:
    (tmp_path / "b.csv").write_text(NEW_BURST.replace(before, after))
    with pytest.raises(TraceError, match=said):
        convert("burstgpt", tmp_path / "b.csv")


def test_burstgpt_without_one_answer_is_refused(tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_text("Timestamp,Model,Request tokens,Response tokens\n5,m,3,0\n")
    with pytest.raises(TraceError, match="got no request with a response"):
        convert("burstgpt", tmp_path / "b.csv")


def test_a_copy_of_azures_trace_has_an_index_quotes_and_iso_times(tmp_path: Path) -> None:
    (tmp_path / "AzureLLMInferenceTrace_code_1week.csv").write_text(PANDAS_AZURE)
    path = tmp_path / "AzureLLMInferenceTrace_code_1week.csv"
    assert format_of(path) == "azure"
    trace = kept(convert("azure", path), tmp_path)
    assert trace.column("arrival_time_us").tolist() == [0, 1_490_070, 2_990_070]
    assert trace.header.start_unix_us == 1_715_299_200_009_930
    assert source_of(trace).left_out == {"without a response": 1}


def test_azures_columns_stand_in_any_order_and_its_images_are_told(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("NumImages,GeneratedTokens,TIMESTAMP,ContextTokens\n2,9,2024-10-15 00:00:01,800\n")
    assert format_of(path) == "azure"
    trace = convert("azure", path)
    assert trace.column("input_tokens").tolist() == [800]
    assert any("NumImages is not read" in note for note in source_of(trace).notes)


def test_bailians_chats_are_sessions_and_share_blocks_of_16(tmp_path: Path) -> None:
    path = written(tmp_path / "qwen.jsonl", CHATS)
    assert format_of(path) == "bailian"
    trace = kept(convert("bailian", path), tmp_path)
    assert trace.header.hash_block_size == 16
    assert trace.column("request_id").tolist() == ["1", "2", "3"]
    assert trace.column("session_id").tolist() == ["1", "1", "3"]
    assert trace.column("round_index").tolist() == [0, 1, 0]
    assert trace.column("arrival_time_us").tolist() == [500_000, 9_500_000, 10_500_000]
    assert prefix_hit_ceiling_frac(trace) == pytest.approx(32 / 113)
    assert "1 conversation began before the file does" in source_of(trace).notes


def test_a_block_hashed_by_itself_is_not_shared_behind_another_beginning(tmp_path: Path) -> None:
    rows = [chat(1, 0, 32, [5, 6]), chat(2, 1, 32, [7, 6])]
    trace = convert("bailian", written(tmp_path / "q.jsonl", rows))
    assert trace.column("prefix_hashes").tolist() == ["0 1", "2 3"]
    assert prefix_hit_ceiling_frac(trace) == 0


def test_bailian_without_hashes_says_that_sharing_is_not_known(tmp_path: Path) -> None:
    rows = [chat(1, 0, 32, None), chat(2, 1, 40, None, parent=1)]
    trace = kept(convert("bailian", written(tmp_path / "q.jsonl", rows)), tmp_path)
    assert trace.header.hash_block_size is None
    assert any("what rounds share is not known" in note for note in source_of(trace).notes)


def test_bailians_unit_and_block_size_can_be_said(tmp_path: Path) -> None:
    rows = [chat(1, 1500, 64, [5, 6]), chat(2, 2500, 64, [5, 7])]
    path = written(tmp_path / "q.jsonl", rows)
    told = source_of(convert("bailian", path)).notes[0]
    assert told.startswith("2 of 2 prompts have fewer hash_ids than blocks of 16 tokens")
    options = ReadingOptions(block_size=32, time_unit="ms")
    trace = convert("bailian", path, options=options)
    assert trace.column("arrival_time_us").tolist() == [1_500_000, 2_500_000]
    assert trace.header.hash_block_size == 32
    assert "times taken in ms" in source_of(trace).notes
    assert "fewer hash_ids" not in source_of(trace).notes[0]
    with pytest.raises(ConfigError, match="part"):
        convert("bailian", path, options=ReadingOptions(part=2))


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([chat(1, 0, 9, [1]), chat(1, 1, 9, [1])], "chat_id: got 1 a second time"),
        ([chat(1, 0, 9, [1], parent=2), chat(2, 1, 9, [1], parent=1)], "parent_chat_id: got a circle"),
        ([chat(1, 0, 9, [1]) | {"output_length": 0}], "got no request with tokens in and out"),
        ([chat(1, 0, 9, [1]) | {"chat_id": "a"}], "chat_id: got 'a', expected an integer"),
    ],
)
def test_what_is_no_bailian_trace_is_refused(
    tmp_path: Path, rows: list[dict[str, object]], said: str
) -> None:
    with pytest.raises(TraceError, match=said):
        convert("bailian", written(tmp_path / "q.jsonl", rows))


def test_azures_offsets_have_minutes_and_rows_without_tokens_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2024-05-10 05:30:01+05:30,10,5\n"
        "2024-05-09 19:00:00.25-05:00,10,1\n"
        "2024-05-10 00:00:00,0,5\n"
        "2024-05-10 00:00:00,0,0\n"
    )
    trace = convert("azure", path)
    assert trace.column("request_id").tolist() == ["0", "1"]
    assert trace.column("arrival_time_us").tolist() == [750_000, 0]
    assert trace.header.start_unix_us == 1_715_299_200_250_000
    assert sum(source_of(trace).left_out.values()) == 2
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00,1,1\nsoon,1,1\n")
    with pytest.raises(TraceError, match=r"a.csv:3: TIMESTAMP: got 'soon'"):
        convert("azure", path)


def test_bailians_requests_without_tokens_in_or_out_are_left_out(tmp_path: Path) -> None:
    rows = [
        chat(1, 3, 1, [5]) | {"output_length": 1},
        chat(2, 2, 0, []),
        chat(3, 1, 9, [1]) | {"output_length": 0},
    ]
    trace = convert("bailian", written(tmp_path / "q.jsonl", rows))
    assert trace.column("request_id").tolist() == ["1"]
    assert sum(source_of(trace).left_out.values()) == 2


def test_a_chat_of_the_longest_chain_has_one_root_and_chats_without_parents_are_their_own(
    tmp_path: Path,
) -> None:
    rows = [chat(n, n, 16 * n, list(range(n)), parent=n - 1 if n > 1 else -1) for n in (1, 2, 3)]
    trace = convert("bailian", written(tmp_path / "q.jsonl", rows))
    assert trace.column("session_id").tolist() == ["1"] * 3
    assert trace.column("round_index").tolist() == [0, 1, 2]
    notes = " ".join(source_of(trace).notes)
    assert "began before the file does" not in notes
