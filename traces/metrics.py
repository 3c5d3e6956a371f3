"""The definitions of TTFT, E2E, ITL and TPOT, used on both sides of every comparison.

Let send be ``send_time_us``, or ``arrival_time_us`` where no send was recorded; first the time of the first
event with text (``content_first_time_us``, else ``first_chunk_time_us``), last that of the last one
(``last_token_time_us``, else ``last_chunk_time_us``). Then TTFT = first - send, E2E = last - send,
TPOT = (last - first) / (output tokens - tokens of the first event), where tokens that the server kept to itself
(hidden reasoning) are not divided by either. ITL are the gaps between consecutive events with text of one
request; the gap before an event of n tokens counts as n gaps of one n-th. Only requests with status ``ok``
have any, and only latencies that were measured: an answer that a proxy held back has no TTFT, TPOT or ITL
(``traces.measured.stream_shape``).
"""

from __future__ import annotations

from lazy_dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from traces.errors import TraceError
from traces.measured.finish_reasons import failure_status
from traces.measured.stream_shape import StreamShape, TextEvents, stream_shape, text_events, tokens_of_choice
from traces.tables.cells import Cells
from traces.trace import Trace

if TYPE_CHECKING:
    import pandas as pd

Int64s = NDArray[np.int64]
Float64s = NDArray[np.float64]

METRIC_COLUMNS: Final = (
    "ttft_us",
    "ttft_from_due_us",
    "e2e_us",
    "itl_mean_us",
    "itl_p99_us",
    "tpot_us",
    "queue_us",
    "dispatch_lag_us",
)


def prompt_tokens(trace: Trace) -> Int64s:
    """Return each request's prompt, prefix included: as the server counted it, else prefix plus input."""
    counted = trace.cells("server_input_tokens")
    return np.where(counted.is_known, counted.values, own_prompt_tokens(trace))


def own_prompt_tokens(trace: Trace) -> Int64s:
    """Return each request's prompt as the client counts it: prefix plus input."""
    own: Int64s = trace.cells("prefix_length").values + trace.cells("input_tokens").values
    return own


def served_output(trace: Trace) -> Cells:
    """Return each answer's received tokens; for a failed request, or if none are recorded, ``max_tokens``.

    The tokens of a failed request do not show how long its answer would have been. Empty if neither is recorded.
    """
    got, asked = trace.cells("output_tokens"), trace.cells("max_tokens")
    return got.where(~(has_failed(trace) & asked.is_known)).or_else(asked)


def has_failed(trace: Trace) -> NDArray[np.bool_]:
    """Return which requests have a status other than ``ok``; a workload's requests have none."""
    status = trace.cells("status")
    return np.asarray(status.is_known & (status.values != "ok"), dtype=np.bool_)


def was_cancelled(trace: Trace) -> NDArray[np.bool_]:
    """Return which requests their client cut as the workload asked: neither answered nor failed."""
    return np.asarray(trace.cells("status").values == "cancelled", dtype=np.bool_)


def send_or_arrival_us(trace: Trace) -> Int64s:
    """Return when each request was sent, or where that is not recorded, was due, in µs from the run's start.

    Raises TraceError where a row has neither: a closed loop's later rounds have no time before they are run.
    """
    times = sent_or_due(trace)
    missing = np.flatnonzero(~times.is_known)
    if len(missing):
        raise TraceError(
            f"row {missing[0] + 1}, arrival_time_us: got neither a send nor an arrival time, expected one "
            f"({len(missing)} such rows; a closed loop's and a session's are only known once it has run)"
        )
    return times.values


def sent_or_due(trace: Trace) -> Cells:
    """Return when each request was sent, or where that is not recorded, was due, empty where neither is."""
    return trace.cells("send_time_us").or_else(trace.cells("arrival_time_us"))


AS_DRAWN: Final = 0.002
"""How far a run's rate may be from its drawn rate and still count as equal: sends are late by some ms."""


def cut_short_note(trace: Trace) -> str | None:
    """Return the line for an unfinished measured run: it was interrupted, or its client died."""
    client = trace.header.client
    if (
        client is None
        or trace.header.mode == "replayed"
        or not (client.interrupted or client.finished is False)
    ):
        return None
    why = "the run was interrupted" if client.interrupted else "the run did not come to its end"
    planned = "" if client.num_planned is None else f" of {client.num_planned:,} planned"
    return f"{why}: the trace has the {len(trace):,} requests{planned} that were sent by then"


def is_from_start(times_us: NDArray[np.generic], drawn_per_s: float | None) -> bool:
    """Return whether N requests were drawn as N gaps from the run's start (0), scaled to a rate, as vllm bench does."""
    if not drawn_per_s or len(times_us) == 0 or (last := float(times_us.max())) <= 0:
        return False
    return abs(len(times_us) / last * 1e6 / drawn_per_s - 1) <= AS_DRAWN


def mean_rate_per_s(times_us: NDArray[np.generic], drawn_per_s: float | None = None) -> float | None:
    """Return the mean rate of requests at these times (µs from the run's start), per second; None if all are at once.

    The gaps over the time that they take: N - 1 between N requests. ``drawn_per_s``: the rate that they were drawn for,
    if any; where they are N gaps from the run's start at that rate, the first gap counts, too.
    """
    span_us = float(np.ptp(times_us)) if len(times_us) > 1 else 0.0
    if span_us <= 0:
        return None
    if is_from_start(times_us, drawn_per_s):
        return len(times_us) / float(times_us.max()) * 1e6
    return (len(times_us) - 1) / span_us * 1e6


def finished_ok(trace: Trace) -> NDArray[np.bool_]:
    """Return which requests enter latency statistics: status ``ok``, and no ``finish_reason`` that says otherwise."""
    ok = np.asarray(trace.cells("status").values == "ok", dtype=np.bool_)
    if "finish_reason" not in trace.table:
        return ok
    cells = trace.cells("finish_reason")
    failed = [each for each in set(cells.known().tolist()) if failure_status(str(each)) is not None]
    for reason in failed:
        ok &= cells.values != reason
    return ok


def latencies_us(
    send_us: Float64s,
    first_us: Float64s,
    last_us: Float64s,
    *,
    output_tokens: Float64s,
    first_tokens: Float64s | float = 1.0,
) -> tuple[Float64s, Float64s, Float64s]:
    """Return (TTFT, E2E, TPOT) of requests from their times, µs; NaN where a time is.

    ``first_tokens``: tokens that were not generated behind the first event; in a simulation its one. TPOT is NaN of an
    answer without any behind it.
    """
    num_gaps = output_tokens - first_tokens
    tpot = (last_us - first_us) / np.where(num_gaps > 0, num_gaps, np.nan)
    return first_us - send_us, last_us - send_us, tpot


def request_metrics(trace: Trace) -> pd.DataFrame:
    """Return ``request_latencies`` as a frame: one row per request, indexed by request_id."""
    from traces.tables.frames import array_of, indexed

    ids = array_of(trace.cells("request_id"))
    return indexed(request_latencies(trace), ids, name="request_id")


def request_latencies(trace: Trace) -> dict[str, Float64s]:
    """Return the columns ``METRIC_COLUMNS``, a value per request, float64 µs.

    NaN is "undefined": every metric of a request that is not ok, TPOT of a single token, ITL where neither
    events nor ``itl_mean_us`` were recorded, what was not measured (``stream_shape``). ``ttft_from_due_us`` is
    TTFT + dispatch lag; the lag is the recorded one, else send - arrival where a send was recorded. ``queue_us``
    is ``server_queue_us``, else scheduled - send. ``metric_notes`` lists the substitutions.
    """
    arrival, sent = _floats(trace, "arrival_time_us"), _floats(trace, "send_time_us")
    send = _either(sent, arrival)
    first = _either(_floats(trace, "content_first_time_us"), _floats(trace, "first_chunk_time_us"))
    last = _either(_floats(trace, "last_token_time_us"), _floats(trace, "last_chunk_time_us"))
    lag = _either(_floats(trace, "dispatch_lag_us"), sent - arrival)
    events = text_events(trace)
    shape = stream_shape(trace, events)
    ttft, e2e, tpot = latencies_us(
        send, first, last, output_tokens=tokens_of_choice(trace), first_tokens=shape.tokens_behind
    )
    ttft, tpot = np.where(shape.has_ttft, ttft, np.nan), np.where(shape.has_tpot, tpot, np.nan)
    itl_mean, itl_p99 = _itl_of_requests(trace, events, shape)
    columns = {
        "ttft_us": ttft,
        "ttft_from_due_us": ttft + _either(lag, arrival - send),
        "e2e_us": e2e,
        "itl_mean_us": itl_mean,
        "itl_p99_us": itl_p99,
        "tpot_us": tpot,
        "queue_us": _either(_floats(trace, "server_queue_us"), _floats(trace, "scheduled_time_us") - send),
        "dispatch_lag_us": lag,
    }
    del (
        arrival,
        sent,
        send,
        first,
        last,
        lag,
        ttft,
        e2e,
        tpot,
        itl_mean,
        itl_p99,
    )  # of a million requests 90 MB
    ok = finished_ok(trace)
    return {name: np.where(ok, columns.pop(name), np.nan) for name in list(columns)}


def pooled_itl_us(trace: Trace) -> Float64s:
    """Return every inter-token time of the ok requests, in µs, by request and within it by time.

    Without events: each request's ``itl_mean_us``, as often as it has gaps (output tokens behind the first event).
    """
    if trace.events is not None:
        gaps = token_gaps(trace)
        return np.repeat(gaps.gap_us, gaps.num_tokens)
    mean, shape = _floats(trace, "itl_mean_us"), stream_shape(trace)
    behind = trace.cells("output_tokens").values - shape.tokens_behind
    num_gaps = np.maximum(behind, 0).astype(np.int64)
    num_gaps[~finished_ok(trace) | np.isnan(mean) | ~shape.has_itl] = 0
    return np.repeat(mean, num_gaps)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenGaps:
    """One entry per event with text but each request's first: ``gap_us`` counts ``num_tokens`` times.

    ``request``: row number in the trace's table, ascending. Events of requests that are not ok are left out.
    """

    request: Int64s
    gap_us: Float64s
    num_tokens: Int64s


def token_gaps(trace: Trace, events: TextEvents | None = None, shape: StreamShape | None = None) -> TokenGaps:
    """Return the measured gaps between the events of each ok request.

    An event without a count carries one token, or as many as the numbers of tokens and events say (``stream_shape``).
    ``events``, ``shape``: of the trace, where the caller has them.
    """
    events = text_events(trace) if events is None else events
    if len(events) == 0:
        return TokenGaps(request=np.empty(0, np.int64), gap_us=np.empty(0), num_tokens=np.empty(0, np.int64))
    shape = stream_shape(trace, events) if shape is None else shape
    kept = (finished_ok(trace) & shape.has_itl)[events.request]
    request, time = events.request[kept], events.time_us[kept]
    num_tokens = np.where(np.isnan(events.num_tokens), shape.per_event[events.request], events.num_tokens)
    num_tokens = num_tokens[kept].astype(np.int64)
    follows = np.flatnonzero(np.diff(request) == 0) + 1
    gap = (time[follows] - time[follows - 1]) / num_tokens[follows]
    return TokenGaps(request=request[follows], gap_us=gap, num_tokens=num_tokens[follows])


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricNotes:
    """How many requests (ok ones) and events have substitutes in their metrics."""

    num_ttft_from_first_chunk: int
    num_e2e_from_last_chunk: int
    num_events_divided: int
    num_events_uncounted: int
    num_first_estimated: int = 0
    num_first_assumed: int = 0

    def lines(self) -> tuple[str, ...]:
        """Return a sentence for every substitution that was made."""
        said = (
            (
                self.num_ttft_from_first_chunk,
                "requests: TTFT runs to the first event, which may carry no text",
            ),
            (
                self.num_e2e_from_last_chunk,
                "requests: E2E runs to the last event, which may be the usage event",
            ),
            (self.num_events_divided, "stream chunks held several tokens; ITL was split evenly"),
            (
                self.num_events_uncounted,
                "events with an unknown number of tokens were taken as one token each",
            ),
            (
                self.num_first_estimated,
                "answers: ITL and TPOT take all events of an answer to hold as many tokens, the first one too",
            ),
            (
                self.num_first_assumed,
                "answers have fewer events than tokens: TPOT takes the first event to hold one token",
            ),
        )
        return tuple(f"{num} {text}" for num, text in said if num)


def metric_notes(trace: Trace) -> MetricNotes:
    """Return how often a metric used a second choice, or divided a gap."""
    ok = finished_ok(trace)

    def fell_back(wanted: str, instead: str) -> int:
        return int((ok & ~trace.cells(wanted).is_known & trace.cells(instead).is_known).sum())

    events = text_events(trace)
    shape = stream_shape(trace, events)
    uncounted = np.isnan(events.num_tokens) & (shape.per_event[events.request] == 1)
    return MetricNotes(
        num_ttft_from_first_chunk=fell_back("content_first_time_us", "first_chunk_time_us"),
        num_e2e_from_last_chunk=fell_back("last_token_time_us", "last_chunk_time_us"),
        num_events_divided=int((token_gaps(trace, events, shape).num_tokens > 1).sum()),
        num_events_uncounted=int(uncounted.sum()),
        num_first_estimated=int((ok & shape.has_tpot & shape.is_estimated).sum()),
        num_first_assumed=int((ok & shape.has_tpot & shape.is_assumed).sum()),
    )


def _floats(trace: Trace, name: str) -> Float64s:
    return trace.cells(name).floats()


def _either(first: Float64s, second: Float64s) -> Float64s:
    return np.where(np.isnan(first), second, first)


def _itl_of_requests(trace: Trace, events: TextEvents, shape: StreamShape) -> tuple[Float64s, Float64s]:
    """Return each request's mean and p99 inter-token time: from its events, else from the trace's columns."""
    mean, p99 = (
        np.where(shape.has_itl, _floats(trace, name), np.nan) for name in ("itl_mean_us", "itl_p99_us")
    )
    gaps = token_gaps(trace, events, shape)
    if len(gaps.request) == 0:
        return mean, p99
    num = np.bincount(gaps.request, weights=gaps.num_tokens, minlength=len(trace))
    total = np.bincount(gaps.request, weights=gaps.gap_us * gaps.num_tokens, minlength=len(trace))
    seen = num > 0
    mean[seen] = total[seen] / num[seen]
    rows, quantile = _quantile_by_request(gaps, 0.99)
    p99[rows] = quantile
    return mean, p99


def _quantile_by_request(gaps: TokenGaps, q: float) -> tuple[Int64s, Float64s]:
    """Return the rows that have gaps, and the q-quantile of each one's, each gap counted num_tokens times.

    Linear interpolation at rank q * (n - 1), numpy's default, without writing the repetitions out: the k-th
    smallest of a request is where the running sum of counts first exceeds k.
    """
    order = np.lexsort((gaps.gap_us, gaps.request))
    request, gap = gaps.request[order], gaps.gap_us[order]
    running = np.cumsum(gaps.num_tokens[order])
    starts = np.flatnonzero(np.append(True, np.diff(request) != 0))
    ends = np.append(starts[1:], len(request)) - 1
    before = running[starts] - gaps.num_tokens[order][starts]
    rank = q * (running[ends] - before - 1)
    below = np.floor(rank).astype(np.int64)
    low = gap[np.searchsorted(running, before + below, side="right")]
    high = gap[np.searchsorted(running, before + np.ceil(rank).astype(np.int64), side="right")]
    return request[starts], low + (high - low) * (rank - below)
