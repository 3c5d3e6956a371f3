"""What a reader refuses, it names: file, row, column, what was there, what was expected."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest

from tests.traces.made import events_of, small_trace
from traces import ClosedLoop, TraceError, check_trace, make_trace, read_trace, write_trace


@pytest.fixture
def stem(tmp_path: Path) -> Path:
    """A good trace with events, to be spoilt."""
    trace = small_trace()
    events = events_of([("a", 0, 400, 1), ("a", 1, 900, 4), ("b", 0, 1500, 1)])
    write_trace(make_trace(trace.header, trace.requests, events=events), tmp_path / "t")
    return tmp_path / "t"


def change(stem: Path, row: int, column: str, *, to: str, suffix: str = ".csv") -> None:
    """Put ``to`` into a cell, rows from 1."""
    path = Path(f"{stem}{suffix}")
    lines = [line.split(",") for line in path.read_text().splitlines()]
    lines[row][lines[0].index(column)] = to
    path.write_text("\n".join(",".join(cells) for cells in lines) + "\n")


def refusal(stem: Path) -> str:
    with pytest.raises(TraceError) as caught:
        read_trace(stem)
    message = str(caught.value)
    assert "\n" not in message
    assert str(check_trace(stem)[0]) in message
    return message


@pytest.mark.parametrize(
    ("column", "bad", "expected"),
    [
        ("input_tokens", "-5", "got -5, expected an integer >= 0"),
        ("output_tokens", "-1", "got -1, expected an integer >= 0"),
        ("prefix_length", "-1", "got -1, expected an integer >= 0"),
        ("input_tokens", "many", "got 'many', expected an integer >= 0"),
        ("input_tokens", "12.5", "got '12.5', expected an integer >= 0"),
        ("input_tokens", "99999999999999999999", "got '99999999999999999999', expected an integer >= 0"),
        ("input_tokens", "", "got an empty cell, expected an integer >= 0"),
        (
            "arrival_time_us",
            "",
            "got an empty cell, expected an integer >= 0 (only a closed_loop's, or a session's after its first "
            "round, may be empty)",
        ),
        ("reason_ratio", "1.5", "got 1.5, expected a number in [0, 1]"),
        ("reason_ratio", "x", "got 'x', expected a number in [0, 1]"),
        ("streaming", "perhaps", "got 'perhaps', expected true or false"),
        (
            "status",
            "fine",
            "got 'fine', expected one of ok, error, timeout, aborted, rejected, stuck, incomplete, cancelled",
        ),
        ("request_id", "a", "got 'a' a second time, expected each request_id once"),
        ("request_id", "", "got an empty cell, expected text"),
        ("first_chunk_time_us", "1009", "got 1009, expected a time >= send_time_us (1010)"),
        ("last_chunk_time_us", "1499", "got 1499, expected a time >= first_chunk_time_us (1500)"),
        ("deadline_us", "999", "got 999, expected a time >= arrival_time_us (1000)"),
    ],
)
def test_a_bad_cell_is_named_by_file_row_and_column(stem: Path, column: str, bad: str, expected: str) -> None:
    if column == "request_id":
        Path(f"{stem}.itl.csv").unlink()
    change(stem, 2, column, to=bad)
    assert refusal(stem) == f"row 2, {column}: {expected} (t.csv)"


@pytest.mark.parametrize(
    ("column", "bad", "expected"),
    [
        ("request_id", "z", "got 'z', expected a request_id of the trace"),
        ("chunk_index", "0", "got 0 twice for request 'a', expected each index once"),
        ("chunk_index", "-1", "got -1, expected an integer >= 0"),
        ("timestamp_us", "399", "got 399, expected no time before that of the request's previous event"),
        ("timestamp_us", "soon", "got 'soon', expected an integer >= 0"),
        ("num_tokens", "-1", "got -1, expected an integer >= 0"),
    ],
)
def test_a_bad_event_is_named_by_file_row_and_column(
    stem: Path, column: str, bad: str, expected: str
) -> None:
    row = 3 if bad == "-1" else 2  # the only event of its request, so that no order is broken besides
    change(stem, row, column, to=bad, suffix=".itl.csv")
    assert f"row {row}, {column}: {expected} (t.itl.csv)" in refusal(stem)


def test_the_first_fault_is_named_and_the_others_are_counted(stem: Path) -> None:
    change(stem, 1, "input_tokens", to="x")
    change(stem, 3, "input_tokens", to="-2")
    change(stem, 3, "status", to="fine")
    assert refusal(stem) == (
        "row 1, input_tokens: got 'x', expected an integer >= 0 (t.csv); "
        f"2 more, listed by `vtwin trace check {stem}`"
    )
    assert [(problem.row, problem.column) for problem in check_trace(stem)] == [
        (1, "input_tokens"),
        (3, "input_tokens"),
        (3, "status"),
    ]


def test_rows_are_counted_the_same_after_a_row_of_the_wrong_width(stem: Path) -> None:
    path = Path(f"{stem}.csv")
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], "a,b", *lines[2:]]) + "\n")
    Path(f"{stem}.itl.csv").unlink()
    change(stem, 3, "input_tokens", to="x")
    assert [str(problem) for problem in check_trace(stem)] == [
        "row 1: got 2 cells, expected 27 (t.csv)",
        "row 3, input_tokens: got 'x', expected an integer >= 0 (t.csv)",
    ]


def test_a_quoted_line_break_does_not_shift_the_rows(tmp_path: Path) -> None:
    write_trace(small_trace(error_message=["two\nlines", None, None]), tmp_path / "t")
    path = tmp_path / "t.csv"
    path.write_text(path.read_text().replace(",2600,", ",1,"))
    assert "row 3, first_chunk_time_us: got 1," in refusal(tmp_path / "t")


def test_an_empty_arrival_is_a_closed_loops_later_round(tmp_path: Path) -> None:
    trace = small_trace(arrival_time_us=[0, None, None], send_time_us=None)
    loop = ClosedLoop(concurrency=1, think_time_us=0)
    write_trace(trace.with_header(closed_loop=loop), tmp_path / "t")
    assert read_trace(tmp_path / "t").requests["arrival_time_us"].isna().tolist() == [False, True, True]


def test_hashes_need_a_block_size_and_must_fit_the_prompt(tmp_path: Path) -> None:
    trace = small_trace(prefix_hashes=["1 2", "1", None])
    write_trace(trace, tmp_path / "t")
    assert "got hashes, expected the header's hash_block_size with them" in refusal(tmp_path / "t")
    write_trace(trace.with_header(hash_block_size=16), tmp_path / "t")
    assert "got 2 hashes, expected at most 1 for 10 tokens in blocks of 16" in refusal(tmp_path / "t")
    write_trace(trace.with_header(hash_block_size=8), tmp_path / "t")
    assert check_trace(tmp_path / "t") == []


@pytest.mark.parametrize(
    ("images", "message"),
    [
        ("0:4 x", "got 'x', expected position:tokens or position:tokens:content, separated by spaces"),
        ("0:0", "got '0:0', expected position:tokens or position:tokens:content, separated by spaces"),
        ("0:4:", "got '0:4:', expected position:tokens or position:tokens:content, separated by spaces"),
        ("-1:4", "got '-1:4', expected position:tokens or position:tokens:content, separated by spaces"),
        ("0:4 3:2", "got '3:2' behind an image up to 4, expected images by position that do not overlap"),
        ("0:4 8:3:cat", "got '8:3:cat', expected images within the prompt's 10 tokens"),
        ("0:4:cat 4:5:cat", "got '4:5:cat', expected 4 tokens, as 'cat' has elsewhere"),
    ],
)
def test_images_lie_in_the_prompt_and_do_not_overlap(tmp_path: Path, images: str, message: str) -> None:
    write_trace(small_trace(images=["0:4:cat 4:6", None, "20:4:cat"]), tmp_path / "t")
    assert check_trace(tmp_path / "t") == []
    write_trace(small_trace(images=[images, None, None]), tmp_path / "t")
    assert f"row 1, images: {message}" in refusal(tmp_path / "t")


def test_a_number_of_thousands_of_digits_is_none(tmp_path: Path) -> None:
    write_trace(small_trace(images=[f"0:{'9' * 5000}", None, None]), tmp_path / "t")
    (found,) = check_trace(tmp_path / "t")
    assert "expected position:tokens or position:tokens:content" in str(found)


def test_a_parquet_column_of_the_wrong_type_is_named(tmp_path: Path) -> None:
    write_trace(small_trace(), tmp_path / "t.parquet")
    frame = pd.read_parquet(tmp_path / "t.parquet").assign(input_tokens=["x", "y", "z"])
    frame.to_parquet(tmp_path / "t.parquet")
    assert refusal(tmp_path / "t").startswith("input_tokens: got ")


def test_a_column_written_by_pandas_is_understood(tmp_path: Path) -> None:
    write_trace(small_trace(request_id=["7", "8", "9"]), tmp_path / "t.parquet")
    frame = pd.read_parquet(tmp_path / "t.parquet").astype({"request_id": "int64", "input_tokens": "int32"})
    frame.assign(lists=[[1], [2], [3]]).to_parquet(tmp_path / "t.parquet")
    trace = read_trace(tmp_path / "t")
    assert trace.requests["request_id"].tolist() == ["7", "8", "9"]
    assert trace.requests["input_tokens"].dtype == "Int64"
    assert "lists" not in trace.requests.columns


def test_a_misspelt_column_is_a_problem_and_a_foreign_one_is_not(tmp_path: Path) -> None:
    write_trace(small_trace(region="eu", dispatch_lag_ms=[1, 2, 3]), tmp_path / "t")
    assert [(problem.column, problem.message) for problem in check_trace(tmp_path / "t")] == [
        ("dispatch_lag_ms", "got a column that TraceV2 does not know, expected dispatch_lag_us")
    ]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "got an empty file, expected a line of column names"),
        (b"request_id,input_tokens\n1,2\n", "column output_tokens: got a table without it, expected columns"),
        (b"request_id,request_id\n1,2\n", "column request_id: got it twice, expected each column once"),
        (b"request_id\xff\n", "got bytes that are no text, expected CSV in UTF-8"),
        (
            b"request_id,arrival_time_us,input_tokens,output_tokens\n\xff,1,2,3\n",
            "got bytes that are no text, expected CSV in UTF-8",
        ),
    ],
)
def test_what_is_no_table_is_refused_in_one_line(stem: Path, content: bytes, expected: str) -> None:
    Path(f"{stem}.csv").write_bytes(content)
    with pytest.raises(TraceError, match=re.escape(expected)) as caught:
        read_trace(stem)
    assert "\n" not in str(caught.value)


def test_bytes_far_into_the_table_that_are_no_text_are_refused(stem: Path) -> None:
    path = Path(f"{stem}.csv")
    rows = b"".join(b"%d,0,1,1\n" % row for row in range(50_000))
    path.write_bytes(b"request_id,arrival_time_us,input_tokens,output_tokens\n" + rows + b"\xff,0,1,1\n")
    with pytest.raises(TraceError, match="expected CSV in UTF-8"):
        read_trace(stem)


def test_what_is_no_parquet_is_refused_in_one_line(stem: Path) -> None:
    Path(f"{stem}.csv").rename(f"{stem}.parquet")
    with pytest.raises(TraceError, match="expected a Parquet file"):
        read_trace(stem)


def test_a_missing_file_says_what_was_looked_for(stem: Path) -> None:
    with pytest.raises(TraceError, match=r"got no such trace, expected u.yaml and u.csv \(or .parquet\)"):
        read_trace(stem.with_name("u"))
    with pytest.raises(
        TraceError, match=r"t\.parquet: no such file, expected a trace's stem, header or table, or"
    ):
        read_trace(f"{stem}.parquet")
    with pytest.raises(TraceError, match=r"azur\.csv: no such file, expected"):
        read_trace(stem.with_name("azur.csv"))
    Path(f"{stem}.yaml").unlink()
    with pytest.raises(TraceError, match=r"got a table without a header, expected t\.yaml next to it"):
        read_trace(stem)


def test_a_header_alone_is_no_trace(stem: Path) -> None:
    Path(f"{stem}.csv").unlink()
    with pytest.raises(TraceError, match="got a header without a table"):
        read_trace(stem)


def test_two_tables_beside_one_header_must_be_told_apart(stem: Path, tmp_path: Path) -> None:
    write_trace(small_trace(), tmp_path / "u.parquet")
    (tmp_path / "u.parquet").rename(tmp_path / "t.parquet")
    with pytest.raises(TraceError, match=r"got two tables, t\.csv and t\.parquet, expected one"):
        read_trace(stem)
    assert len(read_trace(f"{stem}.csv")) == 3
