"""Files without an end, and names that are no names."""

from __future__ import annotations

from pathlib import Path

import pytest

from traces.errors import ConfigError
from traces.strict.section import read_section
from traces.strict.whole_file import is_there, whole_file


def test_a_file_is_read_up_to_its_limit_and_not_beyond(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_bytes(b"12345")
    assert whole_file(file, most=5) == b"12345"
    with pytest.raises(OSError, match="more than 4 bytes"):
        whole_file(file, most=4)


def test_a_device_without_an_end_is_refused_in_one_line() -> None:
    with pytest.raises(OSError, match="more than 1,000 bytes"):
        whole_file(Path("/dev/zero"), most=1000)
    with pytest.raises(ConfigError, match=r"file: got more than 67,108,864 bytes, expected a readable file"):
        read_section(Path("/dev/zero"))


def test_a_text_that_is_no_name_of_a_file_is_of_none(tmp_path: Path) -> None:
    assert is_there(tmp_path)
    assert not is_there(Path("x" * 5000))
    assert not is_there(Path("a\0b"))
