"""``vtwin run`` and ``replay``: one command under two names. What is heavy is imported by the command."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from replay.console.progress import working
from replay.simulation.command import SimulationOptions, simulate_and_write
from replay.simulation.options import (
    FileOptions,
    LoadOptions,
    RunOptions,
    TwinOptions,
    simulation_options,
    twins_asked,
)
from replay.twin.own.own_code import with_code_option
from traces.strict.option_table import with_option_tables
from traces.strict.tell import tell, tell_note
from traces.workload import WorkloadOptions, check_output

if TYPE_CHECKING:
    from replay.twin.keys.overlay import Setting
    from replay.twin.twin_config import TwinConfig
    from traces import Trace
    from traces.workload import Cancellation


RecordedArgument = Annotated[
    Path | None,
    typer.Argument(
        metavar="[STEM]",
        show_default=False,
        help="The requests of this trace, as --trace STEM: its stem, header or table, or a file of Azure, BurstGPT, "
        "Mooncake, vllm bench, guidellm, …",
    ),
]


@with_code_option
@with_option_tables
def run(
    stem: RecordedArgument = None,
    *,
    load: LoadOptions,
    twin: TwinOptions,
    how: RunOptions,
    files: FileOptions,
) -> None:
    """Simulate a load: a workload that is drawn, or the requests of a trace.

    `vtwin replay STEM` and `vtwin run --trace STEM` are the same command.
    """
    workload, sweep, pacing = _with_trace(load.workload, stem), load.sweep, load.pacing
    check_load(workload, sweep, sessions=load.sessions.sessions)
    twins = twins_asked(twin, how, files)
    seed = twins[0][1].seed if workload.seed is None else workload.seed
    starts, cuts = load.sessions.starts_of_each(seed=seed), load.cancel.asked()
    if twin.output is not None and workload.trace is None:
        check_output(workload, twin.output)
    if len(twins) == 1 and sweep is None and len(starts) == 1:
        tell_replaced(twin.output, twin.config, overwrite=files.overwrite, read=workload.trace)
    loads = _loads(workload, sweep)
    from traces.workload import started

    if len(starts) > 1:
        _refuse_both(sweep)
        loads = [("sessions", number, started(loads[0][2], each)) for number, each in starts]
    elif starts[0][1].changes_anything:
        loads = [(what, value, started(trace, starts[0][1])) for what, value, trace in loads]
    if cuts is not None:
        loads = _with_cuts(loads, cuts, workload)
    options = simulation_options(
        twin, how, files, at=pacing.at, loop=pacing.loop, max_concurrency=pacing.max_concurrency
    )
    if load.after is not None:
        loads, options = _after(load.after, loads, options)
    simulate_each(twins, loads, output=twin.output, overwrite=files.overwrite, options=options)


def _with_cuts(
    loads: list[tuple[str, str, Trace]], cuts: Cancellation, workload: WorkloadOptions
) -> list[tuple[str, str, Trace]]:
    from traces.workload import seed_of, with_cancellations

    seed = seed_of(workload)
    return [(what, value, with_cancellations(trace, cuts, seed=seed)) for what, value, trace in loads]


def _after(
    path: Path, loads: list[tuple[str, str, Trace]], options: SimulationOptions
) -> tuple[list[tuple[str, str, Trace]], SimulationOptions]:
    """Return the loads behind another run's requests, and the options that measure from their beginning on."""
    from replay.trace.measured_window import EVERYTHING, MeasuredPart
    from traces import ConfigError, read_recorded
    from traces.workload import behind

    if options.how.measured != EVERYTHING:
        raise ConfigError(
            "--after: cannot be combined with --measure or --warmup-frac: it measures what is behind"
        )
    before = read_recorded(path)
    joined = [(what, value, *behind(trace, before)) for what, value, trace in loads]
    begin_us = joined[0][3]
    tell_note(
        f"{len(before):,} requests of {path} come first, unmeasured; the load begins at {begin_us / 1e6:,.0f} s"
    )
    how = replace(options.how, measured=MeasuredPart(from_us=begin_us))
    return [each[:3] for each in joined], replace(options, how=how)


def _with_trace(workload: WorkloadOptions, stem: Path | None) -> WorkloadOptions:
    """Return the workload with the trace that the command was given by its place. Raises ConfigError on two."""
    from traces import ConfigError

    if stem is None:
        return workload
    if re.fullmatch(r"[a-z_][\w.]*=\w+:\S*", str(stem)):  # a shell makes several words of cluster={a:1,b:2}
        raise ConfigError(f"--set: got {stem} as a word of its own, expected quotes around the whole value")
    if workload.trace is not None:
        raise ConfigError(f"--trace: got it beside {stem}, expected one trace")
    return replace(workload, trace=stem)


def _refuse_both(sweep: str | None) -> None:
    from traces import ConfigError

    if sweep is not None:
        raise ConfigError("--sweep: cannot be combined with several --sessions, expected one of them")


def check_load(workload: WorkloadOptions, sweep: str | None, *, sessions: str | None = None) -> None:
    """Raise ConfigError for options that contradict each other, TraceError for a trace that is not there.

    Before anything large is imported.
    """
    from traces import ConfigError, locate
    from traces.workload import check_options, sweep_options

    loads = ("trace", "workload", "preset", "like", "rate", "concurrency", "stages", "batch")
    if sessions is not None and sweep is None and all(getattr(workload, each) is None for each in loads):
        raise ConfigError(
            f"--sessions {sessions}: needs sessions, expected --trace STEM, or --rate R with --rounds N"
        )
    for options in [workload] if sweep is None else [each for _, _, each in sweep_options(workload, sweep)]:
        check_options(options)
    if workload.trace is not None and not (named := Path(str(workload.trace).partition("#")[0])).exists():
        locate(named)


def _loads(workload: WorkloadOptions, sweep: str | None) -> list[tuple[str, str, Trace]]:
    """Return the load, without a name, or one per value of a sweep; and tell which lengths it has."""
    from traces.workload import served_note

    if workload.trace is not None and sweep is None:
        from traces.workload import recorded_load, workload_of

        with working(f"reading {workload.trace}"):
            recorded = recorded_load(workload)
        if "max_tokens" in recorded.table or "server_input_tokens" in recorded.table:
            _tell_served(served_note(workload_of(recorded)))
        return [("", "", recorded)]
    from traces.workload import clipping_notes, sweep_options, trace_from_options

    with working("drawing the workload"):
        drawn = (
            [("", "", trace_from_options(workload))]
            if sweep is None
            else [
                (what, f"{value:g}", trace_from_options(each))
                for what, value, each in sweep_options(workload, sweep)
            ]
        )
    for note in clipping_notes(workload):
        tell(f"warning: {note}")
    _tell_served(served_note(drawn[0][2]))
    return drawn


def _tell_served(note: str | None) -> None:
    if note is not None:
        tell_note(note)


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
    from replay.simulation.variants.command import simulate_variants, variants_from

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
        tell_note(note)
