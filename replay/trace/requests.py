"""Where a trace becomes the simulator's columns: when requests arrive, how long they are, what prefixes they share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from replay.trace.sessions import session_blocks
from sim.requests import Requests
from traces import TraceError, prompt_tokens, send_or_arrival_us

if TYPE_CHECKING:
    from traces import Trace

At = Literal["auto", "send", "arrival"]
Int64s = NDArray[np.int64]

SHARED_BY_NOBODY = (np.zeros(1, np.int64), np.zeros(0, np.int64))


def requests_from_trace(
    trace: Trace, *, block_size: int, at: At = "auto", closed_loop: bool = False
) -> Requests:
    """Return a trace's requests as the engine's columns, in the trace's order.

    ``at``: they reach the server when they were sent (``auto``: where that is recorded) or when they were due.
    A failed request asks for its ``max_tokens``, since the outputs it got say nothing about its work. Times that a
    closed loop leaves open are 0. Raises TraceError where a time or an output length is missing.
    """
    num_hashes, hash_ids = prefix_hashes(trace, block_size)
    return Requests(
        arrival_us=_arrival_us(trace, at, closed_loop=closed_loop),
        prompt_tokens=prompt_tokens(trace).astype(np.int64),
        output_tokens=output_tokens(trace),
        priority=trace.column("vllm_priority").fillna(0).to_numpy(np.int64),
        hash_offsets=np.concatenate([np.zeros(1, np.int64), np.cumsum(num_hashes)]),
        hash_ids=hash_ids,
    )


def _arrival_us(trace: Trace, at: At, *, closed_loop: bool) -> Int64s:
    """Return when each request reaches the server."""
    if closed_loop:
        return trace.column("arrival_time_us").fillna(0).to_numpy(np.int64)
    if at == "arrival":
        due = trace.column("arrival_time_us")
        if due.isna().any():
            row = int(np.flatnonzero(due.isna().to_numpy())[0])
            raise TraceError(
                f"row {row + 1}, arrival_time_us: got nothing, expected when the request was due"
            )
        return due.to_numpy(np.int64)
    return send_or_arrival_us(trace)


def output_tokens(trace: Trace) -> Int64s:
    """Return how many tokens each request is to generate: what it got, or, where it failed, what it asked for."""
    got, asked, status = trace.column("output_tokens"), trace.column("max_tokens"), trace.column("status")
    failed = (status.notna() & (status != "ok")).fillna(False)
    wanted = got.mask(failed & asked.notna(), asked).fillna(asked)
    if wanted.isna().any():
        row = int(np.flatnonzero(wanted.isna().to_numpy())[0])
        raise TraceError(
            f"row {row + 1}, output_tokens: got nothing, expected the number of tokens to generate"
        )
    return wanted.to_numpy(np.int64)


def prefix_hashes(trace: Trace, block_size: int) -> tuple[Int64s, Int64s]:
    """Return (how many leading full blocks each request shares with somebody, their contents as dense integers)."""
    if trace.column("prefix_hashes").notna().any():
        return _recorded_hashes(trace, block_size)
    if trace.column("new_input_tokens").notna().any():
        return _session_hashes(trace, block_size)
    if trace.column("prefix_group").notna().any():
        return _group_hashes(trace, block_size)
    return np.zeros(len(trace), np.int64), np.zeros(0, np.int64)


def _session_hashes(trace: Trace, block_size: int) -> tuple[Int64s, Int64s]:
    """Return the blocks of sessions whose rounds build on each other, their groups' prefixes before them.

    A session is one text that grows: each round's prompt, and the answer behind it, is a beginning of it.
    """
    in_groups, group_ids = _group_hashes(trace, block_size)
    session, in_sessions = session_blocks(
        trace, prompt=prompt_tokens(trace), output=output_tokens(trace), block_size=block_size
    )
    num_blocks = np.maximum(in_groups, in_sessions)
    owner = np.repeat(np.arange(len(trace)), num_blocks)
    position = _ranges(np.zeros(len(trace), np.int64), num_blocks)
    ids = int(group_ids.max(initial=-1)) + 1 + session[owner] * int(num_blocks.max(initial=0)) + position
    ids[position < in_groups[owner]] = group_ids
    return num_blocks, _dense(ids)


def _ranges(starts: Int64s, lengths: Int64s) -> Int64s:
    """Return start, start + 1, … of each length, one behind the other."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    positions = np.arange(total, dtype=np.int64) + np.repeat(starts - (ends - lengths), lengths)
    return np.asarray(positions, np.int64)


def _group_hashes(trace: Trace, block_size: int) -> tuple[Int64s, Int64s]:
    """Return the blocks of prefix groups: two requests of a group share the shorter one's prefix."""
    groups = trace.column("prefix_group")
    code = groups.astype("category").cat.codes.to_numpy(np.int64)
    prompt = prompt_tokens(trace)
    prefix = np.minimum(trace.column("prefix_length").fillna(0).to_numpy(np.int64), prompt)
    num_blocks = np.where(code >= 0, prefix // block_size, 0)
    longest = np.zeros(int(code.max(initial=-1)) + 1, np.int64)
    np.maximum.at(longest, code[code >= 0], num_blocks[code >= 0])
    first = np.cumsum(longest) - longest
    starts = np.where(code >= 0, first[np.maximum(code, 0)] if len(first) else 0, 0)
    return num_blocks, _ranges(starts, num_blocks)


def _recorded_hashes(trace: Trace, block_size: int) -> tuple[Int64s, Int64s]:
    """Return the blocks of a trace that carries hashes of its own, coarser blocks; only what somebody else shares.

    An engine block's content is (recorded hash, offset in its block). Recorded hashes are chained: after the first
    that is nobody else's, none is shared.
    """
    recorded_size = trace.header.hash_block_size
    if recorded_size is None or recorded_size % block_size:
        raise TraceError(
            f"hash_block_size: got {recorded_size}, expected a multiple of engine.block_size ({block_size}), "
            "or the trace's prefix hashes cannot be cut into the engine's blocks"
        )
    text = trace.column("prefix_hashes").fillna("").astype(object).to_numpy()
    lengths = np.array([len(line.split()) for line in text], np.int64)
    ids = np.array(" ".join(text).split(), dtype=object)
    hashes = _dense(ids)
    is_shared = np.bincount(hashes, minlength=1)[hashes] > 1 if len(hashes) else np.zeros(0, bool)
    starts = np.cumsum(lengths) - lengths
    last_shared = np.zeros(len(lengths), np.int64)
    position = _ranges(np.ones(len(lengths), np.int64), lengths)
    owner = np.repeat(np.arange(len(lengths)), lengths)
    np.maximum.at(last_shared, owner[is_shared], position[is_shared])
    per_hash = recorded_size // block_size
    num_blocks = np.minimum(last_shared * per_hash, prompt_tokens(trace) // block_size)
    coarse_needed = -(-num_blocks // per_hash)
    coarse = _dense(hashes[_ranges(starts, coarse_needed)])
    block_counts = np.full(len(coarse), per_hash, np.int64)
    ends = np.cumsum(coarse_needed)
    has_any = coarse_needed > 0
    block_counts[ends[has_any] - 1] = num_blocks[has_any] - (coarse_needed[has_any] - 1) * per_hash
    return num_blocks, _ranges(coarse * per_hash, block_counts)


def _dense(values: NDArray[np.generic]) -> Int64s:
    """Return values renumbered 0, 1, … ."""
    if values.dtype == object:
        try:
            values = values.astype(np.int64)
        except (ValueError, OverflowError):
            values = values.astype(str)
    return np.asarray(np.unique(values, return_inverse=True)[1], np.int64)
