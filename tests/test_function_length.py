"""A function is at most a screen long; the few that are not are named, each with its reason."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.test_imports import PACKAGES, sources_of

MOST_LINES = 50
"""From ``def`` to the last line, docstring included."""
LONGER = {
    "replay/trace/simulation_summary.py:summarize": "one line for each key of the JSON document, in its order",
    "sim/cluster/results/cluster_results.py:results_of": "one line for each column that a cluster answers with",
    "sim/records/run_results.py:outcomes_of": "one line for each column of the outcomes",
}
"""Function: why it may be longer."""


def lengths_of(source: str) -> Iterator[tuple[str, int]]:
    """Yield every function of a module with its number of lines."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, (node.end_lineno or node.lineno) - node.lineno + 1


def longer_ones() -> set[str]:
    return {
        f"{path}:{name}"
        for room in (*PACKAGES, "vtwin")
        for path, source in sources_of(room).items()
        for name, lines in lengths_of(source)
        if lines > MOST_LINES
    }


def test_no_function_is_longer_than_a_screen_but_for_the_named() -> None:
    assert longer_ones() == set(LONGER)


@pytest.mark.parametrize(("lines", "expected"), [(MOST_LINES, False), (MOST_LINES + 1, True)])
def test_lines_are_counted_from_def_to_the_end(lines: int, expected: bool) -> None:
    source = "class A:\n    async def f(self):\n" + "        x = 1\n" * (lines - 1)
    ((name, found),) = lengths_of(source)
    assert (name, found > MOST_LINES) == ("f", expected)
