"""The changes that mutants are made of: each is one, each can be compiled, and each of these ends in another result."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.studies.mutation.changes import changes_of
from tests.studies.mutation.rooms import ROOMS

SOURCE = '''
"""A module's text stays."""
LIMIT = 5

def share(values: list[int], most: int = 3) -> float:
    """Nor does a function's."""
    if not values or len(values) < 2:
        raise ValueError(f"{len(values) + 1}: too few")
    total = 0
    total += sum(values)
    if 0 < most <= total:
        return 0.0
    return min(values) / max(sum(values), most) + 1
'''


def test_what_computes_is_changed_and_nothing_else() -> None:
    assert [(each.before, each.after) for each in changes_of(SOURCE)] == [
        ("3", "4"),
        ("not values or len(values) < 2", "not values and len(values) < 2"),
        ("not values", "values"),
        ("len(values) < 2", "len(values) <= 2"),
        ("2", "3"),
        ("0", "1"),
        ("total += sum(values)", "total -= sum(values)"),
        ("0 < most <= total", "0 <= most <= total"),
        ("0 < most <= total", "0 < most < total"),
        ("0", "1"),
        ("0.0", "1.0"),
        ("min(values) / max(sum(values), most) + 1", "min(values) / max(sum(values), most) - 1"),
        ("min(values) / max(sum(values), most)", "min(values) * max(sum(values), most)"),
        ("min", "max"),
        ("max", "min"),
        ("1", "2"),
    ]


def test_every_change_is_another_module_that_can_be_compiled() -> None:
    made = {each.source for each in changes_of(SOURCE)}
    assert len(made) == len(changes_of(SOURCE))
    for each in made:
        compile(each, "module.py", "exec")


@pytest.mark.parametrize("name", ROOMS)
def test_a_room_has_modules_and_tests(name: str) -> None:
    root = Path(__file__).parents[3]
    assert all(list(root.glob(pattern)) for pattern in ROOMS[name].modules)
    assert all((root / test).exists() for test in ROOMS[name].tests)
