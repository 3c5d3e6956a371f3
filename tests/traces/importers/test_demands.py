"""Every importer against every demand: a file for each cell of the table in docs/reference/importers.md."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import vtwin
from tests.traces.importers.demands import CELLS, DEMANDS, FORMATS, File
from traces import Trace, format_of, parts_at, prompt_tokens, read_recorded, reading_notes, summarize_trace
from traces.errors import ConfigError, TraceError
from traces.importers.conversation_turns import NOT_KNOWN
from traces.importers.recorded import check_load
from traces.workload import workload_of

SHOWN = [
    (name, demand, cell)
    for name, cells in CELLS.items()
    for demand, cell in cells.items()
    if isinstance(cell, File)
]


def test_the_table_has_every_importer_and_every_cell_is_a_file_or_a_reason() -> None:
    assert set(CELLS) == set(FORMATS)
    for name, cells in CELLS.items():
        assert list(cells) == list(DEMANDS), name
        assert all(isinstance(cell, File) or len(cell) > 5 for cell in cells.values()), name
        assert isinstance(cells["notes"], File), name


@pytest.mark.parametrize(
    ("name", "demand", "cell"), SHOWN, ids=[f"{name}-{demand}" for name, demand, _ in SHOWN]
)
def test_an_importer_does_what_is_asked(
    name: str, demand: str, cell: File, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = cell.written(tmp_path)
    assert format_of(path) == name
    if demand == "part":
        shows_its_parts(path, cell.number)
        return
    trace = read_recorded(path)
    notes = reading_notes(trace)
    if demand == "notes":
        assert vtwin.main(["trace", "info", str(path), "--json"]) == 0
        told = json.loads(capsys.readouterr().out)["notes"]
        assert notes
        assert told[: len(notes)] == list(notes)
    elif demand == "times":
        leaves_the_load_open(trace, path)
    elif demand == "failed":
        keeps_or_counts_failures(trace, cell.number)
    elif demand == "sample":
        assert f"of the {cell.number} requests" in leaves_the_load_open(trace, path)
    elif demand == "counts":
        assert set(trace.cells("output_tokens").known().tolist()) == {cell.number}
        assert any("server" in note for note in notes)
    elif demand == "sessions":
        assert trace.cells("session_id").num_distinct() == cell.number
        assert trace.cells("round_index").values.max() >= 1
    elif demand == "sharing":
        shares_or_says(trace, notes)
    elif demand == "warm-up":
        summary = summarize_trace(trace)
        assert summary.num_warmup == cell.number
        assert summary.rate_per_s == pytest.approx(10.0)
    else:
        assert demand == "unit"
        assert any(
            word in note for note in notes for word in (" ms", "milliseconds", "seconds", " s", "tokens")
        )
        assert cell.number in (0, trace.header.hash_block_size)


def shows_its_parts(path: Path, number: int) -> None:
    with pytest.raises(ConfigError, match=f"got {number} .*expected the name of one: {path.name}#1"):
        read_recorded(path)
    parts = parts_at(path)
    assert len(parts) == number
    assert [reading_notes(read_recorded(part))[0] for part in parts] == [
        f"part {place} of the file" for place in range(1, number + 1)
    ]


def leaves_the_load_open(trace: Trace, path: Path) -> str:
    assert trace.header.source is not None
    why = trace.header.source.load_unknown
    assert why is not None
    summary = summarize_trace(trace)
    assert (summary.rate_per_s, summary.request_throughput, summary.duration_us) == (None, None, None)
    with pytest.raises(TraceError):
        check_load(trace, path, asked="this")
    return why


def keeps_or_counts_failures(trace: Trace, number: int) -> None:
    """Every row of the file is a request of known prompt, or counted as left out; the rest can be simulated."""
    assert trace.header.source is not None
    gone = sum(trace.header.source.left_out.values())
    assert len(trace) + gone == number
    assert gone or (trace.cells("status").values != "ok").any()
    assert (prompt_tokens(trace) > 0).all()
    failed = np.isin(trace.cells("status").values, ("error", "aborted"))
    assert not (
        trace.cells("streaming").values[failed] != trace.cells("streaming").values[~failed][:1]
    ).any() or not (trace.cells("streaming").is_known[failed].any())
    assert len(workload_of(trace)) >= 1


def shares_or_says(trace: Trace, notes: tuple[str, ...]) -> None:
    known = [name for name in ("new_input_tokens", "prefix_hashes") if trace.cells(name).is_known.any()]
    assert known or any(NOT_KNOWN in note for note in notes)
