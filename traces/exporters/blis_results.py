"""BLIS's two documents of a run: the SimResult list that its calibrate reads, and its metrics with every request.

Facts from inference-sim (commit f90a1e3): a SimResult is a list by request number of completed requests, floats as Go
writes them; the metrics' percentiles interpolate linearly at rank p/100·(n-1), in ms; its duration counts from time 0
to the last completion; ``injected_requests`` is the sum of their outcomes. Both give TTFT and E2E as the server sees
them, from the injection on: here that is the send.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from traces.errors import TraceError
from traces.metrics import pooled_itl_us, prompt_tokens, request_metrics
from traces.tables.blis_conventions import to_blis
from traces.warm_up import without_warmup

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from traces.trace import Trace

ResultFormat = Literal["blis-simresult", "blis-metrics"]
_PERCENTILES: Final = (90, 95, 99)
_COUNTED: Final[dict[str, tuple[str, ...]]] = {
    "completed_requests": ("ok",),
    "still_queued": ("stuck",),
    "still_running": ("incomplete",),
    "dropped_unservable": ("rejected",),
    "timed_out_requests": ("timeout", "aborted", "error"),
}
"""BLIS's counters, and vtwin's statuses that each holds."""


def blis_document(trace: Trace, target: ResultFormat, *, file: Path) -> str:
    """Return the run as one of BLIS's two JSON documents, warm-up left out.

    Raises TraceError for a workload that has not been run.
    """
    trace = without_warmup(trace)
    if trace.column("status").isna().all():
        raise TraceError(
            f"status: got a workload, expected a run with outcomes: {target} holds nothing else ({file})"
        )
    document = _results(trace) if target == "blis-simresult" else _metrics(trace)
    return json.dumps(_as_go(document), indent=2, ensure_ascii=False, allow_nan=False)


def _as_go(value: Any) -> Any:  # noqa: ANN401 - whatever JSON holds
    """Return the value with whole floats as integers, which is how Go's encoder spells them."""
    if isinstance(value, dict):
        return {name: _as_go(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_as_go(item) for item in value]
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e21:
        return int(value)
    return value


# ── SimResult


def _results(trace: Trace) -> list[dict[str, Any]]:
    """Return an entry per completed request, in the order of its number."""
    metrics = request_metrics(trace)
    numbers = _numbers(trace)
    prompts, outputs = prompt_tokens(trace), trace.column("output_tokens").fillna(0).to_numpy(dtype=np.int64)
    classes, models = trace.column("slo_class").tolist(), trace.column("model").tolist()
    columns = (metrics["ttft_us"], metrics["e2e_us"], _itl_mean_us(trace))
    entries = []
    for row, (ttft, e2e, itl) in enumerate(zip(*(np.asarray(column) for column in columns), strict=True)):
        if math.isnan(e2e):
            continue
        entry: dict[str, Any] = {
            "request_id": numbers[row],
            "ttft_us": float(ttft),
            "e2e_us": float(e2e),
            "input_tokens": int(prompts[row]),
            "output_tokens": int(outputs[row]),
        }
        entry |= _said(slo_class=classes[row], model=models[row])
        if not math.isnan(itl):
            entry["itl_mean_us"] = float(itl)
        entries.append(entry)
    return sorted(entries, key=lambda entry: int(entry["request_id"]))


def _numbers(trace: Trace) -> list[int]:
    """Return each request's number: its id, else its row, as BLIS's dialect of the trace numbers them."""
    known = trace.with_columns(arrival_time_us=trace.column("arrival_time_us").fillna(0))
    _, requests, _ = to_blis(known.header, known.requests, None)
    return [int(name) for name in requests["request_id"]]


def _itl_mean_us(trace: Trace) -> NDArray[np.float64]:
    """Return each request's mean gap, as recorded, else from its first and last token; NaN for one token."""
    metrics = request_metrics(trace)
    itl, tpot = metrics["itl_mean_us"].to_numpy(), metrics["tpot_us"].to_numpy()
    return np.where(np.isnan(itl), tpot, itl)


def _said(**values: object) -> dict[str, Any]:
    """Return the known values; BLIS leaves the others out."""
    return {name: value for name, value in values.items() if isinstance(value, str) and value}


# ── metrics


def _metrics(trace: Trace) -> dict[str, Any]:
    """Return the metrics of the run and an entry per request."""
    metrics = request_metrics(trace)
    status = trace.column("status").fillna("incomplete").to_numpy(dtype=object)
    counts = {name: int(np.isin(status, held).sum()) for name, held in _COUNTED.items()}
    ok = status == "ok"
    outputs = int(trace.column("output_tokens").fillna(0).to_numpy(dtype=np.int64)[ok].sum())
    send = trace.column("send_time_us").fillna(trace.column("arrival_time_us")).to_numpy(dtype=np.float64)
    e2e = metrics["e2e_us"].to_numpy()
    seconds = float(np.nanmax(send + e2e)) / 1e6 if ok.any() else 0.0
    preempted = trace.column("num_preemptions").fillna(0).to_numpy(dtype=np.int64)
    document: dict[str, Any] = {
        "instance_id": "cluster" if trace.column("instance").nunique() > 1 else "instance_0",
        **{name: counts[name] for name in ("completed_requests", "still_queued", "still_running")},
        "injected_requests": sum(counts.values()),
        "total_input_tokens": int(prompt_tokens(trace)[status != "rejected"].sum()),
        "total_output_tokens": outputs,
        "vllm_estimated_duration_s": seconds,
        "responses_per_sec": counts["completed_requests"] / seconds if seconds else 0.0,
        "tokens_per_sec": outputs / seconds if seconds else 0.0,
    }
    pooled = {"e2e": e2e, "ttft": metrics["ttft_us"].to_numpy(), "itl": _gaps_us(trace)}
    for name, values in pooled.items():
        document |= _in_ms(name, values)
    document["scheduling_delay_p99_ms"] = _percentile_ms(_scheduling_delay_us(trace, send_us=send), 99)
    document["preemption_count"] = int(preempted.sum())
    if (hit := _hit_rate(trace)) is not None:
        document["cache_hit_rate"] = hit
    document["dropped_unservable"] = counts["dropped_unservable"]
    document["length_capped_requests"] = int(_length_capped(trace).sum())
    document["timed_out_requests"] = counts["timed_out_requests"]
    document["requests"] = _requests(trace, send_us=send)
    return document


def _scheduling_delay_us(trace: Trace, *, send_us: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the time from sending to first scheduling; if only the queue's time is known, that.

    NaN where a request did not complete.
    """
    metrics = request_metrics(trace)
    waited = trace.column("scheduled_time_us").to_numpy(dtype=np.float64, na_value=np.nan) - send_us
    known = np.where(np.isnan(waited), metrics["queue_us"].to_numpy(), waited)
    return np.where(np.isnan(metrics["e2e_us"].to_numpy()), np.nan, known)


def _requests(trace: Trace, *, send_us: NDArray[np.float64]) -> list[dict[str, Any]]:
    """Return an entry per request; one that did not complete has times of 0, as BLIS has it."""
    metrics = request_metrics(trace).fillna(0.0)
    prompts, outputs = prompt_tokens(trace), trace.column("output_tokens").fillna(0).to_numpy(dtype=np.int64)
    itl, capped = np.nan_to_num(_itl_mean_us(trace)), _length_capped(trace)
    delay_us = np.nan_to_num(_scheduling_delay_us(trace, send_us=send_us))
    columns = {name: trace.column(name).tolist() for name in ("slo_class", "tenant_id", "model", "adapter")}
    handled, sessions = trace.column("instance").tolist(), trace.column("session_id").tolist()
    rounds = trace.column("round_index").fillna(0).to_numpy(dtype=np.int64)
    entries = []
    for row, number in enumerate(_numbers(trace)):
        entry: dict[str, Any] = {
            "arrived_at": float(send_us[row]) / 1e6 if not math.isnan(send_us[row]) else 0.0,
            "requestID": f"request_{number}",
            "num_prefill_tokens": int(prompts[row]),
            "num_decode_tokens": int(outputs[row]),
            "ttft_ms": float(metrics["ttft_us"].iloc[row]) / 1e3,
            "itl_ms": float(itl[row]) / 1e3,
            "e2e_ms": float(metrics["e2e_us"].iloc[row]) / 1e3,
            "scheduling_delay_ms": float(delay_us[row]) / 1e3,
        }
        entry |= _said(slo_class=columns["slo_class"][row], tenant_id=columns["tenant_id"][row])
        entry |= _said(handled_by=handled[row], **{name: columns[name][row] for name in ("model", "adapter")})
        entry |= {"length_capped": True} if capped[row] else {}
        entry |= _said(session_id=sessions[row])
        entries.append(entry | {"round_index": int(rounds[row])})
    return entries


def _length_capped(trace: Trace) -> NDArray[np.bool_]:
    """Return which requests were cut off at the model's length: fewer tokens than asked for, reason ``length``."""
    asked, got = trace.column("max_tokens"), trace.column("output_tokens")
    fewer = (got < asked).fillna(False).to_numpy(dtype=bool)
    reason = trace.column("finish_reason").fillna("").to_numpy(dtype=object)
    return np.asarray(fewer & (reason == "length"))


def _gaps_us(trace: Trace) -> NDArray[np.float64]:
    """Return every gap between tokens, from the events, else each request's mean gap as often as it has gaps."""
    if trace.events is None:
        trace = trace.with_columns(itl_mean_us=_itl_mean_us(trace))
    return pooled_itl_us(trace)


def _hit_rate(trace: Trace) -> float | None:
    """Return the share of prompt tokens that were found in the cache, if the trace has it."""
    cached = trace.column("num_cached_tokens").fillna(trace.column("cached_input_tokens"))
    known = cached.notna().to_numpy(dtype=bool)
    total = int(prompt_tokens(trace)[known].sum())
    return float(cached.fillna(0).sum()) / total if total else None


def _in_ms(name: str, values: NDArray[np.float64]) -> dict[str, float]:
    known = values[~np.isnan(values)]
    mean = float(known.mean()) / 1e3 if known.size else 0.0
    rest = {f"{name}_p{percent}_ms": _percentile_ms(values, percent) for percent in _PERCENTILES}
    return {f"{name}_mean_ms": mean, **rest}


def _percentile_ms(values: NDArray[np.float64], percent: float) -> float:
    known = values[~np.isnan(values)]
    return float(np.percentile(known, percent)) / 1e3 if known.size else 0.0
