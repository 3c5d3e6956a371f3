"""The header of an observed trace: its part before the run, and its part after it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from observe.executor import Executor
from observe.preparation import Preparation
from observe.record.recorder import AnswerCounts
from observe.result.client_verdict import (
    BOUNDS,
    FINISHED,
    achieved_pace,
    asked_in_flight,
    asked_pace,
    busy_frac,
    due_pace,
    limiting_bounds,
    limiting_bounds_of_processes,
    process_name,
    quantiles_of,
    quantiles_of_histogram,
    with_lateness,
)
from observe.run.dispatch import RunFacts
from observe.run.run_counts import Progress
from observe.senders.request_kinds import KINDS
from observe.server.prometheus_text import Sample
from observe.server.server_metrics import counter_deltas, spec_decode
from observe.settings import Settings
from traces import ClientInfo, Header, ProcessInfo, ServerInfo, tool_version

if TYPE_CHECKING:
    from numpy.typing import NDArray


_SHOWN_FINGERPRINTS = 5
_VERSION_FIRST = re.compile(r"vllm-(\d+\.\d+\.\d+[^-\s]*)(-|$)")
"""vLLM's own fingerprint begins with its version."""


def first_header(ready: Preparation, settings: Settings, *, executor: Executor) -> Header:
    """Return the header of the trace during the run."""
    asked = ready.plan.trace.header
    return replace(
        asked,
        trace_version=3,
        time_unit="us",
        tool="vtwin",
        tool_version=tool_version(),
        mode="real",
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        command=settings.command,
        server=ready.server.info.learn(
            "given by the user",
            url=settings.endpoint.redact(settings.endpoint.base),
            gpu=settings.gpu,
            tensor_parallel=settings.tp,
        ),
        client=_planned_client(ready, settings, executor=executor),
        config_digest=None,
        rebased=None,
        metrics_delta={},
        spec_decode=None,
        probes=None,
        power=None,
        noise_floor=None,
        observed_kv_metrics=None,
        findings=(),
    )


def _planned_client(ready: Preparation, settings: Settings, *, executor: Executor) -> ClientInfo:
    """Return the client's part before the run: its limits, and the requested load."""
    pace = asked_pace(ready.plan)
    limits = settings.limits
    return ClientInfo(
        clock=executor.clock_name,
        library=executor.library,
        num_processes=settings.processes,
        api=settings.api,
        prompt_source=ready.prompt_source,
        ignore_eos=ready.plan.shape.ignore_eos or ready.plan.shape.min_tokens,
        prompt_salt=ready.salt,
        num_inputs=settings.num_inputs if not settings.kind.generates else None,
        num_choices=settings.num_choices if settings.num_choices > 1 else None,
        tools=None if settings.tools is None else settings.tools.name,
        timeout_s=limits.timeout_s,
        stall_timeout_s=limits.stall_timeout_s,
        max_concurrency=limits.max_concurrency,
        prefill_concurrency=limits.prefill_concurrency,
        max_retries=limits.max_retries or None,
        max_retry_wait_s=limits.max_retry_wait_s if limits.max_retries else None,
        num_warmup_requests=settings.warmup.num_requests or None,
        warmup_s=settings.warmup.seconds or None,
        num_planned=len(ready.plan),
        rate_asked_per_s=pace.rate_per_s,
        gap_cv_asked=pace.gap_cv,
        class_priority=dict(settings.class_priority or {}),
        guided_schema=None if settings.guided is None else settings.guided.name,
        guided_schema_sha256=None if settings.guided is None else settings.guided.sha256,
        bounds=dict(BOUNDS),
        finished=False,
        notes=ready.notes,
    )


def of_client(header: Header, *, scheduling: str | None) -> Header:
    """Return the header with what is known of the client once it runs: how the system runs it."""
    assert header.client is not None  # noqa: S101  first_header made it
    return replace(header, client=replace(header.client, scheduling=scheduling))


def final_header(
    header: Header,
    ready: Preparation,
    *,
    settings: Settings,
    progress: Progress,
    executor: Executor,
    facts: RunFacts,
    after: Sequence[Sample] | None,
) -> Header:
    """Return ``header`` with the run's results on server and client."""
    answer_counts = executor.answer_counts
    fingerprint = next(iter(answer_counts.fingerprints), None)
    deltas = {} if ready.metrics is None or after is None else counter_deltas(ready.metrics, list(after))
    notes = [
        *([facts.stopped] if facts.stopped else []),
        *_remarks(answer_counts),
        *_lost_rounds(progress),
        *_cut_waits(progress, settings),
        *_missing_server_fields(ready, answer_counts),
        *_each_lost(executor.processes),
        *_about_processes(executor.processes, settings),
        *_lost_metrics(ready, after),
    ]
    assert header.client is not None  # noqa: S101  first_header made it
    client = _client_of_run(
        header.client, ready, settings=settings, progress=progress, executor=executor, facts=facts
    )
    return replace(
        header,
        server=with_fingerprint(header.server, fingerprint),
        client=replace(client, notes=(*client.notes, *notes)),
        metrics_delta=deltas,
        spec_decode=spec_decode(deltas),
    )


def with_fingerprint(server: ServerInfo, fingerprint: str | None) -> ServerInfo:
    """Return what the answers' fingerprint says of the server: also its version, where ``/version`` did not."""
    source = "system_fingerprint of the answers"
    known = _VERSION_FIRST.match(fingerprint or "") if server.version is None else None
    return server.learn(source, system_fingerprint=fingerprint, version=known[1] if known else None)


def _client_of_run(
    client: ClientInfo,
    ready: Preparation,
    *,
    settings: Settings,
    progress: Progress,
    executor: Executor,
    facts: RunFacts,
) -> ClientInfo:
    """Return the client's part after the run: how it kept up, and whether it set the pace."""
    processes = executor.processes
    cpu_frac = max((each.cpu_frac or 0.0 for each in processes), default=busy_frac(facts))
    reason = (
        limiting_bounds_of_processes(processes)
        if processes
        else limiting_bounds(ready.plan, progress, cpu_frac=cpu_frac)
    )
    achieved = achieved_pace(ready.plan, progress)
    is_cut = facts.interrupted or facts.stopped is not None
    asked = due_pace(ready.plan, progress) if is_cut else asked_pace(ready.plan)
    done = replace(
        client,
        **(_counts(executor.answer_counts) if settings.kind.generates else {}),
        num_held_back=progress.num_held_back if settings.limits.has_cap else None,
        num_retried=progress.num_retried if settings.limits.max_retries else None,
        in_flight_asked=asked_in_flight(ready.plan),
        in_flight_mean=progress.mean_in_flight,
        num_sent=len(progress.dispatched_ns),
        num_connections=progress.num_connections,
        peak_in_flight=progress.peak_in_flight,
        rate_asked_per_s=asked.rate_per_s,
        gap_cv_asked=asked.gap_cv,
        rate_achieved_per_s=achieved.rate_per_s,
        gap_cv_achieved=achieved.gap_cv,
        dispatch_lag_us=quantiles_of(_array(progress.dispatch_lag_us)),
        own_lag_us=quantiles_of(_array(progress.own_lag_us)),
        loop_lag_us=quantiles_of_histogram(progress.loop_lag),
        cpu_frac=round(cpu_frac, 4),
        processes=processes,
        num_processes=max(len(processes), 1),
        limited=reason is not None,
        reason=reason,
        finished=not facts.interrupted,
        interrupted=facts.interrupted,
    )
    return with_lateness(done)


def with_remarks(
    header: Header, remarks: Sequence[str], *, clock_name: str, over_saturated: bool | None
) -> Header:
    """Return ``header`` with remarks added to the client's, the final source of the stamps, and how the run ended."""
    assert header.client is not None  # noqa: S101  first_header made it
    notes = (*header.client.notes, *remarks)
    client = replace(header.client, clock=clock_name, over_saturated=over_saturated, notes=notes)
    return replace(header, client=client)


def _array(values: Sequence[int]) -> NDArray[np.int64]:
    return np.array(values, dtype=np.int64)


def _token_counts(answer_counts: AnswerCounts) -> str | None:
    """Return where the token counts of the whole answers come from, in words."""
    said = [
        (answer_counts.counted_by_event, "usage of every event"),
        (answer_counts.counted_at_end, "usage at the end"),
        (answer_counts.counted_by_length, "max_tokens, which finish_reason length says were made"),
        (answer_counts.counted_as_events, "one token an event"),
        (answer_counts.without_usage, "not counted by the server"),
    ]
    present = [(count, words) for count, words in said if count]
    if len(present) == 1:
        return present[0][1]
    return "; ".join(f"{words} ({count} requests)" for count, words in present) or None


def _counts(answer_counts: AnswerCounts) -> dict[str, Any]:
    """Return how the answers' tokens were counted: fields of the client's part."""
    number = _num_without_usage(answer_counts) or None
    return {"token_counts": _token_counts(answer_counts), "num_without_usage": number}


def _num_without_usage(answer_counts: AnswerCounts) -> int:
    """Return how many whole answers' tokens the server did not count."""
    return answer_counts.without_usage + answer_counts.counted_by_length + answer_counts.counted_as_events


def _remarks(answer_counts: AnswerCounts) -> tuple[str, ...]:
    said: list[str] = []
    if answer_counts.other_length:
        said.append(f"{answer_counts.other_length} answers have more or fewer tokens than requested")
    if answer_counts.counted_as_events:
        said.append(f"{answer_counts.counted_as_events} answers: output tokens are taken as one an event")
    if answer_counts.first_by_text:
        said.append(
            f"{answer_counts.first_by_text} answers: the first event's tokens are estimated by its share of the text"
        )
    if answer_counts.unread_keys:
        keys = ", ".join(
            f"{key} ({count} answers)" for key, count in sorted(answer_counts.unread_keys.items())
        )
        said.append(f"keys of the answers' deltas that are not read, and count as no text: {keys}")
    if answer_counts.unusable:
        fields = ", ".join(
            f"{name} ({count} answers)" for name, count in sorted(answer_counts.unusable.items())
        )
        said.append(f"impossible values, taken as unknown: {fields}")
    if (change := server_change(answer_counts)) is not None:
        said.append(change)
    return tuple(said)


def _lost_rounds(progress: Progress) -> tuple[str, ...]:
    lost = progress.num_not_continued
    return (
        (f"{lost} requests were not sent because an earlier round of their session failed",) if lost else ()
    )


def _cut_waits(progress: Progress, settings: Settings) -> tuple[str, ...]:
    cut, most_s = progress.num_waits_cut, settings.limits.max_retry_wait_s
    said = f"{cut} times Retry-After asked for a longer wait than {most_s:g} s (--max-retry-wait), which was waited"
    return (said,) if cut else ()


def _missing_server_fields(ready: Preparation, answer_counts: AnswerCounts) -> tuple[str, ...]:
    """Return what a vLLM server could have reported in its answers and did not, with the flag that enables it."""
    kind = KINDS[ready.plan.shape.api]  # neither vectors nor transcriptions state any of it
    if not ready.server.is_vllm or not answer_counts.num_whole or not kind.generates or kind.is_sound:
        return ()
    said: list[str] = []
    if not answer_counts.with_cached_tokens:
        said.append(
            "no cached_tokens in usage: prefix-cache hits per request unknown (vllm: --enable-prompt-tokens-details)"
        )
    if not answer_counts.with_timings:
        said.append("no queue times in the answers (vllm: --enable-per-request-metrics)")
    if not answer_counts.fingerprints:
        said.append("no system_fingerprint: a server replaced during the run would go unnoticed")
    return tuple(said)


def lost_processes(processes: Sequence[ProcessInfo]) -> str | None:
    """Return which processes ended before their work was done, if any did."""
    return "; ".join(_each_lost(processes)) or None


def _each_lost(processes: Sequence[ProcessInfo]) -> tuple[str, ...]:
    return tuple(
        f"{process_name(number, each)} of {len(processes)} {each.outcome}, {each.num_sent or 0} of its "
        f"{each.num_planned or 0} requests sent; the finished ones are recorded, the others are marked as aborted"
        for number, each in enumerate(processes, start=1)
        if each.outcome != FINISHED
    )


def _about_processes(processes: Sequence[ProcessInfo], settings: Settings) -> tuple[str, ...]:
    """Return notes on how several processes sent the load differently from one."""
    number, limits = len(processes), settings.limits
    caps = {"max": limits.max_concurrency, "prefill": limits.prefill_concurrency}
    said: list[str] = []
    if number and number < settings.processes:
        said.append(f"{number} of {settings.processes} processes had requests to send")
    said += [
        f"--{of}-concurrency {cap} was divided among {number} processes"
        for of, cap in caps.items()
        if number and cap is not None
    ]
    return tuple(said)


def server_change(answer_counts: AnswerCounts) -> str | None:
    """Return a note if the server's fingerprints show that it changed during the run."""
    if len(answer_counts.fingerprints) < 2:
        return None
    shown = list(answer_counts.fingerprints)[:_SHOWN_FINGERPRINTS]
    more = len(answer_counts.fingerprints) - len(shown)
    return (
        f"the server changed during the run: system_fingerprint {' then '.join(shown)}"
        f"{f' and {more} more' if more else ''}"
    )


def _lost_metrics(ready: Preparation, after: Sequence[Sample] | None) -> tuple[str, ...]:
    lost = ready.metrics is not None and after is None
    return ("no /metrics after the run: changes of its counters are unknown",) if lost else ()
