"""``vtwin observe``. What is heavy is imported by the command."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from observe.options import (
    AnswerOptions,
    LimitOptions,
    ListOptions,
    RecordOptions,
    ServerOptions,
    TraceFileOptions,
    scrapes_of,
)
from observe.settings import WarmUp
from traces.strict.option_table import with_option_tables
from traces.workload import SessionOptions, WorkloadOptions, check_output

if TYPE_CHECKING:
    from observe.settings import GuidedDecoding, Limits, MachineCluster, Settings
    from traces.console.cluster_library import ClusterName
    from traces.workload import Cancellation, SessionStarts


@with_option_tables
def observe(
    workload: WorkloadOptions,
    sessions: SessionOptions,
    server: ServerOptions,
    limits: LimitOptions,
    answers: AnswerOptions,
    record: RecordOptions,
    several: ListOptions,
    files: TraceFileOptions,
) -> None:
    """Send a load to a live endpoint and record the trace."""
    check_output(workload, server.output)
    from observe.command import observe_loads, observe_once
    from traces import ConfigError, parse_slo
    from traces.strict.tell import tell_note

    _check_forms(answers, several, files)
    if record.stop_over_saturated:
        from observe.judged.over_saturation import check_one_rate

        check_one_rate(workload, has_list=several.is_asked_for and several.sweep_alone is None)
    if limits.keep_warmup and not limits.warmup:
        raise ConfigError("--keep-warmup: needs --warmup (a number of requests, or a time)")
    settings = replace(
        _settings(workload, server, limits, answers, record, files),
        texts=answers.texts.source(workload, resume=several.resume),
    )
    settings = answers.kinds.applied(settings)
    workload = answers.texts.without_bounds(workload)
    starts, cuts = _starts(sessions, workload, several), _cuts(limits, answers, several)
    if not settings.kind.generates:
        from observe.without_output import refuse_output_options

        refuse_output_options(settings, workload, answers, record, several=several, cuts=cuts)
    if several.is_asked_for and several.find.find_capacity:
        from observe.capacity.command import find_on_server

        place = server.output
        find_on_server(workload, settings, several=several, slo=record.slo, folder=place, files=files)
        return
    slo_us = parse_slo(record.slo, tell=tell_note) if record.slo is not None else {}
    if several.is_asked_for:
        observe_loads(
            workload, settings, options=several, cuts=cuts, folder=server.output, slo_us=slo_us, files=files
        )
    else:
        observe_once(
            workload, settings, starts=starts, cuts=cuts, output=server.output, slo_us=slo_us, files=files
        )


def _cuts(limits: LimitOptions, answers: AnswerOptions, several: ListOptions) -> Cancellation | None:
    """Return which requests are cut. Raises ConfigError for options that contradict each other."""
    from traces import ConfigError

    cuts = limits.cancel.asked()
    if cuts is not None and (several.plan is not None or several.find.find_capacity):
        raise ConfigError("--cancel-share: cannot be combined with --plan or --find-capacity")
    if cuts is not None and cuts.unit == "tokens" and (answers.no_streaming or (answers.kinds.n or 1) > 1):
        other = (
            "--no-streaming, which brings all at once" if answers.no_streaming else "several answers (--n)"
        )
        raise ConfigError(f"--cancel-after: got tokens with {other}; expected a time")
    return cuts


def _check_forms(answers: AnswerOptions, several: ListOptions, files: TraceFileOptions) -> None:
    """Raise ConfigError for two forms of an answer, and for repeats whose prompts the server has seen before."""
    from traces import ConfigError
    from traces.facts import refuse_two_forms

    refuse_two_forms(as_json=files.as_json, form=files.form)
    if files.form is not None and several.find.find_capacity:
        raise ConfigError("--format: cannot be combined with --find-capacity, expected --json")
    if several.repeat is None:
        return
    if files.prompt_salt is not None:
        raise ConfigError("--prompt-salt: cannot be combined with --repeat: each run has new prompts")
    if answers.texts.texts is not None:
        raise ConfigError(
            "--texts: cannot be combined with --repeat: the server's prefix cache has the texts of the run before, and "
            "others have other lengths"
        )


def _starts(sessions: SessionOptions, workload: WorkloadOptions, several: ListOptions) -> SessionStarts:
    """Return how sessions are to start. Raises ConfigError for options that contradict each other."""
    from traces import ConfigError
    from traces.workload import DEFAULT_SEED

    starts = sessions.starts(seed=DEFAULT_SEED if workload.seed is None else workload.seed)
    if starts.changes_anything and (workload.trace is None or several.is_asked_for):
        raise ConfigError(
            "--sessions, --session-rate, --think-time-scale, --max-think-time, --warm-start, --session-priority: need "
            "--trace STEM, the sessions to send, and no --plan, --sweep, --repeat or --find-capacity"
        )
    return starts


def _settings(
    workload: WorkloadOptions,
    server: ServerOptions,
    limits: LimitOptions,
    answers: AnswerOptions,
    record: RecordOptions,
    files: TraceFileOptions,
) -> Settings:
    """Return how to observe. Raises ConfigError on options that contradict each other or cannot be read."""
    from observe.senders.endpoint import chosen_key, parse_endpoint
    from observe.settings import Settings
    from traces import ConfigError
    from traces.strict.secrets import redact_command

    period_s, urls = scrapes_of(record.scrape or ())
    if record.no_scrape and period_s is not None:
        raise ConfigError("--no-scrape: cannot be combined with an interval of --scrape")
    if record.scrape_keep and not urls:
        raise ConfigError("--scrape-keep: needs --scrape URL, the endpoint whose series it names")
    key = chosen_key(server.api_key, variable=server.api_key_env, file=server.api_key_file)
    return Settings(
        endpoint=parse_endpoint(
            server.url, api_key=key, headers=server.header or (), verify_tls=not server.insecure
        ),
        api=workload.api,
        model=server.model,
        limits=_limits(limits),
        warmup=replace(limits.warmup or WarmUp(), is_recorded=limits.keep_warmup),
        events=not files.no_itl,
        probe=not limits.no_probe,
        probe_rate=record.probe_rate,
        salt=files.prompt_salt,
        streaming=not answers.no_streaming,
        class_priority=_class_priority(answers.class_priority, answers.class_priorities),
        guided=_guided(answers.guided, answers.guided_frac),
        max_error_frac=record.max_error_rate,
        stop_over_saturated=record.stop_over_saturated,
        scrape_s=None if period_s is None else _finite(period_s),
        scrapes_vllm=period_s is None and not record.no_scrape,
        scrape_urls=urls,
        scrape_keep=tuple(name for names in record.scrape_keep or () for name in names.split(",") if name),
        engine_log=record.engine_log,
        tokenizer=limits.tokenizer,
        processes=limits.processes,
        machines=_machines(limits),
        gpu=server.gpu,
        tp=server.tp,
        command=redact_command(["vtwin", *sys.argv[1:]], os.environ),
    )


def _machines(limits: LimitOptions) -> MachineCluster | None:
    """Return whose workers send. Raises ConfigError for two answers to who sends."""
    from observe.settings import MachineCluster
    from traces import ConfigError

    named: dict[ClusterName, str | None] = {"dask": limits.dask, "ray": limits.ray}
    given = [
        MachineCluster(library=library, address=address)
        for library, address in named.items()
        if address is not None
    ]
    if len(given) + (limits.processes > 1) > 1:
        raise ConfigError(
            "--dask, --ray, --processes: got more than one of them, expected one: each says who sends"
        )
    return given[0] if given else None


def _limits(limits: LimitOptions) -> Limits:
    from observe.settings import Limits

    return Limits(
        timeout_s=_finite(limits.timeout),
        stall_timeout_s=_finite(limits.stall_timeout),
        max_concurrency=limits.max_concurrency,
        prefill_concurrency=limits.prefill_concurrency,
        max_retries=limits.retries,
        max_retry_wait_s=limits.max_retry_wait,
    )


def _class_priority(by_default: bool, text: str | None) -> Mapping[str, int] | None:
    from observe.plan.class_priority import parse_class_priorities
    from traces import PRIORITY_OF_CLASS

    if text is not None:
        return parse_class_priorities(text)
    return PRIORITY_OF_CLASS if by_default else None


def _guided(schema: Path | None, frac: float | None) -> GuidedDecoding | None:
    from traces import ConfigError

    if schema is None:
        if frac is not None:
            raise ConfigError("--guided-frac: needs --guided SCHEMA.json")
        return None
    from observe.plan.guided import read_schema

    return read_schema(schema, frac=frac)


def _finite(seconds: float) -> float | None:
    return None if seconds == float("inf") else seconds
