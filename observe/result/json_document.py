"""The result of an observation: the JSON document of ``observe --json``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from observe.result.client_verdict import ClientWord, client_word, late_by_us
from traces import (
    ClientInfo,
    Goodput,
    Precision,
    finished_ok,
    goodput,
    metric_notes,
    phase_quantities,
    pooled_itl_us,
    precision_of,
    prompt_tokens,
    request_metrics,
    tool_version,
    ttft_too_long_us,
    without_warmup,
)

if TYPE_CHECKING:
    import pandas as pd

    from traces import Trace

SCHEMA_VERSION = 1
_PERCENTILES = (50, 90, 95, 99)

Floats = NDArray[np.float64]


class Distribution(TypedDict):
    """A metric over the requests that are ok (ITL: over all gaps), µs or tokens; None of nothing."""

    mean: float | None
    p50: float | None
    p90: float | None
    p95: float | None
    p99: float | None


class ClientSummary(TypedDict):
    """How the load was sent; ``processes``: each of several.

    ``verdict``: whether the client kept up; was late, at the requested pace; or was ``limited``: the brake, not the
    server. ``late_by_us``: its lag, p99. ``ttft_too_long_us``: by how much TTFT may be too long at most, as reads of
    a late client have the time of their last event; empty where it kept up.

    ``rate_per_s``: the rate asked for, ``rate_asked_per_s``: that of the times drawn for it, or of those that were due
    before the run was cut short. ``over_saturated``: whether the client ended it, as the server fell behind.
    """

    verdict: ClientWord
    limited: bool
    reason: str | None
    late_by_us: float
    ttft_too_long_us: dict[str, float]
    rate_per_s: float | None
    rate_asked_per_s: float | None
    rate_achieved_per_s: float | None
    gap_cv_asked: float | None
    gap_cv_achieved: float | None
    peak_in_flight: int | None
    over_saturated: bool | None
    num_connections: int | None
    dispatch_lag_us: dict[str, float]
    own_lag_us: dict[str, float]
    loop_lag_us: dict[str, float]
    cpu_frac: float | None
    processes: list[dict[str, object]]


class _OfRequests(TypedDict):
    """What a run was of (``ObservedSummary``)."""

    output_token_throughput: float | None
    api: str | None
    prompt_token_throughput: float | None
    num_inputs: int | None
    input_throughput: float | None
    num_choices: int | None
    num_called_tools: int | None
    prompt_tokens: Distribution
    output_tokens: Distribution
    reasoning_tokens: Distribution


class ObservedSummary(_OfRequests):
    """The document itself. ``duration_us``: from the run's start to the last event of any request.

    A warm-up that was kept is left out of everything but ``num_warmup``, and the duration begins after it.
    ``sending_us``: from the same start to the last send.
    Throughputs are of the ok requests per second of that; ``errors``: messages and how often each came.
    ``load``: what set the pace. ``num_retried``: requests that were sent more than once. ``num_length_capped``:
    answers that the server's max_model_len cut short. ``wave_us``: from a
    wave's first dispatch to its last token, over the waves all of whose requests are ok. ``findings``: what shows that
    the numbers are not the server's, by kind; their lines are among the notes. Output tokens per second are None where
    an answer's tokens are not known. ``http_phases_us``: dns, connect, tls, send, wait and receive, those that requests
    had (``traces.measured.http_phases``). ``num_inputs``: of each request, where nothing is generated;
    ``input_throughput``: of these per second. ``num_choices``: answers to each prompt, None one. ``num_called_tools``:
    ok answers that called a tool, None where none could. ``ttfo_us``: from sending to the first text that is no
    reasoning, of answers that have reasoning.
    """

    schema_version: int
    tool_version: str
    load: str
    num_planned: int
    num_requests: int
    num_by_status: dict[str, int]
    num_retried: int
    num_warmup: int
    num_length_capped: int
    num_guided: int
    duration_us: int
    sending_us: int | None
    request_throughput: float | None
    ttft_us: Distribution
    ttfo_us: Distribution
    ttft_from_due_us: Distribution
    e2e_us: Distribution
    itl_us: Distribution
    tpot_us: Distribution
    queue_us: Distribution
    http_phases_us: dict[str, dict[str, Any]]
    wave_us: Distribution
    p99_precision: Precision
    goodput: Goodput | None
    client: ClientSummary
    metrics_delta: dict[str, float]
    spec_decode: dict[str, object] | None
    probes: dict[str, object] | None
    power: dict[str, object] | None
    errors: dict[str, int]
    findings: list[dict[str, object]]
    notes: list[str]
    interrupted: bool


def summarize_observed(trace: Trace, *, slo_us: Mapping[str, float] | None = None) -> ObservedSummary:
    """Return the summary of an observed trace; ``slo_us``: latency limits in place of the trace's own."""
    whole, trace = trace, without_warmup(trace)
    metrics = request_metrics(trace)
    ok = finished_ok(trace)
    duration_us = _duration_us(trace, is_cut=len(trace) < len(whole)) if ok.any() else 0
    outputs = trace.column("output_tokens").to_numpy(dtype=np.float64, na_value=np.nan)
    counts = trace.column("status").value_counts()
    messages = trace.column("error_message").dropna().value_counts()
    client = trace.header.client
    planned = None if client is None else client.num_planned
    return ObservedSummary(
        schema_version=SCHEMA_VERSION,
        tool_version=tool_version(),
        load=load_of(whole),
        num_planned=len(whole) if planned is None else planned,
        num_requests=len(whole),
        num_by_status={str(name): int(counts[name]) for name in sorted(counts.index)},
        num_retried=int((trace.column("attempt") > 1).fillna(False).sum()),
        num_warmup=len(whole) - len(trace),
        num_length_capped=int(trace.column("length_capped").fillna(False).sum()),
        num_guided=int(trace.column("guided").fillna(False).sum()),
        duration_us=duration_us,
        sending_us=_sending_us(trace, is_cut=len(trace) < len(whole)),
        request_throughput=_per_second(int(ok.sum()), duration_us),
        **_of_requests(trace, ok, outputs=outputs, duration_us=duration_us),
        ttfo_us=_distribution(ttfo_us(trace)),
        ttft_us=_distribution(metrics["ttft_us"].to_numpy(dtype=np.float64)),
        ttft_from_due_us=_distribution(metrics["ttft_from_due_us"].to_numpy(dtype=np.float64)),
        e2e_us=_distribution(metrics["e2e_us"].to_numpy(dtype=np.float64)),
        itl_us=_distribution(pooled_itl_us(trace)),
        tpot_us=_distribution(metrics["tpot_us"].to_numpy(dtype=np.float64)),
        queue_us=_distribution(trace.column("server_queue_us").to_numpy(dtype=np.float64, na_value=np.nan)),
        http_phases_us={name: asdict(each) for name, each in phase_quantities(trace).items()},
        wave_us=_distribution(wave_us(trace)),
        p99_precision=_precision(trace, metrics),
        goodput=goodput(trace, slo_us, duration_us=duration_us),
        client=_client(trace),
        metrics_delta={
            name: reading.after - reading.before for name, reading in trace.header.metrics_delta.items()
        },
        spec_decode=None if trace.header.spec_decode is None else asdict(trace.header.spec_decode),
        power=None if trace.header.power is None else asdict(trace.header.power),
        probes=None if trace.header.probes is None else asdict(trace.header.probes),
        errors={str(message): int(messages[message]) for message in messages.index},
        findings=[asdict(each) for each in whole.header.findings],
        notes=_notes(whole, trace),
        interrupted=client is not None and bool(client.interrupted),
    )


def _of_requests(trace: Trace, ok: NDArray[np.bool_], *, outputs: Floats, duration_us: int) -> _OfRequests:
    """Return what depends on the API that was asked, and on what a request was."""
    client = trace.header.client or ClientInfo()
    called = trace.cells("num_tool_calls").is_known
    inputs, tokens, prompts = client.num_inputs, outputs[ok].sum(), prompt_tokens(trace)[ok]
    return _OfRequests(
        output_token_throughput=None if np.isnan(tokens) else _per_second(int(tokens), duration_us),
        api=client.api,
        prompt_token_throughput=_per_second(int(prompts.sum()), duration_us),
        num_inputs=inputs,
        input_throughput=None if inputs is None else _per_second(inputs * int(ok.sum()), duration_us),
        num_choices=client.num_choices,
        num_called_tools=None if client.tools is None else int((called & ok).sum()),
        prompt_tokens=_distribution(prompts.astype(np.float64)),
        output_tokens=_distribution(outputs[ok]),
        reasoning_tokens=_distribution(trace.cells("reasoning_tokens").floats()[ok]),
    )


def ttfo_us(trace: Trace) -> Floats:
    """Return the times from sending to the first text that is no reasoning, in µs; NaN where there is none."""
    cells = [trace.cells(name).floats() for name in ("visible_first_time_us", "send_time_us")]
    return np.where(finished_ok(trace), cells[0] - cells[1], np.nan)


def _precision(trace: Trace, metrics: pd.DataFrame) -> Precision:
    """Return how well the 99th percentiles are known."""
    latencies = {name: metrics[name].to_numpy(dtype=np.float64) for name in ("ttft_us", "tpot_us", "e2e_us")}
    return precision_of(trace, latencies)


def _notes(whole: Trace, trace: Trace) -> list[str]:
    """Return the client's notes, the findings' lines and the metrics' substitutions, each once."""
    client = whole.header.client
    said = (() if client is None else client.notes, [each.text for each in whole.header.findings])
    return list(dict.fromkeys((*said[0], *said[1], *metric_notes(trace).lines())))


def wave_us(trace: Trace) -> Floats:
    """Return how long each whole wave of a fixed batch took, in µs; nothing for another load."""
    loop = trace.header.closed_loop
    if loop is None or not loop.in_waves or len(trace) == 0:
        return np.empty(0)
    wave = np.arange(len(trace)) // loop.concurrency
    sent = trace.column("send_time_us").to_numpy(dtype=np.float64, na_value=np.nan)
    last = trace.column("last_token_time_us").to_numpy(dtype=np.float64, na_value=np.nan)
    last[~finished_ok(trace)] = np.inf  # one that is not ok: its wave never ended
    begins, ends = np.full(wave[-1] + 1, np.inf), np.zeros(wave[-1] + 1)
    np.fmin.at(begins, wave, sent)
    np.fmax.at(ends, wave, last)
    return np.where(np.isfinite(ends), ends, np.nan) - begins


def _duration_us(trace: Trace, *, is_cut: bool) -> int:
    begin = int(trace.column("send_time_us").min()) if is_cut else 0
    return max(int(trace.column("last_chunk_time_us").max() or 0) - begin, 1)


def _sending_us(trace: Trace, *, is_cut: bool) -> int | None:
    sent = trace.column("send_time_us").dropna()
    return int(sent.max() - (sent.min() if is_cut else 0)) if len(sent) else None


def _client(trace: Trace) -> ClientSummary:
    client = trace.header.client
    assert client is not None  # noqa: S101  an observed trace has one
    return ClientSummary(
        verdict=client_word(client),
        limited=bool(client.limited),
        reason=client.reason,
        late_by_us=late_by_us(client),
        ttft_too_long_us=ttft_too_long_us(trace),
        rate_per_s=trace.header.rate_per_s,
        rate_asked_per_s=client.rate_asked_per_s,
        rate_achieved_per_s=client.rate_achieved_per_s,
        gap_cv_asked=client.gap_cv_asked,
        gap_cv_achieved=client.gap_cv_achieved,
        peak_in_flight=client.peak_in_flight,
        over_saturated=client.over_saturated,
        num_connections=client.num_connections,
        dispatch_lag_us=dict(client.dispatch_lag_us),
        own_lag_us=dict(client.own_lag_us),
        loop_lag_us=dict(client.loop_lag_us),
        cpu_frac=client.cpu_frac,
        processes=[asdict(each) for each in client.processes],
    )


def load_of(trace: Trace) -> str:
    """Return what set the pace, in words: times, sessions with times of their own, users, or waves."""
    loop, client = trace.header.closed_loop, trace.header.client
    if loop is not None:
        return f"waves of {loop.concurrency}" if loop.in_waves else f"{loop.concurrency} users"
    if (trace.column("round_index") > 0).fillna(False).any():
        return "sessions"
    at_once = client is not None and client.rate_asked_per_s is None and len(trace) > 1
    return "all at once" if at_once else "times"


def _distribution(values: Floats) -> Distribution:
    known = values[~np.isnan(values)]
    if len(known) == 0:
        return Distribution(mean=None, p50=None, p90=None, p95=None, p99=None)
    p50, p90, p95, p99 = (float(value) for value in np.percentile(known, _PERCENTILES))
    return Distribution(mean=float(known.mean()), p50=p50, p90=p90, p95=p95, p99=p99)


def _per_second(count: int, duration_us: int) -> float | None:
    return count / (duration_us / 1e6) if duration_us else None
