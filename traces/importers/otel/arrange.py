"""Rows of spans, which arrive late and in any order, as a trace: by start, with sessions, each request once."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace

import numpy as np

from traces.importers.noted import grown
from traces.importers.otel.span_rows import CLIENT, SERVER, header_of
from traces.trace import Trace


def arranged(trace: Trace, *, notes: tuple[str, ...] = ()) -> Trace:
    """Return the rows in the order of their starts, in sessions, under a header that describes them.

    If a server reported its requests, spans of clients are of the same ones, or of other servers: they are left out. A
    session is a conversation, or a trace of several requests without one; ``notes``: further notes.
    """
    seen_by = np.asarray(trace.cells("seen_by").values, dtype=object)
    conversations = _conversations(trace)
    is_server = bool((seen_by == SERVER).any())
    keep = np.flatnonzero(seen_by == SERVER) if is_server else np.arange(len(trace))
    order = keep[np.argsort(trace.cells("arrival_time_us").values[keep], kind="stable")]
    told = int((seen_by == CLIENT).sum()) if is_server else 0
    if told:
        notes = (f"{told:,} spans of clients, beside the server's own: left out", *notes)
    sessions = _sessions(trace, conversations)
    rows = replace(trace, table=trace.table.take(order))
    names, rounds = _rounds([sessions[row] for row in order.tolist()], rows)
    added, shared = grown(
        names, rows.cells("input_tokens").filled(0).tolist(), rows.cells("output_tokens").filled(0).tolist()
    )
    notes = (*shared, *notes)
    rows = rows.with_columns(session_id=names, round_index=rounds)
    if added is not None:
        rows = rows.with_columns(new_input_tokens=added)
    assert trace.header.source is not None  # noqa: S101 - a trace of spans
    header = header_of(
        origin_us=trace.header.start_unix_us or 0,
        file=trace.header.source.file,
        is_server=is_server,
        models=list(dict.fromkeys(rows.cells("model").known().tolist())),
        knows_cached=bool(rows.cells("cached_input_tokens").is_known.any()),
        notes=notes,
    )
    return rows.with_header(
        server=header.server, network=header.network, source=header.source, mode=header.mode
    )


def _conversations(trace: Trace) -> dict[str, str]:
    """Return the conversation of each trace that is part of one."""
    named: dict[str, set[str]] = defaultdict(set)
    ids, sessions = trace.cells("trace_id").values.tolist(), trace.cells("session_id").values.tolist()
    for trace_id, session in zip(ids, sessions, strict=True):
        if trace_id is not None and session is not None and session != trace_id:
            named[trace_id].add(session)
    return {trace_id: next(iter(found)) for trace_id, found in named.items() if len(found) == 1}


def _sessions(trace: Trace, conversations: dict[str, str]) -> list[tuple[str | None, str | None]]:
    """Return each row's conversation, if any, and its trace."""
    ids, sessions = trace.cells("trace_id").values.tolist(), trace.cells("session_id").values.tolist()
    return [
        (session if session is not None and session != trace_id else conversations.get(trace_id), trace_id)
        for trace_id, session in zip(ids, sessions, strict=True)
    ]


def _rounds(
    told: list[tuple[str | None, str | None]], rows: Trace
) -> tuple[list[str | None], list[int | None]]:
    """Return each row's session, and its place in it; a trace of one request is not a session."""
    alone = Counter(trace_id for conversation, trace_id in told if conversation is None)
    names = [
        conversation or (trace_id if trace_id is not None and alone[trace_id] > 1 else None)
        for conversation, trace_id in told
    ]
    seen: Counter[str] = Counter()
    rounds: list[int | None] = []
    for name in names:
        rounds.append(None if name is None else seen[name])
        if name is not None:
            seen[name] += 1
    assert len(rounds) == len(rows)  # noqa: S101 - one each
    return names, rounds
