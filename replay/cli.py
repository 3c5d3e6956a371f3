"""``vtwin replay``, ``run``, ``serve`` and ``config``. Each command imports what is heavy."""

from __future__ import annotations

import json
import shlex
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from traces.workload.options import WorkloadOptions, with_workload_options

if TYPE_CHECKING:
    from replay.serve import Listening
    from replay.twin.config import TwinConfig
    from traces import Trace

PATIENCE_S = 2.0
"""What takes longer than this says what it is."""

ConfigOption = Annotated[
    Path, typer.Option(metavar="TWIN.yaml", help="What to simulate (docs/reference/config.md).")
]
OutputOption = Annotated[
    Path, typer.Option(metavar="STEM", help="The simulated trace; Parquet if it ends in .parquet, else CSV.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
ItlOption = Annotated[bool, typer.Option("--itl", help="Write every token's time, too (STEM.itl.csv).")]
OverwriteOption = Annotated[
    bool, typer.Option("--overwrite", help="Replace what --output names even if it was measured.")
]
StepsOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE.jsonl", help="Write every step of the engine, one JSON object a line."),
]
DialectOption = Annotated[
    Literal["vtwin", "blis"],
    typer.Option(help="blis: what BLIS reads, vtwin's own columns and keys left out."),
]
DefaultsOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="A defaults.yaml of your own, looked at before the one that ships."),
]

config_app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Show a configuration as vtwin understands it, or make one.",
)


def replay(  # noqa: PLR0913, PLR0917 - a command's options are its parameters
    trace: Annotated[Path, typer.Argument(metavar="STEM", help="The trace's stem, header or table.")],
    config: ConfigOption,
    output: OutputOption,
    as_json: JsonOption = False,
    at: Annotated[
        Literal["auto", "arrival", "send"],
        typer.Option(
            help="When requests reach the engine. auto: when they were sent, else when they were due."
        ),
    ] = "auto",
    closed_loop: Annotated[
        bool | None,
        typer.Option(
            "--closed-loop/--open-loop",
            help="Whether answers let the next requests go: a closed loop's users, or a client with a cap on "
            "requests in flight. Default: as the trace was recorded.",
            show_default=False,
        ),
    ] = None,
    itl: ItlOption = False,
    steps: StepsOption = None,
    dialect: DialectOption = "vtwin",
    defaults: DefaultsOption = None,
    overwrite: OverwriteOption = False,
) -> None:
    """Simulate the requests of a trace."""
    twin = _load(config, defaults)
    from traces import read_trace
    from traces.errors import TraceError

    _tell_replaced(output, overwrite=overwrite)
    with _working(f"reading {trace}"):
        recorded = read_trace(trace)
    if len(recorded) == 0:
        raise TraceError(f"{trace}: got a trace without requests, expected one at least")
    loop: Literal["auto", "closed", "open"] = (
        "auto" if closed_loop is None else ("closed" if closed_loop else "open")
    )
    how = _How(at=at, loop=loop, itl=itl, steps=steps, dialect=dialect, as_json=as_json)
    _simulate_and_write(recorded, twin, output=output, how=how)


@with_workload_options
def run(  # noqa: PLR0913, PLR0917 - a command's options are its parameters
    workload: WorkloadOptions,
    config: ConfigOption,
    output: OutputOption,
    as_json: JsonOption = False,
    itl: ItlOption = False,
    steps: StepsOption = None,
    dialect: DialectOption = "vtwin",
    defaults: DefaultsOption = None,
    overwrite: OverwriteOption = False,
) -> None:
    """Draw a workload and simulate it."""
    twin = _load(config, defaults)
    from traces.workload import trace_from_options

    _tell_replaced(output, overwrite=overwrite)
    with _working("drawing the workload"):
        drawn = trace_from_options(workload)
    how = _How(at="arrival", loop="auto", itl=itl, steps=steps, dialect=dialect, as_json=as_json)
    _simulate_and_write(drawn, twin, output=output, how=how)


def serve(
    config: ConfigOption,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 picks a free one.")
    ] = 8000,
    model: Annotated[str, typer.Option(help="The served model's name.")] = "vtwin",
    api_key: Annotated[
        str | None,
        typer.Option(envvar="VTWIN_API_KEY", help="Ask for this key under /v1.", show_envvar=True),
    ] = None,
    enable_per_request_metrics: Annotated[
        bool, typer.Option("--enable-per-request-metrics", help="Add vLLM's metrics object to usage.")
    ] = False,
    defaults: DefaultsOption = None,
) -> None:
    """Serve the simulated engine over HTTP in real time, as vLLM does: an OpenAI-compatible endpoint."""
    twin = _load(config, defaults)
    _warm_up()
    from replay.serve import run_server

    def announce(listening: Listening) -> None:
        typer.echo(f"serving {listening.model} on {listening.url}")
        sys.stdout.flush()

    run_server(
        twin,
        announce=announce,
        host=host,
        port=port,
        model=model,
        api_key=api_key,
        request_metrics=enable_per_request_metrics,
    )


@config_app.command()
def show(
    config: Annotated[
        Path | None, typer.Argument(metavar="[TWIN.yaml]", show_default=False, help="The file to show.")
    ] = None,
    option: Annotated[
        Path | None, typer.Option("--config", metavar="TWIN.yaml", help="The same, as an option.")
    ] = None,
    defaults: DefaultsOption = None,
) -> None:
    """Print what a TWIN.yaml amounts to: every key, defaults filled in and looked up."""
    from replay.twin.config_write import dump_config
    from traces.errors import ConfigError

    path = option or config
    if path is None:
        raise ConfigError("TWIN.yaml: got nothing, expected a file to show")
    typer.echo(dump_config(_load(path, defaults)), nl=False)


@config_app.command("from-serve")
def from_serve(
    command: Annotated[
        str | None,
        typer.Argument(
            metavar="['vllm serve MODEL …']", show_default=False, help="The server's command line, in quotes."
        ),
    ] = None,
    from_trace: Annotated[
        Path | None, typer.Option(metavar="STEM", help="Instead: what a trace's header says of its server.")
    ] = None,
    gpu: Annotated[
        str | None,
        typer.Option(help="Look the latency up in the defaults, and take vLLM's own defaults for this GPU."),
    ] = None,
) -> None:
    """Print a TWIN.yaml to start from: of a server's command line, or of a trace's header."""
    from replay.twin import from_serve
    from traces.errors import ConfigError

    if (command is None) == (from_trace is None):
        got = "neither" if command is None else "both"
        raise ConfigError(f"'vllm serve …', --from-trace: got {got}, expected one of them")
    if command is not None:
        start = from_serve.start_from_serve(command)
    else:
        from traces import read_trace
        from traces.tables.paths import stem_of

        assert from_trace is not None  # noqa: S101 - one of the two is given
        start = from_serve.start_from_server(
            read_trace(from_trace).header.server, name=stem_of(from_trace).name
        )
    text, notes = from_serve.twin_text(start, gpu=gpu)
    for note in notes:
        typer.echo(f"note: {note}", err=True)
    typer.echo(text, nl=False)


def _load(config: Path, defaults: Path | None) -> TwinConfig:
    """Return the configuration, its notes told."""
    from replay.twin.config import load_config

    twin = load_config(config, defaults=defaults)
    for note in twin.notes:
        typer.echo(f"note: {note}", err=True)
    return twin


@dataclass(frozen=True, slots=True, kw_only=True)
class _How:
    """How to simulate, and what to write."""

    at: Literal["auto", "arrival", "send"]
    loop: Literal["auto", "closed", "open"]
    itl: bool
    steps: Path | None
    dialect: Literal["vtwin", "blis"]
    as_json: bool


def _simulate_and_write(trace: Trace, twin: TwinConfig, *, output: Path, how: _How) -> None:
    """Simulate, write the trace (and the steps), tell the summary."""
    from replay.trace.simulate import simulate_trace
    from replay.trace.simulation_summary import summarize, table, why_none_finished
    from replay.trace.steps import write_steps
    from replay.twin.config import check_fits
    from replay.twin.config_write import config_digest, name_of
    from traces import is_warmup, request_metrics, write_trace

    check_fits(twin, trace)
    _warm_up()
    with _working(f"simulating {len(trace):,} requests"):
        record: Literal["tokens", "spans"] = "tokens" if how.itl or is_warmup(trace).any() else "spans"
        simulated, simulation = simulate_trace(trace, twin, at=how.at, closed_loop=how.loop, record=record)
        summary = summarize(simulation, simulated)
    if how.steps is not None:  # the same simulation, one step at a time: the engine is deterministic
        with _working("writing the steps"):
            single = simulate_trace(trace, twin, at=how.at, closed_loop=how.loop, record="steps")[1]
            write_steps(how.steps, single.steps())
    if record == "tokens":  # the columns that a simulation without token times brings itself
        gaps = request_metrics(simulated)
        simulated = simulated.with_columns(
            itl_mean_us=gaps["itl_mean_us"].round(3).to_numpy(),
            itl_p99_us=gaps["itl_p99_us"].round(3).to_numpy(),
        )
    simulated = simulated.with_header(
        command=_command_line(), config_digest=config_digest(twin), seed=twin.seed
    )
    with _working(f"writing {output}"):
        write_trace(simulated, output, dialect=how.dialect, events=how.itl)
    if how.as_json:
        latency = {"model": name_of(twin.latency), "reason": twin.latency_reason or None}
        document = {**summary, "latency": latency, "notes": list(twin.notes)}
        typer.echo(json.dumps(document, indent=2, allow_nan=False))
    else:
        typer.echo(table(summary))
    if len(trace) and not summary["num_by_status"].get("ok"):
        typer.echo(why_none_finished(summary, twin.engine), err=True)
        raise typer.Exit(1)


def _tell_replaced(output: Path, *, overwrite: bool) -> None:
    """Say what the simulated trace replaces. Raises ConfigError where that was measured."""
    from traces.files.overwrite import note_replaced

    if (note := note_replaced(output, overwrite=overwrite)) is not None:
        typer.echo(f"note: {note}", err=True)


def _command_line() -> str:
    return shlex.join(["vtwin", *sys.argv[1:]])


def _warm_up() -> None:
    """Have the engine compiled and loaded, so that its CPU time in the summary is the simulation's."""
    from sim import compile_engine
    from sim.ready import is_compiled

    if not is_compiled():
        typer.echo("compiling the engine once, up to a minute …", err=True)
    compile_engine()


@contextmanager
def _working(what: str) -> Iterator[None]:
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
        typer.echo(f"{what} …", err=True)
        return
    from rich.console import Console

    with suppress(OSError), Console(stderr=True).status(f"{what} …"):
        done.wait()
