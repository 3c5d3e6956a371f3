"""Dynamo's forward-pass metrics, which its workers for vLLM, SGLang and TensorRT-LLM write: a record for each step.

A line is the metrics themselves (``ForwardPassMetrics``: ``wall_time``, ``scheduled_requests``), or the same inside the
envelope of a trace (``dynamo.fpm.trace.v1``), plain or gzip'ed. ``wall_time`` is the time since the step before was
done, or, after an idle time, since the step was scheduled. A record without work is a heartbeat.
Source: ai-dynamo/dynamo, ``common/forward_pass_metrics.py`` and its trace reference, as of version 1 of both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from traces.errors import TraceError
from traces.strict.json_text import parser_of
from traces.strict.limits import MOST_US

Floats = NDArray[np.float64]
Record = dict[str, object]

VERSION: Final = 1
COUNTS: Final = {
    "prefill_requests": "num_prefill_requests",
    "prefill_tokens": "sum_prefill_tokens",
    "decode_requests": "num_decode_requests",
    "prefill_cached": "sum_prefill_kv_tokens",
    "decode_context": "sum_decode_kv_tokens",
    "prompt_variance": "var_prefill_length",
}
"""Our columns, and the fields of the scheduled requests that they are; a missing field is 0, as the format has it."""


def forward_pass_columns(content: bytes, *, name: str) -> dict[str, Floats]:
    """Return the columns of ``LoggedSteps`` from lines of forward-pass metrics. Raises TraceError with the line."""
    parse, engines = parser_of(content), dict[tuple[str, float], int]()
    rows: list[dict[str, float]] = []
    for number, line in enumerate(content.splitlines(), start=1):
        if line.strip():
            rows.append(_row(line, parse, engines, where=f"{name}:{number}"))
    columns = {key: np.array([row[key] for row in rows], np.float64) for key in rows[0]}
    order = np.lexsort((columns["number"], columns["engine"]))
    return {key: values[order] for key, values in columns.items()}


def _row(
    line: bytes, parse: Callable[[bytes], object], engines: dict[tuple[str, float], int], *, where: str
) -> dict[str, float]:
    """Return a step's columns; ``engines``: the numbers of those met so far."""
    try:
        event = _event(parse(line))
        metrics, scheduled = _metrics(event)
        found = {key: _number(scheduled.get(field, 0)) for key, field in COUNTS.items()}
        worker = (str(metrics.get("worker_id", "")), _number(metrics.get("dp_rank", 0)))
        seen_ms = event.get("observed_at_unix_ms")
        times = {
            "duration_us": 1e6 * _number(metrics["wall_time"], most=MOST_US / 1e6),
            "end_us": float("nan") if seen_ms is None else 1e3 * _number(seen_ms, most=MOST_US / 1e3),
        }
        number = _number(metrics.get("counter_id", 0))
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise TraceError(f"{where}: got {error}, expected forward-pass metrics of a step") from error
    if event.get("capture_mode") == "sampled":
        raise TraceError(f"{where}: got a sample of the forward passes, expected all (DYN_FPM_MODE=full)")
    engine = float(engines.setdefault(worker, len(engines)))
    return {**found, **times, "decode_tokens": found["decode_requests"], "engine": engine, "number": number}


def _event(record: object) -> Record:
    """Return what the envelope of a trace holds; a record without one as it is."""
    outer = _object(record)
    return _object(outer.get("event", outer))


def _metrics(event: Record) -> tuple[Record, Record]:
    """Return the metrics and those of the scheduled requests. Raises ValueError or TypeError for others."""
    metrics = _object(event.get("fpm", event))
    if metrics.get("version", VERSION) != VERSION:
        raise ValueError(f"version {metrics['version']!r}")
    scheduled = _object(metrics.get("scheduled_requests", metrics))
    if "wall_time" not in metrics or "num_decode_requests" not in scheduled:
        raise ValueError("no wall_time or no num_decode_requests")
    return metrics, scheduled


def _object(value: object) -> Record:
    if not isinstance(value, dict):
        raise TypeError(f"{type(value).__name__}, which is no JSON object")
    return value


def _number(value: object, *, most: float = MOST_US) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= most:
        raise ValueError(f"{value!r}, which is no number from 0 to {most:g}")
    return float(value)
