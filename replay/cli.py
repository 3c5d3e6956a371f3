"""``vtwin replay``, ``serve`` and ``config``. Each command imports what is heavy."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from replay.options.run_options import (
    FileOptions,
    PacingOptions,
    RecordedArgument,
    RunOptions,
    TwinOptions,
    simulation_options,
    twins_asked,
)
from replay.options.serve import EndpointOptions
from replay.options.start import StartOptions
from replay.progress import working
from replay.simulation_command import SimulationOptions, simulate_and_write
from replay.twin.own.own_code import with_code_option
from replay.twins import check_starts
from traces.console.options import DefaultsOption
from traces.console.text_argument import TakesText
from traces.strict.option_table import with_option_tables
from traces.strict.tell import say, say_text, tell
from traces.workload import SessionOptions

if TYPE_CHECKING:
    from replay.serve import Listening
    from replay.twin.keys.overlay import Setting
    from replay.twin.twin_config import TwinConfig
    from traces import Trace

config_app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Show a configuration as vtwin reads it, or create one.",
)


@with_code_option
@with_option_tables
def replay(
    trace: RecordedArgument,
    twin: TwinOptions,
    *,
    pacing: PacingOptions,
    sessions: SessionOptions,
    run: RunOptions,
    files: FileOptions,
) -> None:
    """Simulate the requests of a trace."""
    twins = twins_asked(twin, run, files)
    from traces import TraceError, check_load, load_alone, read_recorded, with_known_lengths

    if len(twins) == 1 and len(sessions.numbers()) < 2:
        tell_replaced(twin.output, twin.config, overwrite=files.overwrite, read=trace)
    with working(f"reading {trace}"):
        recorded = load_alone(with_known_lengths(read_recorded(trace, events=True)))
    check_load(recorded, trace, asked="a simulation")
    if len(recorded) == 0:
        raise TraceError(f"{trace}: got a trace without requests, expected one at least")
    from traces.workload import started

    starts = sessions.starts_of_each(seed=twins[0][1].seed)
    loads = [("sessions" if number else "", number, started(recorded, each)) for number, each in starts]
    options = simulation_options(
        twin, run, files, at=pacing.at, loop=pacing.loop, max_concurrency=pacing.max_concurrency
    )
    simulate_each(twins, loads, output=twin.output, overwrite=files.overwrite, options=options)


@with_code_option
@with_option_tables
def serve(asked: EndpointOptions) -> None:
    """Serve the simulated engine over HTTP in real time, as vLLM does: an OpenAI-compatible endpoint.

    With `cluster:` in TWIN.yaml, or --instances, it answers as the fleet behind its router.
    """
    twin = _load(
        asked.config,
        asked.defaults,
        instances=asked.instances,
        routing=asked.routing,
        anyway=asked.anyway,
    )
    if asked.port_per_instance and twin.is_plain_server:
        from traces import ConfigError

        raise ConfigError(
            "--port-per-instance: got it without a cluster, expected cluster in TWIN.yaml or --instances"
        )
    from replay.serve import run_server
    from replay.serve.request_limits import RequestLimits

    run_server(
        twin,
        announce=_announce,
        port_per_instance=asked.port_per_instance,
        host=asked.host,
        port=asked.port,
        model=asked.model,
        api_key=asked.api_key,
        request_metrics=asked.enable_per_request_metrics,
        limits=RequestLimits(
            max_body_bytes=asked.max_body_bytes,
            max_prompts=asked.max_prompts,
            max_request_tokens=asked.max_request_tokens,
        ),
    )


def _announce(listening: Listening) -> None:
    """Print the address of a server at once: a script may wait for the line."""
    whose = f" (instance {listening.name})" if listening.name else ""
    say(f"serving {listening.model} on {listening.url}{whose}")
    sys.stdout.flush()


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
    """Print the whole configuration of a TWIN.yaml: every key, defaults filled in and looked up."""
    from replay.twin.config_write import dump_config
    from traces import ConfigError

    path = option or config
    if path is None:
        raise ConfigError("TWIN.yaml: got nothing, expected a file to show")
    say_text(dump_config(_load(path, defaults, anyway=True)))


@config_app.command(
    "from-serve",
    cls=TakesText,
    epilog="Example: vtwin config from-serve 'vllm serve MODEL --max-num-seqs 128' --gpu H100 > twin.yaml",
)
@with_option_tables
def from_serve(asked: StartOptions) -> None:
    """Print a TWIN.yaml to start from: of what starts a server, of a trace's header, or of both."""
    from replay.model import read_model_config
    from replay.twin.start import from_serve
    from replay.twin.start.first_read import why_not
    from traces import ConfigError

    if asked.gpu is None and (asked.model_config is not None or asked.tp is not None):
        raise ConfigError("--model-config, --tp: got it without --gpu, expected the GPU, too")
    if asked.model_config is not None:
        read_model_config(asked.model_config)  # checked here, so that an error names the option
    starts = [] if asked.command is None else [from_serve.start_from_serve(asked.command)]
    if asked.from_trace is not None:
        from traces import read_trace, stem_of

        header = read_trace(asked.from_trace).header
        starts.append(from_serve.start_from_header(header, name=stem_of(asked.from_trace).name))
    if not starts:
        raise ConfigError("'vllm serve …', --from-trace: got neither, expected one of them, or both")
    start = starts[0] if len(starts) == 1 else from_serve.merged(*starts)
    start = from_serve.named(
        start, model_config=asked.model_config, tp=asked.tp, vllm_version=asked.vllm_version
    )
    text, notes = from_serve.twin_text(start, gpu=asked.gpu)
    for note in notes:
        tell(f"note: {note}")
    if (obstacle := why_not(text)) is not None:
        tell(f"note: this twin will not run as it is: {obstacle}")
    say_text(text)


def _load(
    config: Path,
    defaults: Path | None,
    *,
    instances: int | None = None,
    routing: str | None = None,
    anyway: bool = False,
) -> TwinConfig:
    """Return the configuration, after printing its notes."""
    from replay.twin.config_read import load_config
    from replay.twin.twin_config import with_cluster

    twin = load_config(config, defaults=defaults)
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
    from traces import ConfigError, refuse_foreign

    if options.report is not None and not overwrite:
        refuse_foreign(options.report, option="--report")
    if len(twins) == 1 and not loads[0][0]:
        if options.prices is not None:
            raise ConfigError(
                "--prices: got one simulation, expected several to compare (--set KEY=VALUE,VALUE)"
            )
        simulate_and_write(loads[0][2], twins[0][1], output=output, options=options)
        return
    from replay.variants.command import simulate_variants, variants_from

    simulate_variants(variants_from(twins, loads), output=output, overwrite=overwrite, options=options)


def tell_replaced(output: Path | None, config: Path, *, overwrite: bool, read: Path | None = None) -> None:
    """Print which trace is replaced. Raises ConfigError if it was measured, or is the input (``read``)."""
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
