"""``vtwin observe``. What is heavy is imported by the command."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from traces.workload.options import WorkloadOptions, with_workload_options

if TYPE_CHECKING:
    from observe.observing import Observation
    from observe.settings import Settings
    from traces import Trace

Result = TypeVar("Result")

EXIT_NEGATIVE = 1
EXIT_INTERRUPTED = 130

SERVER = "Server"
CARE = "Care"


def _seconds(text: str) -> float:
    """Return seconds > 0; 0, none and off mean never: infinity."""
    from traces.workload.options import parse_seconds

    if text.strip().lower() in ("none", "off", "0"):
        return float("inf")
    seconds = parse_seconds(text)
    if not seconds > 0:
        raise typer.BadParameter(f"got {text!r}, expected a time > 0, or none")
    return seconds


@with_workload_options
def observe(  # noqa: PLR0913, PLR0917 - a command's options are its parameters
    workload: WorkloadOptions,
    url: Annotated[
        str, typer.Option(help="The server: http://HOST:PORT, with or without /v1.", rich_help_panel=SERVER)
    ],
    output: Annotated[
        Path,
        typer.Option(metavar="STEM", help="The trace; Parquet if it ends in .parquet, else CSV."),
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
    warmup_requests: Annotated[
        int,
        typer.Option(
            min=0, metavar="N", help="Sent before the clock starts, not in the trace.", rich_help_panel=CARE
        ),
    ] = 0,
    no_probe: Annotated[
        bool,
        typer.Option(
            "--no-probe",
            help="Do not try a server that is not known to be vLLM with a request of one token.",
            rich_help_panel=CARE,
        ),
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
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Send a load to a live endpoint and record the trace."""
    from observe.endpoint import parse_endpoint, redact_command
    from observe.settings import Limits, Settings
    from traces.workload import trace_from_options

    settings = Settings(
        endpoint=parse_endpoint(url, api_key=api_key, headers=header or (), verify_tls=not insecure),
        api=workload.api,
        model=model,
        limits=Limits(
            timeout_s=_finite(timeout),
            stall_timeout_s=_finite(stall_timeout),
            max_concurrency=max_concurrency,
        ),
        warmup_requests=warmup_requests,
        events=not no_itl,
        probe=not no_probe,
        salt=prompt_salt,
        command=redact_command(["vtwin", *sys.argv[1:]]),
    )
    requests = trace_from_options(workload)
    told: list[str] = []
    observation = run_on_fastest_loop(lambda: _observed(requests, settings, output=output, told=told))
    _report(observation, as_json=as_json, told=told)
    _leave(observation, strict=strict)


def _finite(seconds: float) -> float | None:
    return None if seconds == float("inf") else seconds


async def _observed(requests: Trace, settings: Settings, *, output: Path, told: list[str]) -> Observation:
    """Observe with the terminal's display; lines that were shown are added to ``told``."""
    from observe.observing import observe_with
    from observe.panel import show

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


def run_on_fastest_loop(start: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
    """Run the coroutine on uvloop where there is one, else on asyncio's own loop."""
    import asyncio

    try:
        import uvloop
    except ImportError:
        return asyncio.run(start())
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(start())


def _report(observation: Observation, *, as_json: bool, told: Sequence[str]) -> None:
    """Print the summary on stderr, without notes already told; if asked for, the document on stdout."""
    from observe.summary import summarize_observed, table

    summary = summarize_observed(observation.trace)
    typer.echo(table(summary), err=True)
    for note in summary["notes"]:
        if note not in told:
            typer.echo(f"observe: {note}", err=True)
    if as_json:
        typer.echo(json.dumps(summary, indent=2))


def _leave(observation: Observation, *, strict: bool) -> None:
    """Exit as the outcome demands; return when all is well."""
    if observation.interrupted:
        raise typer.Exit(EXIT_INTERRUPTED)
    if observation.num_ok == 0 or (strict and observation.client_limited):
        raise typer.Exit(EXIT_NEGATIVE)
