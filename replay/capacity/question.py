"""A server's capacity, of requests or sessions, as a function; ``vtwin capacity`` computes the same and prints it.

Notes that concern a workload go to stderr here, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from replay.capacity.at_seats import with_assumed_seats
from replay.capacity.capacity import Capacity, CapacityAsked, capacity_of_draws, short_run_note
from replay.capacity.capacity_by_pace import with_pace
from replay.capacity.sessions import SessionCapacity, check_session_limits, is_within, most_sessions
from replay.capacity.value import price_of
from replay.console.ready import prepare_engine
from replay.model.prices import read_server_prices
from replay.numbers.argument_ranges import LOAD, SEEDS, THINK_TIME_S
from replay.profiles.known_errors import known_error_of
from replay.search.beyond_fit import beyond_fit
from replay.search.evaluation import Evaluator
from replay.search.load import load_of
from replay.search.seeds import DEFAULT_SEEDS, MOST_SEEDS
from replay.search.workload_draws import Drawing, drawing_of, draws, lengths_text, searchable
from replay.twin.config_read import twin_of
from replay.verdict.kv_doubt import OVERLOAD, kv_doubt
from traces import ConfigError, RunLimit, parse_run_slo, reading_notes
from traces.strict.arguments import PATH, TEXT, TWIN, takes
from traces.strict.free_memory import require_memory
from traces.workload import SessionStarts, WorkloadOptions, check_options, trace_from_options

if TYPE_CHECKING:
    from replay.twin.twin_config import TwinConfig
    from traces import Trace

FIRST_SESSIONS = 64
"""A search for sessions at once draws so many, twice as many while half of them at once are within the limits,"""
MOST_SESSIONS = 4096
"""and at most so many,"""
MOST_ROUNDS = 100_000
"""or sessions of so many rounds together, but"""
FEWEST_DRAWN = 16
"""no fewer than so many sessions."""
BYTES_DRAWN = 80
"""Memory that drawing a round takes; of --num-requests each is drawn as a session's first."""
BYTES_SIMULATED = 4_000
"""Memory that simulating a round takes: 4.2 GB were in use for a million."""


@takes(workload=LOAD, twin=TWIN, slo=TEXT, seeds=SEEDS, prices=PATH)
def find_capacity(
    workload: WorkloadOptions | Trace,
    twin: TwinConfig | str | Path,
    slo: str,
    *,
    seeds: int | None = None,
    with_binding: bool = True,
    prices: Path | None = None,
) -> Capacity:
    """Return the highest rate, requests/s, at which a twin keeps ``slo``, such as ``"ttft_p99=500ms,tpot_p99=40ms"``.

    ``workload``: options of a drawn one, without a rate, or a trace whose times are scaled. ``seeds``: draws; None: 4,
    and up to 16 for a narrow interval. ``with_binding``: also find what holds the capacity down. ``prices``: a file of
    them, per GPU and hour. The interval has the twin's pace in it. Raises ConfigError on a workload or limits that
    cannot be searched.
    """
    limits, twin = parse_run_slo(slo), twin_of(twin)
    if isinstance(workload, WorkloadOptions):
        traces, drawing = drawn(workload, seeds=seeds)
    else:
        traces, drawing = [workload], None
    prepare_engine(twin, trace=traces[0])
    price = price_of(twin, None if prices is None else read_server_prices(prices))
    found, _ = asked_capacity(
        traces, twin, limits, with_binding=with_binding, drawing=drawing, price_per_hour=price
    )
    return found


def asked_capacity(
    traces: Sequence[Trace],
    twin: TwinConfig,
    limits: Sequence[RunLimit],
    *,
    with_binding: bool,
    drawing: Drawing | None,
    price_per_hour: float | None,
    with_curve: bool = True,
) -> tuple[Capacity, CapacityAsked]:
    """Return a twin's capacity, which has its question with the notes that a reader needs, and that question."""
    found, beyond = searched_capacity(
        traces, twin, limits, with_binding=with_binding, drawing=drawing, with_curve=with_curve
    )
    short = short_run_note(found, found.num_requests)
    seats = None if found.assumed_seats is None else found.assumed_seats.text
    notes = (short, beyond, seats, _of_memory(found, traces[0], twin, limits), _of_model(twin))
    asked = CapacityAsked(
        limits=tuple(limits),
        twin=twin,
        lengths=lengths_text(traces[0]),
        notes=(*reading_notes(traces[0]), *(each for each in notes if each)),
        price_per_hour=price_per_hour,
    )
    return replace(found, asked=asked), asked


def _of_model(twin: TwinConfig) -> str | None:
    """Return how far the step times of an unfitted twin were off elsewhere, which no interval here has in it."""
    error = known_error_of(twin)
    return None if error is None else f"not in the interval: {error.sentence}"


def _of_memory(found: Capacity, trace: Trace, twin: TwinConfig, limits: Sequence[RunLimit]) -> str | None:
    """Return how far the latencies at the capacity hang on a KV cache whose size nobody told: at most three runs."""
    rate = found.rate_per_s
    if rate is None or not twin.assumes_memory:
        return None

    def measure(other: TwinConfig) -> dict[str, float]:
        there = Evaluator(loads=[load_of(trace, other)], limits=limits).at(rate)
        values = {f"{name} at {rate:.4g} requests/s": value for name, value in there.values_us.items()}
        return {
            name: OVERLOAD if there.is_behind or math.isnan(value) else value
            for name, value in values.items()
        }

    doubt = kv_doubt(twin, measure(twin), measure)
    return None if doubt is None else doubt.line()


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
    most_think_us = None if max_think_time_s is None else round(max_think_time_s * 1e6)
    starts = SessionStarts(most_think_us=most_think_us, seed=twin.seed)
    trace = (
        sessions_of(workload, [twin], limits, starts) if isinstance(workload, WorkloadOptions) else workload
    )
    prepare_engine(twin, trace=trace)
    return replace(most_sessions(trace, twin, limits, starts), limits=limits, notes=twin.notes)


def sessions_of(
    workload: WorkloadOptions, twins: Sequence[TwinConfig], limits: Sequence[RunLimit], starts: SessionStarts
) -> Trace:
    """Return the sessions of a workload: as many as it says, else enough that half of them at once break a limit.

    Raises ConfigError where its options say how many come at once, and where they take more memory than there is.
    """
    for name in ("rate", "stages", "concurrency", "batch"):
        if getattr(workload, name) is not None:
            raise ConfigError(f"--{name}: cannot be combined with a search for a number of sessions")
    check_session_limits(limits)
    if workload.trace is None and workload.workload is None:
        workload = replace(workload, rate=1.0)
    check_options(workload)
    rounds = workload.rounds or 1
    if workload.num_requests is not None:
        _require_rounds(workload.num_requests, rounds, BYTES_DRAWN)
    if _has_own_number(workload) or rounds == 1:
        return trace_from_options(workload)
    if workload.arrival is None and workload.burstiness is None:
        workload = replace(workload, arrival="constant")
    number = max(min(FIRST_SESSIONS, MOST_ROUNDS // rounds), FEWEST_DRAWN)
    while True:
        _require_rounds(number, rounds, BYTES_SIMULATED)
        trace = trace_from_options(replace(workload, duration=float(number)))  # one session a second
        for each in twins:
            prepare_engine(each, trace=trace)
        is_most = 2 * number > MOST_SESSIONS or 2 * number * rounds > MOST_ROUNDS
        if is_most or not any(is_within(trace, each, limits, starts, at_once=number // 2) for each in twins):
            return trace
        number *= 2


def _has_own_number(workload: WorkloadOptions) -> bool:
    """Return whether a workload says how many sessions it has."""
    given = (workload.trace, workload.workload, workload.num_requests, workload.duration)
    return any(each is not None for each in given)


def _require_rounds(sessions: int, rounds: int, bytes_per_round: int) -> None:
    what = f"--rounds: got {rounds:,} rounds in each of up to {sessions:,} sessions, which take"
    require_memory(what, sessions * rounds * bytes_per_round)


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
    if found.rate_per_s is None:
        found = replace(found, alone_us=_alone_us(traces[0], twin, limits, found.idle.rate_per_s))
    return with_assumed_seats(found, traces[0], twin, limits), beyond


def _alone_us(
    trace: Trace, twin: TwinConfig, limits: Sequence[RunLimit], rate_per_s: float
) -> Mapping[str, float]:
    """Return each limit's value in µs where requests come evenly, at a rate so low that none meets another.

    Empty where a request's times hang on its arrival: rounds of sessions, deadlines.
    """
    import numpy as np

    arrival = trace.cells("arrival_time_us")
    if "deadline_us" in trace.table or not arrival.is_known.all():
        return {}
    evenly = (np.arange(len(trace)) * 1_000_000).astype(arrival.values.dtype)
    load = load_of(trace.with_columns(arrival_time_us=replace(arrival, values=evenly)), twin)
    return Evaluator(loads=[load], limits=limits).at(rate_per_s).values_us
