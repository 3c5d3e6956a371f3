"""The options of ``run``, which is also ``replay``: tables, each a group of related options."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from replay.console.twins import AnywayOption, InstancesOption, RoutingOption, load_twins
from replay.simulation.command import SimulationOptions
from traces.console.options import AnswerForm, ConfigOption, DefaultsOption
from traces.console.slo_gate import SloGate
from traces.strict.option_table import option_table
from traces.workload import CancelOptions, SessionOptions, WorkloadOptions

if TYPE_CHECKING:
    from replay.twin.keys.overlay import Setting
    from replay.twin.twin_config import TwinConfig


@option_table
class PacingOptions:
    """When requests come."""

    at: Annotated[
        Literal["auto", "arrival", "send"],
        typer.Option(
            help="When requests reach the engine. auto: the send times if recorded, else the scheduled times."
        ),
    ] = "auto"
    closed_loop: Annotated[
        bool | None,
        typer.Option(
            "--closed-loop/--open-loop",
            help="Whether answers release the next requests, as with a fixed number of users or a cap on requests in "
            "flight. Default: as the trace was recorded.",
        ),
    ] = None
    max_concurrency: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="The client sends at most N requests at a time: simulate it so. A trace whose header says it needs no "
            "option.",
        ),
    ] = None

    @property
    def loop(self) -> Literal["auto", "closed", "open"]:
        """Whether answers release the next requests; auto: as the trace was recorded."""
        if self.closed_loop is None:
            return "auto"
        return "closed" if self.closed_loop else "open"


@option_table
class LoadOptions:
    """Several loads."""

    workload: WorkloadOptions
    sessions: SessionOptions = SessionOptions()
    cancel: CancelOptions = CancelOptions()
    pacing: PacingOptions = PacingOptions()
    sweep: Annotated[
        str | None,
        typer.Option(
            metavar="VALUES",
            help="One simulation per value, side by side: rates (1,2,4) or numbers of users (concurrency=8,16).",
        ),
    ] = None
    after: Annotated[
        Path | None,
        typer.Option(
            metavar="TRACE",
            help="A run before this one: its requests are simulated first, a minute before, so that prefix caches and "
            "routers are as it leaves them. They are in no latency and no throughput.",
        ),
    ] = None


@option_table
class TwinOptions:
    """Twin and output."""

    config: ConfigOption
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="STEM",
            help="Write the simulated trace: Parquet if it ends in .parquet, else CSV. With several variants: a "
            "folder.",
        ),
    ] = None
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A key of TWIN.yaml in place of the file's: engine.max_num_seqs=64. Several values, with commas "
            "between, give variants side by side; a list stands in brackets. Repeatable.",
        ),
    ] = None
    base: Annotated[
        bool,
        typer.Option("--base", help="With --set: also simulate TWIN.yaml unchanged, in the first column."),
    ] = False
    answer: AnswerForm = AnswerForm()


@option_table
class RunFileOptions:
    """What is written beside the simulated trace."""

    itl: Annotated[bool, typer.Option("--itl", help="Also write the time of every token (STEM.itl.csv).")] = (
        False
    )
    steps: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.jsonl",
            help="Write every step of the engine, or of each instance, one JSON object a line.",
        ),
    ] = None
    series: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.csv",
            help="Write the run over time, a row per stretch of time and instance: requests running and waiting, KV "
            "cache in use, busy share, prefix hits.",
        ),
    ] = None
    trace_events: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.json",
            help="Write steps and requests as Trace Event Format JSON, for ui.perfetto.dev or chrome://tracing.",
        ),
    ] = None
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.html",
            help="Write a page: latencies and throughput over time, requests in flight, KV cache, batch sizes. Of "
            "several variants: one that compares them.",
        ),
    ] = None
    decisions: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write every routing decision and what the router saw, as FILE.jsonl or FILE.parquet.",
        ),
    ] = None
    dialect: Annotated[
        Literal["vtwin", "blis"], typer.Option(help="blis: only the columns and keys that BLIS reads.")
    ] = "vtwin"


@option_table
class BehindRouterOptions:
    """Servers behind a router, and what its decisions were worth."""

    instances: InstancesOption = None
    routing: RoutingOption = None
    counterfactual: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Simulate again with one routing decision changed to its runner-up, for N of them drawn by the seed: "
            "what each was worth (--json).",
        ),
    ] = None
    fitness_weights: Annotated[
        str | None,
        typer.Option(
            "--fitness-weights",
            metavar="NAME=W,…",
            help="Also one score to rank policies by: throughput, tokens_per_sec, mean_, p50_ or p99_ with ttft or "
            "e2e, each with a weight (throughput=0.5,p99_ttft=0.5).",
        ),
    ] = None


@option_table
class RunOptions:
    """What is measured."""

    slo: Annotated[
        str | None,
        typer.Option(
            metavar="LIMITS",
            help="Latency limits of each request, ttft=500ms,tpot=30ms,e2e=10s: count the requests that meet all of "
            "them (goodput). Without it the trace's own targets count.",
        ),
    ] = None
    gate: SloGate = SloGate()
    measure: Annotated[
        str | None,
        typer.Option(
            metavar="FROM:TO",
            help="Measure only the requests sent in this time of the run (60s:300s, or 60s: to the end); all are "
            "simulated.",
        ),
    ] = None
    warmup_frac: Annotated[
        float | None,
        typer.Option(metavar="F", help="Leave the first share F of the run out of the figures (0.1)."),
    ] = None
    horizon: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="Stop the simulation at this time (300s, 10m). Requests that run or wait then are incomplete.",
        ),
    ] = None
    operator_times: Annotated[
        bool,
        typer.Option(
            "--operator-times",
            help="Also show how much of the steps' time each operator takes (roofline, physics, profiled), of several "
            "instances together and each; with --steps also of every step. Simulates once more, one step at a time.",
        ),
    ] = False
    prices: Annotated[
        Path | None,
        typer.Option(
            "--prices",
            metavar="FILE",
            help="With several variants: also what each costs, by a file of prices: a GPU's per hour, by its name, and "
            "DRAM, per GiB and hour. With --slo the cheapest that keeps it is named.",
            show_default=False,
        ),
    ] = None
    kv_check: Annotated[
        bool,
        typer.Option(
            help="Where nobody told the size of the KV cache, simulate a quarter less and more of it, at most two more "
            "runs, and tell if the answer hangs on it."
        ),
    ] = True
    written: RunFileOptions = RunFileOptions()
    router: BehindRouterOptions = BehindRouterOptions()


@option_table
class FileOptions:
    """What is allowed all the same."""

    anyway: AnywayOption = False
    defaults: DefaultsOption = None
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite",
            help="Replace what --output names even if it was measured, and what --report names even if it is no page.",
        ),
    ] = False


def twins_asked(
    twin: TwinOptions, run: RunOptions, files: FileOptions
) -> list[tuple[Sequence[Setting], TwinConfig]]:
    """Return the requested twins, each with its settings. Raises ConfigError."""
    return [
        *load_twins(
            twin.config,
            files.defaults,
            twin.settings,
            instances=run.router.instances,
            routing=run.router.routing,
            anyway=files.anyway,
            base=twin.base,
        )
    ]


def simulation_options(
    twin: TwinOptions,
    run: RunOptions,
    files: FileOptions,
    *,
    at: Literal["auto", "arrival", "send"],
    loop: Literal["auto", "closed", "open"],
    max_concurrency: int | None = None,
) -> SimulationOptions:
    """Return how to simulate, what to measure and what to write. Raises ConfigError on what cannot be read."""
    from replay.cluster.fitness import parse_weights
    from replay.model.prices import read_server_prices
    from replay.simulation.run_plan import RunSettings
    from replay.trace.measured_window import parse_horizon, parse_measured
    from traces import parse_slo
    from traces.strict.tell import tell_note

    return SimulationOptions(
        how=RunSettings(
            at=at,
            loop=loop,
            max_concurrency=max_concurrency,
            itl=run.written.itl,
            operator_times=run.operator_times,
            measured=parse_measured(run.measure, run.warmup_frac),
            slo_us={} if run.slo is None else parse_slo(run.slo, tell=tell_note),
            horizon_us=parse_horizon(run.horizon),
            decides=run.written.decisions is not None,
            counterfactual=run.router.counterfactual,
            fitness_weights=parse_weights(run.router.fitness_weights) if run.router.fitness_weights else {},
            checks_memory=run.kv_check,
        ),
        steps=run.written.steps,
        trace_events=run.written.trace_events,
        report=run.written.report,
        overwrite=files.overwrite,
        decisions=run.written.decisions,
        prices=read_server_prices(run.prices) if run.prices else None,
        dialect=run.written.dialect,
        answer=twin.answer,
        gate=run.gate,
        series=run.written.series,
    )
