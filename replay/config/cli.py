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
    from replay.config.question import start_twin

    found = start_twin(
        asked.command,
        from_trace=asked.from_trace,
        gpu=asked.gpu,
        model_config=asked.model_config,
        tp=asked.tp,
        vllm_version=asked.vllm_version,
    )
    for doubt in found.doubts:
        tell(f"warning: {doubt}")
    if found.obstacle is not None:
        tell(f"note: this twin will not run as it is: {found.obstacle}")
    say_text(found.text)
