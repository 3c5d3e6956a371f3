"""What people paste: CSV has the numbers of the JSON document, and runs nothing in a sheet."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vtwin
from tests.observe.servers import Behaviour, serving_in_thread
from traces import ConfigError
from traces.facts import AlignedRows, csv_text, refuse_two_forms, say_pasted


def read(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text)))


def test_nested_keys_are_columns_and_lists_are_left_out() -> None:
    rows = [{"a": {"b": 1.5, "c": None}, "d": [1], "e": True}, {"a": {"b": 2}, "f": float("inf")}]
    assert read(csv_text(rows)) == [["a.b", "a.c", "e", "f"], ["1.5", "", "true", ""], ["2", "", "", ""]]


@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=5), st.text(max_size=12)
)
def test_numbers_are_those_of_json_and_text_is_one_cell(values: list[float], text: str) -> None:
    row: dict[str, object] = {f"v{i}": value for i, value in enumerate(values)}
    head, cells = read(csv_text([{**row, "text": text}]))
    assert [json.loads(cell) for cell in cells[:-1]] == values
    assert len(cells) == len(head)
    assert cells[-1][:1] not in ("=", "+", "-", "@", "\t", "\r") or not text


def test_markdown_is_printed_without_a_mark_of_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    say_pasted("markdown", lambda: [AlignedRows([["a", "b"], ["x|y", "2"]])], list)
    assert capsys.readouterr().out == "| a | b |\n| --- | ---: |\n| x\\|y | 2 |\n"
    with pytest.raises(ConfigError, match="--format csv: cannot be combined with --json"):
        refuse_two_forms(as_json=True, form="csv")


def test_every_command_that_prints_csv_prints_the_numbers_of_its_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    load = [
        "--rate",
        "200",
        "--num-requests",
        "12",
        "--prompt-tokens",
        "20",
        "--output-tokens",
        "4",
        "--no-scrape",
    ]
    with serving_in_thread(Behaviour(itl_s=0.001)) as server:
        begin = ["observe", "--url", server.url, *load]
        assert vtwin.main([*begin, "--output", str(tmp_path / "a"), "--format", "csv"]) == 0
        observed = capsys.readouterr().out
        assert vtwin.main([*begin, "--output", str(tmp_path / "b"), "--format", "markdown"]) == 0
        assert "| TTFT, ms |" in capsys.readouterr().out
        sweep = ["--sweep", "100,200", "--output", str(tmp_path / "list")]
        assert vtwin.main([*begin[:3], *load[2:], *sweep, "--format", "csv"]) == 0
        assert [row[0] for row in read(capsys.readouterr().out)] == ["run", "rate-100", "rate-200"]

    def both(*words: str) -> tuple[list[list[str]], dict[str, object]]:
        assert vtwin.main([*words, "--format", "csv"]) == 0
        table = read(capsys.readouterr().out)
        assert vtwin.main([*words, "--json"]) == 0
        return table, json.loads(capsys.readouterr().out)

    (head, cells), document = both("trace", "info", str(tmp_path / "a"))
    told = dict(zip(head, cells, strict=True))
    assert json.loads(told["ttft_us.p99"]) == document["ttft_us"]["p99"]  # type: ignore[index]
    head, cells = read(observed)
    assert dict(zip(head, cells, strict=True))["num_by_status.ok"] == "12"
    table, document = both("compare", str(tmp_path / "a"), str(tmp_path / "b"))
    differences = document["differences"]
    assert isinstance(differences, list)
    assert [row[:2] for row in table[1:]] == [[each["metric"], each["statistic"]] for each in differences]
    assert [json.loads(row[2]) for row in table[1:]] == [each["a"] for each in differences]
    for form in ("trace info A", "compare A B"):
        words = [
            {"A": str(tmp_path / "a"), "B": str(tmp_path / "b")}.get(word, word) for word in form.split()
        ]
        assert vtwin.main([*words, "--format", "markdown"]) == 0
        assert "| --- | ---: |" in capsys.readouterr().out
