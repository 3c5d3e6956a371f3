"""Mooncake's production traces (FAST'25): arrivals in ms, lengths, one hash per 512 tokens of prompt."""

from __future__ import annotations

from pathlib import Path
from typing import Final, cast

import numpy as np

from traces.header import Header, Source
from traces.importers.jsonl import COUNT, INTEGERS, NUMBER, read_jsonl
from traces.importers.micros import micros
from traces.trace import Trace, make_trace

HASH_BLOCK_SIZE: Final = 512
"""Tokens that one of a trace's hash ids stands for."""
_US_PER_MS: Final = 1000


def read_mooncake(path: Path) -> Trace:
    """Return the trace in ``path`` (.jsonl or .jsonl.gz), ``hash_ids`` as ``prefix_hashes``.

    Arrivals keep the file's origin, which is the run's start. Raises TraceError.
    """
    kinds = {"timestamp": NUMBER, "input_length": COUNT, "output_length": COUNT, "hash_ids": INTEGERS}
    columns = read_jsonl(path, kinds)
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
