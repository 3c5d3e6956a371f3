"""Facts and tables in each form: lines of a terminal, a JSON document, Markdown, cells of a page."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from traces.facts.fact import Fact
from traces.strict.escape import markdown, terminal
from traces.strict.tell import say, say_text

TERM = 12
"""Characters of a term in a terminal, unless a question has longer ones."""
LEAST_WIDTH = 12
GAP = 2


def term_lines(terms: Iterable[tuple[str, str]], *, width: int = TERM) -> list[str]:
    """Return a line per term, with what it is beside it."""
    return [f"{term:<{width}}{text}" for term, text in terms]


def document(facts: Iterable[Fact]) -> dict[str, object]:
    """Return the facts that have a key as JSON has them, in their order; null for what is not finite."""
    told: dict[str, object] = {}
    for fact in facts:
        section, _, key = fact.key.partition(".")
        value = _finite(fact.value)
        if key:
            nested = told.setdefault(section, {})
            assert isinstance(nested, dict)  # noqa: S101 - a question's own keys
            nested[key] = value
        elif section:
            told[section] = value
    return told


def columns_of(records: Iterable[Sequence[Fact]]) -> list[dict[str, str]]:
    """Return a column per record: its texts by their terms."""
    return [{fact.term: fact.text for fact in record if fact.term is not None} for record in records]


def head_of(record: Sequence[Fact], keys: Sequence[str]) -> list[str]:
    """Return the terms of the facts that have these keys or lie in these sections, in the order of ``keys``."""
    return [fact.term or "" for fact in _with_keys(record, keys)]


def row_of(record: Sequence[Fact], keys: Sequence[str]) -> list[str]:
    """Return their texts."""
    return [fact.text for fact in _with_keys(record, keys)]


def _with_keys(record: Sequence[Fact], keys: Sequence[str]) -> list[Fact]:
    return [fact for key in keys for fact in record if key in (fact.key, fact.key.partition(".")[0])]


def aligned(rows: Sequence[Sequence[str]], widths: Sequence[int] | None = None) -> list[str]:
    """Return rows, the head among them, as lines whose cells end below each other.

    ``widths``: of the columns, a negative one's cells begin below each other, 0: as they are; None: as wide as need be.
    """
    if widths is None:
        needed = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
        return ["  ".join(cell.rjust(wide) for cell, wide in zip(row, needed, strict=True)) for row in rows]
    return [
        "".join(
            cell.ljust(-wide) if wide < 0 else cell.rjust(wide)
            for cell, wide in zip(row, widths, strict=True)
        )
        for row in rows
    ]


def side_by_side(columns: Sequence[Mapping[str, str]], *, width: int | None) -> str:
    """Return columns with their rows' names in front; all have the rows that any has, a dash where theirs is missing.

    Columns that do not fit into ``width`` stand in a further block below; nothing is cut.
    """
    columns = [{terminal(name): terminal(cell) for name, cell in each.items()} for each in columns]
    names = list(dict.fromkeys(name for column in columns for name in column))
    columns = [{name: column.get(name, "-") for name in names} for column in columns]
    label = max(len(name) for name in names) + GAP
    wide = max(LEAST_WIDTH, *(len(cell) + GAP for column in columns for cell in column.values()))
    fit = len(columns) if width is None else max(1, (width - label) // wide)
    blocks = []
    for first in range(0, len(columns), fit):
        shown = columns[first : first + fit]
        rows = [[name, *(each[name] for each in shown)] for name in names]
        blocks.append("\n".join(aligned(rows, [-label, *[wide] * len(shown)])))
    return "\n\n".join(blocks)


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table, its first column to the left, the others to the right."""
    lines = [list(head), ["---", *["---:"] * (len(head) - 1)], *(list(row) for row in rows)]
    return "\n".join("| " + " | ".join(markdown(cell) for cell in line) + " |" for line in lines)


def say_json(told: Mapping[str, object]) -> None:
    """Print a JSON document, null in place of NaN and infinity, which JSON does not have."""
    say_text(json.dumps(_finite(told), indent=2, allow_nan=False))


def _finite(value: object) -> object:
    if isinstance(value, Mapping):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def say_answer(
    told: Callable[[], Mapping[str, object]], lines: Callable[[], Sequence[str]], *, as_json: bool
) -> None:
    """Print an answer's JSON document where that is asked for, else its lines."""
    if as_json:
        say_json(told())
    else:
        say(*lines())
