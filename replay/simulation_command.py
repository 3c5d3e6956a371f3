"""``replay`` and ``run`` once they have a trace: simulate it, write the result, show the summary."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

import typer

from replay.progress import working
from replay.ready import prepare_engine
from traces.console.slo_gate import SloGate
from traces.facts import TermRows, say_answer
from traces.strict.secrets import redact_command
from traces.strict.tell import tell

if TYPE_CHECKING:
    from replay.cluster.counterfactual import Counterfactual
    from replay.cluster.fitness import Fitness
    from replay.pace_band import PaceBand
    from replay.search.prices import ServerPrices
    from replay.simulated_run import Plan, Run, RunSettings
    from replay.trace.measured_window import MeasuredPart
    from replay.twin.twin_config import TwinConfig
    from traces import Trace
    from traces.console.options import AnswerForm
    from traces.facts import AnswerPart


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationOptions:
    """How to simulate, what to measure and what to write.

    ``slo_us``: latency limits in µs by metric; ``horizon_us``: the run's end.
    ``overwrite``: the page may replace any file. ``checks_memory``: tell where the answer hangs on the KV cache's
    size.
    """

    at: Literal["auto", "arrival", "send"]
    loop: Literal["auto", "closed", "open"]
    itl: bool
    steps: Path | None
    dialect: Literal["vtwin", "blis"]
    answer: AnswerForm
    measured: MeasuredPart
    slo_us: Mapping[str, float] = field(default_factory=dict)
    max_concurrency: int | None = None
    horizon_us: int | None = None
    series: Path | None = None
    gate: SloGate = field(default_factory=SloGate)
    trace_events: Path | None = None
    report: Path | None = None
    operator_times: bool = False
    decisions: Path | None = None
    counterfactual: int | None = None
    fitness_weights: Mapping[str, float] = field(default_factory=dict)
    prices: ServerPrices | None = None
    overwrite: bool = False
    checks_memory: bool = True

    def settings(self) -> RunSettings:
        """Return how to simulate and what to measure."""
        from replay.simulated_run import RunSettings

        return RunSettings(
            at=self.at,
            loop=self.loop,
            max_concurrency=self.max_concurrency,
            itl=self.itl,
            measured=self.measured,
            slo_us=self.slo_us,
            horizon_us=self.horizon_us,
            decides=self.decisions is not None or self.counterfactual is not None,
        )


def simulate_and_write(
    trace: Trace, twin: TwinConfig, *, output: Path | None, options: SimulationOptions
) -> None:
    """Simulate, write the trace (and the steps), show the summary. Raises typer.Exit(1) where nothing finished."""
    from replay.cluster.fitness import fitness
    from replay.simulated_run import plan
    from replay.trace.operator_times import check_has_operators

    planned = plan(trace, twin, options.settings())
    _check_options(planned, options)
    options.gate.needs_limits(trace, options.slo_us)
    if options.operator_times:
        check_has_operators(planned.twin)
    for note in planned.notes():
        tell(f"note: {note}")
    prepare_engine(planned.twin, has_gateway=planned.has_gateway, trace=trace)
    with working(f"simulating {len(trace):,} requests"):
        run = planned.run()
        summary = run.summary
    _write_steps(run, options)
    if options.operator_times:
        summary["operator_times"] = run.operator_times
    for note in run.notes:
        tell(f"note: {note}")
    with working("simulating at the paces that the fit leaves open"):
        band = run.band
    added = {**_of_cluster(run, options), **_memory_told(run, options)}
    if options.series is not None:
        _write_series(options.series, run)
    if options.answer.as_json:
        with working("looking at the server over time"):
            added["over_time"] = run.over_time
    score = fitness(summary, options.fitness_weights) if options.fitness_weights else None
    if output is not None:
        _write_trace(run, output, options)
    if options.report is not None:
        _write_report(options.report, run, overwrite=options.overwrite)
    _show(run, added, score, band, how=options.answer)
    if len(trace) and not summary["num_by_status"].get("ok"):
        tell(_why_none_finished(run))
        raise typer.Exit(1)
    options.gate.check({"": summary["goodput"]})


def _why_none_finished(run: Run) -> str:
    """Return the line that says why no request finished."""
    if run.plan.has_gateway:
        from replay.cluster.summary import why_none_completed

        return why_none_completed(run.fleet)
    from replay.trace.summary_text import why_none_finished

    return why_none_finished(run.summary)


def _check_options(planned: Plan, options: SimulationOptions) -> None:
    """Raise ConfigError on options that need a cluster, and on decisions that cannot be written."""
    from traces import ConfigError

    if planned.twin.is_plain_server:
        for name, given in (("--decisions", options.decisions), ("--counterfactual", options.counterfactual)):
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
    if options.steps is None and options.trace_events is None and not options.operator_times:
        return
    from replay.timeline.trace_events import write_trace_events
    from replay.trace.step_lines import write_steps

    with working("taking the steps one at a time"):
        if options.steps is not None:
            write_steps(options.steps, run.step_lines(with_operators=options.operator_times))
        if options.trace_events is not None:
            write_trace_events(
                options.trace_events,
                run.engine_steps(),
                run.trace,
                run.simulation.outcomes,
                split=run.fleet.result.split,
            )


def _memory_told(run: Run, options: SimulationOptions) -> dict[str, object]:
    """Return what a KV cache whose size nobody told adds to the document, after telling it; nothing if it is told."""
    if not options.checks_memory:
        return {}
    with working("simulating with other sizes of the KV cache"):
        found = run.kv_doubt
    if found is None:
        return {}
    line = found.line()
    if line is not None:
        tell(f"note: {line}")
    return {"kv_doubt": found.document()}


def _of_cluster(run: Run, options: SimulationOptions) -> dict[str, object]:
    """Return what a cluster adds to the document, after writing its decisions if requested; nothing for one server."""
    if run.of_cluster is None:
        return {}
    from replay.cluster.counterfactual import counterfactuals
    from replay.cluster.decisions import summarize_regret, write_decisions

    added: dict[str, object] = {**run.of_cluster}
    if options.decisions is not None:
        write_decisions(options.decisions, run.fleet, run.cluster)
    if run.fleet.result.decisions is not None:
        added["regret"] = summarize_regret(run.fleet.result.decisions, run.cluster)
    if options.counterfactual is not None:
        with working("simulating with other decisions"):
            added["counterfactuals"] = counterfactuals(
                run.fleet, run.cluster, num=options.counterfactual, seed=run.twin.seed
            )
    return added


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
        write_trace(with_origin(run.trace, run.twin), output, dialect=options.dialect, events=options.itl)


def _write_report(path: Path, run: Run, *, overwrite: bool) -> None:
    """Write the page of a run."""
    from replay.run_report import run_page
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


def _show(
    run: Run,
    of_cluster: Mapping[str, object],
    score: Fitness | None,
    band: PaceBand | None,
    *,
    how: AnswerForm,
) -> None:
    """Print the result on stdout: the table, or the JSON document with the warnings."""
    from replay.trace.summary_text import speed_line
    from replay.twin.config_write import name_of

    twin = run.twin
    if not how.as_json:
        tell(speed_line(run.summary))
    say_answer(
        lambda: {
            **run.summary,
            **of_cluster,
            **({} if score is None else {"fitness": score}),
            **({} if band is None else {"pace_band": band}),
            "latency": {"model": name_of(twin.latency), "reason": twin.latency_reason or None},
            "unanswered": twin.unanswered_document,
            "warnings": list(run.warnings),
        },
        lambda: _parts(run, of_cluster, score, band),
        how,
    )


def _parts(
    run: Run, of_cluster: Mapping[str, object], score: Fitness | None, band: PaceBand | None
) -> list[AnswerPart]:
    """Return a run's text for the terminal."""
    from replay.cluster.fitness import fitness_row
    from replay.pace_band import band_parts

    parts = [*run.parts, *band_parts(band)]
    if score is not None:
        parts.append(TermRows([fitness_row(score)]))
    if run.of_cluster is None:
        return parts
    from replay.cluster.counterfactual import counterfactual_parts
    from replay.cluster.summary import cluster_parts

    others = cast("list[Counterfactual]", of_cluster.get("counterfactuals", []))
    return [*parts, *cluster_parts(run.of_cluster), *counterfactual_parts(others)]
