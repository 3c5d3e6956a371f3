"""What vtwin writes, vtwin reads: with cells of millions of characters, too, in every kind of file."""

from __future__ import annotations

from pathlib import Path

import pytest

from observe.record.csv_appender import CsvAppender
from tests.examples import few_or_all
from tests.traces.files.test_round_trip import assert_same
from traces import Trace, make_trace, read_recorded, read_trace, write_trace
from traces.exporters import export
from traces.exporters.target import TargetFormat
from traces.header import Header
from traces.schema import FIELDS
from traces.tables.csv_parquet import read_table

LONG = few_or_all(400_000, 4_000_000)
"""Three times what Python's csv takes by itself; in `make nightly` thirty times."""
NUM_BLOCKS = LONG // 20
EXPORTED: list[tuple[TargetFormat, str]] = [
    ("mooncake", "m.jsonl"),
    ("vllm-bench", "v.jsonl"),
    ("burstgpt", "b.csv"),
    ("azure", "a.csv"),
]


def long_trace(*, text: str = 'x, "y"\nz ') -> Trace:
    """Two requests with long names, a long error and a prompt of many blocks."""
    name = (text * (LONG // len(text) + 1))[:LONG]
    return make_trace(
        Header(mode="generated", hash_block_size=16, command=name),
        {
            "request_id": [name, "b"],
            "session_id": [name, None],
            "adapter": ["b", name],
            "error_message": [None, name],
            "arrival_time_us": [0, 10],
            "input_tokens": [16 * NUM_BLOCKS, 20],
            "output_tokens": [5, 6],
            "prefix_hashes": [" ".join(map(str, range(NUM_BLOCKS))), None],
            "status": ["ok", "error"],
        },
    )


@pytest.mark.parametrize("suffix", ["", ".parquet"])
def test_a_trace_with_long_cells_comes_back(tmp_path: Path, suffix: str) -> None:
    trace = long_trace()
    write_trace(trace, tmp_path / f"t{suffix}")
    found = read_trace(tmp_path / f"t{suffix}")
    assert_same(found, trace)
    assert found.header.command == trace.header.command


def test_a_table_that_grew_by_rows_with_long_cells_is_read(tmp_path: Path) -> None:
    names = ["request_id", "arrival_time_us", "input_tokens", "output_tokens", "error_message"]
    appender = CsvAppender.begin(tmp_path / "t.csv", names)
    appender.append([["a" * LONG, 0, 1, 1, "b" * LONG], ["c", 1, 2, 1, None]])
    appender.close()
    table, problems = read_table(tmp_path / "t.csv", FIELDS)
    assert (table.num_rows, problems) == (2, [])
    assert len(table.column("request_id")[0].as_py()) == LONG


@pytest.mark.parametrize(("target", "name"), EXPORTED)
def test_an_export_with_long_cells_is_read(tmp_path: Path, target: TargetFormat, name: str) -> None:
    trace = read_recorded(export(long_trace(), target, tmp_path / name))
    assert len(trace) == 2
    assert trace.column("input_tokens").tolist() == [16 * NUM_BLOCKS, 20]
