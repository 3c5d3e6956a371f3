"""Names of a million characters in other tools' files: short in every column, and different ones stay different."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.traces.importers.test_weka import request, session
from traces.conversion import convert
from traces.importers.short_names import short_name

LONG = "n" * 1_000_000


def weka(folder: Path) -> tuple[str, Path, str | None]:
    rows = [request(float(place), [1, 2]) for place in range(3)]
    (folder / "s.json").write_text(json.dumps(session(LONG, rows)))
    return "weka", folder / "s.json", None


def mooncake(folder: Path) -> tuple[str, Path, str | None]:
    rows = [{"session_id": LONG, "input_length": 20, "output_length": 3, "hash_ids": [1]}] * 3
    (folder / "s.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return "mooncake", folder / "s.jsonl", None


def columns(folder: Path) -> tuple[str, Path, str | None]:
    (folder / "s.csv").write_text(f"i,o,n,g\n1,2,{LONG},{LONG}\n3,4,{LONG}x,b\n")
    return "csv", folder / "s.csv", "input=i,output=o,request_id=n,session_id=g"


@pytest.mark.parametrize("written", [weka, mooncake, columns])
def test_a_long_name_is_short_in_every_column_of_every_importer(tmp_path: Path, written: object) -> None:
    source, path, named = written(tmp_path)  # type: ignore[operator] # one of the three above
    trace = convert(source, path, columns=named)
    texts = [trace.table[name].known().tolist() for name in trace.table.names]
    assert max(len(each) for column in texts for each in column if isinstance(each, str)) <= 520
    assert len(set(trace.cells("request_id").known().tolist())) == len(trace)
    assert short_name(LONG) in trace.cells("session_id").known().tolist()
