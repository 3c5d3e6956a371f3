"""An answer as people paste it: a Markdown table for a pull request, CSV for a sheet, both on stdout."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from traces.facts.answer import AnswerPart
from traces.facts.written import markdown_blocks
from traces.strict.escape import spreadsheet
from traces.strict.tell import say_text
from traces.units import or_null

if TYPE_CHECKING:
    Rows = Iterable[Mapping[str, object]]

PastedForm = Literal["markdown", "csv"]


def say_pasted(form: PastedForm, parts: Callable[[], Sequence[AnswerPart]], rows: Callable[[], Rows]) -> None:
    """Print an answer's ``parts`` as Markdown, or its ``rows``, parts of its JSON document, as CSV."""
    say_text(markdown_blocks(parts()) if form == "markdown" else csv_text(rows()))


def refuse_two_forms(*, as_json: bool, form: PastedForm | None) -> None:
    """Raise ConfigError where both a JSON document and another form are asked for."""
    from traces.errors import ConfigError

    if as_json and form is not None:
        raise ConfigError(f"--format {form}: cannot be combined with --json: stdout takes one of them")


def csv_text(rows: Rows) -> str:
    """Return rows as CSV, numbers as JSON has them: a key of a nested mapping is ``a.b``, lists are left out."""
    flat = [dict(_flat("", row)) for row in rows]
    names = list(dict.fromkeys(name for row in flat for name in row))
    return "\n".join([_line(names), *(_line(row.get(name) for name in names) for row in flat)])


def _flat(place: str, value: object) -> Iterable[tuple[str, object]]:
    if isinstance(value, Mapping):
        for name, each in value.items():
            yield from _flat(f"{place}.{name}" if place else str(name), each)
    elif not isinstance(value, list | tuple):
        yield place, value


def _line(cells: Iterable[object]) -> str:
    return ",".join(_cell(cell) for cell in cells)


def _cell(value: object) -> str:
    if value is None or (isinstance(value, float) and or_null(value) is None):
        return ""
    if not isinstance(value, str):
        return json.dumps(value)
    text = spreadsheet(" ".join(value.splitlines()))
    return '"' + text.replace('"', '""') + '"' if any(mark in text for mark in ',"') else text
