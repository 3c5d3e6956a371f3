"""A server's capacity, of requests or sessions, as a function; ``vtwin capacity`` computes the same and prints it.

Notes that concern a workload go to stderr here, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from replay.argument_ranges import LOAD, SEEDS, THINK_TIME_S
from replay.capacity.at_paces import with_pace
from replay.capacity.at_seats import with_assumed_seats
from replay.capacity.capacity import Capacity, CapacityAsked, capacity_of_draws
from replay.capacity.sessions import SessionCapacity, most_sessions
from replay.ready import prepare_engine
from replay.search.beyond_fit import beyond_fit
from replay.search.seeds import DEFAULT_SEEDS, MOST_SEEDS
from replay.search.workload_draws import Drawing, drawing_of, draws, lengths_text, searchable
from replay.twin.config_read import twin_of
from traces import ConfigError, RunLimit, parse_run_slo
from traces.strict.arguments import TEXT, TWIN, takes
from traces.workload import SessionStarts, WorkloadOptions, check_options, trace_from_options

if TYPE_CHECKING:
    from replay.twin.twin_config import TwinConfig
    from traces import Trace


@takes(workload=LOAD, twin=TWIN, slo=TEXT, seeds=SEEDS)
def find_capacity(
    workload: WorkloadOptions | Trace,
    twin: TwinConfig | str | Path,
    slo: str,
    *,
    seeds: int | None = None,
    with_binding: bool = True,
) -> Capacity:
    """Return the highest rate, requests/s, at which a twin keeps ``slo``, such as ``"ttft_p99=500ms,tpot_p99=40ms"``.

    ``workload``: options of a drawn one, without a rate, or a trace whose times are scaled. ``seeds``: draws; None: 4,
    and up to 16 for a narrow interval. ``with_binding``: also find what holds the capacity down. The interval has the
    twin's pace in it. Raises ConfigError on a workload or limits that cannot be searched.
    """
    limits, twin = parse_run_slo(slo), twin_of(twin)
    if isinstance(workload, WorkloadOptions):
        traces, drawing = drawn(workload, seeds=seeds)
    else:
        traces, drawing = [workload], None
    prepare_engine(twin, trace=traces[0])
    found, _ = searched_capacity(traces, twin, limits, with_binding=with_binding, drawing=drawing)
    asked = CapacityAsked(limits=tuple(limits), twin=twin, lengths=lengths_text(traces[0]))
    return replace(found, asked=asked)


@takes(workload=LOAD, twin=TWIN, slo=TEXT, max_think_time_s=THINK_TIME_S)
def find_sessions(
    workload: WorkloadOptions | Trace,
    twin: TwinConfig | str | Path,
    slo: str,
    *,
    max_think_time_s: float | None = None,
) -> SessionCapacity:
    """Return how many sessions at once a twin serves within ``slo``, limits on ``ttft``, ``tpot`` or ``e2e``.

    ``workload``: a trace of sessions, or options with rounds and without a rate. ``max_think_time_s``: longer waits of
    clients are cut. Raises ConfigError on a workload without sessions, or limits that cannot be searched.
    """
    limits, twin = tuple(parse_run_slo(slo)), twin_of(twin)
    trace = sessions_of(workload) if isinstance(workload, WorkloadOptions) else workload
    most_think_us = None if max_think_time_s is None else round(max_think_time_s * 1e6)
    prepare_engine(twin, trace=trace)
    starts = SessionStarts(most_think_us=most_think_us, seed=twin.seed)
    return replace(most_sessions(trace, twin, limits, starts), limits=limits)


def sessions_of(workload: WorkloadOptions) -> Trace:
    """Return the sessions of a workload. Raises ConfigError where its options say how many come at once."""
    for name in ("rate", "stages", "concurrency", "batch"):
        if getattr(workload, name) is not None:
            raise ConfigError(f"--{name}: cannot be combined with a search for a number of sessions")
    if workload.trace is None and workload.workload is None:
        workload = replace(workload, rate=1.0)
    check_options(workload)
    return trace_from_options(workload)


def drawn(workload: WorkloadOptions, *, seeds: int | None) -> tuple[Sequence[Trace], Drawing | None]:
    """Return a workload's first draws, and what draws more; None where the workload says how many requests it has.

    ``seeds``: draws; None: as many as make the interval narrow. Raises
    ConfigError on a workload that cannot be searched.
    """
    options = searchable(workload)
    first = DEFAULT_SEEDS if seeds is None else seeds
    takes_all = workload.num_requests is None and workload.trace is None
    if not takes_all:
        return draws(options, first), None
    drawing = drawing_of(options, seeds=first, most_seeds=MOST_SEEDS if seeds is None else seeds)
    return draws(options, 1), drawing


def searched_capacity(
    traces: Sequence[Trace],
    twin: TwinConfig,
    limits: Sequence[RunLimit],
    *,
    with_binding: bool,
    drawing: Drawing | None,
    with_curve: bool = True,
) -> tuple[Capacity, str | None]:
    """Return a twin's capacity, its pace in the interval, and how far it goes beyond what was fitted."""
    found = capacity_of_draws(
        traces, twin, limits, drawing=drawing, with_binding=with_binding, with_curve=with_curve
    )
    beyond = beyond_fit(traces[0], twin, found.rate_per_s)
    if twin.pace is not None:
        delta = twin.pace.of(is_beyond=beyond is not None)
        found = with_pace(found, traces, twin, limits, delta=delta, drawing=drawing)
    return with_assumed_seats(found, traces[0], twin, limits), beyond
