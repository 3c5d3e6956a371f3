"""``vtwin config``. Each command imports what is heavy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from replay.config.options import StartOptions
from replay.console.twins import load_twin
from replay.twin.own.own_code import with_code_option
from traces.console.options import DefaultsOption
from traces.console.text_argument import TakesText
from traces.strict.option_table import with_option_tables
from traces.strict.tell import say_text, tell

config_app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Show a configuration as vtwin reads it, or create one.",
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
    """Print the whole configuration of a TWIN.yaml: every key, defaults filled in and looked up."""
    from replay.twin.config_write import dump_config
    from traces import ConfigError

    path = option or config
    if path is None:
        raise ConfigError("TWIN.yaml: got nothing, expected a file to show")
    say_text(dump_config(load_twin(path, defaults, anyway=True)))


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
    from replay.twin.start.written_twin_check import why_not
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
    text, _ = from_serve.twin_text(start, gpu=asked.gpu)
    if (obstacle := why_not(text)) is not None:
        tell(f"note: this twin will not run as it is: {obstacle}")
    say_text(text)
