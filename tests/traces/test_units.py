"""Numbers with their units, as people read them."""

from __future__ import annotations

from pathlib import Path

import pytest

import vtwin
from traces.units import counted


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (counted(1, "request"), "1 request"),
        (counted(0, "request"), "0 requests"),
        (counted(1200, "request"), "1,200 requests"),
        (counted(1.0004, "request/s", written="1"), "1 request/s"),
        (counted(1.04, "request/s", written="1.04"), "1.04 requests/s"),
    ],
)
def test_only_a_number_that_reads_1_has_its_unit_in_the_singular(text: str, expected: str) -> None:
    assert text == expected


def test_one_request_is_written_as_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stem = tmp_path / "one"
    for number, said in ((1, "1 request -> "), (2, "2 requests -> ")):
        drawn = ["--rate", "1", "--arrival", "constant", "--num-requests", str(number)]
        assert vtwin.main(["trace", "synth", *drawn, "--output", str(stem)]) == 0
        assert said in capsys.readouterr().err
    assert vtwin.main(["trace", "info", str(stem)]) == 0
    assert " 1 request/s\n" in capsys.readouterr().out
