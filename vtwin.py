"""The console script: composes the commands of the rooms, imports them lazily, and decides nothing."""

from __future__ import annotations

import traces.console.early_end  # isort: skip # noqa: F401 - before all that takes its time

import functools
import signal
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import typer
from typer.models import Default

from calibrate.validate.options import DemoOptions, ValidateOptions
from replay.twin import with_code_option
from traces.console.command_line import Program, run_program
from traces.console.help import CommandGroups
from traces.console.old_spellings import NewCommand
from traces.console.subcommands import Subcommands
from traces.strict.option_table import with_option_tables
from traces.strict.tell import say, tell

# name: (where the command lives, what it does). Only the command that is called is imported; the help of the
# others comes from here, so that `vtwin --help` costs neither numba, pandas, scipy nor aiohttp.
COMMANDS = {
    "observe": ("observe.cli:observe", "Send a load to a live endpoint and record the trace."),
    "receive": ("observe.receive.cli:receive", "Take a server's OpenTelemetry spans and record a trace."),
    "selfcheck": (
        "observe.selfcheck.cli:selfcheck",
        "Measure the load generator's speed and accuracy.",
    ),
    "replay": ("replay.simulation.cli:run", "Simulate the requests of a trace: the same as run --trace."),
    "run": ("replay.simulation.cli:run", "Simulate a load: drawn, or the requests of a trace."),
    "calibrate": (
        "calibrate.cli:calibrate_app",
        "Compare observed with simulated, fit the twin, write a report.",
    ),
    "compare": ("calibrate.runs.cli:compare", "Compare two runs. Neither is the reference."),
    "report": ("observe.measured.cli:report", "Show measured traces as a page, one or several loads."),
    "capacity": (
        "replay.capacity.cli:capacity",
        "Find the highest rate at which a twin meets latency limits.",
    ),
    "tune": ("replay.tuning.cli:tune", "Find the engine flags that serve most within latency limits."),
    "sweep": ("replay.sweeps.cli:sweep", "Simulate configurations x workloads x seeds into one table."),
    "fleet": ("replay.fleet.cli:fleet_app", "How many GPUs a fleet needs, which, and at what cost."),
    "rollouts": (
        "replay.rollouts.cli:rollouts",
        "Time batches of reinforcement learning: prompts, samples of each, updates.",
    ),
    "explore": (
        "replay.explore.cli:explore",
        "Turn settings on a page on this machine, and look at what they change.",
    ),
    "serve": ("replay.serve.cli:serve", "Serve the simulated engine over HTTP in real time."),
    "trace": ("traces.cli:trace_app", "Check, describe, draw and convert traces."),
    "config": ("replay.config.cli:config_app", "Show a configuration as vtwin understands it, or make one."),
    "profiles": (
        "replay.profiles.cli:profiles_app",
        "List fitted twins, show one, check whether a question lies inside of its fit.",
    ),
    "predictor": ("calibrate.predictor.cli:predictor_app", "Make a latency model from measured operators."),
    "model": ("replay.gpus.cli:model_app", "What a model needs and what a GPU can give it."),
    "validate": ("vtwin:validate", "Observe a live endpoint, fit its twin, check the twin."),
    "demo": ("vtwin:demo", "Run observe, calibrate and report against an emulated server."),
}
GROUPS = {
    "Measure": ("observe", "receive", "selfcheck", "report", "compare"),
    "Make a twin": ("validate", "calibrate", "profiles", "predictor", "config", "demo"),
    "Ask the twin": ("run", "replay", "explore", "capacity", "tune", "sweep", "rollouts", "serve"),
    "Plan": ("fleet", "model"),
    "Files": ("trace",),
}
"""The headings of `vtwin --help`, and the commands below each."""
_LENGTHS = ("--prompt-tokens", "--output-tokens", "--prefix-tokens")
_SOURCES = ("--workload", "--trace", "--like")
_LOADS = ("--rate", "--concurrency", "--stages")
_EXTENT = ("--num-requests", "--duration", "--seed")
_ANSWER = ("--report", "--json")
_CLUSTER = ("--instances", "--routing")
_RUN = (
    *("--trace", "--like", "--workload", *_LOADS, "--prompt-tokens", "--output-tokens", "--num-requests"),
    *("--sessions", "--output", "--slo", "--set", *_CLUSTER, *_ANSWER, "--sweep"),
)
_FLEET = (
    "--output-frac",
    "--availability",
    "--prices",
    "--verify",
    "--report",
    "--num-requests",
    "--seed",
    "--json",
)
MOST_USED = {
    "observe": (
        *(*_LOADS, *_LENGTHS, *_EXTENT, *_SOURCES, "--sessions"),
        *(
            "--model",
            "--gpu",
            "--api-key-env",
            "--scrape",
            "--slo",
            "--sweep",
            "--repeat",
            "--find-capacity",
            "--json",
        ),
    ),
    "replay": _RUN,
    "run": _RUN,
    "capacity": (
        *("--like", "--workload", "--trace", *_LENGTHS, "--num-requests", "--seed", "--seeds"),
        *("--rounds", "--arrival", "--burstiness", "--set", *_CLUSTER, *_ANSWER, "--markdown"),
    ),
    "tune": (
        *("--like", "--workload", "--trace", *_LENGTHS, "--num-requests", "--seed", "--max-num-seqs"),
        *("--max-num-batched-tokens", "--tp", "--set", "--top", "--serve", "--url", "--confirm", "--output"),
        *("--json", "--markdown"),
    ),
    "calibrate": (
        *(
            "--config",
            "--fit",
            "--holdout",
            "--simulated",
            "--report",
            "--write-config",
        ),
        *("--model-config", "--gpu", "--tp", "--slo", "--network", "--thresholds", "--baseline"),
        *("--pair-by", "--json"),
    ),
    "model compare": (
        *("--rate", "--like", "--workload", "--trace", *_LENGTHS, "--num-requests", "--tp", "--slo"),
        *("--prices", "--max-model-len", "--max-num-seqs", "--max-num-batched-tokens", "--quantization"),
        *("--json", "--markdown"),
    ),
    "calibrate models": (
        *("--fit", "--holdout", "--slo", "--network", "--model-config", "--gpu", "--tp", "--pair-by"),
        *("--seed", "--json"),
    ),
    "fleet size": (
        *(
            "--profile",
            "--layout",
            "--split",
            "--compare",
            "--router",
            "--context",
            "--output-frac",
            "--prices",
        ),
        *("--verify", "--report", "--num-requests", "--json"),
    ),
    "fleet reserve": ("--context", *_FLEET),
    "explore": (
        *("--like", "--trace", "--workload", *_LOADS, "--prompt-tokens", "--output-tokens", "--num-requests"),
        *("--sessions", "--slo", "--set", *_CLUSTER, "--prices", "--port", "--open", "--state"),
    ),
    "rollouts": (
        *("--batch", "--batches", "--update-time", "--batch-share", "--oversubscribe", "--partial-share"),
        *("--prompt-tokens", "--output-tokens", "--output-tokens-stdev", "--output-tokens-max", "--like"),
        *("--seed", "--set", *_CLUSTER, "--json"),
    ),
    "trace convert": (
        *("--to", "--part", "--block-size", "--time-unit", "--columns", "--start", "--duration"),
        *("--rate-scale", "--overwrite"),
    ),
    "trace synth": (
        *(*_SOURCES, "--preset", *_LOADS, "--batch", "--arrival", "--rounds", *_LENGTHS, *_EXTENT),
        "--overwrite",
    ),
}
"""What `--help` shows of commands with many options, beside the required ones; `--help-all` shows all."""
EXTRA = {"validate": {"allow_extra_args": True, "ignore_unknown_options": True}}
"""Commands that pass unknown options on to other commands."""
EXAMPLES = {
    "observe": "vtwin observe --url http://127.0.0.1:8000 --gpu H100 --rate 5 --num-requests 200 --output traces/five",
    "receive": "vtwin receive --port 4318 --output prod",
    "selfcheck": "vtwin selfcheck",
    "replay": "vtwin replay traces/five --config twin.yaml --set engine.max_num_seqs=64,128",
    "run": "vtwin run --config twin.yaml --rate 5 --prompt-tokens 800 --output-tokens 120 --report run.html",
    "compare": "vtwin compare traces/before traces/after",
    "report": "vtwin report traces/one traces/two traces/four --slo ttft=500ms,tpot=50ms --output server.html",
    "capacity": "vtwin capacity --config twin.yaml --slo ttft_p99=500ms,tpot_p99=50ms --like traces/five",
    "tune": "vtwin tune --config twin.yaml --slo ttft_p99=500ms,tpot_p99=50ms --like traces/five",
    "rollouts": "vtwin rollouts --config twin.yaml --batch 32 --samples 8 --output-tokens 1000",
    "sweep": "vtwin sweep grid.yaml --output sweep.parquet --report sweep.html",
    "explore": "vtwin explore --config twin.yaml --rate 5 --slo ttft=500ms,tpot=50ms",
    "serve": "vtwin serve --config twin.yaml --port 8000",
    "validate": "vtwin validate --url http://127.0.0.1:8000 --gpu H100 --output validation --rate 5",
    "demo": "vtwin demo --output demo",
}
"""A call of each command, shown at the end of its help."""
OLD_COMMANDS: Mapping[tuple[str, ...], NewCommand] = {
    ("fleet", "split"): NewCommand(words=("fleet", "size", "--layout", "split")),
    ("fleet", "disagg"): NewCommand(words=("fleet", "size", "--layout", "disagg")),
    ("fleet", "pools"): NewCommand(words=("fleet", "size", "--layout", "pools")),
    ("fleet", "whatif"): NewCommand(
        words=("fleet", "size", "--compare"), options={"--rates": "--rate", "--profiles": "--profile"}
    ),
    ("run",): NewCommand(words=("rollouts",), where="--samples"),
}
"""Commands that were renamed; they are read as what they are now, with a line on stderr."""
LONG_RUNNING = {"explore", "observe", "receive", "serve", "validate", "demo", "selfcheck"}
"""Commands that leave Python's garbage collector as it is, or configure it themselves."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line, return the exit code; a fault of the user becomes one line on stderr."""
    return run_program(PROGRAM, argv)


def build_app(
    loaded: Collection[str],
    *,
    followed: Mapping[str, Callable[..., None]] = MappingProxyType({}),
    is_alone: bool = False,
) -> typer.Typer:
    """Return the app: the commands named in ``loaded`` are real, the others are only a line of help.

    ``followed``: functions to call after a command, with its options. ``is_alone``: the others are left out.
    """
    headings = {name: heading for heading, names in GROUPS.items() for name in names}
    app = typer.Typer(
        name="vtwin",
        cls=CommandGroups,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich"
        if loaded
        else None,  # importing rich would be half of the time of `vtwin --help`
    )
    app.callback()(_root)
    for name in sorted(COMMANDS, key=lambda name: (*headings, name).index(name)):
        place, summary = COMMANDS[name]
        if name not in loaded and is_alone:
            continue
        if name not in loaded:
            app.command(name, help=summary, rich_help_panel=headings.get(name))(_not_loaded)
            continue
        module, attribute = place.split(":")
        command = _followed(getattr(import_module(module), attribute), by=followed.get(name))
        if isinstance(command, typer.Typer):
            # What is a command and a group has help of its own.
            is_both = command.info.cls is Subcommands
            app.add_typer(command, name=name, help=Default(None) if is_both else summary)
        else:
            example = f"Example: {EXAMPLES[name]}" if name in EXAMPLES else None
            app.command(name, context_settings=EXTRA.get(name), epilog=example)(command)
    return app


def _followed(command: Any, *, by: Callable[..., None] | None) -> Any:  # noqa: ANN401 - any command, as typer takes it
    """Return a command after which, for any exit code, another function is called with its options."""
    if by is None:
        return command

    @functools.wraps(command)
    def both(*args: object, **options: object) -> object:
        try:
            returned: object = command(*args, **options)
        except typer.Exit:
            by(**options)
            raise
        by(**options)
        return returned

    return both


def _tell_what_is_missing(*, output: Path, **_: object) -> None:
    """Print what is unknown about the observed server's model and GPU, and which options of other commands would help.

    ``output``: the trace, or the folder of several, of one server all.
    """
    from replay.twin.start import missing_note
    from traces import TraceError, companion_file, read_header, stem_of

    own = companion_file(stem_of(output), ".yaml")
    for header in sorted(output.glob("*.yaml")) if output.is_dir() else [own]:
        with suppress(TraceError):
            note = missing_note(read_header(header).server)
            if note is not None:
                tell(f"observe: {note}")
            return


FOLLOWED: Mapping[str, Callable[..., None]] = MappingProxyType({"observe": _tell_what_is_missing})
"""Functions called after a command that a user calls, from another room than the command's. `validate`, which calls the
command many times, prints the same once, at its beginning."""


def _print_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        say(f"vtwin {version('vtwin')}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    """Observe a vLLM endpoint, replay its requests, calibrate its digital twin."""


def _not_loaded() -> None:
    raise AssertionError("main() loads the command that is called")


def _own_way(option: str, known: set[str]) -> str | None:
    """Return vtwin's equivalent of an option that a command lacks, None if it is not another tool's flag, either."""
    from replay.twin.start import own_way

    return own_way(option, known)


def _hide(arguments: Sequence[str]) -> None:
    """Remove secrets from the process list."""
    from observe import hide_arguments

    hide_arguments(arguments)


PROGRAM = Program(
    name="vtwin",
    app=lambda called, is_first: build_app(
        called, followed=FOLLOWED, is_alone=is_first and called[0] in COMMANDS
    ),
    own_way=_own_way,
    hide=_hide,
    keep_collector=LONG_RUNNING,
    most_used=MOST_USED,
    old_commands=OLD_COMMANDS,
)


@with_option_tables
def demo(asked: DemoOptions) -> None:
    """Run all steps against an emulated server: observe two loads, fit, compare with a third, and report."""
    from calibrate.validate.demo_run import run_demo

    run_demo(asked, _run)


@with_code_option
@with_option_tables
def validate(context: typer.Context, asked: ValidateOptions) -> None:
    """Run all steps against a live endpoint: observe, fit, compare with an unseen load, and report.

    Other options go to every `vtwin observe`: lengths (--prompt-tokens 200 --output-tokens 60), --num-requests,
    --model, --api-key, --warmup. After Ctrl-C, the same command resumes.
    """
    from calibrate.validate.validation import run_validation

    run_validation(asked, context.args, _run, _measured)


def _measured(stem: Path) -> tuple[float | None, int]:
    """Return how many requests per s an observed server finished, and how many were sent."""
    from observe import summarize_observed
    from traces import read_trace

    summary = summarize_observed(read_trace(stem))
    return summary["request_throughput"], summary["num_requests"]


def _run(name: str, arguments: Sequence[str]) -> object:
    """Print a command line, run the command in this process, return what its function returns.

    Exits with its exit code if that is not 0. The command reads its own line in ``sys.argv``, and the usual handlers of
    Ctrl-C and of a plain kill are restored: an event loop that ended has left others.
    """
    from calibrate.validate.command_steps import show

    show(name, arguments)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    before, sys.argv = sys.argv, ["vtwin", name, *arguments]
    try:
        returned: object = build_app([name], is_alone=True)(
            [name, *arguments], prog_name="vtwin", standalone_mode=False
        )
    finally:
        sys.argv = before
    if isinstance(returned, int) and returned:
        raise typer.Exit(returned)
    return returned


if __name__ == "__main__":
    sys.exit(main())
