"""``vtwin observe``. What is heavy is imported by the command."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

import typer

from observe.settings import WarmUp
from traces.workload.options import WorkloadOptions, with_workload_options

if TYPE_CHECKING:
    from observe.campaign_cli import ListOptions
    from observe.observation import Observation
    from observe.settings import Settings
    from traces import Trace

Result = TypeVar("Result")

EXIT_NEGATIVE = 1
EXIT_INTERRUPTED = 130

SERVER = "Server"
CARE = "Care"
LIST = "Several runs"


def _seconds(text: str) -> float:
    """Return seconds > 0; 0, none and off mean never: infinity."""
    from traces.units import parse_seconds

    if text.strip().lower() in ("none", "off", "0"):
        return float("inf")
    seconds = parse_seconds(text)
    if not seconds > 0:
        raise typer.BadParameter(f"got {text!r}, expected a time > 0, or none")
    return seconds


def _warmup(text: str) -> WarmUp:
    """Return the warm-up that a bare number (of requests) or a time with its unit asks for."""
    from traces.units import parse_seconds

    if text.strip().isdecimal():
        return WarmUp(num_requests=int(text))
    seconds = parse_seconds(text)
    if not 0 < seconds < float("inf"):
        raise typer.BadParameter(f"got {text!r}, expected requests (10) or a time (30s)")
    return WarmUp(seconds=seconds)


@with_workload_options
def observe(  # noqa: PLR0913, PLR0917 - a command's options are its parameters
    workload: WorkloadOptions,
    url: Annotated[
        str, typer.Option(help="The server: http://HOST:PORT, with or without /v1.", rich_help_panel=SERVER)
    ],
    output: Annotated[
        Path,
        typer.Option(
            metavar="STEM",
            help="The trace; Parquet if it ends in .parquet, else CSV. With --plan or --sweep: a folder.",
        ),
    ],
    model: Annotated[
        str | None,
        typer.Option(
            help="Name of the served model. Default: the first that the server lists.",
            show_default=False,
            rich_help_panel=SERVER,
        ),
    ] = None,
    api_key: Annotated[
        str | None,
        typer.Option(
            help="Bearer token. Default: OPENAI_API_KEY or VLLM_API_KEY of the environment.",
            show_default=False,
            rich_help_panel=SERVER,
        ),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(metavar="'NAME: VALUE'", help="Sent with every request.", rich_help_panel=SERVER),
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Take any TLS certificate.", rich_help_panel=SERVER)
    ] = False,
    timeout: Annotated[
        float,
        typer.Option(
            metavar="S", parser=_seconds, help="Longest wait for a whole answer.", rich_help_panel=CARE
        ),
    ] = "none",  # type: ignore[assignment]  # typer parses the default as it would an argument
    stall_timeout: Annotated[
        float,
        typer.Option(
            metavar="S", parser=_seconds, help="Longest wait without a byte; or none.", rich_help_panel=CARE
        ),
    ] = "600",  # type: ignore[assignment]
    max_concurrency: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Hold back what is due while this many are in flight; the trace says how many were.",
            show_default=False,
            rich_help_panel=CARE,
        ),
    ] = None,
    retries: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="N",
            help="Send again what was refused (429, 5xx, no connection) before an answer began, so often at most; "
            "Retry-After is kept to. Marked in the trace.",
            rich_help_panel=CARE,
        ),
    ] = 0,
    warmup: Annotated[
        WarmUp | None,
        typer.Option(
            "--warmup",
            "--warmup-requests",
            metavar="N|S",
            parser=_warmup,
            help="So many requests (10), or requests for so long (30s), before the clock starts; not in the trace.",
            show_default=False,
            rich_help_panel=CARE,
        ),
    ] = None,
    keep_warmup: Annotated[
        bool,
        typer.Option(
            "--keep-warmup",
            help="Take the warm-up from the load's own beginning: in the trace, marked, and in no latency.",
            rich_help_panel=CARE,
        ),
    ] = False,
    tokenizer: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="The model's tokenizer.json, for exact chat prompts where the server has no /tokenize "
            "(extra: tokenizer).",
            show_default=False,
            rich_help_panel=SERVER,
        ),
    ] = None,
    processes: Annotated[
        int,
        typer.Option(
            min=1,
            metavar="N",
            help="Send from this many processes, a core each; the requests are dealt to them beforehand.",
            rich_help_panel=CARE,
        ),
    ] = 1,
    no_probe: Annotated[
        bool,
        typer.Option(
            "--no-probe",
            help="Do not try a server that is not known to be vLLM with a request of one token.",
            rich_help_panel=CARE,
        ),
    ] = False,
    no_streaming: Annotated[
        bool,
        typer.Option(
            "--no-streaming",
            help="Ask for answers in one piece; the time of the first token is then unknown.",
            rich_help_panel=SERVER,
        ),
    ] = False,
    class_priority: Annotated[
        bool,
        typer.Option(
            "--class-priority",
            help="Send vLLM's priority by the request's SLO class (server: --scheduling-policy priority).",
            rich_help_panel=SERVER,
        ),
    ] = False,
    max_error_rate: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            metavar="FRAC",
            help="Stop, and exit 1, when more than this share of the last 50 requests failed.",
            show_default=False,
            rich_help_panel=CARE,
        ),
    ] = None,
    slo: Annotated[
        str | None,
        typer.Option(
            metavar="PROMISES",
            help="Count the requests that keep all of them: ttft=500ms,tpot=30ms; itl, e2e, ttft_from_due too.",
            show_default=False,
        ),
    ] = None,
    scrape: Annotated[
        float | None,
        typer.Option(
            metavar="S",
            parser=_seconds,
            help="Record the server's gauges this often (1s), in STEM.gauges.csv.",
            show_default=False,
            rich_help_panel=SERVER,
        ),
    ] = None,
    engine_log: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The server's log; the steps it tells of go to STEM.steps.csv "
            "(vllm: --enable-logging-iteration-details).",
            show_default=False,
            rich_help_panel=SERVER,
        ),
    ] = None,
    sweep: Annotated[
        str | None,
        typer.Option(
            metavar="VALUES",
            help="One run per value, into the folder --output: rates (1,2,4) or users (concurrency=8,16).",
            show_default=False,
            rich_help_panel=LIST,
        ),
    ] = None,
    plan: Annotated[
        Literal["calibrate"] | None,
        typer.Option(
            help="The runs that a fit needs, up to --rate, into the folder --output.",
            show_default=False,
            rich_help_panel=LIST,
        ),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Run the plan without asking.", rich_help_panel=LIST)
    ] = False,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Leave out runs whose trace is there and whole.", rich_help_panel=LIST),
    ] = False,
    prompt_salt: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="Repeat the very prompts of a run whose header names this salt. Default: new ones, "
            "which the server's cache has not seen.",
            show_default=False,
            rich_help_panel=CARE,
        ),
    ] = None,
    no_itl: Annotated[
        bool, typer.Option("--no-itl", help="Do not record every event's time (STEM.itl.csv).")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit 1 if the client, not the server, set the pace.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace what --output names even if it was measured.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Send a load to a live endpoint and record the trace."""
    from observe.campaign_cli import ListOptions
    from observe.event_loop import run_on_fastest_loop
    from observe.senders.endpoint import parse_endpoint, redact_command
    from observe.settings import Limits, Settings
    from traces import ConfigError
    from traces.files.overwrite import note_replaced
    from traces.slo import parse_slo
    from traces.workload import trace_from_options

    if keep_warmup and not warmup:
        raise ConfigError("--keep-warmup: got it without --warmup, expected how much of the load it is")
    settings = Settings(
        endpoint=parse_endpoint(url, api_key=api_key, headers=header or (), verify_tls=not insecure),
        api=workload.api,
        model=model,
        limits=Limits(
            timeout_s=_finite(timeout),
            stall_timeout_s=_finite(stall_timeout),
            max_concurrency=max_concurrency,
            max_retries=retries,
        ),
        warmup=replace(warmup or WarmUp(), is_recorded=keep_warmup),
        events=not no_itl,
        probe=not no_probe,
        salt=prompt_salt,
        streaming=not no_streaming,
        class_priority=class_priority,
        max_error_frac=max_error_rate,
        scrape_s=None if scrape is None else _finite(scrape),
        engine_log=engine_log,
        tokenizer=tokenizer,
        processes=processes,
        command=redact_command(["vtwin", *sys.argv[1:]]),
    )
    promises = parse_slo(slo) if slo is not None else {}
    several = ListOptions(sweep=sweep, plan=plan, yes=yes, resume=resume, overwrite=overwrite)
    if several.is_asked_for:
        _observe_list(
            workload,
            settings,
            several=several,
            folder=output,
            slo_us=promises,
            as_json=as_json,
            strict=strict,
        )
        return
    requests = trace_from_options(workload)
    told: list[str] = []
    if (note := note_replaced(output, overwrite=overwrite)) is not None:
        typer.echo(f"observe: {note}", err=True)
    observation = run_on_fastest_loop(lambda: _observed(requests, settings, output=output, told=told))
    _report(observation, as_json=as_json, told=told, slo_us=promises)
    _leave(observation, strict=strict)


def _finite(seconds: float) -> float | None:
    return None if seconds == float("inf") else seconds


async def _observed(requests: Trace, settings: Settings, *, output: Path, told: list[str]) -> Observation:
    """Observe with the terminal's display; lines that were shown are added to ``told``."""
    from observe.observation import observe_with
    from observe.run.panel import show

    def say(line: str) -> None:
        told.append(line)
        typer.echo(f"observe: {line}", err=True)

    return await observe_with(
        requests,
        settings,
        output=output,
        display=show(),
        say=say,
        handle_signals=True,
    )


def _report(
    observation: Observation, *, as_json: bool, told: Sequence[str], slo_us: Mapping[str, float]
) -> None:
    """Print the summary on stderr, without notes already told; if asked for, the document on stdout."""
    from observe.result.json_document import summarize_observed, table

    summary = summarize_observed(observation.trace, slo_us=slo_us)
    typer.echo(table(summary), err=True)
    for note in summary["notes"]:
        if note not in told:
            typer.echo(f"observe: {note}", err=True)
    if as_json:
        typer.echo(json.dumps(summary, indent=2))


def _observe_list(
    workload: WorkloadOptions,
    settings: Settings,
    *,
    several: ListOptions,
    folder: Path,
    slo_us: Mapping[str, float],
    as_json: bool,
    strict: bool,
) -> None:
    """Run a list of loads, show what came of it, and exit as the worst of them demands."""
    from observe.campaign_cli import observe_list, report_list
    from observe.event_loop import run_on_fastest_loop

    outcomes = run_on_fastest_loop(lambda: observe_list(workload, settings, options=several, folder=folder))
    report_list(outcomes, slo_us=slo_us, as_json=as_json)
    seen = [outcome.observation for outcome in outcomes if outcome.observation is not None]
    for observation in sorted(seen, key=lambda each: not each.interrupted):
        _leave(observation, strict=strict)


def _leave(observation: Observation, *, strict: bool) -> None:
    """Exit as the outcome demands; return when all is well."""
    if observation.interrupted:
        raise typer.Exit(EXIT_INTERRUPTED)
    if observation.num_ok == 0 or observation.fault or (strict and observation.client_limited):
        raise typer.Exit(EXIT_NEGATIVE)
