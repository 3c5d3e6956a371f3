"""``vtwin run``: separate from ``replay``, which does not need the import of the code that draws workloads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from replay.cli import simulate_each, tell_replaced
from replay.options.run_options import FileOptions, RunOptions, TwinOptions, simulation_options, twins_asked
from replay.progress import working
from replay.rollouts.options import RolloutOptions
from replay.twin.own.own_code import with_code_option
from traces.strict.option_table import with_option_tables
from traces.workload import WorkloadOptions, check_output

if TYPE_CHECKING:
    from replay.rollouts.rollouts import RolloutSettings
    from traces import Trace


SweepOption = Annotated[
    str | None,
    typer.Option(
        metavar="VALUES",
        help="One simulation per value, side by side: rates (1,2,4) or numbers of users (concurrency=8,16).",
    ),
]


@with_code_option
@with_option_tables
def run(
    workload: WorkloadOptions,
    twin: TwinOptions,
    how: RunOptions,
    rollout: RolloutOptions,
    *,
    sweep: SweepOption = None,
    files: FileOptions,
) -> None:
    """Draw a workload and simulate it."""
    if (batches := rollout.settings(workload)) is not None:
        _rollouts(workload, batches, twin, how, files, sweep=sweep)
        return
    _check_load(workload, sweep)
    if twin.output is not None:
        check_output(workload, twin.output)
    twins = twins_asked(twin, how, files)
    from traces.strict.tell import tell
    from traces.workload import clipping_notes, served_note

    if len(twins) == 1 and sweep is None:
        tell_replaced(twin.output, twin.config, overwrite=files.overwrite)
    with working("drawing the workload"):
        loads = _loads(workload, sweep)
    for note in clipping_notes(workload):
        tell(f"warning: {note}")
    if (served := served_note(loads[0][2])) is not None:
        tell(f"note: {served}")
    options = simulation_options(twin, how, files, at="arrival", loop="auto")
    simulate_each(twins, loads, output=twin.output, overwrite=files.overwrite, options=options)


def _rollouts(
    workload: WorkloadOptions,
    batches: RolloutSettings,
    twin: TwinOptions,
    how: RunOptions,
    files: FileOptions,
    *,
    sweep: str | None,
) -> None:
    """Simulate batches of rollouts and show them."""
    from replay.rollouts.command import check_rollout_options, simulate_rollouts
    from replay.rollouts.prompt_samples import long_tailed
    from traces.strict.tell import tell
    from traces.workload import clipping_notes

    check_rollout_options(twin, how, sweep=sweep)
    _check_load(workload, None)
    twins = [each for _, each in twins_asked(twin, how, files)]
    for note in clipping_notes(long_tailed(workload)):
        tell(f"warning: {note}")
    simulate_rollouts(workload, twins, batches, how=twin.answer)


def _check_load(workload: WorkloadOptions, sweep: str | None) -> None:
    """Raise ConfigError for options that contradict each other, before anything large is imported."""
    from traces.workload import check_options, sweep_options

    for options in [workload] if sweep is None else [each for _, _, each in sweep_options(workload, sweep)]:
        check_options(options)


def _loads(workload: WorkloadOptions, sweep: str | None) -> list[tuple[str, str, Trace]]:
    """Return the workload as one load without a name, or one per value of a sweep."""
    from traces.workload import sweep_options, trace_from_options

    if sweep is None:
        return [("", "", trace_from_options(workload))]
    return [
        (what, f"{value:g}", trace_from_options(each)) for what, value, each in sweep_options(workload, sweep)
    ]
