"""Facts and answers in each form: lines of a terminal, a JSON document, Markdown, cells of a page."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from traces.atomic import MARKDOWN, write_text
from traces.facts.answer import AlignedRows, AnswerPart, SideBySide, TermRows, Verbatim
from traces.facts.fact import Fact
from traces.strict.escape import markdown, terminal
from traces.strict.narration import wrapped
from traces.strict.tell import say, say_text, tell
from traces.units import terminal_width

if TYPE_CHECKING:
    from traces.console.options import AnswerForm

LEAST_WIDTH = 12
GAP = 2
INDENT = "\u00a0\u00a0"
"""Before the name of a row that belongs to the one above, in Markdown, where plain spaces are not seen."""


def say_answer(
    told: Callable[[], Mapping[str, object]],
    answer: Callable[[], Sequence[AnswerPart]],
    how: AnswerForm,
) -> None:
    """Print an answer's JSON document if requested, else its lines; also write it as Markdown if requested.

    Raises ConfigError if that file cannot be written.
    """
    parts = () if how.as_json and how.markdown is None else answer()
    if how.as_json:
        say_json(told())
    else:
        say(*terminal_lines(parts, width=terminal_width()))
    if how.markdown is not None:
        write_text(how.markdown, markdown_text(parts), option="--markdown")
        tell(f"wrote {how.markdown}")


# -- a terminal -----------------------------------------------------------------------------------------------


def terminal_lines(parts: Iterable[AnswerPart], *, width: int | None) -> list[str]:
    """Return an answer's lines, printable; ``width``: of the terminal, which columns side by side must not exceed."""
    return [terminal(line) for part in parts for line in _lines_of(part, width=width)]


def _lines_of(part: AnswerPart, *, width: int | None) -> Sequence[str]:
    match part:
        case TermRows():
            return [line for row in part.rows for line in _of_term(*row, width=width, begin=part.width)]
        case AlignedRows():
            return _aligned(part.rows, _narrowed(part.rows, part.widths, width=width))
        case SideBySide():
            return _side_by_side(part.columns, width=width)
        case Verbatim():
            return part.lines
        case _:
            return [part] if width is None else wrapped(part, width).split("\n")


def _of_term(term: str, text: str, *, width: int | None, begin: int) -> list[str]:
    """Return a term with its text, which goes on below itself where it is wider than the terminal."""
    if width is None or begin + len(text) <= width or begin >= width // 2:
        return [f"{term:<{begin}}{text}"]
    first, *others = wrapped(text, width - begin).split("\n")
    return [f"{term:<{begin}}{first}", *(" " * begin + each.lstrip() for each in others)]


def _aligned(rows: Sequence[Sequence[str]], widths: Sequence[int] | None) -> list[str]:
    """Return the rows as lines with right-aligned cells, two spaces apart if no width is given."""
    if widths is None:
        needed = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
        return ["  ".join(cell.rjust(wide) for cell, wide in zip(row, needed, strict=True)) for row in rows]
    return [
        "".join(
            cell.ljust(-wide) if wide < 0 else cell.rjust(wide)
            for cell, wide in zip(row, widths, strict=False)
        )
        for row in rows
    ]


def _narrowed(
    rows: Sequence[Sequence[str]], widths: Sequence[int] | None, *, width: int | None
) -> Sequence[int] | None:
    """Return the columns' widths, of a table that is wider than the terminal as small as its cells allow."""
    if width is None or widths is None or max(map(len, _aligned(rows, widths)), default=0) <= width:
        return widths
    lengths = [
        max((len(row[place]) for row in rows if place < len(row)), default=0) for place in range(len(widths))
    ]
    for gap in (GAP, 1):
        found = [
            max(-length - gap, wide) if wide < 0 else min(length + gap, wide)
            for length, wide in zip(lengths, widths, strict=True)
        ]
        if sum(map(abs, found)) <= width:
            break
    return found


def _side_by_side(columns: Sequence[Mapping[str, str]], *, width: int | None) -> list[str]:
    """Return columns with their rows' names in front; those that do not fit are put into a further block below."""
    names = names_of(columns)
    label = max(len(terminal(name)) for name in names) + GAP
    cells = [[terminal(each.get(name, "-")) for name in names] for each in columns]
    wide = max(LEAST_WIDTH, *(len(cell) + GAP for column in cells for cell in column))
    fit = len(columns) if width is None else max(1, (width - label) // wide)
    lines: list[str] = []
    for first in range(0, len(columns), fit):
        shown = cells[first : first + fit]
        rows = list(zip(map(terminal, names), *shown, strict=True))
        lines += [*([""] if first else []), *_aligned(rows, [-label, *[wide] * len(shown)])]
    return lines


def names_of(columns: Sequence[Mapping[str, str]]) -> list[str]:
    """Return the names of the rows that any of the columns has, in their order."""
    return list(dict.fromkeys(name for column in columns for name in column))


# -- Markdown -------------------------------------------------------------------------------------------------


def markdown_text(parts: Iterable[AnswerPart]) -> str:
    """Return an answer as Markdown, which begins with vtwin's mark."""
    return f"{MARKDOWN}\n\n{markdown_blocks(parts)}\n"


def markdown_blocks(parts: Iterable[AnswerPart]) -> str:
    """Return an answer's parts as Markdown, a blank line between them."""
    return "\n\n".join(text for part in parts if (text := _markdown_of(part)))


def _markdown_of(part: AnswerPart) -> str:
    match part:
        case TermRows():
            items = [(term.strip(), markdown(text)) for term, text in part.rows]
            return "\n".join(f"- {markdown(term)}: {text}" if term else f"  - {text}" for term, text in items)
        case AlignedRows():
            head, *rows = [[cell.strip() for cell in row] for row in part.rows]
            return markdown_table(head, [[*row, *[""] * (len(head) - len(row))] for row in rows])
        case SideBySide():
            head, *rows = (
                [
                    INDENT + name.strip() if name.startswith("  ") else name,
                    *(each.get(name, "-") for each in part.columns),
                ]
                for name in names_of(part.columns)
            )
            return markdown_table(head, rows)
        case Verbatim():
            lines = [terminal(line) for line in part.lines]
            fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", "\n".join(lines))), default=0))
            return "\n".join([f"{fence}text", *lines, fence])
        case _:
            return markdown(part.strip())


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table, its first column to the left, the others to the right."""
    lines = [list(head), ["---", *["---:"] * (len(head) - 1)], *(list(row) for row in rows)]
    return "\n".join("| " + " | ".join(markdown(cell) for cell in line) + " |" for line in lines)


# -- JSON, and single figures ---------------------------------------------------------------------------------


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


def say_json(told: Mapping[str, object]) -> None:
    """Print a JSON document (``json_text``)."""
    say_text(json_text(told))


def json_text(told: Mapping[str, object]) -> str:
    """Return a JSON document, null in place of NaN and infinity, which JSON does not have."""
    return json.dumps(_finite(told), indent=2, allow_nan=False)


def _finite(value: object) -> object:
    if isinstance(value, Mapping):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
