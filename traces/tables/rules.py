"""The rules of the table of requests beyond its types, each checked over whole columns at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from traces.header import Header
from traces.schema import FIELDS, REQUEST_FIELDS, Field
from traces.strict.limits import MOST_TOKENS
from traces.tables.cells import Cells
from traces.tables.hash_chains import chain_findings, hash_counts
from traces.tables.image_lists import image_findings
from traces.tables.problems import Finding, finding
from traces.tables.session_tree import column_of, tree_findings, waits_for_named
from traces.tables.table import Table

if TYPE_CHECKING:
    from numpy.typing import NDArray

# (later, earlier): the first never comes before the second in one row.
TIME_ORDER: Final = (
    ("deadline_us", "arrival_time_us"),
    ("first_byte_time_us", "send_time_us"),
    ("first_chunk_time_us", "send_time_us"),
    ("content_first_time_us", "send_time_us"),
    ("content_first_time_us", "first_chunk_time_us"),
    ("last_chunk_time_us", "first_chunk_time_us"),
    ("last_token_time_us", "content_first_time_us"),
    ("last_chunk_time_us", "last_token_time_us"),
    ("scheduled_time_us", "send_time_us"),
    ("cancel_time_us", "send_time_us"),
)


def request_findings(requests: Table, header: Header, *, file: str) -> list[Finding]:
    """Return broken rules in the table of requests."""
    known = {name: requests[name] for name in requests.names if name in FIELDS}
    found = field_findings(known, REQUEST_FIELDS, file=file)
    found += _repeated_ids(requests["request_id"], file=file)
    found += _missing_arrivals(requests, header, file=file)
    for later, earlier in TIME_ORDER:
        if later in requests and earlier in requests:
            found += _out_of_order(requests, later, earlier=earlier, file=file)
    found += tree_findings(requests, file=file)
    found += image_findings(requests, file=file)
    return found + _too_many_hashes(requests, header, file=file)


def field_findings(columns: Mapping[str, Cells], fields: Sequence[Field], *, file: str) -> list[Finding]:
    """Return the cells that do not fit their field; ``columns``: those of the table that have a field."""
    found: list[Finding] = []
    for field in fields:
        if field.name not in columns:
            continue
        cells = columns[field.name]
        bad = _outside(cells, field)
        if not field.nullable:
            bad = bad | ~cells.is_known
        found += finding(file, field.name, bad=bad, message=_got(cells, field))
    return found


def _got(cells: Cells, field: Field) -> Callable[[int], str]:
    def message(row: int) -> str:
        value = cells.values[row]
        if not cells.is_known[row]:
            return f"got an empty cell, expected {field.expected}"
        if field.maximum is None and field.limit is not None and value > field.limit:
            return f"got {value}, expected at most {field.limit}"
        got = repr(value) if field.dtype == "string" else str(value)
        return f"got {got}, expected {field.expected}"

    return message


def _outside(cells: Cells, field: Field) -> NDArray[np.bool_]:
    if field.choices:
        codes, names = cells.codes()
        return np.isin(codes, [code for code, name in enumerate(names) if name not in field.choices])
    bad = np.zeros(len(cells), dtype=np.bool_)
    if field.dtype not in {"int", "float"}:
        return bad
    values = cells.filled(max(field.minimum or 0, 0))
    if field.dtype == "float":
        bad |= ~np.isfinite(values)
    if field.minimum is not None:
        bad |= values < field.minimum
    if field.limit is not None:
        bad |= values > field.limit
    return bad


def _repeated_ids(names: Cells, *, file: str) -> list[Finding]:
    bad = np.zeros(len(names), dtype=np.bool_)
    if names.num_distinct() < int(names.is_known.sum()):
        codes = names.codes()[0]
        bad[names.is_known] = True
        bad[np.unique(codes, return_index=True)[1]] = False
    return finding(
        file,
        "request_id",
        bad=bad,
        message=lambda row: f"got {names.values[row]!r} a second time, expected each request_id once",
    )


def _missing_arrivals(requests: Table, header: Header, *, file: str) -> list[Finding]:
    if header.closed_loop is not None:
        return []
    return finding(
        file,
        "arrival_time_us",
        bad=~requests["arrival_time_us"].is_known & ~_is_later_round(requests),
        message=lambda _: (
            "got an empty cell, expected an integer >= 0 (only a closed_loop's, or a session's "
            "after its first round, may be empty)"
        ),
    )


def _is_later_round(requests: Table) -> NDArray[np.bool_]:
    """Return which requests wait for the answer to their session's previous round."""
    is_later = column_of(requests, "session_id").is_known & (column_of(requests, "round_index").values > 0)
    return is_later | waits_for_named(requests)


def _out_of_order(requests: Table, later: str, *, earlier: str, file: str) -> list[Finding]:
    last, first = requests[later], requests[earlier]
    return finding(
        file,
        later,
        bad=last.is_known & first.is_known & (last.values < first.values),
        message=lambda row: f"got {last.values[row]}, expected a time >= {earlier} ({first.values[row]})",
    )


def _too_many_hashes(requests: Table, header: Header, *, file: str) -> list[Finding]:
    if "prefix_hashes" not in requests:
        return []
    num = hash_counts(requests)
    block = header.hash_block_size
    if block is None:
        return finding(
            file,
            "prefix_hashes",
            bad=num > 0,
            message=lambda _: "got hashes, expected the header's hash_block_size with them",
        )
    prompt = requests["input_tokens"].values + requests["prefix_length"].values
    block = min(block, MOST_TOKENS + 1)  # a larger one holds as much of any prompt: all of it
    return chain_findings(requests, file=file) + finding(
        file,
        "prefix_hashes",
        bad=num > -(-prompt // block),
        message=lambda row: (
            f"got {num[row]} hashes, expected at most {-(-prompt[row] // block)} "
            f"for {prompt[row]} tokens in blocks of {block}"
        ),
    )
