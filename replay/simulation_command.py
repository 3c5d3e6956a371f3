"""What ``replay`` and ``run`` do once they have a trace: simulate it, write the result, show the summary."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

from traces.strict.secrets import redact_command
from traces.strict.tell import say, say_text, tell

if TYPE_CHECKING:
    from types import ModuleType

    from replay.cluster.counterfactual import Counterfactual
    from replay.cluster.fitness import Fitness
    from replay.cluster.over_time import OverTime
    from replay.cluster.simulate import FleetRun
    from replay.pace_band import PaceBand
    from replay.timeline.page import RunPage
    from replay.trace.measured_window import Measured
    from replay.trace.pacing import Pacing
    from replay.trace.simulation_summary import Summary
    from replay.twin.config import TwinConfig
    from replay.twin.keys.overlay import Setting
    from replay.verdict.judged import Judged
    from sim import Requests, Simulation
    from sim.config import Record
    from traces import Trace

AnywayOption = Annotated[
    bool, typer.Option("--anyway", help="Simulate a server that vLLM would refuse to start.")
]
PATIENCE_S = 2.0
"""What takes longer than this says what it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationOptions:
    """How to simulate, what to measure and what to write.

    ``slo_us``: latency limits in µs by metric; ``horizon_us``: the run's end.
    ``overwrite``: the page may replace any file.
    """

    at: Literal["auto", "arrival", "send"]
    loop: Literal["auto", "closed", "open"]
    itl: bool
    steps: Path | None
    dialect: Literal["vtwin", "blis"]
    as_json: bool
    measured: Measured
    slo_us: Mapping[str, float] = field(default_factory=dict)
    max_concurrency: int | None = None
    horizon_us: int | None = None
    trace_events: Path | None = None
    report: Path | None = None
    operator_times: bool = False
    decisions: Path | None = None
    counterfactual: int | None = None
    fitness_weights: Mapping[str, float] = field(default_factory=dict)
    overwrite: bool = False


def simulate_and_write(
    trace: Trace, twin: TwinConfig, *, output: Path | None, options: SimulationOptions
) -> None:
    """Simulate, write the trace (and the steps), show the summary. Raises typer.Exit(1) where nothing finished."""
    from replay.cluster.fitness import fitness
    from replay.trace.operator_times import check_has_operators, times_of
    from replay.trace.pacing import pacing_of, waits_for_answers
    from replay.trace.simulation_summary import summarize
    from replay.trace.trace_notes import trace_notes
    from replay.twin.config import as_cluster_of_one, check_fits

    check_fits(twin, trace)
    is_one = twin.cluster is None
    if is_one and waits_for_answers(trace, options.loop, max_concurrency=options.max_concurrency):
        twin = as_cluster_of_one(twin)
    _check_options(twin, options, is_one=is_one)
    if options.operator_times:
        check_has_operators(twin)
    pacing = pacing_of(
        trace,
        options.loop,
        at=options.at,
        max_concurrency=options.max_concurrency,
        simulates_rounds=twin.cluster is not None,
    )
    notes = trace_notes(trace, twin, pacing)
    for note in notes:
        tell(f"note: {note}")
    prepare_engine(twin)
    with working(f"simulating {len(trace):,} requests"):
        done = simulated_of(trace, twin, pacing, options=options)
        simulated, simulation, fleet = done.trace, done.simulation, done.fleet
        summary = summarize(
            simulation, simulated, engine=twin.engine, slo_us=options.slo_us, measured=options.measured
        )
    if options.trace_events is not None:
        _write_trace_events(options.trace_events, trace, twin, pacing, done, options=options)
    if options.steps is not None or options.operator_times:
        single = _one_step_at_a_time(trace, twin, options=options)
        if options.operator_times:
            summary["operator_times"] = times_of(single, twin)
    judged = judge(summary, done, twin, pacing)
    outside = outside_of(simulated, twin)
    beyond = _limits_of(outside, judged, summary["num_by_status"])
    band = band_of(trace, twin, pacing, is_beyond=outside is not None, options=options)
    of_cluster = {} if fleet is None or is_one else _of_cluster(fleet, twin, options=options)
    over_time = _over_time(trace, done, twin, pacing) if options.as_json else None
    score = fitness(summary, options.fitness_weights) if options.fitness_weights else None
    if output is not None:
        from replay.cluster.memory import return_freed
        from traces import write_trace

        return_freed()  # of a long trace the summary has left much
        with working(f"writing {output}"):
            write_trace(with_origin(simulated, twin), output, dialect=options.dialect, events=options.itl)
    warnings = (*twin.notes, *notes, *beyond)
    if options.report is not None:
        _write_report(
            options.report,
            summary,
            (trace, done, band),
            twin,
            pacing,
            options=options,
            warnings=warnings,
            is_one=is_one,
        )
    added = {**of_cluster, "over_time": over_time} if options.as_json else of_cluster
    _show(summary, twin, added, score, band, as_json=options.as_json, warnings=warnings)
    if len(trace) and not summary["num_by_status"].get("ok"):
        tell(_why_none_finished(summary, fleet))
        raise typer.Exit(1)


def _why_none_finished(summary: Summary, fleet: FleetRun | None) -> str:
    """Return the line that says why no request finished."""
    if fleet is not None:
        from replay.cluster.summary import why_none_completed

        return why_none_completed(fleet)
    from replay.trace.simulation_summary import why_none_finished

    return why_none_finished(summary)


def _check_options(twin: TwinConfig, options: SimulationOptions, *, is_one: bool) -> None:
    """Raise ConfigError on what a cluster cannot do yet, and on what only a cluster can; ``is_one``: one server."""
    from traces.errors import ConfigError

    if is_one:
        for name, given in (("--decisions", options.decisions), ("--counterfactual", options.counterfactual)):
            if given is not None:
                raise ConfigError(
                    f"{name}: got it without a cluster, expected cluster in TWIN.yaml or --instances"
                )
    if twin.cluster is None:
        return
    what = "sessions or waves that wait for answers" if is_one else "a cluster"
    expected = "requests with times of their own" if is_one else "one server"
    for name, given in (
        ("--steps", options.steps),
        ("--operator-times", options.operator_times or None),
    ):
        if given is not None:
            raise ConfigError(f"{name}: got it with {what}, expected {expected}: not recorded there yet")
    if options.decisions is not None:
        from replay.cluster.decisions import check_can_write

        check_can_write(options.decisions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """A simulated trace, the simulation, what else is known of a cluster, and of one server its requests as paced."""

    trace: Trace
    simulation: Simulation
    fleet: FleetRun | None
    requests: Requests | None


def simulated_of(trace: Trace, twin: TwinConfig, pacing: Pacing, *, options: SimulationOptions) -> Simulated:
    """Return a trace simulated, with its tokens' times where they are wanted."""
    import numpy as np

    from replay.trace.pacing import paced_requests
    from replay.trace.simulate import simulate_trace
    from traces import request_latencies

    record: Record = "tokens" if options.itl else "spans"
    fleet = requests = None
    if twin.cluster is None:
        requests = paced_requests(trace, pacing, block_size=twin.engine.block_size)
        simulated, simulation = simulate_trace(
            trace,
            twin,
            at=options.at,
            closed_loop=options.loop,
            record=record,
            max_concurrency=options.max_concurrency,
            horizon_us=options.horizon_us,
            requests=requests,
        )
    else:
        from replay.cluster.over_time import POINTS
        from replay.cluster.simulate import simulate_fleet
        from replay.trace.measured_window import EVERYTHING
        from traces import is_warmup

        decides = options.decisions is not None or options.counterfactual is not None
        fleet = simulate_fleet(
            trace,
            twin.cluster,
            pacing,
            record=record,
            records_decisions=decides,
            points=POINTS,
            until_us=options.horizon_us,
            keeps_logs=options.measured != EVERYTHING or bool(is_warmup(trace).any()),
        )
        simulated, simulation = fleet.trace, fleet.simulation
    if not options.itl:
        return Simulated(trace=simulated, simulation=simulation, fleet=fleet, requests=requests)
    gaps = request_latencies(simulated)  # the columns that a simulation without token times brings itself
    columns = {name: np.round(gaps[name], 3) for name in ("itl_mean_us", "itl_p99_us")}
    simulated = simulated.with_columns(**columns)
    return Simulated(trace=simulated, simulation=simulation, fleet=fleet, requests=requests)


def _of_cluster(fleet: FleetRun, twin: TwinConfig, *, options: SimulationOptions) -> dict[str, object]:
    """Return what a cluster adds to the document, its decisions written where asked."""
    from replay.cluster.counterfactual import counterfactuals
    from replay.cluster.decisions import summarize_regret, write_decisions
    from replay.cluster.summary import summarize_cluster

    assert twin.cluster is not None  # noqa: S101 - it was simulated
    added: dict[str, object] = {**summarize_cluster(fleet, twin.cluster, measured=options.measured)}
    if options.decisions is not None:
        write_decisions(options.decisions, fleet, twin.cluster)
    if fleet.result.decisions is not None:
        added["regret"] = summarize_regret(fleet.result.decisions, twin.cluster)
    if options.counterfactual is not None:
        with working("simulating with other decisions"):
            added["counterfactuals"] = counterfactuals(
                fleet, twin.cluster, num=options.counterfactual, seed=twin.seed
            )
    return added


def _over_time(trace: Trace, done: Simulated, twin: TwinConfig, pacing: Pacing) -> OverTime | None:
    """Return the run in stretches; one server is simulated once more for it."""
    if done.fleet is None or twin.cluster is None:
        from replay.timeline.one_server import server_over_time

        with working("looking at the server over time"):
            return server_over_time(trace, twin, pacing, done.simulation)
    from replay.cluster.over_time import stretches, summarize_over_time

    found = stretches(done.fleet, twin.peaks)
    return None if found is None else summarize_over_time(found, done.fleet, twin.cluster)


def _one_step_at_a_time(trace: Trace, twin: TwinConfig, *, options: SimulationOptions) -> Simulation:
    """Return the same simulation, its steps recorded, and write them where asked: the engine is deterministic."""
    from replay.trace.simulate import simulate_trace
    from replay.trace.steps import write_steps

    with working("taking the steps one at a time"):
        single = simulate_trace(
            trace,
            twin,
            at=options.at,
            closed_loop=options.loop,
            record="steps",
            max_concurrency=options.max_concurrency,
            horizon_us=options.horizon_us,
        )[1]
        if options.steps is not None:
            write_steps(options.steps, single.steps())
    return single


def judge(summary: Summary, done: Simulated, twin: TwinConfig, pacing: Pacing) -> Judged | None:
    """Put the offered rate and the verdict into a summary, and return it; None where there is none.

    A run that a horizon cut has no verdict, nor one whose pace the answers set.
    """
    from replay.run_verdict import judge_run
    from replay.trace.simulation_summary import offered_rate_per_s

    if pacing.is_by_answers and pacing.users != 0:
        return None
    summary["offered_rate_per_s"] = None if pacing.is_by_answers else offered_rate_per_s(done.trace)
    if summary["incomplete"] is not None:
        return None
    judged = judge_run(done.simulation.outcomes, twin, pacing, requests=done.requests, fleet=done.fleet)
    if judged is not None:
        summary["verdict"], summary["load"] = judged.verdict, judged.facts
    return judged


def _write_trace_events(
    path: Path, trace: Trace, twin: TwinConfig, pacing: Pacing, done: Simulated, *, options: SimulationOptions
) -> None:
    """Take the steps one at a time, of every engine, and write them with the requests for a viewer."""
    from replay.timeline.trace_events import EngineSteps, write_trace_events
    from replay.trace.simulate import simulate_trace

    with working("taking the steps one at a time"):
        if twin.cluster is None:
            single = simulate_trace(
                trace,
                twin,
                at=options.at,
                closed_loop=options.loop,
                record="steps",
                max_concurrency=options.max_concurrency,
                horizon_us=options.horizon_us,
                requests=done.requests,
            )[1]
            engines = [
                EngineSteps(name="engine", steps=single.steps(), num_blocks=twin.engine.num_gpu_blocks)
            ]
        else:
            from replay.cluster.simulate import simulate_fleet

            run = simulate_fleet(trace, twin.cluster, pacing, record="steps", until_us=options.horizon_us)
            pools = twin.cluster.pools
            engines = [
                EngineSteps(
                    name=each.name,
                    steps=each.written.steps(),
                    num_blocks=pools[each.pool].engine.num_gpu_blocks,
                )
                for each in run.result.instances
            ]
        split = None if done.fleet is None else done.fleet.result.split
        write_trace_events(path, engines, done.trace, done.simulation.outcomes, split=split)


def _write_report(
    path: Path,
    summary: Summary,
    run: tuple[Trace, Simulated, PaceBand | None],
    twin: TwinConfig,
    pacing: Pacing,
    *,
    options: SimulationOptions,
    warnings: tuple[str, ...],
    is_one: bool,
) -> None:
    """Write the page of a run, ``run``: its requests, what became of them, its band; ``is_one``: of one server."""
    from replay.timeline.page import RunPage, write_run_page
    from replay.timeline.watch import watched
    from replay.timeline.watch_fleet import watched_fleet
    from replay.twin.config_write import dump_config

    trace, done, band = run
    if twin.cluster is None or done.fleet is None:
        usage = watched(trace, twin, pacing, duration_us=done.simulation.duration_us)
    else:
        usage = watched_fleet(done.fleet, twin.cluster)
    page = RunPage(
        trace=done.trace,
        summary=summary,
        usage=usage,
        batch_sizes=done.simulation.batch_sizes(),
        slo_us=options.slo_us,
        warnings=warnings,
        command=redact_command(["vtwin", *sys.argv[1:]], os.environ),
        twin=dump_config(twin),
        band=band,
    )
    if done.fleet is not None and not is_one:
        page = _with_fleet(page, done.fleet, twin, options=options)
    write_run_page(path, page, overwrite=options.overwrite)
    tell(f"wrote {path}")


def _with_fleet(page: RunPage, fleet: FleetRun, twin: TwinConfig, *, options: SimulationOptions) -> RunPage:
    """Return the page with what a cluster's has besides a server's."""
    from replay.cluster.over_time import stretches
    from replay.cluster.summary import summarize_cluster
    from replay.timeline.fleet_page import FleetView, fleet_sections
    from replay.timeline.fleet_size import size_headlines

    assert twin.cluster is not None  # noqa: S101 - it was simulated
    found = stretches(fleet, twin.peaks)
    assert found is not None  # noqa: S101 - it was looked at
    summary = summarize_cluster(fleet, twin.cluster, measured=options.measured)
    view = FleetView(run=fleet, cluster=twin.cluster, found=found, summary=summary)
    return replace(page, of_fleet=fleet_sections(view), headlines=size_headlines(summary))


def outside_of(simulated: Trace, twin: TwinConfig) -> str | None:
    """Return how far the run goes beyond what was fitted; None where it does not, or nobody knows."""
    from replay.twin.fitted.fitted_range import note_of_runs, range_of_run

    if twin.fitted is None:
        return None
    return note_of_runs(twin.fitted, [range_of_run(simulated)], is_cluster=twin.cluster is not None)


def band_of(
    trace: Trace, twin: TwinConfig, pacing: Pacing, *, is_beyond: bool, options: SimulationOptions
) -> PaceBand | None:
    """Return what the run comes to at the paces that the fit leaves open; None where the twin does not say."""
    from replay.pace_band import pace_band
    from replay.trace.simulation_summary import summarize

    if twin.pace is None:
        return None
    plain = replace(options, itl=False, decisions=None, counterfactual=None)

    def simulate(other: TwinConfig) -> Summary:
        done = simulated_of(trace, other, pacing, options=plain)
        return summarize(done.simulation, done.trace, slo_us=options.slo_us, measured=options.measured)

    with working("simulating at the paces that the fit leaves open"):
        return pace_band(twin, is_beyond=is_beyond, simulate=simulate)


def _limits_of(
    outside: str | None, judged: Judged | None, num_by_status: Mapping[str, int]
) -> tuple[str, ...]:
    """Tell and return how far the run goes beyond what was fitted, how near to saturation it is, and who fails."""
    from replay.trace.simulation_summary import failures_note

    found = [outside, None if judged is None else judged.text(), failures_note(num_by_status)]
    notes = tuple(note for note in found if note is not None)
    for note in notes:
        tell(f"note: {note}")
    return notes


def with_origin(simulated: Trace, twin: TwinConfig) -> Trace:
    """Return a simulated trace whose header says how it was made."""
    from replay.twin.config_write import config_digest

    command = redact_command(["vtwin", *sys.argv[1:]], os.environ)
    return simulated.with_header(command=command, config_digest=config_digest(twin), seed=twin.seed)


def _show(
    summary: Summary,
    twin: TwinConfig,
    of_cluster: Mapping[str, object],
    score: Fitness | None,
    band: PaceBand | None,
    *,
    as_json: bool,
    warnings: tuple[str, ...],
) -> None:
    """Print the result on stdout: the table, or the JSON document with the warnings that were told."""
    from replay.cluster.fitness import fitness_line
    from replay.pace_band import band_lines
    from replay.trace.simulation_summary import speed_line, table
    from replay.twin.config_write import name_of

    if not as_json:
        tell(speed_line(summary))
        say_text(table(summary, unanswered=twin.unanswered_keys))
        for line in band_lines(band):
            say(line)
        if score is not None:
            say(fitness_line(score))
        if of_cluster:
            from replay.cluster.counterfactual import counterfactual_lines
            from replay.cluster.summary import ClusterSummary, cluster_table

            say_text(cluster_table(cast("ClusterSummary", of_cluster)))
            for line in counterfactual_lines(
                cast("list[Counterfactual]", of_cluster.get("counterfactuals", []))
            ):
                say(line)
        return
    latency = {"model": name_of(twin.latency), "reason": twin.latency_reason or None}
    document = {
        **summary,
        **of_cluster,
        **({} if score is None else {"fitness": score}),
        **({} if band is None else {"pace_band": band}),
        "latency": latency,
        "unanswered": twin.unanswered_document,
        "warnings": list(warnings),
    }
    say_text(json.dumps(document, indent=2, allow_nan=False))


def load_twins(
    config: Path,
    defaults: Path | None,
    settings: Sequence[str] | None,
    *,
    instances: int | None = None,
    routing: str | None = None,
    anyway: bool = False,
    base: bool = False,
) -> list[tuple[tuple[Setting, ...], TwinConfig]]:
    """Return a configuration once for every combination of ``--set`` values, notes told once.

    ``base``: also the file as it is, first. Raises ConfigError, also where vLLM would not start the model on its GPU,
    unless ``anyway``.
    """
    from replay.twin.config import load_config, with_cluster
    from replay.twin.keys.overlay import notes_of_variants, parse_settings, variants_of
    from traces.errors import ConfigError

    found = []
    changed = variants_of(parse_settings(settings or ()))
    if base and changed == [()]:
        raise ConfigError("--base: got it without --set, expected settings to compare with the file as it is")
    for each in [(), *changed] if base else changed:
        twin = load_config(config, defaults=defaults, allows_cluster=True, settings=each)
        if not anyway:
            check_starts(twin)
        found.append((each, with_cluster(twin, instances=instances, routing=routing)))
    for note in notes_of_variants(twin.notes for _, twin in found):
        tell(f"note: {note}")
    return found


def check_starts(twin: TwinConfig) -> None:
    """Raise ConfigError where vLLM would not start: of too little GPU memory, or flags that do not go together."""
    from traces.errors import ConfigError

    if twin.will_not_start:
        fault = twin.will_not_start[0]
        is_budget = fault.startswith("engine.max_num_batched_tokens")
        wanted = "larger engine.max_num_batched_tokens" if is_budget else "smaller engine.max_model_len"
        raise ConfigError(f"{fault} ({twin.source}). Set a {wanted}, or simulate it --anyway")


def _is_compiled() -> bool:
    with _without_scipy():
        from sim.ready import is_compiled

        return is_compiled()


def load_engine() -> None:
    """Have the engine compiled and loaded, so that its CPU time in the summary is the simulation's."""
    with _without_scipy():
        from sim import compile_engine
        from sim.ready import is_compiled

        if not is_compiled():
            tell("compiling the engine once: half a minute, longer on a busy machine …")
        compile_engine()


@contextmanager
def _without_scipy() -> Iterator[None]:
    """Let numba load its functions without scipy, which it only asks whether there is linear algebra.

    The engine has none, and scipy takes a tenth of a second to import. Where it is there already, nothing changes.
    """
    asked = "scipy.linalg.cython_blas"
    if asked in sys.modules:
        yield
        return
    sys.modules[asked] = cast("ModuleType", None)  # which Python takes for a module that cannot be imported
    try:
        yield
    finally:
        del sys.modules[asked]


def prepare_engine(twin: TwinConfig) -> None:
    """Have all compiled code ready that a twin needs: of a cluster's own what one server needs is loaded when it is."""
    if twin.cluster is None or not _is_compiled():
        load_engine()
    if twin.cluster is not None:
        from sim.cluster.ready import compile_cluster

        with (
            _without_scipy(),
            working("compiling the cluster once: up to a minute, longer on a busy machine"),
        ):
            compile_cluster()


@contextmanager
def working(what: str) -> Iterator[None]:
    """Say what is being done once it has taken two seconds: a line, or in a terminal a spinner."""
    done = threading.Event()
    teller = threading.Thread(target=_tell, args=(what, done), daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()


def _tell(what: str, done: threading.Event) -> None:
    if done.wait(PATIENCE_S):
        return
    if not sys.stderr.isatty():
        tell(f"{what} …")
        return
    from rich.console import Console

    with suppress(OSError), Console(stderr=True).status(f"{what} …"):
        done.wait()
