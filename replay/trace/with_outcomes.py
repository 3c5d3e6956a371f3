"""A trace with the outcomes of a simulation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from replay.trace.kv_offload import cached_from
from replay.trace.request_columns import ends_by_itself, is_cut_by_tokens, output_tokens, whole_output
from sim import Outcomes, Simulation, Status
from traces import Cells, all_known, cells_where

if TYPE_CHECKING:
    from traces import Trace

STATUS_NAMES = {
    Status.OK: "ok",
    Status.REJECTED: "rejected",
    Status.STUCK: "stuck",
    Status.ABORTED: "aborted",
    Status.TIMEOUT: "timeout",
    Status.UNFINISHED: "incomplete",
}


def simulated_trace(trace: Trace, simulation: Simulation, *, is_closed_loop: bool = False) -> Trace:
    """Return ``trace`` with its outcome columns filled from a simulation; times count from the run's start."""
    outcomes = simulation.outcomes
    ok = outcomes.status == Status.OK
    scheduled, got_tokens = outcomes.scheduled_us >= 0, outcomes.first_token_us >= 0
    names = np.array([STATUS_NAMES[Status(code)] for code in range(len(Status))], dtype=object)
    first, last = cells_where(outcomes.first_token_us, got_tokens), cells_where(outcomes.last_token_us, ok)
    arrival = cells_where(outcomes.arrival_us, outcomes.arrival_us >= 0)
    cancelled = cancelled_at(trace, outcomes)
    ok = ok & ~cancelled.is_known
    cut = _cut_short(trace, outcomes)
    columns: dict[str, object] = {
        "send_time_us": arrival,
        "first_chunk_time_us": first,
        "last_chunk_time_us": last,
        "content_first_time_us": first,
        "last_token_time_us": last,
        "output_tokens": outcomes.num_output_tokens,
        "status": all_known(np.where(cancelled.is_known, "cancelled", names[outcomes.status])),
        "finish_reason": cells_where(_finish_reasons(trace, cut), ok),
        "scheduled_time_us": cells_where(outcomes.scheduled_us, scheduled),
        "num_preemptions": outcomes.num_preemptions,
        "preempted_us": cells_where(outcomes.preempted_us, scheduled),
        "num_cached_tokens": cells_where(outcomes.num_cached_tokens, scheduled),
        "server_queue_us": cells_where(outcomes.scheduled_us - outcomes.taken_in_us, scheduled),
        "server_prefill_us": cells_where(outcomes.first_token_us - outcomes.scheduled_us, got_tokens),
        "server_decode_us": cells_where(outcomes.last_token_us - outcomes.first_token_us, ok),
        "length_capped": cut,
    }
    columns |= _columns_of_cuts(trace, cancelled)
    if bool((outcomes.num_loaded_tokens >= 0).any()):
        columns |= {
            "cached_from": cells_where(cached_from(outcomes), outcomes.num_cached_tokens > 0),
            "num_loaded_tokens": cells_where(outcomes.num_loaded_tokens, scheduled),
            "kv_load_us": cells_where(outcomes.load_wait_us, scheduled),
        }
    if is_closed_loop:
        columns["arrival_time_us"] = arrival
    if simulation.record == "spans":
        gaps = simulation.inter_token_latencies()
        columns["itl_mean_us"] = np.where(ok, gaps.mean_us, np.nan)
        columns["itl_p99_us"] = np.where(ok, gaps.p99_us, np.nan)
    planned = trace.without_columns(*OBSERVED_ONLY)
    filled = planned.with_columns(**columns).with_header(
        mode="replayed", tool="vtwin", findings=(), probes=None, power=None
    )
    if simulation.record == "tokens":
        return filled.with_events(_events(trace, simulation))
    return filled.with_events(None)


def _columns_of_cuts(trace: Trace, cancelled: Cells) -> dict[str, Cells]:
    """Return when requests were cut, and how long their answers would have been, to simulate them again."""
    if not cancelled.is_known.any():
        return {}
    whole = cells_where(whole_output(trace), cancelled.is_known)
    return {"cancel_time_us": cancelled, "max_tokens": trace.cells("max_tokens").or_else(whole)}


def cancelled_at(trace: Trace, outcomes: Outcomes) -> Cells:
    """Return when the client cut each request, µs; empty for those that ended before."""
    after, deadline = trace.cells("cancel_after_us"), trace.cells("deadline_us")
    cut_us = outcomes.arrival_us + after.values
    in_time = after.is_known & (outcomes.status == Status.TIMEOUT)
    in_time &= ~deadline.is_known | (cut_us <= deadline.values)
    by_tokens = (
        (outcomes.status == Status.OK) & is_cut_by_tokens(trace) & ~_cut_short(trace, outcomes).is_known
    )
    return cells_where(np.where(by_tokens, outcomes.last_token_us, cut_us), in_time | by_tokens)


def _finish_reasons(trace: Trace, cut: Cells) -> NDArray[np.object_]:
    """Return "stop" where an answer ends by itself and was not cut before, "length" elsewhere."""
    stops = ends_by_itself(trace) & ~cut.is_known
    return np.where(stops, "stop", "length").astype(object)


def _cut_short(trace: Trace, outcomes: Outcomes) -> Cells:
    """Return the finish reason of answers that ended before their requested length; empty for the others."""
    cut = (outcomes.status == Status.OK) & (outcomes.num_output_tokens < output_tokens(trace))
    return cells_where(cut, cut)


OBSERVED_ONLY = (
    "cancel_time_us",
    "num_chunks",
    "error_message",
    "num_token_chunks",
    "num_token_reads",
    "first_chunk_tokens",
    "first_token_early_us",
    "reasoning_tokens",
    "hidden_tokens",
    "visible_first_time_us",
    "num_tool_calls",
    "cached_input_tokens",
    "dispatch_lag_us",
    "connection_wait_us",
    "http_dns_us",
    "http_connect_us",
    "http_tls_us",
    "http_send_us",
    "first_byte_time_us",
    "gateway_queue_us",
    "prefill_instance",
    "prefill_end_time_us",
    "kv_transfer_start_time_us",
    "kv_transfer_end_time_us",
    "cached_from",
    "num_loaded_tokens",
    "kv_load_us",
)
"""Columns that only a live server, or only a cluster, can fill; a simulated trace does not have them."""


def _events(trace: Trace, simulation: Simulation) -> dict[str, object]:
    """Return the columns of one event per token, by request, then time."""
    request, time_us = simulation.tokens()
    order = np.argsort(request, kind="stable")
    request, time_us = request[order], time_us[order]
    starts = np.searchsorted(request, request, side="left")
    return {
        "request_id": trace.cells("request_id").values[request],
        "chunk_index": np.arange(len(request)) - starts,
        "timestamp_us": time_us,
        "num_tokens": np.ones(len(request), dtype=np.int64),
    }
