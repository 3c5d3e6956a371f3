"""``replay`` and ``run`` once they have a trace: simulate it, write the result, show the summary."""

from __future__ import annotations

import os
import sys
from lazy_dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

from replay.console.progress import working
from replay.console.ready import prepare_engine
from traces import ExitCode
from traces.console.slo_gate import SloGate
from traces.facts import say_answer
from traces.strict.secrets import redact_command
from traces.strict.tell import tell

if TYPE_CHECKING:
    from replay.model.prices import ServerPrices
    from replay.simulation.run_plan import Plan, RunSettings
    from replay.simulation.simulated_run import Run
    from replay.twin.twin_config import TwinConfig
    from traces import Trace
    from traces.console.options import AnswerForm


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationOptions:
    """How to simulate, what to measure (``how``), and what to write and print.

    ``overwrite``: the page may replace any file.
    """

    how: RunSettings
    steps: Path | None
    dialect: Literal["vtwin", "blis"]
    answer: AnswerForm
    series: Path | None = None
    gate: SloGate = field(default_factory=SloGate)
    trace_events: Path | None = None
    report: Path | None = None
    decisions: Path | None = None
    prices: ServerPrices | None = None
    overwrite: bool = False


def simulate_and_write(
    trace: Trace, twin: TwinConfig, *, output: Path | None, options: SimulationOptions
) -> None:
    """Simulate, write the trace (and the steps), show the summary. Raises typer.Exit where nothing finished."""
    from replay.simulation.run_plan import plan
    from replay.simulation.simulated_run import carry_out
    from replay.trace.summary_text import speed_line

    planned = plan(trace, twin, options.how)
    _check_options(planned, options)
    for note in planned.notes():
        tell(f"note: {note}")
    prepare_engine(planned.twin, has_gateway=planned.has_gateway, trace=trace)
    with working(f"simulating {len(trace):,} requests"):
        run = carry_out(planned)
        summary = run.summary
    _write_steps(run, options)
    for note in run.notes:
        tell(f"note: {note}")
    _look_further(run, options)
    if output is not None:
        _write_trace(run, output, options)
    if options.report is not None:
        _write_report(options.report, run, overwrite=options.overwrite)
    if not options.answer.as_json:
        tell(speed_line(summary))
    say_answer(run.document, lambda: run.answer_parts, options.answer)
    if len(trace) and not summary["num_by_status"].get("ok"):
        tell(why_no_answer(run))
        raise typer.Exit(ExitCode.NEGATIVE)
    options.gate.check({"": summary["goodput"]})


def _look_further(run: Run, options: SimulationOptions) -> None:
    """Simulate what the first run left open, each with its progress, and write what hangs on it."""
    with working("simulating at the paces that the fit leaves open"):
        _ = run.band
    if options.decisions is not None:
        from replay.cluster.decisions import write_decisions

        write_decisions(options.decisions, run.fleet, run.cluster)
    if options.how.counterfactual is not None:
        with working("simulating with other decisions"):
            _ = run.counterfactuals
    if options.how.checks_memory:
        with working("simulating with other sizes of the KV cache"):
            doubt = run.kv_doubt
        if doubt is not None and (line := doubt.line()) is not None:
            tell(f"note: {line}")
    if options.series is not None:
        _write_series(options.series, run)
    if options.answer.as_json:
        with working("looking at the server over time"):
            _ = run.over_time


def why_no_answer(run: Run) -> str:
    """Return the line that says why no request finished."""
    if run.plan.has_gateway:
        from replay.cluster.summary import why_none_completed

        return why_none_completed(run.fleet)
    from replay.trace.summary_text import why_none_finished

    return why_none_finished(run.summary)


def _check_options(planned: Plan, options: SimulationOptions) -> None:
    """Raise ConfigError on options that neither twin nor trace can have, and on decisions that cannot be written."""
    from replay.trace.operator_times import check_has_operators
    from traces import ConfigError

    options.gate.needs_limits(planned.asked, options.how.slo_us)
    if options.how.operator_times:
        check_has_operators(planned.twin)
    if planned.twin.is_plain_server:
        for name, given in (
            ("--decisions", options.decisions),
            ("--counterfactual", options.how.counterfactual),
        ):
            if given is not None:
                raise ConfigError(
                    f"{name}: got it without a cluster, expected cluster in TWIN.yaml or --instances"
                )
        return
    if options.decisions is not None:
        from replay.cluster.decisions import check_can_write

        check_can_write(options.decisions)


def _write_steps(run: Run, options: SimulationOptions) -> None:
    """Write the steps, and the requests for a viewer, if requested; for that each step is simulated singly."""
    if options.steps is None and options.trace_events is None and not options.how.operator_times:
        return
    from replay.timeline.trace_events import write_trace_events
    from replay.trace.step_lines import write_steps

    with working("taking the steps one at a time"):
        if options.steps is not None:
            write_steps(options.steps, run.step_lines(with_operators=options.how.operator_times))
        if options.trace_events is not None:
            write_trace_events(
                options.trace_events,
                run.engine_steps(),
                run.trace,
                run.simulation.outcomes,
                split=run.fleet.result.split,
            )


def _write_series(path: Path, run: Run) -> None:
    """Write the run over time as CSV."""
    from replay.timeline.series_csv import write_series

    with working("looking at the server over time"):
        write_series(path, run.over_time, run.fleet)
    tell(f"wrote {path}")


def _write_trace(run: Run, output: Path, options: SimulationOptions) -> None:
    """Write the simulated trace."""
    from replay.cluster.memory import return_freed
    from traces import write_trace

    return_freed()  # of a long trace the summary has left much
    with working(f"writing {output}"):
        write_trace(with_origin(run.trace, run.twin), output, dialect=options.dialect, events=options.how.itl)


def _write_report(path: Path, run: Run, *, overwrite: bool) -> None:
    """Write the page of a run."""
    from replay.simulation.page import run_page
    from traces import write_text
    from traces.pages import render

    page = run_page(run, command=redact_command(["vtwin", *sys.argv[1:]], os.environ))
    write_text(path, render(page), option="--report", overwrite=overwrite)
    tell(f"wrote {path}")


def with_origin(simulated: Trace, twin: TwinConfig) -> Trace:
    """Return a simulated trace whose header says how it was made."""
    from replay.twin.config_write import config_digest

    command = redact_command(["vtwin", *sys.argv[1:]], os.environ)
    return simulated.with_header(command=command, config_digest=config_digest(twin), seed=twin.seed)
