"""``vtwin replay``, ``serve`` and ``config``. Each command imports what is heavy."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from replay.progress import working
from replay.ready import load_engine
from replay.run_options import (
    ConfigOption,
    DefaultsOption,
    FileOptions,
    InstancesOption,
    RoutingOption,
    RunOptions,
    TwinOptions,
    simulation_options,
    twins_asked,
)
from replay.simulation_command import SimulationOptions, simulate_and_write
from replay.twin.own.own_code import with_code_option
from replay.twins import AnywayOption, check_starts
from traces.strict.option_table import with_option_tables
from traces.strict.tell import say, say_text, tell

if TYPE_CHECKING:
    from replay.serve import Listening
    from replay.twin.config import TwinConfig
    from replay.twin.keys.overlay import Setting
    from traces import Trace

config_app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Show a configuration as vtwin reads it, or create one.",
)


@with_code_option
@with_option_tables
def replay(
    trace: Annotated[
        Path,
        typer.Argument(
            metavar="STEM",
            help="The trace's stem, header or table; also a file of Azure, BurstGPT, Mooncake, vllm bench, guidellm, …",
        ),
    ],
    twin: TwinOptions,
    *,
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
    run: RunOptions,
    files: FileOptions,
) -> None:
    """Simulate the requests of a trace."""
    twins = twins_asked(twin, run, files)
    from traces import TraceError, read_recorded

    if len(twins) == 1:
        tell_replaced(twin.output, twin.config, overwrite=files.overwrite, read=trace)
    with working(f"reading {trace}"):
        recorded = read_recorded(trace, events=True)
    if len(recorded) == 0:
        raise TraceError(f"{trace}: got a trace without requests, expected one at least")
    loop: Literal["auto", "closed", "open"] = (
        "auto" if closed_loop is None else ("closed" if closed_loop else "open")
    )
    options = simulation_options(twin, run, files, at=at, loop=loop, max_concurrency=max_concurrency)
    simulate_each(twins, [("", "", recorded)], output=twin.output, overwrite=files.overwrite, options=options)


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
    if port_per_instance and twin.is_plain_server:
        from traces import ConfigError

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
    from traces import ConfigError

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
    from traces import ConfigError

    if gpu is None and (model_config is not None or tp is not None):
        raise ConfigError("--model-config, --tp: got it without --gpu, expected the GPU, too")
    if model_config is not None:
        read_model_config(model_config)  # what it refuses, it refuses here, under the option's name
    starts = [] if command is None else [from_serve.start_from_serve(command)]
    if from_trace is not None:
        from traces import read_trace, stem_of

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
    twins: Sequence[tuple[Sequence[Setting], TwinConfig]],
    loads: list[tuple[str, str, Trace]],
    *,
    output: Path | None,
    overwrite: bool,
    options: SimulationOptions,
) -> None:
    """Simulate one twin and load in full, or several of them side by side."""
    from traces import refuse_foreign

    if options.report is not None and not overwrite:
        refuse_foreign(options.report, option="--report")
    if len(twins) == 1 and not loads[0][0]:
        simulate_and_write(loads[0][2], twins[0][1], output=output, options=options)
        return
    from replay.variants.command import simulate_variants, variants_from

    simulate_variants(variants_from(twins, loads), output=output, overwrite=overwrite, options=options)


def tell_replaced(output: Path | None, config: Path, *, overwrite: bool, read: Path | None = None) -> None:
    """Say what the simulated trace replaces. Raises ConfigError where that was measured, or is what is ``read``."""
    if output is None:
        return
    from traces import ConfigError, note_replaced, refuse_input, stem_of

    refuse_input(output, config)
    if read is not None and not overwrite and stem_of(output).resolve() == stem_of(read).resolve():
        raise ConfigError(
            f"--output: {stem_of(output)}.yaml is the trace that is simulated, expected another place, "
            "or --overwrite to replace it"
        )
    if (note := note_replaced(output, overwrite=overwrite)) is not None:
        tell(f"note: {note}")
