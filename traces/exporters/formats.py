"""The formats of requests that other tools replay: a trace's requests without outcomes.

``mooncake``: JSON lines (timestamp in ms, input_length, output_length, hash_ids per block), read by aiperf and
guidellm (mooncake) and, as ``vllm-bench``, by vllm bench (``timed_trace``); ``replay_commands`` says how.
``burstgpt``: the CSV that vllm bench and aiperf take by that name. ``azure``: the Azure LLM traces' CSV.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

import numpy as np

from traces.errors import TraceError
from traces.exporters.target import TargetFormat
from traces.metrics import prompt_tokens
from traces.tables.hash_chains import whole_hashes
from traces.trace import Trace
from traces.workload.recorded.from_trace import workload_of
from traces.workload.recorded.served_lengths import as_sent

HASH_BLOCK_SIZE: Final = 512
"""Tokens per hash where the trace has none of its own: Mooncake's."""

_AZURE_START: Final = datetime(2023, 11, 16, 18, 0, 0, tzinfo=UTC)
"""Azure's CSV has times of day: requests count from this one, in the hour of the published traces."""

_BURST_MODEL: Final = "GPT-4"
"""The model of every row of BurstGPT's format: vllm bench (datasets/burstgpt.py) leaves out the rows of any other."""


def requests_document(trace: Trace, target: TargetFormat) -> str:
    """Return the requests of ``trace`` in another tool's format, by arrival. Raises TraceError."""
    workload = as_sent(workload_of(trace))
    due = workload.cells("arrival_time_us")
    if not due.is_known.all():
        raise TraceError(
            f"arrival_time_us: got a closed loop or sessions, expected times: {target} has no other way to pace"
        )
    workload = replace(workload, table=workload.table.take(np.argsort(due.values, kind="stable")))
    return "".join(_WRITERS[target](workload))


def _lengths(trace: Trace) -> Iterator[tuple[int, int, int]]:
    """Yield arrival in µs, prompt and output tokens of each request."""
    due = trace.column("arrival_time_us").to_numpy(dtype=np.int64).tolist()
    output = trace.column("output_tokens").to_numpy(dtype=np.int64).tolist()
    yield from zip(due, np.maximum(prompt_tokens(trace), 1).tolist(), output, strict=True)


def _mooncake(trace: Trace) -> Iterator[str]:
    for (due, prompt, output), hashes in zip(_lengths(trace), _hash_ids(trace), strict=True):
        timestamp: float = due / 1000
        row = {
            "timestamp": int(timestamp) if timestamp.is_integer() else timestamp,
            "input_length": prompt,
            "output_length": output,
            "hash_ids": hashes,
        }
        yield json.dumps(row) + "\n"


def _hash_ids(trace: Trace) -> Iterator[list[int]]:
    """Yield each prompt's block hashes: its own, else those that its prefix group makes, whole blocks only."""
    block = trace.header.hash_block_size or HASH_BLOCK_SIZE
    numbers: dict[tuple[str, str, int], int] = {}
    recorded = whole_hashes(trace.table)
    groups, shared = trace.column("prefix_group").tolist(), trace.column("prefix_length").fillna(0).tolist()
    names = trace.column("request_id").tolist()
    for row, prompt in enumerate(np.maximum(prompt_tokens(trace), 1).tolist()):
        count = -(-prompt // block)
        keys: list[tuple[str, str, int]]
        if (text := recorded[row]) is not None:
            keys = [("hash", name, 0) for name in text.split()]
        else:
            common = int(shared[row]) // block if isinstance(groups[row], str) else 0
            keys = [("group", groups[row], place) for place in range(min(common, count))]
        keys += [("own", names[row], place) for place in range(len(keys), count)]
        yield [numbers.setdefault(key, len(numbers)) for key in keys]


def _burstgpt(trace: Trace) -> Iterator[str]:
    yield "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    for due, prompt, output in _lengths(trace):
        yield _line([f"{due / 1e6:.6f}", _BURST_MODEL, prompt, output, prompt + output, "API log"])


def _azure(trace: Trace) -> Iterator[str]:
    yield "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    for due, prompt, output in _lengths(trace):
        moment = _AZURE_START + timedelta(microseconds=due)
        yield _line([f"{moment:%Y-%m-%d %H:%M:%S.%f}0", prompt, output])


def _line(cells: list[object]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()


_WRITERS: Final[dict[TargetFormat, Callable[[Trace], Iterator[str]]]] = {
    "mooncake": _mooncake,
    "vllm-bench": _mooncake,
    "burstgpt": _burstgpt,
    "azure": _azure,
}
