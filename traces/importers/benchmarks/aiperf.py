"""aiperf's records per request (``profile_export.jsonl``): observed traces.

Source of the format: NVIDIA's "Working with Profile Export Files" (aiperf 0.13): a JSON object per line with
``metadata`` (times in ns of the wall clock, the phase, the request's id, its conversation and turn), ``metrics`` (each
a value and a unit) and ``error``. Lengths that the server counted (``usage_prompt_tokens``,
``usage_completion_tokens``) come before those that aiperf's tokenizer counted; of cached ones only it knows
(``usage_prompt_cache_read_tokens``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from lazy_dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from traces.errors import TraceError
from traces.header import ClientInfo, Header, Source
from traces.importers.benchmarks.failed_requests import assumed_length, only_length
from traces.importers.conversation_turns import Turn, conversations_of
from traces.importers.noted import differing_counts, left_out, name_of
from traces.strict.json_text import finite, parse_value, read_bytes
from traces.strict.limits import MOST_US
from traces.trace import Trace, make_trace

_HINT: Final = "expected a record of aiperf's profile_export.jsonl"
_US_PER: Final = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6, "sec": 1e6}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Record:
    """One line: times in ns and µs, lengths in tokens; None where the line has none.

    ``prompt`` and ``output``: as aiperf's tokenizer counted; ``served_prompt``, ``served_output``: as the server did.
    """

    start_ns: int
    request_id: str | None
    conversation: str | None
    run: str | None
    turn: int | None
    warmup: bool
    status: str
    error: str | None
    prompt: int | None
    output: int | None
    served_prompt: int | None
    served_output: int | None
    cached: int | None
    ttft_us: float | None
    latency_us: float | None
    gaps_us: tuple[float, ...]

    @property
    def whole_prompt(self) -> int | None:
        return self.prompt if self.served_prompt is None else self.served_prompt

    @property
    def tokens_out(self) -> int | None:
        return self.output if self.served_output is None else self.served_output

    @property
    def itl_us(self) -> float | None:
        """The mean time between tokens; None where it is not known."""
        tokens = self.tokens_out or 0
        if self.ttft_us is None or self.latency_us is None or tokens < 2:
            return None
        return max(self.latency_us - self.ttft_us, 0.0) / (tokens - 1)


def read_aiperf(path: Path) -> Trace:
    """Return the observed trace in this file; times count from the earliest request.

    A failed request without a prompt's length is left out, and counted. Events are those whose gaps were recorded
    (``inter_chunk_latency``); a chunk is not a token. Raises TraceError that names file and line.
    """
    lines = read_bytes(path, expected="a readable profile_export.jsonl of aiperf").splitlines()
    places = [(place, line) for place, line in enumerate(lines, start=1) if line.strip()]
    if not places:
        raise TraceError(f"{path.name}: got no lines, {_HINT}s")
    records = [_record(line, where=f"{path.name}:{place}") for place, line in places]
    kept = [record for record in records if record.whole_prompt is not None]
    if not kept:
        raise TraceError(f"{path.name}: got no request with a prompt's length, {_HINT}s")
    talks = conversations_of(
        [
            Turn(
                conversation=name,
                turn=it.turn,
                prompt=it.whole_prompt,
                output=it.tokens_out,
                sent_us=it.start_ns // 1000,
                answered_us=None
                if it.status != "ok" or it.latency_us is None
                else it.start_ns // 1000 + round(it.latency_us),
            )
            for it, name in zip(kept, _conversations(kept), strict=True)
        ]
    )
    origin = min(record.start_ns for record in kept)
    source = Source(
        format="aiperf",
        file=path.name,
        left_out=left_out(no_prompt=len(records) - len(kept)),
        notes=(*_notes(kept), *talks.notes),
    )
    header = Header(
        tool="aiperf",
        mode="real",
        start_unix_us=origin // 1000,
        client=ClientInfo(library="aiohttp", finished=True),
        source=source,
    )
    columns, first = _columns(kept, origin)
    return make_trace(header, columns | talks.columns(), events=_events(kept, first))


def _conversations(records: list[_Record]) -> list[str | None]:
    """Return each request's conversation: what the records call one run of it, where they do, else the script's name.

    ``x_correlation_id`` is of one run of a conversation, or, without conversations, of each request.
    """
    runs = Counter(record.run for record in records if record.run is not None)
    by_run = any(number > 1 for number in runs.values())
    return [record.run if by_run and record.run is not None else record.conversation for record in records]


def _columns(records: list[_Record], origin: int) -> tuple[dict[str, object], list[int | None]]:
    """Return (the trace's columns, when each request's first token came)."""
    send = np.array([(record.start_ns - origin) // 1000 for record in records], dtype=np.int64)
    ok = [record.status == "ok" for record in records]
    first = [
        _plus(time, record.ttft_us) if fine else None
        for time, record, fine in zip(send, records, ok, strict=True)
    ]
    last = [
        _plus(time, record.latency_us) if fine else None
        for time, record, fine in zip(send, records, ok, strict=True)
    ]
    asked = only_length([record.tokens_out for record in records], ok)
    columns: dict[str, object] = {
        "request_id": [str(row) for row in range(len(records))],
        "x_request_id": [record.request_id for record in records],
        "phase": ["warmup" if record.warmup else "main" for record in records],
        "streaming": [
            record.ttft_us is not None if fine else None for record, fine in zip(records, ok, strict=True)
        ],
        "input_tokens": [
            record.prompt if record.prompt is not None else record.served_prompt for record in records
        ],
        "server_input_tokens": [record.served_prompt for record in records],
        "cached_input_tokens": [record.cached for record in records],
        "output_tokens": [
            record.tokens_out if fine else None for record, fine in zip(records, ok, strict=True)
        ],
        "max_tokens": None if asked is None else [None if fine else asked for fine in ok],
        "arrival_time_us": send,
        "send_time_us": send,
        "content_first_time_us": first,
        "last_token_time_us": last,
        "status": [record.status for record in records],
        "error_message": [record.error for record in records],
        "itl_mean_us": [record.itl_us if fine else None for record, fine in zip(records, ok, strict=True)],
    }
    return columns, first


def _notes(records: list[_Record]) -> list[str]:
    """Return which counts are whose, and by how much the two differ where both are there."""
    notes = ["due times are not recorded: a request counts as due when it was sent"]
    asked = only_length([it.tokens_out for it in records], [it.status == "ok" for it in records])
    if asked is not None and any(it.status != "ok" for it in records):
        notes.append(assumed_length(asked))
    counted = [it for it in records if it.served_output is not None or it.served_prompt is not None]
    if not counted:
        return ["lengths are aiperf's tokenizer's, not the server's", *notes]
    differ = (
        *differing_counts(
            [(it.served_prompt, it.prompt) for it in counted], what="prompt tokens", tool="aiperf"
        ),
        *differing_counts(
            [(it.served_output, it.output) for it in counted], what="output tokens", tool="aiperf"
        ),
    )
    return [*differ, *notes]


def _record(line: bytes, *, where: str) -> _Record:
    try:
        said: Any = parse_value(line)
        metadata, metrics, error = said["metadata"], said.get("metrics") or {}, said.get("error")
        gaps = metrics.get("inter_chunk_latency", {}).get("value", [])
        scale = _US_PER.get(metrics.get("inter_chunk_latency", {}).get("unit", "ms"), 1e3)
        cancelled = bool(metadata.get("was_cancelled"))
        return _Record(
            start_ns=_unix_ns(metadata["request_start_ns"]),
            request_id=name_of(metadata.get("x_request_id")),
            conversation=name_of(metadata.get("conversation_id")),
            run=name_of(metadata.get("x_correlation_id")),
            turn=_turn(metadata.get("turn_index")),
            warmup=metadata.get("benchmark_phase") == "warmup",
            status="aborted" if cancelled else "ok" if error is None else "error",
            error=_message(error, cancelled=cancelled),
            prompt=_tokens(metrics, "input_sequence_length", "error_isl"),
            output=_tokens(metrics, "output_sequence_length"),
            served_prompt=_tokens(metrics, "usage_prompt_tokens"),
            served_output=_tokens(metrics, "usage_completion_tokens"),
            cached=_cached(metrics),
            ttft_us=_number(metrics, "time_to_first_token"),
            latency_us=_number(metrics, "request_latency"),
            gaps_us=tuple(_duration(gap) * scale for gap in gaps) if isinstance(gaps, list) else (),
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as fault:
        raise TraceError(f"{where}: got {type(fault).__name__}: {fault}, {_HINT}") from fault


def _tokens(metrics: Mapping[str, Any], *names: str) -> int | None:
    """Return the first of these counts that is there; 0 is none: no request is without a token."""
    counts = (_number(metrics, name) for name in names)
    return next((round(count) for count in counts if count), None)


def _cached(metrics: Mapping[str, Any]) -> int | None:
    """Return the prompt tokens that the server found in its cache; None where it did not say, or said too many."""
    found, prompt = (
        _number(metrics, "usage_prompt_cache_read_tokens"),
        _tokens(metrics, "usage_prompt_tokens"),
    )
    return None if found is None or prompt is None or found > prompt else round(found)


def _turn(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


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
