"""The console script: composes the commands of the rooms, imports them lazily, and decides nothing."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal

import typer

from traces.errors import ServerError, VtwinError

# name: (where the command lives, what it does). Only the command that is called is imported; the help of the
# others comes from here, so that `vtwin --help` costs neither numba, pandas, scipy nor aiohttp.
COMMANDS = {
    "observe": ("observe.cli:observe", "Send a load to a live endpoint and record the trace."),
    "selfcheck": (
        "observe.selfcheck.cli:selfcheck",
        "Measure the load generator's speed and accuracy.",
    ),
    "replay": ("replay.cli:replay", "Simulate the requests of a trace."),
    "run": ("replay.cli:run", "Draw a workload and simulate it."),
    "calibrate": (
        "calibrate.cli:calibrate",
        "Compare observed with simulated, fit the twin, write a report.",
    ),
    "serve": ("replay.cli:serve", "Serve the simulated engine over HTTP in real time."),
    "trace": ("traces.cli:trace_app", "Check, describe, draw and convert traces."),
    "config": ("replay.cli:config_app", "Show a configuration as vtwin understands it, or make one."),
    "predictor": ("calibrate.predictor.cli:predictor_app", "Make a latency model out of measured operators."),
    "model": ("replay.model_cli:model_app", "What a model needs and what a GPU can give it."),
    "validate": ("vtwin:validate", "Observe, fit and judge a live endpoint."),
    "demo": ("vtwin:demo", "Run the whole loop against an emulated server."),
}
EXTRA = {"validate": {"allow_extra_args": True, "ignore_unknown_options": True}}
"""Commands that pass on to others what they do not know themselves."""
VTWIN = (
    sys.executable,
    "-P",
    "-m",
    "vtwin",
)  # -P: folders of the working directory must not shadow the rooms
PYDANTIC_WORDS = {
    r"Input should be an? valid (\w+)(, unable to parse.*?)?(?=$| \()": r"expected a \1",
    r"expected a integer": "expected an integer",
    r"Input should be greater than or equal to ": "expected at least ",
    r"Input should be less than or equal to ": "expected at most ",
    r"Input should be ": "expected ",
}
"""What the library that checks options says (regular expressions), and what is said instead."""
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141  # 128 + SIGPIPE: what a shell reports for a program whose reader went away


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line, return the exit code; a fault of the user becomes one line on stderr."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments:
        return main(["--help"]) or EXIT_USAGE
    called = [word for word in arguments if not word.startswith("-")][:1]
    try:
        code = build_app(called)(arguments, prog_name="vtwin", standalone_mode=False)
        sys.stdout.flush()
    except VtwinError as error:
        return _complain(f"{type(error).__name__}: {error}", code=error.exit_code)
    except typer.TyperException as error:
        return _complain(_usage_line(error), code=EXIT_USAGE)
    except (typer.Abort, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    except (BrokenPipeError, SystemExit) as stop:
        # typer answers a broken pipe with exit code 1, which here is a verdict
        if isinstance(stop, SystemExit) and not isinstance(stop.__context__, BrokenPipeError):
            raise
        return _leave_quietly()
    return code if isinstance(code, int) else 0


def build_app(loaded: Collection[str]) -> typer.Typer:
    """Return the app: the commands named in ``loaded`` are real, the others are only a line of help."""
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
        command = getattr(import_module(module), attribute)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name, help=summary)
        else:
            app.command(name, context_settings=EXTRA.get(name))(command)
    return app


def _print_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"vtwin {version('vtwin')}")
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


def _usage_line(error: typer.TyperException) -> str:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "vtwin"
    message = _plain(error.format_message(), cause=error.__cause__ or error.__context__)
    return f"UsageError: {message} (see {path} --help)" if message else ""


def _plain(message: str, *, cause: BaseException | None) -> str:
    """Return a usage error in the words of the other errors, what was given first: typer has pydantic's for some."""
    plain = message.replace("Value error, ", "")
    for theirs, ours in PYDANTIC_WORDS.items():
        plain = re.sub(theirs, ours, plain)
    errors = getattr(cause, "errors", None)
    faults = errors() if callable(errors) else []
    if plain == message or "Value error, " in message or len(faults) != 1:
        return plain
    return plain.replace("expected ", f"got {faults[0]['input']!r}, expected ", 1)


def _complain(line: str, *, code: int) -> int:
    """Print one red line on stderr, return ``code``; no line where typer has printed the help already."""
    if line:
        typer.secho(" ".join(line.split()), fg=typer.colors.RED, err=True)
    return code


def _leave_quietly() -> int:
    """Point stdout at nothing, so that the interpreter's last flush cannot complain; return the exit code."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return EXIT_BROKEN_PIPE


# `vtwin demo`: an emulated server with known coefficients, two loads to fit on, a third to be judged on.

DEMO_ENGINE = """\
engine:
  max_num_seqs: 32
  max_num_batched_tokens: 512
  num_gpu_blocks: 2000
  block_size: 16
  max_model_len: 4096
"""
DEMO_TRUTH = {"alpha0": 4000, "alpha1": 5, "alpha2": 0, "beta0": 12000, "beta1": 60, "beta2": 500}
DEMO_GUESS = {"alpha0": 1000, "alpha1": 1, "alpha2": 0, "beta0": 5000, "beta1": 20, "beta2": 100}
DEMO_RATES = {"low": 4.0, "high": 11.0, "holdout": 8.0}  # requests per second
DEMO_SECONDS = 8  # of each observation


def demo(
    output: Annotated[
        Path, typer.Option(help="Folder for the traces, the fitted twin and the report.")
    ] = Path("vtwin-demo"),
) -> None:
    """Run the whole loop against an emulated server: observe two loads, fit, judge on a third, report."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # `kill` ends the server too, as Ctrl-C does
    output.mkdir(parents=True, exist_ok=True)
    server, guess, twin = (output / name for name in ("server.yaml", "guess.yaml", "twin.yaml"))
    # traces of the emulated server, made by an earlier demo, are no loss; any others are
    again = server.is_file() and server.read_text() == _demo_config(DEMO_TRUTH)
    server.write_text(_demo_config(DEMO_TRUTH))
    guess.write_text(_demo_config(DEMO_GUESS))
    stems = {name: str(output / name) for name in DEMO_RATES}
    with _serving(server) as url:
        for seed, (name, rate) in enumerate(DEMO_RATES.items(), start=1):
            load = [
                "--rate",
                f"{rate:g}",
                "--num-requests",
                str(round(rate * DEMO_SECONDS)),
                "--seed",
                str(seed),
            ]
            lengths = ["--prompt-tokens", "200", "--prompt-tokens-stdev", "120", "--output-tokens", "40"]
            _vtwin(
                "observe",
                "--url",
                url,
                *load,
                *lengths,
                "--output-tokens-stdev",
                "20",
                "--output",
                stems[name],
                *(["--overwrite"] if again else []),
            )
    fit = ["--config", str(guess), "--fit", "--holdout", stems["holdout"]]
    report = output / "report"
    _vtwin(
        "calibrate", stems["low"], stems["high"], *fit, "--report", str(report), "--write-config", str(twin)
    )
    _show_recovery(report / "report.json")
    typer.echo(f"\nreport: {report / 'report.html'}")


# `vtwin validate`: the same loop against a live endpoint, each step a vtwin command that can be run by hand.

CAPACITY_USERS = 32
CAPACITY_REQUESTS = (
    5 * CAPACITY_USERS
)  # fewer, and ramp-up and the last stragglers are a good part of the time
BUSY_SHARE = 0.8  # of the capacity measured: the highest rate of the plan
HOLDOUT_SHARE = 0.85  # of the plan's highest rate: a load that is none of the plan's
HOLDOUT_SEED, AGAIN = "1001", "again"
FITTED_LOADS = ("singles", "prefill-heavy", "decode-heavy", "low", "middle", "high", "saturated", "repeat")


def validate(  # noqa: PLR0913, PLR0917 - a command's options are its parameters
    context: typer.Context,
    url: Annotated[str, typer.Option(help="The server: http://HOST:PORT, with or without /v1.")],
    output: Annotated[
        Path,
        typer.Option(
            metavar="DIR",
            help="Folder for traces, twin and report; what is there already is kept "
            "(runs of another load: exit 2, or --overwrite).",
        ),
    ],
    rate: Annotated[
        float | None,
        typer.Option(
            min=0.001,
            metavar="R",
            help="Highest rate of interest, requests/s. Default: four fifths of what 32 users at once get through.",
            show_default=False,
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="TWIN.yaml",
            help="The server's flags. Default: what the server says of itself.",
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
        bool, typer.Option("--infer-async", help="Fit with and without async scheduling, keep the better.")
    ] = False,
    latency_model: Annotated[
        Literal["auto", "blackbox", "extended", "physics"],
        typer.Option(help="Which latency model to fit, as calibrate; auto chooses on requests held out."),
    ] = "auto",
    thresholds: Annotated[
        Path | None,
        typer.Option(
            metavar="GATE.yaml", help="Limits on the errors: exit 1 or 5, as calibrate.", show_default=False
        ),
    ] = None,
) -> None:
    """Run the whole loop against a live endpoint: observe what a fit needs, fit, judge on unseen load, report.

    Any other option goes to every `vtwin observe`: lengths (--prompt-tokens 200 --output-tokens 60), --num-requests,
    --model, --api-key, --warmup-requests. Stopped with Ctrl-C, the same command goes on where it was.
    """
    load = [*context.args, "--url", url, "--resume"]
    output.mkdir(parents=True, exist_ok=True)
    if rate is None:
        rate = _busy_rate(load, output)
    _vtwin(
        "observe",
        *load,
        "--plan",
        "calibrate",
        "--rate",
        f"{rate:.4g}",
        "--yes",
        "--output",
        str(output / "plan"),
    )
    unseen = f"{HOLDOUT_SHARE * rate:.4g}"
    held_out = [*load, "--seed", HOLDOUT_SEED, "--sweep", unseen]
    for name in ("holdout", AGAIN):
        _vtwin("observe", *held_out, "--output", str(output / name))
    stem = f"rate-{float(unseen):g}"
    if config is None:
        config = output / "guess.yaml"
        origin = [serve] if serve is not None else ["--from-trace", str(output / "plan" / "low")]
        config.write_text(_vtwin("config", "from-serve", *origin, is_kept=True))
    judged = ["--holdout", str(output / "holdout" / stem), "--repeat", str(output / AGAIN / stem)]
    more = [
        *(["--infer-async"] if infer_async else []),
        *(["--thresholds", str(thresholds)] if thresholds else []),
    ]
    report, twin = output / "report", output / "twin.yaml"
    fit = [
        "--config",
        str(config),
        "--fit",
        "--latency-model",
        latency_model,
        *judged,
        *more,
        "--report",
        str(report),
        "--write-config",
        str(twin),
    ]
    _vtwin("calibrate", *(str(output / "plan" / name) for name in FITTED_LOADS), *fit)
    typer.echo(f"twin: {twin}")


def _busy_rate(load: Sequence[str], output: Path) -> float:
    """Return a rate that keeps the server busy, from what it gets through when users always wait for it."""
    users = ["--sweep", f"concurrency={CAPACITY_USERS}", "--output", str(output / "capacity"), "--json"]
    told = json.loads(_vtwin("observe", *_enough_for_capacity(load), *users, is_kept=True))
    measured = told["loads"][f"concurrency-{CAPACITY_USERS}"]
    per_s, number = measured["request_throughput"], measured["num_requests"]
    few = (
        f"; only {number} requests, so it may be far off: --rate R says it"
        if number < CAPACITY_REQUESTS
        else ""
    )
    typer.echo(f"capacity: about {per_s:.3g} requests/s with {CAPACITY_USERS} users{few}", err=True)
    return float(BUSY_SHARE * per_s)


def _enough_for_capacity(load: Sequence[str]) -> list[str]:
    """Return the options with a number of requests that keeps the users busy; a time that is given stays."""
    words = [word for option in load for word in option.split("=", 1)]
    if "--duration" in words:
        return list(load)
    given = [later for word, later in pairwise(words) if word == "--num-requests"]
    enough = bool(given) and given[-1].isdecimal() and int(given[-1]) >= CAPACITY_REQUESTS
    return [*load, *([] if enough else ["--num-requests", str(CAPACITY_REQUESTS)])]


def _demo_config(coefficients: dict[str, int]) -> str:
    return f"{DEMO_ENGINE}latency:\n  model: blackbox\n  coefficients: {json.dumps(coefficients)}\n"


def _vtwin(*arguments: str, is_kept: bool = False) -> str:
    """Show a vtwin command and run it as a user would; leave with its exit code where that is not 0.

    Ctrl-C and a plain kill are handed on, once, and the command is left to end in its own way; the loop ends with it,
    even if the command was just done. ``is_kept``: return what it prints on stdout instead of showing it.
    """
    is_stopped = False

    def hand_on(*_: object) -> None:
        nonlocal is_stopped
        is_stopped = True
        command.send_signal(signal.SIGINT)

    typer.secho("\n$ vtwin " + shlex.join(arguments), bold=True, err=True)
    with subprocess.Popen(
        [*VTWIN, *arguments], stdout=subprocess.PIPE if is_kept else None, text=True, process_group=0
    ) as command:
        before = {number: signal.signal(number, hand_on) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            printed, _ = command.communicate()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
    if is_stopped and command.returncode == 0:
        raise typer.Exit(EXIT_INTERRUPTED)
    if command.returncode:
        raise typer.Exit(EXIT_INTERRUPTED if command.returncode == -signal.SIGINT else command.returncode)
    return printed or ""


@contextmanager
def _serving(config: Path) -> Iterator[str]:
    """Start `vtwin serve` on a free port, yield its address, and end the server on leaving, come what may."""
    arguments = ["serve", "--config", str(config), "--port", "0"]
    typer.secho("\n$ vtwin " + " ".join(arguments) + " &", bold=True, err=True)
    with subprocess.Popen([*VTWIN, *arguments], stdout=subprocess.PIPE, text=True) as server:
        try:
            yield _announced(server)
        finally:
            server.terminate()
            try:
                server.wait(timeout=5)
            except subprocess.TimeoutExpired:
                server.kill()


def _announced(server: subprocess.Popen[str]) -> str:
    """Return the address that `vtwin serve` prints once it listens; ServerError where it ends before."""
    line = server.stdout.readline() if server.stdout is not None else ""
    if "http" not in line:
        raise ServerError(f"vtwin serve: got exit code {server.wait()}, expected it to serve")
    typer.echo(line, nl=False, err=True)
    return line.split()[-1]


def _show_recovery(report: Path) -> None:
    """Print the fitted coefficients beside those that the server used."""
    fitted = json.loads(report.read_text())["fit"]["coefficients"]
    typer.echo("\ncoefficient    server    fitted   90 % interval")
    for name, truth in DEMO_TRUTH.items():
        value, low, high, reason = (fitted[name][key] for key in ("value", "low", "high", "reason"))
        interval = reason if low is None else f"{low:,.1f} … {high:,.1f}"
        typer.echo(f"{name:<11}{truth:>10,}{value:>10,.1f}   {interval}")
    typer.echo(
        "alpha0 and alpha1 also take in the way between client and server, which the engine knows nothing of."
    )


if __name__ == "__main__":
    sys.exit(main())
