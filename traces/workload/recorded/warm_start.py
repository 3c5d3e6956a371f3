"""Sessions that begin midway: earlier requests are not sent, and those that the rest continues warm the cache up.

As aiperf's ``--trajectory-start-min-ratio`` and ``--trajectory-start-max-ratio`` do it for its AgentX scenario: a
session begins at a share of its requests, and the prompt before that place is sent once, for one token, so that the
server has its blocks. Prompts that grow by their answers are sent with the answer behind them.
"""

from __future__ import annotations

from lazy_dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from traces.tables.cells import text_cells
from traces.tables.session_tree import NOBODY, SessionTree, has_tree, session_tree
from traces.trace import select_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from traces.trace import Trace

    Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmStart:
    """At which share of its requests a session begins: drawn between two, or one."""

    low: float
    high: float

    def place(self, number: int, random: np.random.Generator) -> int:
        """Return how many of a session's requests are skipped; at least one is left to send."""
        share = random.uniform(self.low, self.high) if self.high > self.low else self.low
        return min(int(share * number), number - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cut:
    """One session: the requests that warm up, in their order, those that are sent, and its first one."""

    warming: Rows
    sent: Rows
    first: int


def started_midway(trace: Trace, asked: WarmStart, *, first_sessions: int | None, seed: int) -> Trace:
    """Return the trace with its sessions begun midway; ``first_sessions``: only that many, in the order of the rows.

    Warming requests have ``phase`` warmup and one output token: no figure counts them.
    """
    tree = session_tree(trace.table) if has_tree(trace.table) else None
    random = np.random.default_rng([seed, 0x5A])
    cuts = []
    for number, rows in enumerate(_sessions(trace)):
        place = asked.place(len(rows), random) if first_sessions is None or number < first_sessions else 0
        if place > 0:
            cuts.append(_cut(rows, place, tree))
    return _applied(trace, cuts, tree) if cuts else trace


def _sessions(trace: Trace) -> Iterator[Rows]:
    """Yield the rows of each session in the order in which they are sent, by its first row."""
    lineage, is_named = trace.lineage, trace.cells("session_id").is_known
    order = np.argsort(lineage.session, kind="stable") if has_tree(trace.table) else lineage.order
    order = order[is_named[order]]
    begins = np.flatnonzero(np.diff(lineage.session[order], prepend=-1))
    yield from np.split(order, begins[1:]) if len(order) else ()


def _cut(rows: Rows, place: int, tree: SessionTree | None) -> _Cut:
    """Return a session cut after ``place`` requests: those that the rest continues, or else the last, warm up."""
    before, sent = rows[:place], rows[place:]
    warming = before[-1:]
    if tree is not None:
        parents = np.unique(tree.parent[sent])
        found = np.intersect1d(parents[parents != NOBODY], before)
        warming = found if len(found) else warming
    return _Cut(warming=warming, sent=sent, first=int(rows[0]))


def _applied(trace: Trace, cuts: list[_Cut], tree: SessionTree | None) -> Trace:
    """Return the trace without skipped requests, its warming requests marked, one behind the other."""
    warms = np.zeros(len(trace), np.bool_)
    keep = np.ones(len(trace), np.bool_)
    session = trace.cells("session_id").codes()[0]
    for cut in cuts:
        warms[cut.warming] = True
        keep[session == session[cut.first]] = False
        keep[cut.warming] = keep[cut.sent] = True
    trace = _renumbered(trace, cuts) if tree is None else trace
    trace = _warming(trace, warms)
    trace = _begun(trace, cuts, has_tree=tree is not None)
    if tree is not None:
        trace = _one_behind_the_other(trace, cuts, tree, keep)
    return select_rows(trace, keep)


def _begun(trace: Trace, cuts: list[_Cut], *, has_tree: bool) -> Trace:
    """Return the trace with the values of a session's first request copied to the first one that is sent.

    These are its start time and, if rounds without their own build on it, what its prompt shares with other sessions.
    """
    firsts, own = np.array([cut.first for cut in cuts]), np.array([int(cut.warming[0]) for cut in cuts])
    times, shares = ("arrival_time_us", "send_time_us"), ("prefix_hashes", "prefix_group", "prefix_length")
    says_none = ~(trace.cells("prefix_hashes").is_known | trace.cells("prefix_group").is_known)[own]
    for name in (*times, *(() if has_tree else shares)):
        if name in trace.table:
            cells = trace.cells(name)
            of = np.ones(len(own), np.bool_) if name in times else says_none
            trace = trace.with_columns(**{name: cells.replaced(own[of], cells.take(firsts[of]))})
    return trace


def _warming(trace: Trace, warms: NDArray[np.bool_]) -> Trace:
    """Return the trace with these requests reduced to one token, sent at once, and excluded from all figures."""
    tokens, think, phase = (trace.cells(name) for name in ("output_tokens", "think_time_us", "phase"))
    return trace.with_columns(
        output_tokens=replace(tokens, values=np.where(warms & tokens.is_known, 1, tokens.values)),
        think_time_us=think.where(~warms),
        phase=replace(phase, values=np.where(warms, "warmup", phase.values), is_known=phase.is_known | warms),
    )


def _renumbered(trace: Trace, cuts: list[_Cut]) -> Trace:
    """Return rounds counted from the warming one on.

    If prompts grow by their answers its prompt includes its own answer, and all of it is new.
    """
    rounds, new, prompt, answer = (
        trace.cells(name) for name in ("round_index", "new_input_tokens", "input_tokens", "output_tokens")
    )
    values, own, whole = rounds.values.copy(), new.values.copy(), prompt.values.copy()
    for cut in cuts:
        at = int(cut.warming[0])
        values[cut.sent] -= rounds.values[at]
        values[at] = 0
        if new.is_known[at]:
            own[at] = whole[at] = prompt.values[at] + answer.filled(0)[at]
    trace = trace.with_columns(round_index=replace(rounds, values=values))
    if not new.is_known.any():
        return trace
    return trace.with_columns(
        new_input_tokens=replace(new, values=own), input_tokens=replace(prompt, values=whole)
    )


def _one_behind_the_other(
    trace: Trace, cuts: list[_Cut], tree: SessionTree, keep: NDArray[np.bool_]
) -> Trace:
    """Return the trace with several warming requests of a session in a chain, as a session has one first request."""
    names = trace.cells("request_id").values
    awaited = trace.cells("awaited_request_ids")
    texts = [text if known else None for text, known in zip(awaited.values, awaited.is_known, strict=True)]
    for cut in cuts:
        for before, row in zip(cut.warming[:-1], cut.warming[1:], strict=True):
            parent = int(tree.parent[row])
            if parent == NOBODY or not keep[parent]:
                texts[row] = str(names[before])
    return trace.with_columns(awaited_request_ids=text_cells(texts))
