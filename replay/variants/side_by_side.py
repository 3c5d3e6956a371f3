"""Columns of figures side by side, as wide as they must be and no wider than a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from traces.strict.escape import terminal

LEAST_WIDTH = 12
GAP = 2


def side_by_side(columns: Sequence[Mapping[str, str]], *, width: int | None) -> str:
    """Return columns with their rows' names in front; all have the same rows.

    Columns that do not fit into ``width`` stand in a further block below; nothing is cut.
    """
    columns = [{terminal(name): terminal(cell) for name, cell in each.items()} for each in columns]
    names = list(columns[0])
    label = max(len(name) for name in names) + GAP
    wide = max(LEAST_WIDTH, *(len(cell) + GAP for column in columns for cell in column.values()))
    fit = len(columns) if width is None else max(1, (width - label) // wide)
    blocks = []
    for first in range(0, len(columns), fit):
        shown = columns[first : first + fit]
        rows = [f"{name:<{label}}" + "".join(f"{each[name]:>{wide}}" for each in shown) for name in names]
        blocks.append("\n".join(rows))
    return "\n\n".join(blocks)


def mark_unanswered(
    columns: Sequence[Mapping[str, str]], unanswered: Sequence[Sequence[str]]
) -> list[dict[str, str]]:
    """Return the columns with a star behind the first cell of those whose twin cannot answer what was asked.

    ``unanswered``: of each column, the keys without an answer.
    """
    marked = []
    for column, keys in zip(columns, unanswered, strict=True):
        first = next(iter(column))
        marked.append({**column, first: f"{column[first]} *"} if keys else dict(column))
    return marked


def unanswered_lines(unanswered: Sequence[Sequence[str]]) -> list[str]:
    """Return what the stars mean; nothing without any. ``unanswered``: of each column, the keys without an answer."""
    keys = dict.fromkeys(key for each in unanswered for key in each)
    if not keys:
        return []
    return [
        f"* no answer here: this twin does not know what {' and '.join(keys)} would change, so do not compare these "
        "figures with the others (see the note)"
    ]


def unanswered_facts(keys: Sequence[str]) -> list[str]:
    """Return the first line of a single answer that is none; nothing where every setting has one."""
    return [f"{'*':<12}no answer here to {', '.join(keys)} (see the note)"] if keys else []
