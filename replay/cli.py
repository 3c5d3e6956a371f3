"""``vtwin replay``, ``serve`` and ``config``. Each command imports what is heavy."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from replay.progress import working
from replay.ready import load_engine
from replay.simulation_command import SimulationOptions, simulate_and_write
from replay.twin.own.own_code import with_code_option
from replay.twins import AnywayOption, check_starts, load_twins
from traces.strict.tell import say, say_text, tell

if TYPE_CHECKING:
    from replay.serve import Listening
    from replay.twin.config import TwinConfig
    from replay.twin.keys.overlay import Setting
    from traces import Trace

ConfigOption = Annotated[
    Path, typer.Option(metavar="TWIN.yaml", help="What to simulate (docs/reference/config.md).")
]
OutputOption = Annotated[
    Path | None,
    typer.Option(
        metavar="STEM",
        help="Write the simulated trace: Parquet if it ends in .parquet, else CSV. With several variants: a folder.",
        show_default=False,
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="A key of TWIN.yaml in place of the file's: engine.max_num_seqs=64. Several values, with commas between, "
        "give variants side by side; a list stands in brackets. Repeatable.",
        show_default=False,
    ),
]
BaseOption = Annotated[
    bool,
    typer.Option("--base", help="With --set: also simulate TWIN.yaml as it is, in the first column."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
ItlOption = Annotated[bool, typer.Option("--itl", help="Also write the time of every token (STEM.itl.csv).")]
OverwriteOption = Annotated[
    bool,
    typer.Option(
        "--overwrite",
        help="Replace what --output names even if it was measured, and what --report names even if it is no page.",
    ),
]
StepsOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE.jsonl", help="Write every step of the engine, one JSON object a line."),
]
TraceEventsOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.json",
        help="Write steps and requests as Trace Event Format JSON, for ui.perfetto.dev or chrome://tracing.",
    ),
]
ReportOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.html",
        help="Write a page: latencies and throughput over time, requests in flight, KV cache, batch sizes. Of several "
        "variants: one that compares them.",
    ),
]
DialectOption = Annotated[
    Literal["vtwin", "blis"],
    typer.Option(help="blis: only the columns and keys that BLIS reads."),
]
DefaultsOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Your own defaults.yaml, read before the built-in one."),
]

SloOption = Annotated[
    str | None,
    typer.Option(
        metavar="LIMITS",
        help="Latency limits of each request, ttft=500ms,tpot=30ms,e2e=10s: count the requests that meet all of them "
        "(goodput). Without it the trace's own targets count.",
        show_default=False,
    ),
]
MeasureOption = Annotated[
    str | None,
    typer.Option(
        metavar="FROM:TO",
        help="Measure only the requests sent in this time of the run (60s:300s, or 60s: to the end); all are "
        "simulated.",
        show_default=False,
    ),
]
WarmupFracOption = Annotated[
    float | None,
    typer.Option(
        metavar="F", help="Leave the first share F of the run out of the figures (0.1).", show_default=False
    ),
]

HorizonOption = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION",
        help="Stop the simulation at this time (300s, 10m). Requests that run or wait then are incomplete.",
        show_default=False,
    ),
]

InstancesOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=100_000,
        metavar="N",
        help="Simulate N such servers behind a router, in place of the file's number.",
        show_default=False,
    ),
]
RoutingOption = Annotated[
    str | None,
    typer.Option(
        metavar="POLICY",
        help="How the router chooses, in place of the file's cluster.routing: round-robin, least-loaded, power-of-two, "
        "weighted, … (docs/reference/config.md).",
        show_default=False,
    ),
]
DecisionsOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Write every routing decision and what the router saw, as FILE.jsonl or FILE.parquet.",
    ),
]
CounterfactualOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Simulate again with one routing decision changed to its runner-up, for N of them drawn by the seed: "
        "what each was worth (--json).",
        show_default=False,
    ),
]
FitnessOption = Annotated[
    str | None,
    typer.Option(
        "--fitness-weights",
        metavar="NAME=W,…",
        help="Also one score to rank policies by: throughput, tokens_per_sec, mean_, p50_ or p99_ with ttft or e2e, "
        "each with a weight (throughput=0.5,p99_ttft=0.5).",
        show_default=False,
    ),
]
SweepOption = Annotated[
    str | None,
    typer.Option(
        metavar="VALUES",
        help="One simulation per value, side by side: rates (1,2,4) or numbers of users (concurrency=8,16).",
        show_default=False,
    ),
]

OperatorTimesOption = Annotated[
    bool,
    typer.Option(
        "--operator-times",
        help="Also show how much of the steps' time each operator takes (roofline, physics, profiled). Simulates once "
        "more, one step at a time.",
    ),
]

config_app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Show a configuration as vtwin reads it, or create one.",
)


@with_code_option
def replay(  # noqa: PLR0913, PLR0917 - a command's options are its parameters
    trace: Annotated[
        Path,
        typer.Argument(
            metavar="STEM",
            help="The trace's stem, header or table; also a file of Azure, BurstGPT, Mooncake, vllm bench, guidellm, …",
        ),
    ],
    config: ConfigOption,
    output: OutputOption = None,
    settings: SetOption = None,
    base: BaseOption = False,
    as_json: JsonOption = False,
    at: Annotated[
        Literal["auto", "arrival", "send"],
        typer.Option(
            help="When requests reach the engine. auto: the send times if recorded, else the scheduled times."
        ),
    ] = "auto",
    closed_loop: Annotated[
        bool | None,
        typer.Option(
            "--closed-loop/--open-loop",
            help="Whether answers release the next requests, as with a fixed number of users or a cap on requests in "
            "flight. Default: as the trace was recorded.",
            show_default=False,
        ),
    ] = None,
    max_concurrency: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="The client that recorded the trace sent at most N requests at a time: simulate it so. For traces "
            "whose header does not say it.",
            show_default=False,
        ),
    ] = None,
    slo: SloOption = None,
    measure: MeasureOption = None,
    warmup_frac: WarmupFracOption = None,
    horizon: HorizonOption = None,
    itl: ItlOption = False,
    operator_times: OperatorTimesOption = False,
    steps: StepsOption = None,
    trace_events: TraceEventsOption = None,
    report: ReportOption = None,
    instances: InstancesOption = None,
    routing: RoutingOption = None,
    decisions: DecisionsOption = None,
    counterfactual: CounterfactualOption = None,
    fitness_weights: FitnessOption = None,
    dialect: DialectOption = "vtwin",
    anyway: AnywayOption = False,
    defaults: DefaultsOption = None,
    overwrite: OverwriteOption = False,
) -> None:
    """Simulate the requests of a trace."""
    twins = load_twins(
        config, defaults, settings, instances=instances, routing=routing, anyway=anyway, base=base
    )
    from replay.cluster.fitness import parse_weights
    from replay.trace.measured_window import parse_horizon, parse_measured
    from traces.errors import TraceError
    from traces.importers.recorded import read_recorded
    from traces.slo import parse_slo
    from traces.strict.tell import tell_note

    if len(twins) == 1:
        tell_replaced(output, config, overwrite=overwrite, read=trace)
    with working(f"reading {trace}"):
        recorded = read_recorded(trace, events=True)
    if len(recorded) == 0:
        raise TraceError(f"{trace}: got a trace without requests, expected one at least")
    loop: Literal["auto", "closed", "open"] = (
        "auto" if closed_loop is None else ("closed" if closed_loop else "open")
    )
    options = SimulationOptions(
        at=at,
        loop=loop,
        itl=itl,
        operator_times=operator_times,
        steps=steps,
        trace_events=trace_events,
        report=report,
        overwrite=overwrite,
        decisions=decisions,
        counterfactual=counterfactual,
        fitness_weights=parse_weights(fitness_weights) if fitness_weights else {},
        dialect=dialect,
        as_json=as_json,
        measured=parse_measured(measure, warmup_frac),
        horizon_us=parse_horizon(horizon),
        slo_us=parse_slo(slo, tell=tell_note) if slo else {},
        max_concurrency=max_concurrency,
    )
    simulate_each(twins, [("", "", recorded)], output=output, overwrite=overwrite, options=options)


@with_code_option
def serve(  # noqa: PLR0913, PLR0917 - a command's options are its parameters
    config: ConfigOption,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 picks a free one.")
    ] = 8000,
    model: Annotated[str, typer.Option(help="The served model's name.")] = "vtwin",
    api_key: Annotated[
        str | None,
        typer.Option(envvar="VTWIN_API_KEY", help="Require this API key under /v1.", show_envvar=True),
    ] = None,
    enable_per_request_metrics: Annotated[
        bool, typer.Option("--enable-per-request-metrics", help="Add vLLM's metrics object to usage.")
    ] = False,
    max_body_bytes: Annotated[
        int, typer.Option(min=1, help="The longest body of a request.", metavar="BYTES")
    ] = 16 * 2**20,
    max_prompts: Annotated[int, typer.Option(min=1, help="The most prompts of a request.")] = 128,
    max_request_tokens: Annotated[
        int, typer.Option(min=1, help="The most tokens of a request: all its prompts and answers.")
    ] = 2**20,
    port_per_instance: Annotated[
        bool,
        typer.Option(
            "--port-per-instance",
            help="Serve each instance of the cluster as a server of its own, at --port and the ports after it, "
            "for a real router to stand in front of.",
        ),
    ] = False,
    instances: InstancesOption = None,
    routing: RoutingOption = None,
    anyway: AnywayOption = False,
    defaults: DefaultsOption = None,
) -> None:
    """Serve the simulated engine over HTTP in real time, as vLLM does: an OpenAI-compatible endpoint.

    With `cluster:` in TWIN.yaml, or --instances, it answers as the fleet behind its router.
    """
    twin = _load(config, defaults, instances=instances, routing=routing, anyway=anyway)
    if port_per_instance and twin.cluster is None:
        from traces.errors import ConfigError

        raise ConfigError(
            "--port-per-instance: got it without a cluster, expected cluster in TWIN.yaml or --instances"
        )
    load_engine()
    from replay.serve import run_server
    from replay.serve.limits import Limits

    def announce(listening: Listening) -> None:
        whose = f" (instance {listening.name})" if listening.name else ""
        say(f"serving {listening.model} on {listening.url}{whose}")
        sys.stdout.flush()

    run_server(
        twin,
        announce=announce,
        port_per_instance=port_per_instance,
        host=host,
        port=port,
        model=model,
        api_key=api_key,
        request_metrics=enable_per_request_metrics,
        limits=Limits(
            max_body_bytes=max_body_bytes, max_prompts=max_prompts, max_request_tokens=max_request_tokens
        ),
    )


@config_app.command(epilog="Example: vtwin config show twin.yaml")
@with_code_option
def show(
    config: Annotated[
        Path | None, typer.Argument(metavar="TWIN.yaml", show_default=False, help="The file to show.")
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
    say_text(dump_config(_load(path, defaults, anyway=True)))


@config_app.command(
    "from-serve",
    epilog="Example: vtwin config from-serve 'vllm serve MODEL --max-num-seqs 128' --gpu H100 > twin.yaml",
)
def from_serve(
    command: Annotated[
        str | None,
        typer.Argument(
            metavar="'vllm serve MODEL …'", show_default=False, help="The server's command line, in quotes."
        ),
    ] = None,
    from_trace: Annotated[
        Path | None,
        typer.Option(
            metavar="STEM",
            help="Take what this trace's header says about its server; with a command line, what that leaves open.",
        ),
    ] = None,
    gpu: Annotated[
        str | None,
        typer.Option(
            help="The server's GPU: take vLLM's own defaults for it, and the latency by the model, else from the "
            "defaults on record."
        ),
    ] = None,
    model_config: Annotated[
        str | None,
        typer.Option(
            metavar="CONFIG.json",
            help="With --gpu: the model's config.json, or the name of a model that ships with vtwin. Default: the "
            "server's model, if it ships.",
        ),
    ] = None,
    tp: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=65_536,
            help="With --gpu: GPUs that share each layer. Default: what the server says, else 1.",
        ),
    ] = None,
) -> None:
    """Print a TWIN.yaml to start from: of a server's command line, of a trace's header, or of both."""
    from replay.model import read_model_config
    from replay.twin.start import from_serve
    from traces.errors import ConfigError

    if gpu is None and (model_config is not None or tp is not None):
        raise ConfigError("--model-config, --tp: got it without --gpu, expected the GPU, too")
    if model_config is not None:
        read_model_config(model_config)  # what it refuses, it refuses here, under the option's name
    starts = [] if command is None else [from_serve.start_from_serve(command)]
    if from_trace is not None:
        from traces import read_trace
        from traces.tables.paths import stem_of

        header = read_trace(from_trace).header
        starts.append(from_serve.start_from_header(header, name=stem_of(from_trace).name))
    if not starts:
        raise ConfigError("'vllm serve …', --from-trace: got neither, expected one of them, or both")
    start = starts[0] if len(starts) == 1 else from_serve.merged(*starts)
    text, notes = from_serve.twin_text(from_serve.named(start, model_config=model_config, tp=tp), gpu=gpu)
    for note in notes:
        tell(f"note: {note}")
    say_text(text)


def _load(
    config: Path,
    defaults: Path | None,
    *,
    instances: int | None = None,
    routing: str | None = None,
    anyway: bool = False,
) -> TwinConfig:
    """Return the configuration, its notes told."""
    from replay.twin.config import load_config, with_cluster

    twin = load_config(config, defaults=defaults, allows_cluster=True)
    if not anyway:
        check_starts(twin)
    twin = with_cluster(twin, instances=instances, routing=routing)
    for note in twin.notes:
        tell(f"note: {note}")
    return twin


def simulate_each(
    twins: list[tuple[tuple[Setting, ...], TwinConfig]],
    loads: list[tuple[str, str, Trace]],
    *,
    output: Path | None,
    overwrite: bool,
    options: SimulationOptions,
) -> None:
    """Simulate one twin and load in full, or several of them side by side."""
    from traces.atomic import refuse_foreign

    if options.report is not None and not overwrite:
        refuse_foreign(options.report, option="--report")
    if len(twins) == 1 and not loads[0][0]:
        simulate_and_write(loads[0][2], twins[0][1], output=output, options=options)
        return
    from replay.plan.variants.command import simulate_variants, variants_from

    simulate_variants(variants_from(twins, loads), output=output, overwrite=overwrite, options=options)


def tell_replaced(output: Path | None, config: Path, *, overwrite: bool, read: Path | None = None) -> None:
    """Say what the simulated trace replaces. Raises ConfigError where that was measured, or is what is ``read``."""
    if output is None:
        return
    from traces.errors import ConfigError
    from traces.files.overwrite import note_replaced, refuse_input
    from traces.tables.paths import stem_of

    refuse_input(output, config)
    if read is not None and not overwrite and stem_of(output).resolve() == stem_of(read).resolve():
        raise ConfigError(
            f"--output: {stem_of(output)}.yaml is the trace that is simulated, expected another place, "
            "or --overwrite to replace it"
        )
    if (note := note_replaced(output, overwrite=overwrite)) is not None:
        tell(f"note: {note}")
