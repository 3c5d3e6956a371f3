"""The block hashes of prompts as chains: a prompt that continues another stores only its new hashes."""

from __future__ import annotations

from lazy_dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from traces.tables.cells import Cells, text_cells
from traces.tables.hash_lists import HashLists
from traces.tables.problems import Finding, finding
from traces.tables.session_tree import NOBODY, column_of, has_tree, session_tree

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from traces.tables.table import Table

    Int64s = NDArray[np.int64]


MOST_DIGITS: Final = 12
"""Hashes of at most this many digits are read as numbers."""
TIGHT: Final = 4
"""They are used as ids if the largest is at most this many times their count: tables of them are small then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnHashes:
    """The hashes in n rows themselves, and how many of their parent's precede them.

    ``ids``: int64, equal for equal hashes; row r's are ``ids[offsets[r] : offsets[r + 1]]``. ``names``: the hash of
    each id where they are not numbers themselves. ``parent``: the row that it continues, -1 none; ``kept``: how many of
    that one's hashes come first. ``counts``: how many hashes the whole prompt has.
    """

    ids: Int64s
    offsets: Int64s
    parent: Int64s
    kept: Int64s
    counts: Int64s
    names: list[str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HashChains:
    """The hashes of n prompts: row r's are ``ids[starts[r] : starts[r] + counts[r]]``.

    Prompts that continue each other share a place, so that their common hashes are stored once.
    """

    ids: Int64s
    starts: Int64s
    counts: Int64s


def own_hashes(table: Table) -> OwnHashes:
    """Return each row's own hashes, and their parents."""
    ids, names, lengths = hashes_of_rows(column_of(table, "prefix_hashes"))
    kept = column_of(table, "num_parent_hashes").filled(0)
    parent = np.where(kept > 0, session_tree(table).parent, NOBODY)
    kept = np.where(parent >= 0, kept, 0)
    return OwnHashes(
        ids=ids,
        offsets=np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]),
        parent=parent,
        kept=kept,
        counts=kept + lengths,
        names=names,
    )


def hashes_of_rows(cells: Cells) -> tuple[Int64s, list[str] | None, Int64s]:
    """Return (the hashes, each row's behind those of the one before, ``OwnHashes.names``, how many each row has)."""
    if isinstance(cells, HashLists):
        return *_small(cells.ids), cells.counts
    texts = cells.filled("").tolist()
    lengths = np.array([len(text.split()) for text in texts], np.int64)
    return *_numbers(" ".join(texts), int(lengths.sum())), lengths


def chained(own: OwnHashes, *, kind: Int64s | None = None) -> HashChains:
    """Return the prompts' hashes, those that continue each other in one place.

    ``kind``: per row; prompts of different kinds share no place, and their ids differ: equal tokens, other content.
    A prompt that keeps all of its parent's hashes is written behind them, if no other was; one that leaves some out, a
    branch, has a place of its own.
    """
    n = len(own.parent)
    kinds = np.zeros(n, np.int64) if kind is None else kind
    goes_on = np.full(n, NOBODY, np.int64)  # per row: the place that it goes on in, by the row that began it
    is_taken = np.zeros(n, np.bool_)
    parents, kept, counts = own.parent.tolist(), own.kept.tolist(), own.counts.tolist()
    begun = np.arange(n)
    for row in np.flatnonzero(own.parent >= 0).tolist():
        parent = parents[row]
        if kept[row] == counts[parent] and not is_taken[parent] and kinds[row] == kinds[parent]:
            is_taken[parent] = True
            begun[row], goes_on[row] = begun[parent], parent
    lengths = np.zeros(n, np.int64)
    np.maximum.at(lengths, begun, own.counts)
    starts = (np.cumsum(lengths) - lengths)[begun]
    ids = np.zeros(int(lengths.sum()), np.int64)
    num_kinds = int(kinds.max(initial=0)) + 1
    offsets, first = own.offsets.tolist(), starts.tolist()
    for row in range(n):
        at, known = first[row], kept[row]
        if known and goes_on[row] == NOBODY:
            before = first[parents[row]]
            if kinds[row] == kinds[parents[row]]:
                ids[at : at + known] = ids[before : before + known]
            else:
                ids[at : at + known] = ids[before : before + known] - kinds[parents[row]] + kinds[row]
        if offsets[row + 1] > offsets[row]:
            own_ids = own.ids[offsets[row] : offsets[row + 1]]
            ids[at + known : at + counts[row]] = own_ids * num_kinds + kinds[row]
    return HashChains(ids=ids, starts=starts, counts=own.counts)


def known_before(chains: HashChains, order: Int64s) -> Int64s:
    """Return how many leading hashes of each prompt an earlier one had, in this order of rows; 0 of rows not in it."""
    is_known = np.zeros(int(chains.ids.max(initial=-1)) + 1, np.bool_)
    found = np.zeros(len(chains.counts), np.int64)
    for row in order.tolist():
        ids = chains.ids[chains.starts[row] : chains.starts[row] + chains.counts[row]]
        known = is_known[ids]
        found[row] = len(ids) if known.all() else int(np.argmin(known))
        is_known[ids] = True
    return found


def hash_counts(table: Table) -> Int64s:
    """Return how many hashes each prompt has, including those of the prompt that it continues."""
    if "num_parent_hashes" in table:
        return own_hashes(table).counts
    return hashes_of_rows(column_of(table, "prefix_hashes"))[2]


def whole_hashes(table: Table, rows: Int64s | None = None) -> list[str | None]:
    """Return the hashes of each prompt (of ``rows``) from its beginning, separated by spaces; None of one without."""
    if "num_parent_hashes" not in table:
        texts = column_of(table, "prefix_hashes").values
        return (texts if rows is None else texts[rows]).tolist()  # type: ignore[no-any-return] # numpy's
    own = own_hashes(table)
    chains = chained(own)
    found: list[str | None] = []
    for row in (np.arange(len(chains.counts)) if rows is None else rows).tolist():
        ids = chains.ids[chains.starts[row] : chains.starts[row] + chains.counts[row]].tolist()
        found.append(" ".join(map(str, ids) if own.names is None else (own.names[i] for i in ids)) or None)
    return found


def without_rows(table: Table, keep: NDArray[np.bool_]) -> Table:
    """Return the table prepared for dropping rows: prompts that continue dropped ones get all their hashes."""
    if not has_tree(table):
        return table
    tree = session_tree(table)
    loose = keep & (tree.parent >= 0) & ~keep[np.maximum(tree.parent, 0)]
    gone = np.bincount(tree.awaited_by, weights=~keep[tree.awaited], minlength=len(keep)) > 0
    changed: dict[str, Cells] = {}
    if gone.any():
        lists, ids = column_of(table, "awaited_request_ids"), column_of(table, "request_id").values
        left = set(ids[keep].tolist())
        texts = [
            " ".join(name for name in text.split() if name in left) or None if is_gone else text
            for text, is_gone in zip(lists.values.tolist(), gone.tolist(), strict=True)
        ]
        changed["awaited_request_ids"] = text_cells(texts)
    if loose.any():
        changed["parent_request_id"] = column_of(table, "parent_request_id").where(~loose)
        if "num_parent_hashes" in table:
            rows = np.flatnonzero(loose)
            changed["num_parent_hashes"] = column_of(table, "num_parent_hashes").where(~loose)
            whole = text_cells(whole_hashes(table, rows))
            changed["prefix_hashes"] = column_of(table, "prefix_hashes").replaced(rows, whole)
    return table.with_columns(changed) if changed else table


def chain_findings(table: Table, *, file: str) -> list[Finding]:
    """Return the rows that keep more of their parent's hashes than it has."""
    if "num_parent_hashes" not in table:
        return []
    own = own_hashes(table)
    has = own.counts[np.maximum(own.parent, 0)]
    return finding(
        file,
        "num_parent_hashes",
        bad=(own.parent >= 0) & (own.kept > has),
        message=lambda row: f"got {own.kept[row]}, expected at most the {has[row]} that its parent has",
    )


def _numbers(text: str, num: int) -> tuple[Int64s, list[str] | None]:
    """Return hashes as numbers: themselves where they are small, else their places in the list of distinct ones."""
    if num == 0:
        return np.zeros(0, np.int64), None
    if text.replace(" ", "").isdecimal() and text.isascii():
        words = text.split()
        if max(map(len, words)) <= MOST_DIGITS and not any(
            len(word) > 1 and word[0] == "0" for word in words
        ):
            numbers = np.array(words, dtype=np.int64)
            return _small(numbers)
    code_of: dict[str, int] = {}
    codes = [code_of.setdefault(word, len(code_of)) for word in text.split()]
    return np.array(codes, np.int64), list(code_of)


def _small(numbers: Int64s) -> tuple[Int64s, list[str] | None]:
    """Return numbers as small ids, and the texts of the ids where they are not the numbers themselves."""
    if not len(numbers) or (int(numbers.min()) >= 0 and int(numbers.max()) <= TIGHT * len(numbers)):
        return numbers, None
    distinct, ids = np.unique(numbers, return_inverse=True)
    return np.asarray(ids, np.int64), list(map(str, distinct.tolist()))
