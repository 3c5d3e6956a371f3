"""What a test draws is the same whichever modules were imported before it."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import THOROUGH, examples


def drawn() -> list[int]:
    seen: list[int] = []

    @examples(100, is_counted=True)
    @given(st.lists(st.integers(), min_size=20))
    def draws(numbers: list[int]) -> None:
        seen.extend(numbers)

    draws()
    return seen


@pytest.mark.skipif(bool(THOROUGH), reason="cases differ from run to run")
def test_a_module_with_new_numbers_changes_no_draw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = drawn()
    numbers = range(7_000_001, 7_000_400)
    (tmp_path / "has_new_numbers.py").write_text(f"NUMBERS = {list(numbers)}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.import_module("has_new_numbers")
    after = drawn()
    assert not set(after) & set(numbers)
    assert after == before
