"""Names in other tools' files: ids of requests, sessions and models, kept short enough for every column of a trace."""

from __future__ import annotations

from dataclasses import replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from traces.trace import Trace

MOST_CHARACTERS: Final = 500
"""The longest name. A longer text is data in the wrong place, and would stand in several columns of each row."""
_WITH_NUMBER: Final = MOST_CHARACTERS + 20
"""The longest id of a request: its session's name and its round."""
_LISTS: Final = ("prefix_hashes", "images", "awaited_request_ids")
"""Columns of text that hold lists, as long as a prompt needs."""


def short_name(name: str) -> str:
    """Return the name, or of a longer one its beginning and a digest, so that different names stay different."""
    if len(name) <= MOST_CHARACTERS:
        return name
    digest = blake2b(name.encode("utf-8", "replace"), digest_size=8).hexdigest()
    return f"{name[: MOST_CHARACTERS - len(digest) - 1]}~{digest}"


def with_short_names(trace: Trace) -> Trace:
    """Return an imported trace whose names are short in every column: readers make their own short, others' stay."""
    from traces.tables.cells import cells_where

    short: dict[str, object] = {}
    for name in trace.table.names:
        cells = trace.table[name]
        if name in _LISTS or cells.values.dtype != object:
            continue
        known = cells.known().tolist()
        if any(isinstance(each, str) and len(each) > _WITH_NUMBER for each in known):
            values = cells.values.copy()
            values[cells.is_known] = [short_name(each) for each in known]
            short[name] = cells_where(values, cells.is_known)
    if not short:
        return trace
    events = trace.events
    if "request_id" in short and events is not None:
        events = events.assign(request_id=events["request_id"].map(short_name))
    return replace(trace.with_columns(**short), events=events)
