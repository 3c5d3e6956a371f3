"""Results of each session: how long it took, what it waited for, and where its cached prompt tokens came from."""

from __future__ import annotations

from lazy_dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from replay.sessions.prefix_hashes import prefix_hashes, sessions_grow
from traces import (
    chained,
    finished_ok,
    is_warmup,
    known_before,
    own_hashes,
    prompt_tokens,
    sent_or_due,
    served_output,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from traces import HashChains, Trace

    Int64s = NDArray[np.int64]
    Float64s = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionResults:
    """A row per session, in the order of their first rows; times in µs, tokens of prompts.

    ``is_complete``: every request was answered. ``duration_us``: from the first request to the last answer, NaN of a
    session that is not complete. ``model_us``: the time with a request of it in flight; the rest, ``tool_us``, is tools
    and people. ``cached``: found in the cache; of it ``own`` in blocks that only this session has, ``shared`` in blocks
    that others have, too. ``recomputed``: computed again although an unlimited cache would have had them when the
    request was scheduled.
    """

    names: list[str]
    num_requests: Int64s
    is_complete: NDArray[np.bool_]
    duration_us: Float64s
    model_us: Float64s
    tool_us: Float64s
    prompt_tokens: Int64s
    cached: Int64s
    own: Int64s
    shared: Int64s
    recomputed: Int64s


def session_results(trace: Trace, *, block_size: int) -> SessionResults | None:
    """Return the results of a simulated trace's sessions, None if it has none. ``block_size``: the engine's."""
    codes, names = trace.cells("session_id").codes()
    if not names:
        return None
    codes = np.where(is_warmup(trace), -1, codes)
    ok = finished_ok(trace)
    sent, ended = sent_or_due(trace).floats(), trace.cells("last_token_time_us").floats()
    num = np.bincount(codes[codes >= 0], minlength=len(names))
    complete = np.bincount(codes[(codes >= 0) & ok], minlength=len(names)) == num
    first, last, busy = (np.full(len(names), np.nan) for _ in range(3))
    order = np.argsort(codes, kind="stable")
    order = order[codes[order] >= 0]
    for number, rows in enumerate(np.split(order, np.cumsum(num)[:-1])):
        spans = rows[ok[rows]]
        if len(spans):
            first[number], last[number] = sent[spans].min(), ended[spans].max()
            busy[number] = _covered(sent[spans], ended[spans])
    duration = np.where(complete, last - first, np.nan)
    cached = trace.cells("num_cached_tokens").filled(0)
    own, shared, ideal = _sources(trace, cached, block_size=block_size)

    def per_session(values: Int64s) -> Int64s:
        return np.bincount(codes[codes >= 0], weights=values[codes >= 0], minlength=len(names)).astype(
            np.int64
        )

    return SessionResults(
        names=names,
        num_requests=num.astype(np.int64),
        is_complete=complete,
        duration_us=duration,
        model_us=np.where(complete, busy, np.nan),
        tool_us=duration - np.where(complete, busy, np.nan),
        prompt_tokens=per_session(np.where(ok, prompt_tokens(trace), 0)),
        cached=per_session(np.where(ok, cached, 0)),
        own=per_session(np.where(ok, own, 0)),
        shared=per_session(np.where(ok, shared, 0)),
        recomputed=per_session(np.where(ok, np.maximum(ideal - cached, 0), 0)),
    )


def _covered(starts: Float64s, ends: Float64s) -> float:
    """Return how much time a set of spans covers."""
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], np.maximum.accumulate(ends[order])
    gaps = np.maximum(starts[1:] - ends[:-1], 0.0)
    return float(ends[-1] - starts[0] - gaps.sum())


def _sources(trace: Trace, cached: Int64s, *, block_size: int) -> tuple[Int64s, Int64s, Int64s]:
    """Return, per request, (cached tokens of its session alone, those that others have, what could have been cached).

    If the trace does not say what its prompts share, everything counts as the session's own.
    """
    size = trace.header.hash_block_size
    if sessions_grow(trace):
        size = block_size
        chains = prefix_hashes(trace, output_tokens=served_output(trace).filled(0), block_size=block_size)
    elif size is None:
        return cached, np.zeros_like(cached), cached
    else:
        chains = chained(own_hashes(trace.table))
    shared = np.minimum(cached, _num_shared(trace, chains) * size)
    ideal = ideal_hits(trace, chains, hash_block_size=size, block_size=block_size)
    return cached - shared, shared, ideal


def _num_shared(trace: Trace, chains: HashChains) -> Int64s:
    """Return how many of each prompt's leading hashes another session has, too."""
    session = trace.cells("session_id").codes()[0]
    num = int(chains.ids.max(initial=-1)) + 1
    low, high = np.full(num, np.iinfo(np.int64).max), np.full(num, -2)
    found = np.zeros(len(trace), np.int64)
    rows = [
        (row, chains.ids[start : start + count], session[row])
        for row, (start, count) in enumerate(zip(chains.starts.tolist(), chains.counts.tolist(), strict=True))
    ]
    for _, ids, of_session in rows:
        low[ids] = np.minimum(low[ids], of_session)
        high[ids] = np.maximum(high[ids], of_session)
    is_private = low == high
    for row, ids, _ in rows:
        private = is_private[ids]
        found[row] = int(np.argmax(private)) if private.any() else len(ids)
    return found


def ideal_hits(trace: Trace, chains: HashChains, *, hash_block_size: int, block_size: int) -> Int64s:
    """Return how many prompt tokens an unlimited cache would have, requests in the order in which they were scheduled.

    ``hash_block_size``: tokens of a hash. vLLM finds whole blocks of ``block_size``, and computes at least the last
    token of a prompt.
    """
    prompt = prompt_tokens(trace)
    scheduled = trace.cells("scheduled_time_us")
    order = np.argsort(scheduled.filled(np.iinfo(np.int64).max), kind="stable")
    found = known_before(chains, order[: int(scheduled.is_known.sum())]) * hash_block_size
    whole = np.maximum(prompt - 1, 0) // block_size * block_size
    hits: Int64s = np.minimum(found, whole)
    return hits
