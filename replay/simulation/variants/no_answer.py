"""Marks on the figures of a twin that cannot answer a setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def mark_unanswered(
    columns: Sequence[Mapping[str, str]], unanswered: Sequence[Sequence[str]]
) -> list[dict[str, str]]:
    """Return the columns, with a star behind the first cell of those whose twin cannot answer a setting.

    ``unanswered``: of each column, the keys without an answer.
    """
    marked = []
    for column, keys in zip(columns, unanswered, strict=True):
        first = next(iter(column))
        marked.append({**column, first: f"{column[first]} *"} if keys else dict(column))
    return marked


def unanswered_notes(unanswered: Sequence[Sequence[str]]) -> list[str]:
    """Return what the stars mean; nothing without any. ``unanswered``: of each column, the keys without an answer."""
    keys = dict.fromkeys(key for each in unanswered for key in each)
    if not keys:
        return []
    return [
        f"* no answer here: this twin does not know what {' and '.join(keys)} would change, so do not compare these "
        "figures with the others (see the note)"
    ]
