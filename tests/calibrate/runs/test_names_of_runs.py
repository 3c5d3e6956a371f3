"""Two runs have names that tell them apart in a narrow column."""

from __future__ import annotations

import pytest

from calibrate.runs.text import _short_names


@pytest.mark.parametrize(
    ("a", "b", "shown"),
    [
        ("before", "after", ("before", "after")),
        ("monday/profile.jsonl", "friday/profile.jsonl", ("monday", "friday")),
        ("runs/a-much-longer/x", "runs/another-one/x", ("…much-longer", "…another-one")),
        ("same", "same", ("same", "same")),
        ("a/x/y", "x/y", ("a/x", "x")),
    ],
)
def test_parts_that_are_alike_at_the_end_are_left_out(a: str, b: str, shown: tuple[str, str]) -> None:
    assert _short_names(a, b) == shown
