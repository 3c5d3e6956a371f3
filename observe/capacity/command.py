"""``vtwin observe --find-capacity`` with its options read: search, print the answer, exit with its code."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from observe.capacity.live_steps import check_workload
from observe.capacity.question import DOCUMENT, PAGE, Begin, FindSettings, find_capacity
from observe.event_loop import run_on_fastest_loop
from observe.run.panel import show
from traces import ConfigError, ExitCode
from traces.facts import say_json
from traces.strict.tell import say, tell
from traces.workload import flag

if TYPE_CHECKING:
    from observe.capacity.live_capacity import LiveCapacity
    from observe.options import ListOptions, TraceFileOptions
    from observe.settings import Settings
    from traces.workload import WorkloadOptions

NOT_OF_A_TWIN: Final = ("rate", "num_requests", "duration")
"""Options of a step, which the question to a twin does without."""


def find_on_server(
    workload: WorkloadOptions,
    settings: Settings,
    *,
    several: ListOptions,
    slo: str | None,
    folder: Path,
    files: TraceFileOptions,
) -> None:
    """Search for the highest rate into ``folder``, print it, and exit: 1 where no rate is within the SLO."""
    if slo is None:
        raise ConfigError("--find-capacity: needs --slo LIMITS (ttft_p99=500ms,tpot_p99=50ms; or ttft=500ms)")
    if settings.warmup.is_recorded:
        raise ConfigError(
            "--keep-warmup: cannot be combined with --find-capacity, whose steps leave out their beginning"
        )
    check_workload(workload)
    good_frac = files.gate.least if files.gate.fail_below is not None else None
    is_there = several.resume and (folder / DOCUMENT).is_file()
    config = several.find.config
    begin = None if config is None or is_there else of_twin(config, slo, workload)
    how = FindSettings(
        begin=begin,
        precision=several.find.precision,
        good_frac=good_frac,
        resume=several.resume,
        overwrite=files.overwrite,
    )
    try:
        found = run_on_fastest_loop(
            lambda: find_capacity(
                workload,
                settings,
                slo,
                folder=folder,
                how=how,
                display=show(),
                tell=lambda line: tell(f"observe: {line}"),
                handle_signals=True,
            )
        )
    except KeyboardInterrupt:  # between two steps
        tell("observe: interrupted: the same command with --resume goes on from the steps that are there")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    _show(found, folder, as_json=files.as_json)
    if found.state == "interrupted":
        raise typer.Exit(ExitCode.INTERRUPTED)
    if found.found.rate_per_s is None:
        raise typer.Exit(ExitCode.NEGATIVE)


def of_twin(config: Path, slo: str, workload: WorkloadOptions) -> Begin | None:
    """Return the capacity of a twin for the same load, to begin at; None where it has none. Raises ConfigError.

    ``vtwin capacity`` is run in a process of its own, so that nothing of the simulator delays the client.
    """
    command = [
        sys.executable,
        "-m",
        "vtwin",
        "capacity",
        "--config",
        str(config),
        "--slo",
        slo,
        "--no-binding",
        "--json",
    ]
    command += _words(workload)
    tell("observe: asking the twin where to begin")
    done = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603 - vtwin itself
    if done.returncode == ExitCode.INTERRUPTED:
        raise KeyboardInterrupt
    if done.returncode not in (0, ExitCode.NEGATIVE):
        said = [line for line in done.stderr.splitlines() if line.strip()]
        raise ConfigError(
            f"--config {config}: {said[-1].removeprefix('Error: ') if said else 'got no answer of it'}"
        )
    rate = json.loads(done.stdout)["rate"]
    if rate is None:
        tell("observe: the twin is at no rate within the SLO: the search begins without it")
        return None
    tell(f"observe: the twin is within the SLO up to {rate:.4g}/s")
    return Begin(rate_per_s=rate, is_near=True)


def _words(workload: WorkloadOptions) -> list[str]:
    """Return the options of a workload as words of a command line, without those of a step."""
    words: list[str] = []
    for field in fields(workload):
        value = getattr(workload, field.name)
        if value is None or field.name in NOT_OF_A_TWIN:
            continue
        if isinstance(value, bool):
            words += [flag(field.name)] if value else []
        else:
            words += [flag(field.name), str(value)]
    return words


def _show(found: LiveCapacity, folder: Path, *, as_json: bool) -> None:
    lines: Sequence[str] = [f"{found.sentence}.", *(f"{note}." for note in found.notes())]
    cost = found.cost
    lines = [
        *lines,
        f"{len(found.steps)} steps, {cost['num_requests']:,} requests, {cost['duration_s']:,.0f} s, "
        f"{cost['input_tokens']:,} tokens of prompts, {cost['output_tokens']:,} of answers.",
        f"{folder / PAGE}" if (folder / PAGE).is_file() else "",
    ]
    for line in lines:
        say(line, err=as_json)
    if as_json:
        say_json(found.document())
