"""What the results of other benchmarks say of each request, taken from a trace once for all of them."""

from __future__ import annotations

from lazy_dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from traces.errors import TraceError
from traces.header import Header
from traces.measured.stream_shape import text_events
from traces.metrics import finished_ok, prompt_tokens, request_latencies, send_or_arrival_us
from traces.trace import Trace
from traces.warm_up import without_warmup

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedRun:
    """A run's requests, warm-up left out, a value each, in the order in which they were sent; times in s.

    ``start``: counted from the first. ``ttft``, ``e2e``, ``tpot``: NaN of what failed; ``tpot`` also of an answer of
    one token. ``gaps``: the times between the events of an answer, all alike where no events were recorded.
    ``output``: 0 of what failed. ``error``: None of an answered request.
    """

    header: Header
    start: Floats
    ttft: Floats
    e2e: Floats
    tpot: Floats
    gaps: list[list[float]]
    prompt: NDArray[np.int64]
    output: NDArray[np.int64]
    ok: NDArray[np.bool_]
    error: list[str | None]
    status: list[str]

    @property
    def duration(self) -> float:
        """Return the time from the first request to the last answer, s; 0 without an answer."""
        ends = (self.start + self.e2e)[self.ok]
        return float(ends.max()) if len(ends) else 0.0

    def __len__(self) -> int:
        """Return the number of requests."""
        return len(self.start)


def exported_run(trace: Trace, *, target: str) -> ExportedRun:
    """Return what was measured of ``trace``.

    Raises TraceError for a workload that has not been run, and for answers whose first token has no time: the results
    of other benchmarks have no place for these.
    """
    trace = without_warmup(trace)
    statuses = trace.cells("status")
    if not statuses.is_known.any():
        raise TraceError(f"status: got a workload, expected a run with outcomes: {target} holds nothing else")
    order = np.argsort(send_or_arrival_us(trace), kind="stable")
    latencies = {name: values[order] / 1e6 for name, values in request_latencies(trace).items()}
    ok = finished_ok(trace)[order]
    unmeasured = int((ok & np.isnan(latencies["ttft_us"])).sum())
    if unmeasured:
        raise TraceError(
            f"content_first_time_us: got {unmeasured:,} answers without a measured time of their first token, "
            f"expected one of each: {target} has no place for an unknown TTFT"
        )
    start = send_or_arrival_us(trace)[order] / 1e6
    output = np.where(finished_ok(trace), trace.cells("output_tokens").values, 0)[order].astype(np.int64)
    status = [str(name) for name in statuses.filled("incomplete")[order]]
    messages = trace.cells("error_message").filled("")[order]
    return ExportedRun(
        header=trace.header,
        start=start - start.min(),
        ttft=latencies["ttft_us"],
        e2e=latencies["e2e_us"],
        tpot=_over_behind_the_first(latencies, output),
        gaps=_gaps(trace, order, latencies=latencies, output=output),
        prompt=prompt_tokens(trace)[order],
        output=output,
        ok=ok,
        error=[
            None if good else str(words) or name
            for good, words, name in zip(ok, messages, status, strict=True)
        ],
        status=status,
    )


def _over_behind_the_first(latencies: dict[str, Floats], output: NDArray[np.int64]) -> Floats:
    """Return (E2E - TTFT) / (tokens - 1), as all of these tools have it, however many tokens the first event holds."""
    behind = np.where(output > 1, output - 1, 1)
    return np.where(output > 1, (latencies["e2e_us"] - latencies["ttft_us"]) / behind, np.nan)


def _gaps(
    trace: Trace, order: NDArray[np.intp], *, latencies: dict[str, Floats], output: NDArray[np.int64]
) -> list[list[float]]:
    """Return each answer's times between events, s; they sum up to E2E - TTFT."""
    events = text_events(trace)
    if len(events) == 0:
        rest = latencies["e2e_us"] - latencies["ttft_us"]
        return [
            [] if np.isnan(whole) or count < 2 else [float(whole) / (count - 1)] * (count - 1)
            for whole, count in zip(rest, output.tolist(), strict=True)
        ]
    bounds = np.searchsorted(events.request, np.arange(len(trace) + 1))
    ok = finished_ok(trace)
    return [
        (np.diff(events.time_us[bounds[row] : bounds[row + 1]]) / 1e6).tolist() if ok[row] else []
        for row in order.tolist()
    ]
