"""Mooncake's production traces (FAST'25): arrivals in ms, lengths, one hash per 512 tokens of prompt.

aiperf, guidellm and others replay the format with files of their own: without ``hash_ids``, with blocks of another
size, or (guidellm) with times in seconds. aiperf writes sessions in it, too (``mooncake_sessions``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, cast

import numpy as np
from numpy.typing import NDArray

from traces.errors import TraceError
from traces.header import Header, Source
from traces.importers.hash_blocks import block_size_of
from traces.importers.jsonl import COUNT, INTEGERS, NUMBER, TEXT, Column, read_jsonl
from traces.importers.micros import micros
from traces.importers.mooncake_sessions import read_sessions
from traces.importers.noted import left_out
from traces.importers.reading_options import US_PER, TimeUnit
from traces.tables.hash_lists import hash_lists
from traces.trace import Trace, make_trace
from traces.units import counted

HASH_BLOCK_SIZE: Final = 512
"""Tokens that one of a trace's hash ids stands for."""
_IN_WORDS: Final = {"s": "seconds", "ms": "milliseconds", "us": "microseconds"}
_SLOW_PER_S: Final = 0.01
_FAST_PER_S: Final = 100.0
"""A trace of more requests a second is asked whether its times are seconds: Mooncake's have 3 to 10."""


def read_mooncake(path: Path, *, block_size: int | None = None, time_unit: TimeUnit | None = None) -> Trace:
    """Return the trace in ``path`` (.jsonl or .jsonl.gz), ``hash_ids`` as ``prefix_hashes``.

    ``block_size``: tokens per hash, where the numbers of hashes do not show it. ``time_unit``: of ``timestamp``, ms by
    default. Arrivals keep the file's origin, which is the run's start. Without ``hash_ids`` requests share nothing,
    without ``timestamp`` the load is not known. With a ``session_id`` on any line the file holds sessions
    (``read_sessions``). Raises TraceError.
    """
    lengths = {"input_length": COUNT, "output_length": COUNT}
    optional = {
        "timestamp": NUMBER,
        "hash_ids": INTEGERS,
        "session_id": TEXT,
        "delay": NUMBER,
        "context_mode": TEXT,
    }
    columns = read_jsonl(path, lengths, optional=optional)
    if any(name is not None for name in columns["session_id"]):
        return read_sessions(
            path, columns, block_size=block_size or HASH_BLOCK_SIZE, us_per_unit=US_PER[time_unit or "ms"]
        )
    has_times = any(stamp is not None for stamp in columns["timestamp"])
    if has_times and None in columns["timestamp"]:
        read_jsonl(path, lengths | {"timestamp": NUMBER})  # names the line
    return _of_requests(path, columns, block_size=block_size, unit=(time_unit or "ms") if has_times else None)


def _of_requests(
    path: Path, columns: dict[str, Column], *, block_size: int | None, unit: TimeUnit | None
) -> Trace:
    """Return the trace of lines without sessions; ``unit`` None: no line has a time."""
    given = len(columns["input_length"])
    if 0 in columns["output_length"]:
        columns = {
            name: [cell for cell, tokens in zip(cells, columns["output_length"], strict=True) if tokens != 0]
            for name, cells in columns.items()
        }
    rows = len(columns["input_length"])
    if not rows:
        raise TraceError(f"{path.name}: got no request with output tokens, expected one a line ({path})")
    times = np.asarray(columns["timestamp"] if unit else np.zeros(rows), dtype=np.float64)
    arrival = micros(times, US_PER[unit or "ms"], what=f"{path.name}: timestamp")
    listed = cast("list[list[int] | None]", columns["hash_ids"])
    hashes = hash_lists(listed)
    tokens = np.asarray(columns["input_length"], dtype=np.int64)
    numbers = np.array([len(ids or ()) for ids in listed], dtype=np.int64)
    has = numbers > 0
    size, note = block_size_of(
        tokens[has], numbers[has], usual=HASH_BLOCK_SIZE, given=block_size, file=path.name
    )
    notes = [
        *(() if unit is None else (_time_note(arrival, unit),)),
        *((note or f"a hash stands for {size:,} tokens; the last may cover fewer",) if has.any() else ()),
        *(() if has.all() else (_without_note(rows - int(has.sum())),)),
    ]
    header = Header(
        mode="generated",
        hash_block_size=size if has.any() else None,
        source=Source(
            format="mooncake",
            file=path.name,
            left_out=left_out(failed=given - rows),
            load_unknown=None if unit else "no timestamp, so when requests are due is not in the file",
            notes=tuple(notes),
        ),
    )
    return make_trace(
        header,
        {
            "request_id": [str(row) for row in range(rows)],
            "streaming": True,
            "input_tokens": columns["input_length"],
            "output_tokens": columns["output_length"],
            "arrival_time_us": arrival,
            "prefix_hashes": hashes if has.any() else None,
        },
    )


def _without_note(number: int) -> str:
    return (
        f"hash_ids: {counted(number, 'request')} without: what they share is not known and counts as nothing"
    )


def _time_note(arrival: NDArray[np.int64], unit: TimeUnit) -> str:
    """Return in which unit times are taken, with a question where that makes a load that few servers have."""
    taken = f"timestamp is taken in {_IN_WORDS[unit]}"
    span_us = int(np.ptp(arrival)) if len(arrival) > 1 else 0
    rate = (len(arrival) - 1) / span_us * 1e6 if span_us else 0.0
    if unit == "ms" and 0 < rate < _SLOW_PER_S:
        return f"{taken}: {rate:,.3g} requests a second. If they are microseconds, say so: --time-unit us"
    if unit == "s" or rate <= _FAST_PER_S:
        return taken
    slower = US_PER["s"] // US_PER[unit]
    return (
        f"{taken}: {len(arrival):,} requests within {span_us / 1000:,.4g} ms, {rate:,.0f} a second. If they are "
        f"seconds ({rate / slower:,.4g} a second), say so: --time-unit s, or FILE#time_unit=s"
    )
