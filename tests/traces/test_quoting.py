"""How strangers' text is quoted: at most 80 characters of it, and paths whole."""

from __future__ import annotations

import pytest

from traces.errors import ConfigError, quoted, with_cut_pieces
from traces.strict.escape import spreadsheet


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("a" * 80, f"'{'a' * 80}'"),
        ("a" * 81, f"'{'a' * 79}…'"),
        ([1] * 100, f"[{'1, ' * 26}…"),
        (None, "None"),
        (2.5, "2.5"),
    ],
)
def test_a_value_is_quoted_with_at_most_eighty_characters(value: object, shown: str) -> None:
    assert quoted(value) == shown


def test_a_number_that_python_refuses_to_write_is_told() -> None:
    assert quoted(10**5000) == "a number of more than 80 digits"


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (f"a: got '{'b c ' * 40}', expected 'd'", f"a: got '{('b c ' * 40)[:79]}…', expected 'd'"),
        (f"a: got {'b' * 200}, expected c", f"a: got {'b' * 79}… expected c"),
        (f"a: got 'b', expected c's one ({'/part' * 40}:3)",) * 2,
        (f"the 'a' of the {'word ' * 40} and the 'b'",) * 2,
        (f"({'/part' * 20}/{'b' * 300}/c)", f"({'/part' * 20}/{'b' * 79}…/c)"),
    ],
)
def test_pieces_of_a_line_are_cut_and_paths_are_not(line: str, shown: str) -> None:
    assert with_cut_pieces(line) == shown


def test_an_error_cuts_what_it_quotes_and_keeps_the_whole_for_the_redactor() -> None:
    error = ConfigError(f"--a: got '{'k' * 300}', expected b")
    assert str(error) == f"--a: got '{'k' * 79}…', expected b"
    assert "k" * 300 in error.whole


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@A1", "\t=1"])
def test_a_cell_that_a_spreadsheet_would_run_begins_with_an_apostrophe(text: str) -> None:
    assert spreadsheet(text) == f"'{text}"
    assert spreadsheet(f"a{text}") == f"a{text}"
