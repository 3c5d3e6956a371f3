"""Which request of a trace follows which, and which answers it waits for, as rows."""

from __future__ import annotations

from itertools import repeat
from lazy_dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from traces.schema import FIELDS
from traces.tables.cells import Cells, no_cells
from traces.tables.problems import Finding, finding

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from traces.tables.table import Table

    Int64s = NDArray[np.int64]

NOBODY: Final = -1
UNKNOWN: Final = -2
"""A request that the trace does not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionTree:
    """The answers that n requests wait for, as rows of the same trace; each precedes those that wait for it.

    ``parent``: int64 per row, the request that this one follows and whose answer it waits for, -1 none. ``awaited_by``,
    ``awaited``: further answers that requests wait for, as pairs of rows (waiting, awaited).
    """

    parent: Int64s
    awaited_by: Int64s
    awaited: Int64s

    def edges(self) -> tuple[Int64s, Int64s]:
        """Return (waiting rows, awaited rows), every pair once, in the order of the waiting rows."""
        rows = np.flatnonzero(self.parent >= 0)
        waiting = np.concatenate([rows, self.awaited_by])
        pairs = np.unique(np.stack([waiting, np.concatenate([self.parent[rows], self.awaited])]), axis=1)
        return pairs[0], pairs[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """How n requests stand in their sessions; one without a session is a session of its own. int64 [n] each.

    ``session``: the first row of the request's session, which numbers it. ``order``: the rows by session and round,
    equal rounds as they stand. ``rank``: the place in its session in that order, from 0. ``parent``: the row that the
    request goes on from, -1 none: the one that it names; where no request names one, the one before it in the order.
    """

    session: Int64s
    order: Int64s
    rank: Int64s
    parent: Int64s

    @property
    def first(self) -> Int64s:
        """The row of rank 0 of each request's session."""
        firsts = self.order[self.rank[self.order] == 0]
        first_of = np.zeros_like(self.session)
        first_of[self.session[firsts]] = firsts
        return first_of[self.session]


def lineage_of(table: Table) -> Lineage:
    """Return how the requests stand in their sessions."""
    codes, names = column_of(table, "session_id").codes()
    rows = np.arange(len(codes))
    at = np.full(len(names), len(rows))
    np.minimum.at(at, codes[codes >= 0], rows[codes >= 0])
    session = np.where(codes >= 0, np.append(at, 0)[codes], rows)
    order = np.lexsort((column_of(table, "round_index").values, session))
    begins = np.flatnonzero(np.diff(session[order], prepend=-1))
    rank = np.empty(len(rows), np.int64)
    rank[order] = rows - np.repeat(begins, np.diff(begins, append=len(rows)))
    parent = np.full(len(rows), NOBODY, np.int64)
    if has_tree(table):
        parent = session_tree(table).parent
    else:
        later = np.flatnonzero(rank[order] > 0)
        parent[order[later]] = order[later - 1]
    return Lineage(session=session, order=order, rank=rank, parent=parent)


def has_tree(table: Table) -> bool:
    """Return whether any request names another whose answer it waits for."""
    return bool(waits_for_named(table).any())


def waits_for_named(table: Table) -> NDArray[np.bool_]:
    """Return which requests name another whose answer they wait for."""
    names = ("parent_request_id", "awaited_request_ids")
    parent, awaited = (column_of(table, name).is_known for name in names)
    waits: NDArray[np.bool_] = parent | awaited
    return waits


def session_tree(table: Table) -> SessionTree:
    """Return which requests wait for which. Invalid names (``tree_findings``) are ignored."""
    row_of = _row_of_id(table)
    parent = _rows(column_of(table, "parent_request_id"), row_of)
    rows = np.arange(len(parent))
    by, awaited = _awaited(table, row_of)
    is_earlier = (awaited >= 0) & (awaited < by)
    return SessionTree(
        parent=np.where((parent >= 0) & (parent < rows), parent, NOBODY),
        awaited_by=by[is_earlier],
        awaited=awaited[is_earlier],
    )


def tree_findings(table: Table, *, file: str) -> list[Finding]:
    """Return the faults in names of awaited requests, which must stand in earlier rows of the session."""
    if not any(name in table for name in ("parent_request_id", "awaited_request_ids", "num_parent_hashes")):
        return []
    row_of, session = _row_of_id(table), column_of(table, "session_id").codes()[0]
    names, listed = column_of(table, "parent_request_id"), column_of(table, "awaited_request_ids").values
    parent, rows = _rows(names, row_of), np.arange(len(session))
    found = finding(
        file,
        "parent_request_id",
        bad=names.is_known & _is_misplaced(parent, rows, session),
        message=lambda row: (
            f"got {names.values[row]!r}, expected the request_id of an earlier row of its session"
        ),
    )
    by, awaited = _awaited(table, row_of)
    bad = np.zeros(len(rows), np.bool_)
    bad[by[_is_misplaced(awaited, by, session)]] = True
    found += finding(
        file,
        "awaited_request_ids",
        bad=bad,
        message=lambda row: f"got {listed[row]!r}, expected request_ids of earlier rows of its session",
    )
    kept = column_of(table, "num_parent_hashes")
    return found + finding(
        file,
        "num_parent_hashes",
        bad=kept.is_known & (kept.values > 0) & ~names.is_known,
        message=lambda row: f"got {kept.values[row]}, expected parent_request_id with it",
    )


def column_of(table: Table, name: str) -> Cells:
    """Return a column, or an empty one."""
    return table[name] if name in table else no_cells(FIELDS[name].dtype, len(table["request_id"]))


def _is_misplaced(named: Int64s, rows: Int64s, session: Int64s) -> NDArray[np.bool_]:
    """Return which named requests do not exist, are not earlier, or belong to another session."""
    bad: NDArray[np.bool_] = (named < 0) | (named >= rows) | (session[np.maximum(named, 0)] != session[rows])
    return bad


def _row_of_id(table: Table) -> dict[str, int]:
    return {name: row for row, name in enumerate(table["request_id"].values.tolist())}


def _rows(names: Cells, row_of: dict[str, int]) -> Int64s:
    """Return the row of each named request, -1 where none is named, -2 where there is no such request."""
    found = np.fromiter(map(row_of.get, names.values.tolist(), repeat(UNKNOWN)), np.int64, count=len(names))
    return np.where(names.is_known, found, NOBODY)


def _awaited(table: Table, row_of: dict[str, int]) -> tuple[Int64s, Int64s]:
    """Return (waiting rows, awaited rows) of the lists of further answers; -2 for a request that does not exist."""
    lists = column_of(table, "awaited_request_ids")
    by: list[int] = []
    awaited: list[int] = []
    for row in np.flatnonzero(lists.is_known).tolist():
        names = lists.values[row].split()
        by += [row] * len(names)
        awaited += [row_of.get(name, UNKNOWN) for name in names]
    return np.array(by, np.int64), np.array(awaited, np.int64)
