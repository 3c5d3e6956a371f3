"""The console script: composes the commands of the rooms, imports them lazily, and decides nothing."""

from __future__ import annotations

import atexit
import copy
import errno
import functools
import gc
import inspect
import os
import re
import shlex
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import click
import typer
import typer.core
import typer.main
from typer.models import Default

from replay.twin import with_code_option
from traces import ServerError, VtwinError
from traces.console.subcommands import Subcommands
from traces.strict.narration import wrapped_narration
from traces.strict.tell import say, say_text, tell

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from calibrate import Calibration

    AnyCommand = typer.core.TyperCommand | typer.core.TyperGroup

# name: (where the command lives, what it does). Only the command that is called is imported; the help of the
# others comes from here, so that `vtwin --help` costs neither numba, pandas, scipy nor aiohttp.
COMMANDS = {
    "observe": ("observe.cli:observe", "Send a load to a live endpoint and record the trace."),
    "selfcheck": (
        "observe.selfcheck.cli:selfcheck",
        "Measure the load generator's speed and accuracy.",
    ),
    "replay": ("replay.cli:replay", "Simulate the requests of a trace."),
    "run": ("replay.run_cli:run", "Draw a workload and simulate it."),
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
    "serve": ("replay.cli:serve", "Serve the simulated engine over HTTP in real time."),
    "trace": ("traces.cli:trace_app", "Check, describe, draw and convert traces."),
    "config": ("replay.cli:config_app", "Show a configuration as vtwin understands it, or make one."),
    "predictor": ("calibrate.predictor.cli:predictor_app", "Make a latency model from measured operators."),
    "model": ("replay.model_cli:model_app", "What a model needs and what a GPU can give it."),
    "validate": ("vtwin:validate", "Observe a live endpoint, fit its twin, check the twin."),
    "demo": ("vtwin:demo", "Run observe, calibrate and report against an emulated server."),
}
EXTRA = {"validate": {"allow_extra_args": True, "ignore_unknown_options": True}}
"""Commands that pass on to others what they do not know themselves."""
EXAMPLES = {
    "observe": "vtwin observe --url http://127.0.0.1:8000 --gpu H100 --rate 5 --num-requests 200 --output traces/five",
    "selfcheck": "vtwin selfcheck",
    "replay": "vtwin replay traces/five --config twin.yaml --set engine.max_num_seqs=64,128",
    "run": "vtwin run --config twin.yaml --rate 5 --prompt-tokens 800 --output-tokens 120 --report run.html",
    "compare": "vtwin compare traces/before traces/after",
    "report": "vtwin report traces/one traces/two traces/four --slo ttft=500ms,tpot=50ms --output server.html",
    "capacity": "vtwin capacity --config twin.yaml --slo ttft_p99=500ms,tpot_p99=50ms --like traces/five",
    "tune": "vtwin tune --config twin.yaml --slo ttft_p99=500ms,tpot_p99=50ms --like traces/five",
    "sweep": "vtwin sweep grid.yaml --output sweep.parquet --report sweep.html",
    "serve": "vtwin serve --config twin.yaml --port 8000",
    "validate": "vtwin validate --url http://127.0.0.1:8000 --gpu H100 --output validation --rate 5",
    "demo": "vtwin demo --output demo",
}
"""A call of each command, shown at the end of its help."""
METAVARS = {"integer": "N", "integer range": "N", "float": "X", "float range": "X"}
"""What help shows for the value of an option, in place of the name of its type; others are shown as click has them."""
MOST_INTEGER = 2**63 - 1
"""Of an option: what an int64 holds."""
CELLS_OF_OPTION = 6
"""What typer shows of an option: four kinds of names, type, text; and before them whether one must give it."""
SWEPT = {"rate": "", "concurrency": "concurrency="}
"""Options of which ``--sweep`` takes several values, and what stands before them there."""
LONG_RUNNING = {"observe", "serve", "validate", "demo", "selfcheck"}
"""Commands that leave Python's collector of unused objects as it is, or set it themselves."""
RARELY = (200_000, 20, 20)
"""How seldom that collector looks, for all others: imports make a great many objects, all of which stay in use."""
CLICK_MESSAGES = {
    r"(?<=': )('.*'|\S+) is not a valid (float|integer)\.": r"got \1, expected a \2",
    r"(Did you mean [^?]*\?)\)? \(?Did you mean [^?]*\?\)?": r"\1",  # typer's, then click's own
    r"expected a float": "expected a number",
    r"expected a integer": "expected an integer",
    r"(?<=': )('.*'|\S+) is not in the range (\S+)<=x<=(\S+)\.": r"got \1, expected \2 to \3",
    r"(?<=': )('.*'|\S+) is not in the range x>=(\S+)\.": r"got \1, expected at least \2",
    r"(?<=': )('.*'|\S+) is not in the range x<=(\S+)\.": r"got \1, expected at most \2",
    r"(?<=': )('.*'|\S+) is not one of (.*)\.": r"got \1, expected one of \2",
}
"""What the library that reads options says (regular expressions), and what is said instead."""
UNNAMED = (
    "the server's GPU is not named, and no server tells it. Add --gpu H100 (your GPU for H100), --tp N where N GPUs "
    "share each layer, and --model-config CONFIG.json where the server's name for its model is not one that ships: a "
    "fit then has priors and more models of a step to choose from"
)
"""What `validate` says first where the GPU is not named: the measurement takes an hour, and may begin anew."""
EXIT_USAGE = 2
EXIT_CRASH = 70  # EX_SOFTWARE of sysexits.h: vtwin itself is at fault
EXIT_INTERRUPTED = 130
REFUSALS = {
    *(
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EFBIG,
        errno.EROFS,
        errno.EACCES,
        errno.EPERM,
        errno.EIO,
        errno.EMFILE,
    ),
    *(errno.ENFILE, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP),
}
"""What a machine refuses: no fault of vtwin's."""
EXIT_BROKEN_PIPE = 141  # 128 + SIGPIPE: what a shell reports for a program whose reader went away


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line, return the exit code; a fault of the user becomes one line on stderr."""
    with wrapped_narration():
        return _main(argv)


def _main(argv: Sequence[str] | None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    if argv is None:
        # At the end Python looks through all objects once more, 0.4 s of work after a run: nothing of them is needed.
        atexit.register(gc.freeze)
        _open_closed_streams()
        _take_signals_and_secrets(arguments)
    if not arguments:
        return main(["--help"]) or EXIT_USAGE
    called = [word for word in arguments if not word.startswith("-")][:1]
    if not set(called) & LONG_RUNNING:
        gc.set_threshold(*RARELY)
    try:
        command = cast("AnyCommand", typer.main.get_command(build_app(called, followed=FOLLOWED)))
        plain_help(command)
        refuse_no_numbers(command)
        if "--help" in arguments and called:
            fold_long_words()
        code = command(arguments, prog_name="vtwin", standalone_mode=False)
        sys.stdout.flush()
    except (typer.Abort, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    except (BrokenPipeError, SystemExit) as stop:
        # typer answers a broken pipe with exit code 1, which here is a verdict
        if isinstance(stop, SystemExit) and not isinstance(stop.__context__, BrokenPipeError):
            raise
        return _leave_quietly()
    except Exception as error:
        line, code = _line_and_code(error, arguments)
        try:
            sys.stdout.flush()
        except OSError:  # what could not be written waits to be, and would be a second complaint at the end
            _leave_quietly()
        return _complain(line, arguments, code=code)
    finally:
        # If code run from a string (a dataclass being made) was interrupted, Python ends by SIGINT, even where that
        # was caught, unless such code has run well since.
        exec("")  # noqa: S102
    return code if isinstance(code, int) else 0


def build_app(
    loaded: Collection[str], *, followed: Mapping[str, Callable[..., None]] = MappingProxyType({})
) -> typer.Typer:
    """Return the app: the commands named in ``loaded`` are real, the others are only a line of help.

    ``followed``: what to do after a command, with its options.
    """
    app = typer.Typer(
        name="vtwin",
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich"
        if loaded
        else None,  # importing rich would be half of the time of `vtwin --help`
    )
    app.callback()(_root)
    for name, (place, summary) in COMMANDS.items():
        if name not in loaded:
            app.command(name, help=summary)(_not_loaded)
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
    """Return a command after which, however it judges its run, another function gets its options."""
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
    """Say what the observed server does not tell of its model and GPU, and which options of other commands would help.

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
"""What is done after a command that a user calls: knowledge of another room than the command's. `validate`, which calls
it many times, says it once, at its beginning."""


def plain_help(command: AnyCommand) -> None:
    """Have help show switches without ``<bool>`` and numbers as N, of a command and those under it; join its lines."""
    context = typer.Context(command)
    for parameter in command.get_params(context):
        if isinstance(parameter, typer.core.TyperOption) and parameter.metavar is None:
            parameter.metavar = "" if parameter.is_flag else METAVARS.get(parameter.type.name)
    if command.help:
        command.help = re.sub(r"(?<=\S)\n(?=[^\s-])", " ", inspect.cleandoc(command.help))
    for each in getattr(command, "commands", {}).values():
        plain_help(each)


def refuse_no_numbers(command: AnyCommand) -> None:
    """Have every option of a command, and of those under it, refuse ``nan`` and integers beyond an int64.

    A range does not: NaN is neither below its least value nor above its largest.
    """
    for parameter in command.get_params(typer.Context(command)):
        if parameter.type.name in METAVARS:
            parameter.type = _of_numbers(parameter.type)
    for each in getattr(command, "commands", {}).values():
        refuse_no_numbers(each)


def _of_numbers(kind: Any) -> Any:  # noqa: ANN401 - the library's own type
    """Return an option's type that takes only what is a number, and fits."""
    made, convert = copy.copy(kind), kind.convert

    def converted(value: object, parameter: object, context: object) -> object:
        number = convert(value, parameter, context)
        if number != number:  # noqa: PLR0124 - which is how NaN is known
            made.fail("got nan, expected a number", parameter, context)
        if isinstance(number, int) and abs(number) > MOST_INTEGER:
            made.fail(f"got {value}, expected an integer of at most {MOST_INTEGER:,}", parameter, context)
        return number

    made.convert = converted
    return made


def fold_long_words() -> None:
    """Have the tables of help show names in one column, and break a word longer than its column, which typer cuts."""
    from rich.columns import Columns
    from rich.table import Table
    from rich.text import Text
    from typer import rich_utils

    class Folding(Table):
        def add_row(self, *cells: Any, **options: Any) -> None:  # noqa: ANN401 - rich's own
            if len(cells) >= CELLS_OF_OPTION:
                *required, long, short, no_long, no_short, kind, text = cells
                names = [name for name in (long, short, no_long, no_short) if name.plain]
                cells = (*required, Text("\n", no_wrap=True).join(names), kind, text)
            super().add_row(*cells, **options)
            for column in self.columns:
                column.overflow = "fold"
            for each in cells[-1].renderables if isinstance(cells[-1], Columns) else ():
                if isinstance(each, Text):
                    each.overflow = "fold"

    vars(rich_utils)["Table"] = Folding  # typer offers no option for it


def _print_version(asked: bool) -> None:
    if asked:
        say(f"vtwin {_version()}")
        raise typer.Exit


def _version() -> str:
    from importlib.metadata import version

    return version("vtwin")


def _root(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    """Observe a vLLM endpoint, replay its requests, calibrate its digital twin."""


def _not_loaded() -> None:
    raise AssertionError("main() loads the command that is called")


def _usage_line(error: click.ClickException) -> str:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "vtwin"
    message = error.format_message()
    if isinstance(error, click.NoSuchOption):
        message = _with_own_way(error)
    for theirs, our_own in CLICK_MESSAGES.items():
        message = re.sub(theirs, our_own, message)
    options = [] if context is None else [each.name for each in context.command.params]
    return f"UsageError: {message}{_cure(message, options)} (see {path} --help)" if message else ""


def _cure(message: str, options: Collection[str | None]) -> str:
    """Return what would have been right, behind a message on a value that is no number; empty where nobody can tell."""
    found = re.search(r"'--([\w-]+)': got '([^']*)', expected (a number|an integer)$", message)
    if found is None:
        return ""
    name, value, kind = found.groups()
    if kind == "an integer":
        with suppress(ValueError, OverflowError):
            if float(value) == int(float(value)):
                return f": {int(float(value))}"
    is_list = re.fullmatch(r"[\d.]+(,[\d.]+)+", value) is not None
    if is_list and name in SWEPT and "sweep" in options:
        return f"; one run per value: --sweep {SWEPT[name]}{value} in place of --{name}"
    return ""


def _with_own_way(error: click.NoSuchOption) -> str:
    """Return the line for an option that a command lacks: with vtwin's own way, where it is another tool's flag."""
    from replay.twin.start import own_way

    parameters = [] if error.ctx is None else error.ctx.command.params
    found = own_way(error.option_name, {name for each in parameters for name in each.opts})
    return error.format_message() if found is None else f"No such option '{error.option_name}': {found}."


def _complain(line: str, arguments: Sequence[str], *, code: int) -> int:
    """Print one red line on stderr, return ``code``; no line where typer has printed the help already.

    Secrets of the command line and of the environment are left out of it.
    """
    if line:
        from traces.strict.secrets import command_secrets

        shown = command_secrets(arguments, os.environ).redact(line)
        tell(" ".join(shown.split()), colour=typer.colors.RED)
    return code


def _line_and_code(error: Exception, arguments: Sequence[str]) -> tuple[str, int]:
    """Return what is said of a fault, and the exit code; empty where typer has printed the help already."""
    if isinstance(error, VtwinError):
        return f"{type(error).__name__}: {error}", error.exit_code
    if isinstance(error, click.ClickException):
        return _usage_line(error), EXIT_USAGE
    if isinstance(error, OSError) and error.errno in REFUSALS:
        return f"FileError: {_refusal(error)}", EXIT_USAGE
    return _crash_line(error, arguments), EXIT_CRASH


def _refusal(error: OSError) -> str:
    place = f" ({error.filename})" if error.filename else ""
    return f"got {error.strerror}, expected a place that can be read and written{place}"


def _crash_line(error: Exception, arguments: Sequence[str]) -> str:
    """Return the line for a fault of vtwin itself; its traceback is kept, or printed with VTWIN_DEBUG=1."""
    from traces.strict.secrets import command_secrets, redact_command

    frame = traceback.extract_tb(error.__traceback__)[-1]
    trace = "".join(traceback.format_exception(error))
    report = f"vtwin {_version()}, Python {sys.version}\n$ {redact_command(['vtwin', *arguments])}\n{trace}"
    report = command_secrets(arguments, os.environ).redact(report)
    said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    line = f"InternalError: {said} ({Path(frame.filename).name}:{frame.lineno}): a fault of vtwin"
    if os.environ.get("VTWIN_DEBUG"):
        say_text(report, err=True)
        return line
    try:
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", prefix="vtwin-crash-", suffix=".txt", delete=False
        ) as file:
            file.write(report)
    except OSError:
        return f"{line}; VTWIN_DEBUG=1 prints its traceback"
    return f"{line}; its traceback, to report it: {file.name}"


def _open_closed_streams() -> None:
    """Open a stream that the caller closed (``>&-``) on the null device: else the next file would get its number."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("r" if name == "stdin" else "w"))  # noqa: SIM115  for the whole run


def _take_signals_and_secrets(arguments: Sequence[str]) -> None:
    """End at a kill or a hang-up as at Ctrl-C, unless hang-ups are ignored (nohup); take secrets off the process list.

    Commands that serve or observe take signals in a way of their own, later.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
        signal.signal(signal.SIGHUP, lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    may_hide = ("--api-key", "@", "=")  # a key of a URL is behind an equals sign
    if any(
        any(each in word for each in may_hide) or word.startswith(("--header", "-H")) for word in arguments
    ):
        from observe import hide_arguments

        hide_arguments(arguments)


def _leave_quietly() -> int:
    """Point stdout at nothing, so that the interpreter's last flush cannot complain; return the exit code."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return EXIT_BROKEN_PIPE


def demo(
    output: Annotated[
        Path, typer.Option(help="Folder for the traces, the fitted twin and the report.")
    ] = Path("vtwin-demo"),
) -> None:
    """Run all steps against an emulated server: observe two loads, fit, compare with a third, and report."""
    from calibrate.validate import demo as plan
    from traces import make_folder, write_text

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # `kill` ends the server too, as Ctrl-C does
    make_folder(output, option="--output")
    _foretell(len(plan.RATES) * plan.SECONDS)
    server, guess = output / "server.yaml", output / "guess.yaml"
    # Traces of the emulated server, from an earlier demo, may be replaced; any others may not.
    is_repeated = server.is_file() and server.read_text() == plan.twin_yaml(plan.TRUTH)
    write_text(server, plan.twin_yaml(plan.TRUTH), option="--output")
    write_text(guess, plan.twin_yaml(plan.GUESS), option="--output")
    with _serving(server) as url:
        for arguments in plan.observations(url, output, is_repeated=is_repeated):
            _run("observe", arguments)
    calibration = cast("Calibration", _run("calibrate", plan.calibration(output, guess=guess)))
    _show_recovery(calibration, plan.TRUTH)
    say("", f"report: {output / 'report' / 'report.html'}")


@with_code_option
def validate(  # noqa: PLR0913, PLR0917 - a command's options are its parameters
    context: typer.Context,
    url: Annotated[str, typer.Option(help="The server: http://HOST:PORT, with or without /v1.")],
    output: Annotated[
        Path,
        typer.Option(
            metavar="DIR",
            help="Folder for traces, twin and report. Finished runs in it are reused; runs of another load are "
            "refused (exit 2) without --overwrite.",
        ),
    ],
    gpu: Annotated[
        str | None,
        typer.Option(help="The server's GPU (H100, A100-80 …), which no server tells.", show_default=False),
    ] = None,
    model_config: Annotated[
        str | None,
        typer.Option(
            metavar="CONFIG.json",
            help="The model's config.json, or the name of a model that ships with vtwin. Default: the name that the "
            "server gives its model, if it ships.",
            show_default=False,
        ),
    ] = None,
    tp: Annotated[
        int | None,
        typer.Option(min=1, max=65_536, help="GPUs that share each layer. Default: 1.", show_default=False),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(
            min=0.001,
            metavar="R",
            help="Highest rate of interest, requests/s. Default: 80 % of the throughput with 32 users.",
            show_default=False,
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="TWIN.yaml",
            help="The server's configuration. Default: what the server reports.",
            show_default=False,
        ),
    ] = None,
    serve: Annotated[
        str | None,
        typer.Option(
            metavar="'vllm serve …'", help="The command line that started the server.", show_default=False
        ),
    ] = None,
    infer_async: Annotated[
        bool,
        typer.Option("--infer-async", help="Fit with and without async scheduling and take the better fit."),
    ] = False,
    latency_model: Annotated[
        Literal["auto", "blackbox", "extended", "physics"],
        typer.Option(help="Latency model to fit, as in calibrate; auto chooses on held-out requests."),
    ] = "auto",
    thresholds: Annotated[
        Path | None,
        typer.Option(
            metavar="GATE.yaml",
            help="Error limits: exit 1 if one is exceeded, 5 if inconclusive.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Run all steps against a live endpoint: observe, fit, compare with an unseen load, and report.

    Other options go to every `vtwin observe`: lengths (--prompt-tokens 200 --output-tokens 60), --num-requests,
    --model, --api-key, --warmup. After Ctrl-C, the same command resumes.
    """
    from calibrate.validate import ValidationPlan
    from traces import make_folder

    if gpu is None and config is None:
        tell(f"note: {UNNAMED}")
    _check_named(gpu, model_config)
    load = (*context.args, "--url", url, "--resume", *_words({"--gpu": gpu, "--tp": tp}))
    make_folder(output, option="--output")
    plan = ValidationPlan(folder=output, load=load, rate_per_s=rate or _busy_rate(load, output))
    steps = plan.steps()
    for step, arguments in zip(steps, plan.observations(), strict=False):
        tell("", step, bold=True)
        _run("observe", arguments)
    tell("", steps[-1], bold=True)
    options = ["--latency-model", latency_model]
    if latency_model != "physics":  # which is fitted from what the twin's file names
        options += _words({"--gpu": gpu, "--model-config": model_config, "--tp": tp})
    options += ["--infer-async"] if infer_async else []
    options += ["--thresholds", str(thresholds)] if thresholds else []
    twin = config or _written_guess(
        output / "guess.yaml",
        serve=serve,
        server_trace=plan.server_trace(),
        named=(gpu, model_config, tp),
    )
    _run("calibrate", plan.calibration(twin, options))
    say(f"twin: {plan.twin()}")
    say(_served_at_most(plan.twin(), plan.holdout_trace()))


def _check_named(gpu: str | None, model_config: str | None) -> None:
    """Raise ConfigError for a GPU or a model that is not known, before anything is measured."""
    from replay.model import find_gpu, read_model_config

    if gpu is not None:
        find_gpu(gpu)
    if model_config is not None:
        read_model_config(model_config)


def _words(options: Mapping[str, object]) -> list[str]:
    """Return the options that have a value as words of a command line."""
    return [word for name, value in options.items() if value is not None for word in (name, str(value))]


def _served_at_most(twin: Path, like: Path) -> str:
    """Return the line that says what a twin serves at most of requests like a trace's, and how to ask for an SLO."""
    from replay import load_config
    from replay.search import ceiling_of, load_of
    from traces.workload import WorkloadOptions, trace_from_options

    options = WorkloadOptions(lengths_from=like, rate=1.0, num_requests=5000)
    load = load_of(trace_from_options(options), load_config(twin))
    most_per_s = ceiling_of([load])
    most = "an unknown number of" if most_per_s is None else f"at most {most_per_s:.3g}"
    ask = shlex.join(
        ["vtwin", "capacity", "--config", str(twin), "--like", str(like), "--slo", "ttft_p99=500ms"]
    )
    return f"capacity: the twin serves {most} such requests/s; within an SLO: {ask}"


def _busy_rate(load: Sequence[str], folder: Path) -> float:
    """Return a rate that keeps the server busy, from a measurement of its capacity."""
    from calibrate.validate import busy_rate, capacity_note, capacity_observation
    from observe import summarize_observed
    from traces import read_trace

    arguments, stem = capacity_observation(load, folder)
    _run("observe", arguments)
    measured = summarize_observed(read_trace(stem))
    capacity_per_s = measured["request_throughput"]
    if not capacity_per_s:
        raise ServerError(f"capacity: got no finished request, expected some ({stem})")
    tell(capacity_note(capacity_per_s, measured["num_requests"]))
    return busy_rate(capacity_per_s)


def _written_guess(
    path: Path,
    *,
    serve: str | None,
    server_trace: Path,
    named: tuple[str | None, str | None, int | None] = (None, None, None),
) -> Path:
    """Write a TWIN.yaml to start from, of the server's command line or of a trace's header; return its path.

    ``named``: GPU, model and GPUs per layer, as the user names them.
    """
    from replay.twin.start import is_at_hand, start_from_header, start_from_serve, twin_text_to_fit
    from replay.twin.start import named as start_named
    from traces import read_trace, write_text

    gpu, model_config, tp = named
    origin = [serve] if serve is not None else ["--from-trace", str(server_trace)]
    if serve is not None:
        start = start_from_serve(serve)
    else:
        start = start_from_header(read_trace(server_trace).header, name=server_trace.name)
    start = start_named(start, model_config=model_config, tp=tp)
    text, notes = twin_text_to_fit(start, gpu=gpu)
    if gpu and is_at_hand(start.model):
        origin += _words({"--gpu": gpu, "--model-config": model_config, "--tp": tp})
    _show("config", ["from-serve", *origin], more=f" > {shlex.quote(str(path))}")
    for note in notes:
        tell(f"note: {note}")
    write_text(path, text, option="--output")
    return path


def _show(name: str, arguments: Sequence[str], *, more: str = "") -> None:
    """Print the command line that a reader can run for the same."""
    from traces.strict.secrets import redact_command

    shown = redact_command(["vtwin", name, *arguments], os.environ)
    tell("", f"$ {shown}{more}", bold=True)


def _run(name: str, arguments: Sequence[str]) -> object:
    """Print a command line, run the command in this process, return what its function returns.

    Leaves with its exit code where that is not 0. The command reads its own line in ``sys.argv`` and finds the usual
    handlers of Ctrl-C and of a plain kill: an event loop that ended has left others.
    """
    _show(name, arguments)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    before, sys.argv = sys.argv, ["vtwin", name, *arguments]
    try:
        returned: object = build_app([name])([name, *arguments], prog_name="vtwin", standalone_mode=False)
    finally:
        sys.argv = before
    if isinstance(returned, int) and returned:
        raise typer.Exit(returned)
    return returned


@contextmanager
def _serving(config: Path) -> Iterator[str]:
    """Start `vtwin serve` in a process of its own, yield its address, and end it on leaving, come what may.

    Its own process, so that the server's work does not delay the client that is measured.
    """
    _show("serve", ["--config", str(config), "--port", "0"], more=" &")
    import multiprocessing

    from sim import is_compiled

    if not is_compiled():
        tell("compiling the engine once: half a minute, longer on a busy machine …")
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    server = context.Process(target=_serve, args=(config, theirs), daemon=True)
    server.start()
    theirs.close()
    try:
        yield _announced(ours)
    finally:
        server.terminate()
        server.join(5)
        if server.is_alive():
            server.kill()


def _serve(config: Path, parent: Connection) -> None:
    """Serve until told to end or until the parent is gone; send the parent the address, or why there is none."""
    os.setsid()  # Ctrl-C in the terminal is the parent's: it ends this process when it has what it needs
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    from replay import load_config, run_server

    try:
        run_server(
            load_config(config), announce=lambda there: parent.send(there.url), host="127.0.0.1", port=0
        )
    except VtwinError as error:
        parent.send(error)


def _end_with(parent: Connection) -> None:
    """End this process once the parent's end of the pipe is closed, which it is however the parent ends."""
    with suppress(EOFError, OSError):
        parent.recv()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(5)
    os._exit(1)


def _announced(server: Connection) -> str:
    """Return the address that the server sends once it listens; ServerError where it ends before."""
    try:
        said = server.recv()
    except EOFError:
        said = "it ended"
    if not isinstance(said, str) or not said.startswith("http"):
        raise ServerError(f"vtwin serve: got {said}, expected it to serve")
    tell(f"serving on {said}")
    return said


def _foretell(sending_s: float) -> None:
    """Say how long the demo will take, before anything that takes long."""
    from sim import is_compiled

    tell(f"{sending_s:.0f} s of sending, then a fit of 10 to 60 s")
    if not is_compiled():
        tell(
            "before that the engine is compiled, once on this machine: about half a minute on idle cores, a few "
            "minutes on busy ones"
        )


def _show_recovery(calibration: Calibration, truth: Mapping[str, float]) -> None:
    """Print the fitted coefficients next to those that the server used."""
    fitted = {} if calibration.fit is None else {each.name: each for each in calibration.fit.coefficients}
    say("", "coefficient    server    fitted   90 % interval")
    for name, value in truth.items():
        found = fitted[name]
        interval = found.reason if found.low is None else f"{found.low:,.1f} … {found.high:,.1f}"
        say(f"{name:<11}{value:>10,}{found.value:>10,.1f}   {interval}")
    say("alpha0 and alpha1 include the way between client and server, which the engine does not simulate.")


if __name__ == "__main__":
    sys.exit(main())
