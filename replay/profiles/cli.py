"""``vtwin profiles``: list fitted twins, show one, and ask whether a question lies inside of what it was fitted on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from replay.numbers.argument_ranges import GPUS
from traces import ExitCode
from traces.console.options import AnswerForm, JsonOption
from traces.facts import say_answer, say_json
from traces.strict.option_table import option_table, with_option_tables
from traces.strict.swapped import check_twin_file
from traces.strict.tell import say, tell

MOST = 1e9
ProfileArgument = Annotated[
    Path, typer.Argument(metavar="TWIN.yaml", help="A fitted twin.", callback=check_twin_file)
]
profiles_app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="What fitted twins were fitted on, and how far they reach.",
)


@option_table
class ProfileQuestion:
    """A question's server and load; what is not given is as the twin's was."""

    model: Annotated[str | None, typer.Option(help="The model that is asked about.")] = None
    gpu: Annotated[str | None, typer.Option(help="Its GPU.")] = None
    tp: Annotated[int | None, typer.Option(min=1, max=GPUS.most, help="How many GPUs share each layer.")] = (
        None
    )
    vllm_version: Annotated[str | None, typer.Option(metavar="VERSION", help="vLLM's version.")] = None
    rate: Annotated[float | None, typer.Option(min=0, max=MOST, help="Requests/s of one server.")] = None
    concurrency: Annotated[
        float | None, typer.Option(min=0, max=MOST, help="Requests running at once on one server.")
    ] = None
    input_len: Annotated[float | None, typer.Option(min=0, max=MOST, help="The longest prompts, tokens.")] = (
        None
    )
    output_len: Annotated[
        float | None, typer.Option(min=0, max=MOST, help="The longest outputs, tokens.")
    ] = None
    flags: Annotated[
        str | None,
        typer.Option(
            metavar="'FLAGS'", help="Flags of `vllm serve`, in quotes: '--max-num-batched-tokens 16384'."
        ),
    ] = None


@profiles_app.callback()
def _profiles() -> None:
    """Say what fitted twins were fitted on, and how far they reach."""


@profiles_app.command("list", epilog="Example: vtwin profiles list twins")
@with_option_tables
def list_profiles(
    asked: AnswerForm,
    folders: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FOLDER…]", help="Where to look, and below. Default: here."),
    ] = None,
) -> None:
    """List fitted twins: model, GPU, vLLM, loads, error on unseen requests, date, and whether to trust it."""
    from replay.profiles.question import find_profiles
    from replay.profiles.text import list_parts

    found = find_profiles(folders or [Path()])
    for line in found.left_out:
        tell(f"warning: left out: {line}")
    say_answer(found.document, lambda: list_parts(found.profiles), asked)


@profiles_app.command(epilog="Example: vtwin profiles show twin.yaml")
@with_option_tables
def show(path: ProfileArgument, asked: AnswerForm) -> None:
    """Show what a twin was fitted on and how it degrades: errors by load, held out, and beyond."""
    from replay.profiles.fitted_profile import read_profile
    from replay.profiles.text import show_parts

    found = read_profile(path)
    say_answer(found.document, lambda: show_parts(found), asked)


@profiles_app.command(
    epilog="Example: vtwin profiles check twin.yaml --gpu H200 --rate 12 --flags '--max-num-batched-tokens 16384'"
)
@with_option_tables
def check(path: ProfileArgument, asked: ProfileQuestion, *, as_json: JsonOption = False) -> None:
    """Say whether a question lies inside of what a twin was fitted on. Exit code 1 if it leaves, a line for each way.

    Seats, KV blocks and prefix caching may differ: the engine simulates them.
    """
    from replay.profiles.question import check_profile

    found = check_profile(
        path,
        model=asked.model,
        gpu=asked.gpu,
        tp=asked.tp,
        vllm_version=asked.vllm_version,
        rate_per_s=asked.rate,
        concurrency=asked.concurrency,
        prompt_tokens=asked.input_len,
        output_tokens=asked.output_len,
        flags=asked.flags,
    )
    for note in found.notes:
        tell(f"note: {note}")
    if as_json:
        say_json(found.document())
    else:
        say(*(found.ways or [f"inside: {found.profile.on.server}"]))
    if found.ways:
        raise typer.Exit(ExitCode.NEGATIVE)
