"""Mooncake's production traces (FAST'25): arrivals in ms, lengths, one hash per 512 tokens of prompt.

aiperf writes sessions in the same format (``aiperf synthesize agentic-code``): ``mooncake_sessions``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, cast

import numpy as np

from traces.header import Header, Source
from traces.importers.jsonl import COUNT, INTEGERS, NUMBER, TEXT, Column, read_jsonl
from traces.importers.micros import micros
from traces.importers.mooncake_sessions import read_sessions
from traces.trace import Trace, make_trace

HASH_BLOCK_SIZE: Final = 512
"""Tokens that one of a trace's hash ids stands for."""
_US_PER_MS: Final = 1000


def read_mooncake(path: Path) -> Trace:
    """Return the trace in ``path`` (.jsonl or .jsonl.gz), ``hash_ids`` as ``prefix_hashes``.

    Arrivals keep the file's origin, which is the run's start. With a ``session_id`` on any line the file holds
    sessions (``read_sessions``). Raises TraceError.
    """
    kinds = {"timestamp": NUMBER, "input_length": COUNT, "output_length": COUNT, "hash_ids": INTEGERS}
    lengths = {name: kinds[name] for name in ("input_length", "output_length")}
    optional = {"session_id": TEXT, "delay": NUMBER, "context_mode": TEXT}
    columns = read_jsonl(path, lengths, optional={**optional, **kinds})
    if any(name is not None for name in columns["session_id"]):
        return read_sessions(path, columns, block_size=HASH_BLOCK_SIZE)
    if None in columns["timestamp"] or None in columns["hash_ids"]:
        read_jsonl(path, kinds)  # names the line
    return _of_requests(path, columns)


def _of_requests(path: Path, columns: dict[str, Column]) -> Trace:
    arrival = micros(
        np.asarray(columns["timestamp"], dtype=np.float64), _US_PER_MS, what=f"{path.name}: timestamp"
    )
    hashes = [" ".join(map(str, cast("list[int]", ids))) for ids in columns["hash_ids"]]
    header = Header(
        mode="generated",
        hash_block_size=HASH_BLOCK_SIZE,
        source=Source(
            format="mooncake",
            file=path.name,
            notes=("hash_ids are per 512-token block; the last may cover a partial block",),
        ),
    )
    return make_trace(
        header,
        {
            "request_id": [str(row) for row in range(len(arrival))],
            "streaming": True,
            "input_tokens": columns["input_length"],
            "output_tokens": columns["output_length"],
            "arrival_time_us": arrival,
            "prefix_hashes": [text or None for text in hashes],
        },
    )
