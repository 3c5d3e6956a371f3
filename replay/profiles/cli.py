"""``vtwin profiles``: list fitted twins, show one, and ask whether a question lies inside of what it was fitted on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from replay.numbers.argument_ranges import GPUS
from traces import ExitCode
from traces.console.options import AnswerForm, JsonOption
from traces.facts import say_answer, say_json
from traces.strict.option_table import option_table, with_option_tables
from traces.strict.swapped import check_twin_file
from traces.strict.tell import say, tell

if TYPE_CHECKING:
    from replay.twin.fitted import AskedServer, FittedOn, FittedRange

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
    from replay.profiles.fitted_profile import profiles_in
    from replay.profiles.text import SCHEMA_VERSION, list_parts, profile_document

    found, left_out = profiles_in(folders or [Path()])
    for line in left_out:
        tell(f"warning: left out: {line}")
    say_answer(
        lambda: {
            "schema_version": SCHEMA_VERSION,
            "profiles": [profile_document(each) for each in found],
            "left_out": left_out,
        },
        lambda: list_parts(found),
        asked,
    )


@profiles_app.command(epilog="Example: vtwin profiles show twin.yaml")
@with_option_tables
def show(path: ProfileArgument, asked: AnswerForm) -> None:
    """Show what a twin was fitted on and how it degrades: errors by load, held out, and beyond."""
    from replay.profiles.fitted_profile import read_profile
    from replay.profiles.text import SCHEMA_VERSION, profile_document, show_parts

    found = read_profile(path)
    say_answer(
        lambda: {"schema_version": SCHEMA_VERSION, **profile_document(found)},
        lambda: show_parts(found),
        asked,
    )


@profiles_app.command(
    epilog="Example: vtwin profiles check twin.yaml --gpu H200 --rate 12 --flags '--max-num-batched-tokens 16384'"
)
@with_option_tables
def check(path: ProfileArgument, asked: ProfileQuestion, *, as_json: JsonOption = False) -> None:
    """Say whether a question lies inside of what a twin was fitted on. Exit code 1 if it leaves, a line for each way.

    Seats, KV blocks and prefix caching may differ: the engine simulates them.
    """
    from replay.profiles.fitted_profile import read_profile
    from replay.profiles.text import SCHEMA_VERSION

    found = read_profile(path)
    server, untold = _server(asked, found.on)
    ways = [*found.leaves(server, _load(asked)), *untold]
    if as_json:
        say_json({"schema_version": SCHEMA_VERSION, "file": str(path), "is_inside": not ways, "leaves": ways})
    else:
        say(*(ways or [f"inside: {found.on.server}"]))
    if ways:
        raise typer.Exit(ExitCode.NEGATIVE)


def _server(asked: ProfileQuestion, on: FittedOn) -> tuple[AskedServer, list[str]]:
    """Return the question's server, and a line for each flag in the coefficients that no profile keeps.

    Raises ConfigError for flags, a GPU or a version that nobody knows: a typing error is no server.
    """
    from replay.model import find_gpu
    from replay.twin.fitted import AskedServer
    from replay.twin.keys.fitted_on_keys import FLAGS
    from replay.twin.start.flag_table import SAME_WORK, SPEED
    from replay.twin.start.from_serve import check_version
    from replay.twin.start.serve_flags import parse_serve

    if asked.gpu is not None and asked.gpu != on.gpu:
        find_gpu(asked.gpu)
    if asked.vllm_version is not None:
        check_version(asked.vllm_version)
    tp, flags, untold = asked.tp, {}, []
    if asked.flags is not None:
        served = parse_serve(f"vllm serve {asked.model or 'any/model'} {asked.flags}", strict="--flags")
        flags = {**served.engine, **served.latency}
        size = served.hardware.get("tp")
        tp = size if tp is None and isinstance(size, int) else tp
        for flag in served.others:
            if flag.key in (*FLAGS, "tp"):
                continue
            if flag.reason.startswith((SPEED, SAME_WORK)):
                untold.append(f"{flag.name}: the file does not say what it was fitted with")
            else:
                tell(f"note: {flag.name}: {flag.reason}")
        for note in served.notes:
            tell(f"note: {note}")
    known = {
        name: value for name, value in flags.items() if name in FLAGS and isinstance(value, int | bool | str)
    }
    server = AskedServer(
        model=asked.model, gpu=asked.gpu, tp=tp, vllm_version=asked.vllm_version, flags=known
    )
    return server, untold


def _load(asked: ProfileQuestion) -> FittedRange:
    """Return the question's load, whose upper ends alone count."""
    from replay.twin.fitted import FittedRange

    def up_to(value: float | None) -> tuple[float, float] | None:
        return None if value is None else (value, value)

    return FittedRange(
        rate_per_s=up_to(asked.rate),
        concurrency=up_to(asked.concurrency),
        prompt_tokens=up_to(asked.input_len),
        output_tokens=up_to(asked.output_len),
    )
