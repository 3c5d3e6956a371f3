"""The reference page of TraceV2's fields, generated from the tables that the reader uses.

``python -m traces.tables.trace_reference`` prints it; ``python -m traces.tables.trace_reference FILE`` writes it.
"""

from __future__ import annotations

import sys
from dataclasses import fields
from pathlib import Path
from typing import Final

from traces.header import BLIS_KEYS, BLIS_SERVER_KEYS, Header, ServerInfo
from traces.schema import EVENT_FIELDS, REQUEST_FIELDS, Field

_INTRODUCTION: Final = """\
# Fields of a trace

<!-- generated from traces/schema.py and traces/header.py by `python -m traces.tables.trace_reference`; do not edit -->

A trace is a header, `STEM.yaml`, a table of requests, `STEM.csv` or `STEM.parquet`, and where events were
recorded `STEM.itl.csv` or `STEM.itl.parquet`. Columns are found by name. An empty cell is "missing", never 0.
Times count from the run's start, in µs, whole numbers.

*From* says whose column it is: `BLIS` columns are always written, in this order; `BLIS, if used` and `vtwin`
columns only where a row has a value. A file written by BLIS (its header names no `tool`) is translated on
reading: 0 becomes "missing" where the table says so.
"""
_FROM: Final = {"base": "BLIS", "optional": "BLIS, if used", "vtwin": "vtwin"}
_ZERO: Final = {
    "never": "",
    "always": "yes",
    "real": "in `mode: real`",
    "simulated": "in other modes",
}


def page() -> str:
    """Return the reference page, in Markdown."""
    parts = [
        _INTRODUCTION,
        "## The table of requests\n",
        _table(REQUEST_FIELDS),
        "## The table of events\n",
        _table(EVENT_FIELDS),
        "## The header\n",
        "An unknown key is an error. `server.sources` says where each value was read from.\n",
        _keys("Key", [member.name for member in fields(Header)], BLIS_KEYS),
        _keys("Key of `server`", [member.name for member in fields(ServerInfo)], BLIS_SERVER_KEYS),
    ]
    return "\n".join(parts)


def _table(rows: tuple[Field, ...]) -> str:
    titles = ("column", "type", "unit", "must be there", "from", "BLIS's 0 is missing", "meaning")
    head = f"| {' | '.join(titles)} |\n" + "|---" * len(titles) + "|\n"
    return head + "".join(_row(field) for field in rows)


def _row(field: Field) -> str:
    required = "column and cell" if not field.nullable else "column" if field.required else ""
    cells = (
        f"`{field.name}`",
        _type(field),
        field.unit,
        required,
        _FROM[field.origin],
        _ZERO[field.zero_is_missing],
        field.meaning,
    )
    return "| " + " | ".join(cells) + " |\n"


def _type(field: Field) -> str:
    return field.dtype if field.dtype in ("string", "bool") and not field.choices else field.expected


def _keys(title: str, names: list[str], blis: tuple[str, ...]) -> str:
    rows = "".join(f"| `{name}` | {'BLIS' if name in blis else 'vtwin'} |\n" for name in names)
    return f"| {title} | from |\n|---|---|\n{rows}"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(page(), encoding="utf-8")
    else:
        sys.stdout.write(page())
