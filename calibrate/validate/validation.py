"""``vtwin validate``: observe a live endpoint, fit its twin, check the twin on a load that the fit has not seen."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from calibrate.validate.command_steps import RunCommand, show
from calibrate.validate.options import ValidateOptions
from calibrate.validate.plan import ValidationPlan, busy_rate, capacity_note, capacity_observation
from traces import ServerError, make_folder, read_trace, write_text
from traces.strict.tell import say, tell

Measured = Callable[[Path], tuple[float | None, int]]
"""Reads an observed trace by its stem: requests finished per s (None without any), and how many were sent."""
UNNAMED = (
    "the server's GPU is not named, and no server reports it. Add --gpu H100 (your GPU for H100), --tp N where N GPUs "
    "share each layer, and --model-config CONFIG.json where the server's name for its model is not one that ships: a "
    "fit then has priors and more models of a step to choose from"
)
"""The first message of `validate` if the GPU is not named: the measurement takes an hour, and can be restarted."""


def run_validation(
    asked: ValidateOptions, others: Sequence[str], run: RunCommand, measured: Measured
) -> None:
    """Observe, fit, compare and report; ``others``: options of every observation. ``measured``: reads one's outcome."""
    if asked.gpu is None and asked.config is None:
        tell(f"note: {UNNAMED}")
    _check_named(asked.gpu, asked.model_config)
    load = (*others, "--url", asked.url, "--resume", *_words({"--gpu": asked.gpu, "--tp": asked.tp}))
    make_folder(asked.output, option="--output")
    plan = ValidationPlan(
        folder=asked.output, load=load, rate_per_s=asked.rate or _busy_rate(load, asked.output, run, measured)
    )
    steps = plan.steps()
    for step, arguments in zip(steps, plan.observations(), strict=False):
        tell("", step, bold=True)
        run("observe", arguments)
    tell("", steps[-1], bold=True)
    twin = asked.config or _written_guess(
        asked.output / "guess.yaml",
        serve=asked.serve,
        server_trace=plan.server_trace(),
        named=(asked.gpu, asked.model_config, asked.tp),
    )
    run("calibrate", plan.calibration(twin, _fit_options(asked)))
    say(f"twin: {plan.twin()}")
    say(served_at_most(plan.twin(), plan.holdout_trace()))
    say(further_range(plan))


def _fit_options(asked: ValidateOptions) -> list[str]:
    """Return the options of the fit."""
    options = ["--latency-model", asked.latency_model]
    if asked.latency_model != "physics":  # which is fitted from what the twin's file names
        options += _words({"--gpu": asked.gpu, "--model-config": asked.model_config, "--tp": asked.tp})
    options += ["--infer-async"] if asked.infer_async else []
    return options + (["--thresholds", str(asked.thresholds)] if asked.thresholds else [])


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


def further_range(plan: ValidationPlan) -> str:
    """Return the line that says how to trust the twin at higher rates, or with other lengths."""
    ask = f"--rate {1.5 * plan.rate_per_s:.3g} --output {shlex.quote(f'{plan.folder}-higher')}"
    return (
        f"to trust it at higher rates: the same call with {ask}; with longer prompts or answers: with the lengths of "
        "yours (--prompt-tokens, --output-tokens, --like), in a folder of its own"
    )


def served_at_most(twin: Path, like: Path) -> str:
    """Return the line with a twin's highest throughput for requests like a trace's, and the command for an SLO."""
    from replay import load_config
    from replay.search import ceiling_of, load_of
    from traces.workload import WorkloadOptions, trace_from_options

    options = WorkloadOptions(like=like, rate=1.0, num_requests=5000)
    load = load_of(trace_from_options(options), load_config(twin, allows_cluster=False))
    most_per_s = ceiling_of([load])
    most = "an unknown number of" if most_per_s is None else f"at most {most_per_s:.3g}"
    ask = shlex.join(
        ["vtwin", "capacity", "--config", str(twin), "--like", str(like), "--slo", "ttft_p99=500ms"]
    )
    return f"capacity: the twin serves {most} such requests/s; within an SLO: {ask}"


def _busy_rate(load: Sequence[str], folder: Path, run: RunCommand, measured: Measured) -> float:
    """Return a rate that keeps the server busy, from a measurement of its capacity."""
    arguments, stem = capacity_observation(load, folder)
    run("observe", arguments)
    capacity_per_s, num_requests = measured(stem)
    if not capacity_per_s:
        raise ServerError(f"capacity: got no finished request, expected some ({stem})")
    tell(capacity_note(capacity_per_s, num_requests))
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
    show("config", ["from-serve", *origin], more=f" > {shlex.quote(str(path))}")
    for note in notes:
        tell(f"note: {note}")
    write_text(path, text, option="--output")
    return path
