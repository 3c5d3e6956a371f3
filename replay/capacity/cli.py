"""``vtwin capacity``. What is heavy is imported by the command."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from replay.capacity.options import CapacityOptions
from replay.search.searched_rate import NOT_FOR_A_SEARCH
from replay.twin.own.own_code import with_code_option
from traces import ExitCode
from traces.strict.option_table import refusing, with_option_tables
from traces.workload import WorkloadOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replay.twin.keys.overlay import Setting
    from replay.twin.twin_config import TwinConfig
    from traces import RunLimit

    Twins = Sequence[tuple[tuple[Setting, ...], TwinConfig]]


@with_code_option
@with_option_tables
@refusing(*NOT_FOR_A_SEARCH)
def capacity(workload: WorkloadOptions, asked: CapacityOptions) -> None:
    """Find the highest rate at which a twin meets latency limits.

    The workload is drawn once per seed and simulated at many rates: 150,000 requests together, more where queues take
    longer to grow, or --num-requests for each seed. With --sessions the highest number of sessions at once is found.
    Exit code 1 if nothing meets the limits.
    """
    from replay.console.twins import load_twins
    from replay.search.workload_draws import searchable
    from traces import ConfigError, check_place, parse_run_slo
    from traces.strict.tell import tell_note

    limits = parse_run_slo(asked.slo, tell=tell_note)
    check_place(asked.report, option="--report")
    if asked.sessions:
        _check_sessions(workload, asked)
    elif asked.max_think_time is not None:
        raise ConfigError("--max-think-time: needs --sessions")
    else:
        searchable(workload)  # refuses what cannot be searched, before files are read
    twins = load_twins(
        asked.config,
        asked.defaults,
        asked.settings,
        instances=asked.instances,
        routing=asked.routing,
        anyway=asked.anyway,
        base=asked.base,
    )
    find = _most_sessions if asked.sessions else _highest_rate
    if not find(workload, twins, limits, asked):
        raise typer.Exit(ExitCode.NEGATIVE)


def _most_sessions(
    workload: WorkloadOptions, twins: Twins, limits: Sequence[RunLimit], asked: CapacityOptions
) -> bool:
    """Find and show how many sessions at once are within the limits; return whether one is."""
    from replay.capacity.session_command import show_sessions

    return show_sessions(workload, twins, limits, asked=asked)


def _highest_rate(
    workload: WorkloadOptions, twins: Twins, limits: Sequence[RunLimit], asked: CapacityOptions
) -> bool:
    """Find and show the highest rate within the limits; return whether any is."""
    from replay.capacity.command import show_one, show_several
    from replay.capacity.question import drawn
    from replay.console.ready import prepare_engine
    from replay.search.workload_draws import tell_too_long
    from replay.simulation.variants.command import variants_from
    from traces import ConfigError

    if len(twins) > 1 and asked.report is not None:
        raise ConfigError("--report: cannot be combined with several variants")
    traces, drawing = drawn(workload, seeds=asked.seeds)
    tell_too_long(traces[0], [twin for _, twin in twins])
    for _, twin in twins:
        prepare_engine(twin, trace=traces[0])
    if len(twins) == 1:
        return show_one(traces, twins[0][1], limits, asked=asked, drawing=drawing)
    variants = variants_from(twins, [("", "", traces[0])])
    return show_several(traces, variants, limits, asked=asked, drawing=drawing)


def _check_sessions(workload: WorkloadOptions, asked: CapacityOptions) -> None:
    """Raise ConfigError on options that a capacity in sessions does not have."""
    from traces import ConfigError

    for name, given in (("--report", asked.report), ("--like", workload.like), ("--seeds", asked.seeds)):
        if given is not None:
            raise ConfigError(f"{name}: cannot be combined with --sessions")
