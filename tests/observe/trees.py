"""Small sessions that branch and join."""

from __future__ import annotations

from typing import Any

from traces import Header, Trace, make_trace

THINK_US = (None, 100_000, 50_000, 0, 30_000, 30_000)
OUTPUT = (5, 3, 9, 2, 4, 4)


def trees(number: int, *, every_us: int = 0, scale: int = 1) -> Trace:
    """Sessions of six requests in blocks of 16 tokens: three go on from the first, the fifth waits for all three.

    All begin with blocks 1 and 2. Output lengths are times ``scale``.
    """
    columns: dict[str, list[Any]] = {}
    for each in range(number):
        name, own = f"s{each}", 1000 * (each + 1)
        named = [None if at is None else f"{name}/{at}" for at in (None, 0, 0, 0, 1, 4)]
        rows: dict[str, list[Any]] = {
            "request_id": [f"{name}/{row}" for row in range(6)],
            "session_id": [name] * 6,
            "round_index": [*range(6)],
            "input_tokens": [70, 84, 100, 40, 132, 164],
            "output_tokens": [scale * tokens for tokens in OUTPUT],
            "arrival_time_us": [each * every_us, *[None] * 5],
            "think_time_us": [*THINK_US],
            "parent_request_id": named,
            "awaited_request_ids": [*[None] * 4, f"{name}/2 {name}/3", None],
            "num_parent_hashes": [None, 4, 3, 2, 5, 8],
            "prefix_hashes": [
                f"1 2 {own} {own + 1}",
                f"{own + 2}",
                f"{own + 3} {own + 4} {own + 5}",
                None,
                f"{own + 6} {own + 7} {own + 8}",
                f"{own + 9} {own + 10}",
            ],
        }
        for column, values in rows.items():
            columns.setdefault(column, []).extend(values)
    return make_trace(Header(mode="generated", tool="vtwin", seed=7, hash_block_size=16), columns)


def tree() -> Trace:
    """One such session."""
    return trees(1)
