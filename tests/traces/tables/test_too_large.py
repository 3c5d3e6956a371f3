"""Tables that no memory holds: one line, and nothing read."""

from __future__ import annotations

from pathlib import Path

import pytest

from traces import TraceError, convert


def test_a_csv_beyond_all_memory_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "huge.csv"
    with path.open("wb") as file:
        file.truncate(12 << 30)  # takes no room on the disk
    with pytest.raises(
        TraceError, match=r"huge\.csv: got 12,884,901,888 bytes, expected at most 4,294,967,296"
    ):
        convert("azure", path)


def test_a_first_line_without_an_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "noise.csv"
    path.write_bytes(bytes(3_000_000))
    with pytest.raises(
        TraceError, match=r"noise\.csv: got a first line without an end, expected column names"
    ):
        convert("azure", path)
