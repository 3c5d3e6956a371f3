"""``vtwin observe`` with its options read: run, print the result, exit with the result's code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from observe.event_loop import run_on_fastest_loop
from observe.observation import Observation, observe_with
from observe.result.json_document import summarize_observed
from observe.result.summary_table import summary_parts, table
from observe.run.panel import show
from traces import MOST_FAILED, ConfigError, ExitCode, note_replaced
from traces.facts import say_json, say_pasted
from traces.strict.tell import say_text, tell
from traces.workload import (
    clipping_notes,
    limit_note,
    seed_of,
    started,
    trace_from_options,
    with_cancellations,
)

if TYPE_CHECKING:
    from observe.options import ListOptions, TraceFileOptions
    from observe.settings import Settings
    from traces import Goodput, Trace
    from traces.workload import Cancellation, SessionStarts, WorkloadOptions


def observe_once(
    workload: WorkloadOptions,
    settings: Settings,
    *,
    starts: SessionStarts,
    cuts: Cancellation | None,
    output: Path,
    slo_us: Mapping[str, float],
    files: TraceFileOptions,
) -> None:
    """Observe one load into ``output``, with sessions begun by ``starts`` and requests cut by ``cuts``.

    Print the result; exit with its code.
    """
    requests = started(trace_from_options(workload), starts)
    requests = with_cancellations(requests, cuts, seed=seed_of(workload))
    files.gate.needs_limits(requests, slo_us)
    printed: list[str] = []
    _tell_clipping(workload)
    if (limit := limit_note(requests)) is not None:
        tell(f"observe: {limit}")
    if (note := note_replaced(output, overwrite=files.overwrite)) is not None:
        tell(f"observe: {note}")
    observation = run_on_fastest_loop(lambda: _observe(requests, settings, output=output, printed=printed))
    good = _report(observation, files=files, printed=printed, slo_us=slo_us)
    _exit(observation, strict=files.strict, max_error_frac=settings.max_error_frac)
    files.gate.check({"": good})


def _tell_clipping(workload: WorkloadOptions) -> None:
    for note in clipping_notes(workload):
        tell(f"observe: warning: {note}")


async def _observe(requests: Trace, settings: Settings, *, output: Path, printed: list[str]) -> Observation:
    """Observe with the terminal's display; lines that were shown are added to ``printed``."""

    def tell_line(line: str) -> None:
        printed.append(line)
        tell(f"observe: {line}")

    return await observe_with(
        requests, settings, output=output, display=show(), tell=tell_line, handle_signals=True
    )


def _report(
    observation: Observation, *, files: TraceFileOptions, printed: Sequence[str], slo_us: Mapping[str, float]
) -> Goodput | None:
    """Print the result on stdout: the table, or another form of it; return its goodput.

    Notes go to stderr, except those that were ``printed`` during the run.
    """
    summary = summarize_observed(observation.trace, slo_us=slo_us)
    if files.form is not None:
        say_pasted(files.form, lambda: summary_parts(summary), lambda: [summary])
    else:
        say_text(table(summary), err=files.as_json)
    for note in summary["notes"]:
        if note not in printed:
            tell(f"observe: {note}")
    if files.as_json:
        say_json(summary)
    return summary["goodput"]


def observe_loads(
    workload: WorkloadOptions,
    settings: Settings,
    *,
    options: ListOptions,
    cuts: Cancellation | None,
    folder: Path,
    slo_us: Mapping[str, float],
    files: TraceFileOptions,
) -> None:
    """Observe a list of loads into ``folder``, print the results, and exit with the code of the worst."""
    if files.gate.least is not None and not slo_us:
        raise ConfigError(
            "--strict-slo, --fail-below: got several runs and no latency limit, expected --slo LIMITS"
        )
    from observe.campaign_cli import observe_list, report_list

    _tell_clipping(workload)
    outcomes = run_on_fastest_loop(
        lambda: observe_list(
            workload, settings, options=options, cuts=cuts, folder=folder, overwrite=files.overwrite
        )
    )
    if options.repeat is None:
        report_list(outcomes, slo_us=slo_us, as_json=files.as_json, form=files.form)
    else:
        from observe.repeats.command import report_repeats

        report_repeats(outcomes, folder, slo_us=slo_us, as_json=files.as_json, form=files.form)
    seen = [outcome.observation for outcome in outcomes if outcome.observation is not None]
    for observation in sorted(seen, key=lambda each: not each.interrupted):
        _exit(observation, strict=files.strict, max_error_frac=settings.max_error_frac)
    files.gate.check(
        {
            outcome.load.name: summarize_observed(outcome.observation.trace, slo_us=slo_us)["goodput"]
            for outcome in outcomes
            if outcome.observation is not None
        }
    )


def _exit(observation: Observation, *, strict: bool, max_error_frac: float | None) -> None:
    """Exit with the outcome's code; return if all is well. ``max_error_frac``: None for 1 %."""
    if observation.interrupted:
        raise typer.Exit(ExitCode.INTERRUPTED)
    client = observation.trace.header.client
    if (
        client is not None and client.over_saturated
    ):  # its note has been told; what was dropped is no failure to name
        raise typer.Exit(ExitCode.NEGATIVE)
    most = MOST_FAILED if max_error_frac is None else max_error_frac
    number, num_failed = len(observation.trace), observation.num_failed
    if num_failed > most * number:
        share = num_failed / number
        tell(
            f"observe: {num_failed:,} of {number:,} requests failed ({share:.1%}, more than {most:.1%}): exit code 1. "
            "--max-error-rate FRAC allows more"
        )
        raise typer.Exit(ExitCode.NEGATIVE)
    is_unanswered = observation.num_ok == 0 and (num_failed > 0 or number == 0)
    if is_unanswered or observation.fault or (strict and observation.client_limited):
        raise typer.Exit(ExitCode.NEGATIVE)
