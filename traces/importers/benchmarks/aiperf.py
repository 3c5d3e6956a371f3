"""aiperf's records per request (``profile_export.jsonl``): observed traces.

Source of the format: NVIDIA's "Working with Profile Export Files" (aiperf 0.13): a JSON object per line with
``metadata`` (times in ns of the wall clock, the phase, the request's id), ``metrics`` (each a value and a unit) and
``error``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from traces.errors import TraceError
from traces.header import ClientInfo, Header, Source
from traces.strict.json_text import finite, parse_value, read_bytes
from traces.strict.limits import MOST_US
from traces.trace import Trace, make_trace

_HINT: Final = "expected a record of aiperf's profile_export.jsonl"
_US_PER: Final = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6, "sec": 1e6}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Record:
    """One line: times in ns and µs, lengths in tokens; None where the line has none."""

    start_ns: int
    request_id: str | None
    warmup: bool
    error: str | None
    prompt: int
    output: int | None
    ttft_us: float | None
    latency_us: float | None
    itl_us: float | None
    gaps_us: tuple[float, ...]


def read_aiperf(path: Path) -> Trace:
    """Return the observed trace in this file; times count from the earliest request.

    Events are those whose gaps were recorded (``inter_chunk_latency``); a chunk is not a token. Raises TraceError
    that names file and line.
    """
    lines = read_bytes(path, expected="a readable profile_export.jsonl of aiperf").splitlines()
    places = [(place, line) for place, line in enumerate(lines, start=1) if line.strip()]
    if not places:
        raise TraceError(f"{path.name}: got no lines, {_HINT}s")
    records = [_record(line, where=f"{path.name}:{place}") for place, line in places]
    origin = min(record.start_ns for record in records)
    send = np.array([(record.start_ns - origin) // 1000 for record in records], dtype=np.int64)
    first = [_plus(time, record.ttft_us) for time, record in zip(send, records, strict=True)]
    return make_trace(
        Header(
            tool="aiperf",
            mode="real",
            start_unix_us=origin // 1000,
            client=ClientInfo(library="aiohttp", finished=True),
            source=Source(
                format="aiperf", file=path.name, notes=("lengths are aiperf's; due times are not recorded",)
            ),
        ),
        {
            "request_id": [str(row) for row in range(len(records))],
            "x_request_id": [record.request_id for record in records],
            "phase": ["warmup" if record.warmup else "main" for record in records],
            "streaming": [record.ttft_us is not None for record in records],
            "input_tokens": [record.prompt for record in records],
            "output_tokens": [record.output for record in records],
            "arrival_time_us": send,
            "send_time_us": send,
            "content_first_time_us": first,
            "last_token_time_us": [_plus(t, r.latency_us) for t, r in zip(send, records, strict=True)],
            "status": ["ok" if record.error is None else "error" for record in records],
            "error_message": [record.error for record in records],
            "itl_mean_us": [record.itl_us for record in records],
        },
        events=_events(records, first),
    )


def _record(line: bytes, *, where: str) -> _Record:
    try:
        said: Any = parse_value(line)
        metadata, metrics, error = said["metadata"], said.get("metrics") or {}, said.get("error")
        gaps = metrics.get("inter_chunk_latency", {}).get("value", [])
        scale = _US_PER.get(metrics.get("inter_chunk_latency", {}).get("unit", "ms"), 1e3)
        prompt = _number(metrics, "input_sequence_length")
        output = _number(metrics, "output_sequence_length")
        return _Record(
            start_ns=_unix_ns(metadata["request_start_ns"]),
            request_id=metadata.get("x_request_id"),
            warmup=metadata.get("benchmark_phase") == "warmup",
            error=_message(error, cancelled=bool(metadata.get("was_cancelled"))),
            prompt=0 if prompt is None else round(prompt),
            output=None if output is None else round(output),
            ttft_us=_number(metrics, "time_to_first_token"),
            latency_us=_number(metrics, "request_latency"),
            itl_us=_number(metrics, "inter_token_latency"),
            gaps_us=tuple(_duration(gap) * scale for gap in gaps) if isinstance(gaps, list) else (),
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as fault:
        raise TraceError(f"{where}: got {type(fault).__name__}: {fault}, {_HINT}") from fault


def _number(metrics: Mapping[str, Any], name: str) -> float | None:
    """Return a metric, times in µs."""
    metric = metrics.get(name)
    if metric is None or metric.get("value") is None:
        return None
    return _duration(metric["value"]) * _US_PER.get(metric.get("unit", ""), 1.0)


def _unix_ns(value: object) -> int:
    """Return a time of the wall clock in ns. Raises ValueError or TypeError for an impossible one."""
    number = value if isinstance(value, int) else int(finite(value))
    if not 0 <= number <= MOST_US * 1000:
        raise ValueError(f"request_start_ns of {number:.6g}, expected 0 to {MOST_US * 1000:.3g}")
    return number


def _duration(value: object) -> float:
    """Return a time or a count, in the file's unit. Raises ValueError or TypeError for an impossible one."""
    number = finite(value)
    if not 0 <= number <= MOST_US:
        raise ValueError(f"{number:g}, expected 0 to {MOST_US:.3g}")
    return number


def _message(error: object, *, cancelled: bool) -> str | None:
    if error is None:
        return "cancelled by the client" if cancelled else None
    if isinstance(error, dict):
        return f"{error.get('type') or 'error'}: {error.get('message')}"
    return str(error)


def _plus(time: np.int64, more_us: float | None) -> int | None:
    return None if more_us is None else int(time) + round(more_us)


def _events(records: list[_Record], first: list[int | None]) -> pd.DataFrame | None:
    """Return the events of requests whose gaps are known; None where none has any."""
    rows: list[tuple[str, int, int]] = []
    for row, (record, begin) in enumerate(zip(records, first, strict=True)):
        if begin is None or not record.gaps_us or record.error is not None:
            continue
        times = begin + np.concatenate([[0.0], np.cumsum(record.gaps_us)])
        rows += [(str(row), index, round(time)) for index, time in enumerate(times.tolist())]
    if not rows:
        return None
    frame = pd.DataFrame(rows, columns=["request_id", "chunk_index", "timestamp_us"])
    return frame.assign(num_tokens=None)
