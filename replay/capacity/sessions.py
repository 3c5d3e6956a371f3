"""The highest number of sessions at once within latency limits: how many agents a server takes.

Each number is a simulation of the whole trace: so many sessions are in progress, and the next begins when one has
ended. Limits are on the rounds of all sessions, without the first tenth of the run. A number that is met is below all
numbers that are not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from lazy_dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from traces import MOST_FAILED, ConfigError, RunLimit
from traces.facts import NotebookAnswer

if TYPE_CHECKING:
    from replay.twin.twin_config import TwinConfig
    from traces import Trace
    from traces.workload import SessionStarts

FAILED = "failed"
GROUPS = 8
"""The number is looked for again without each of so many groups of sessions, for its interval."""
FEWEST_SESSIONS = 2 * GROUPS
"""Fewer sessions than these get no interval."""
STEP = 0.5
"""Half the step between two numbers: each is known to that at best."""
BEGINNING = 0.1
"""This share of the run's time is not measured: all sessions begin at once there, and wait for each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AtOnce:
    """The result of a number of sessions at once: each limit's value in µs, NaN where nothing was answered.

    ``rounds_per_s``: rounds answered per second; ``sessions_per_hour``: sessions completed. ``beyond``: how far this
    goes beyond what the twin was fitted on, None where it does not, or it is unknown.
    """

    number: int
    values_us: dict[str, float]
    failed_frac: float
    rounds_per_s: float
    sessions_per_hour: float
    beyond: str | None = None

    def broken(self, limits: Sequence[RunLimit]) -> str | None:
        """Return the limit that is broken most; None where all are met."""
        over = {
            each.name: float("inf") if np.isnan(value := self.values_us[each.name]) else value / each.limit_us
            for each in limits
        }
        over[FAILED] = self.failed_frac / MOST_FAILED
        worst = max(over, key=lambda name: over[name])
        return worst if over[worst] > 1 else None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SessionCapacity(NotebookAnswer):
    """The most sessions at once within the limits; 0 where not even one is. ``limiting``: the limit that breaks first.

    ``limiting`` is None where all sessions of the trace at once are within them: there may be more. ``evaluations``:
    all numbers simulated, ascending. ``num_gpus``: of the twin, None where it names no hardware. ``limits``: those that
    a user asked for; ``notes``: on the twin. ``low``, ``high``: the 90 % interval from leaving out groups of sessions,
    None of few sessions, and where there may be more. ``are_alike``: all sessions have the same lengths and pauses, and
    so move in step; the interval then is from that to sessions that are met at any place.
    """

    drawn_by: ClassVar[str] = "replay.drawn_answers:of_sessions"
    told_by: ClassVar[str] = "replay.capacity.session_command:session_document"

    number: int
    limiting: str | None
    evaluations: tuple[AtOnce, ...]
    num_sessions: int
    num_gpus: int | None
    limits: tuple[RunLimit, ...] = ()
    notes: tuple[str, ...] = ()
    low: int | None = None
    high: int | None = None
    are_alike: bool = False

    def __str__(self) -> str:
        """Return the number in a line."""
        return (
            f"{self.number:,} sessions at once, held by {self.limiting or 'nothing: the trace has no more'}"
        )


def most_sessions(
    trace: Trace, twin: TwinConfig, limits: Sequence[RunLimit], starts: SessionStarts
) -> SessionCapacity:
    """Return how many sessions of a trace a twin serves at once within the limits.

    ``starts``: how long clients think, and whether sessions begin midway; its number is not used. Raises ConfigError
    for a trace without sessions, and for a limit on ITL, which is not one of rounds.
    """
    from traces.workload import started

    check_session_limits(limits)
    if "session_id" not in trace.table:
        raise ConfigError("--sessions: got a workload without sessions, expected one (--trace, --rounds)")
    number = trace.cells("session_id").num_distinct()
    seen: dict[int, AtOnce] = {}

    def is_met(at_once: int) -> bool:
        if at_once not in seen:
            asked = started(trace, replace(starts, at_once=at_once))
            seen[at_once] = _simulated(asked, twin, limits, at_once)
        return seen[at_once].broken(limits) is None

    most = _most(is_met, number)
    broken = seen.get(most + 1)
    are_alike = number > 1 and _are_alike(trace, starts)
    low = high = None
    if broken is not None and number >= FEWEST_SESSIONS:
        low, high = (
            _interval_of_places(trace, twin, limits, starts, seen[max(most, 1)], most=most)
            if are_alike
            else _interval(trace, twin, limits, starts, most)
        )
    return SessionCapacity(
        number=most,
        limiting=None if broken is None else broken.broken(limits),
        evaluations=tuple(seen[each] for each in sorted(seen)),
        num_sessions=number,
        num_gpus=sum(twin.num_gpus.values()) or None,
        low=low,
        high=high,
        are_alike=are_alike,
    )


def check_session_limits(limits: Sequence[RunLimit]) -> None:
    """Raise ConfigError for a limit that is not one of rounds."""
    if any(each.metric == "itl" for each in limits):
        raise ConfigError("--slo: got a limit on itl, expected ttft, tpot or e2e with --sessions")


def is_within(
    trace: Trace, twin: TwinConfig, limits: Sequence[RunLimit], starts: SessionStarts, *, at_once: int
) -> bool:
    """Return whether so many sessions of a trace at once are within the limits."""
    from traces.workload import started

    asked = started(trace, replace(starts, at_once=at_once))
    return _simulated(asked, twin, limits, at_once).broken(limits) is None


def _are_alike(trace: Trace, starts: SessionStarts) -> bool:
    """Return whether each round is the same in all sessions: prompt, answer and the pause before it."""
    from traces import prompt_tokens
    from traces.workload import started

    asked = started(trace, replace(starts, at_once=1))
    _, place = np.unique(asked.cells("round_index").values, return_inverse=True)
    first = np.full(place.max() + 1, len(place))
    np.minimum.at(first, place, np.arange(len(place)))
    shape = [prompt_tokens(asked), *(asked.cells(name).values for name in ("output_tokens", "think_time_us"))]
    return all(bool((values == values[first[place]]).all()) for values in shape)


def _interval(
    trace: Trace, twin: TwinConfig, limits: Sequence[RunLimit], starts: SessionStarts, number: int
) -> tuple[int, int]:
    """Return the 90 % interval of a number: the grouped jackknife with Student's t, and half a step on each side.

    (Shao and Tu, "The Jackknife and Bootstrap", 1995, section 2.2.) Sessions are left out, and none is doubled: a
    session beside itself would find all its prompts in the cache.
    """
    import pandas as pd

    from replay.numbers.t_interval import students_t
    from traces import select_rows

    sessions, _ = pd.factorize(trace.column("session_id"))
    found = []
    for group in range(GROUPS):
        part = select_rows(trace, sessions % GROUPS != group)

        def is_met(at_once: int, part: Trace = part) -> bool:
            return is_within(part, twin, limits, starts, at_once=at_once)

        found.append(_near(is_met, number, most=part.cells("session_id").num_distinct()))
    spread = float(np.sqrt((GROUPS - 1) * np.var(found)))
    half = students_t(GROUPS - 1) * spread + STEP
    return max(math.ceil(number - half), 0), math.floor(number + half)


def _interval_of_places(
    trace: Trace,
    twin: TwinConfig,
    limits: Sequence[RunLimit],
    starts: SessionStarts,
    at: AtOnce,
    *,
    most: int,
) -> tuple[int, int]:
    """Return the interval of alike sessions: from the number in step to what ``GROUPS`` draws of their places give.

    In step, all meet in every round; nobody's agents do. In a draw the sessions at the beginning are at any round, and
    come at any time within one. ``at``: the run of the number, or of one session. The draws' part is the range of one
    more draw: Student's t, and half a step on each side.
    """
    from replay.numbers.t_interval import students_t

    cycle_us = at.number / at.rounds_per_s * 1e6
    total = trace.cells("session_id").num_distinct()
    found = []
    for draw in range(GROUPS):

        def is_met(at_once: int, draw: int = draw) -> bool:
            asked = _at_any_place(trace, starts, at_once, cycle_us=cycle_us, draw=draw)
            return _simulated(asked, twin, limits, at_once).broken(limits) is None

        found.append(_near(is_met, max(most, 1), most=total))
    half = students_t(GROUPS - 1) * float(np.std(found, ddof=1)) * math.sqrt(1 + 1 / GROUPS) + STEP
    middle = float(np.mean(found))
    return max(min(math.ceil(middle - half), most), 0), max(math.floor(middle + half), most)


def _at_any_place(trace: Trace, starts: SessionStarts, at_once: int, *, cycle_us: float, draw: int) -> Trace:
    """Return the trace with so many sessions at once, the first of them at any round, and at any time of a round."""
    from traces.workload import WarmStart, started

    midway = WarmStart(low=0.0, high=1.0)
    asked = started(trace, replace(starts, at_once=at_once, warm_start=midway, seed=starts.seed + draw))
    arrival = asked.cells("arrival_time_us")
    first = np.flatnonzero(arrival.is_known)[:at_once]
    values = arrival.values.copy()
    values[first] = np.random.default_rng([starts.seed, draw]).integers(
        0, max(round(cycle_us), 1), len(first)
    )
    return asked.with_columns(arrival_time_us=replace(arrival, values=values))


def _near(is_met: Callable[[int], bool], number: int, *, most: int) -> int:
    """Return the largest number that is met, looked for from another on: by steps that double, then halved between."""
    low, high, step = 0, most + 1, 1
    at = min(max(number, 1), most)
    while high - low > 1:
        if is_met(at):
            low = at
        else:
            high = at
        is_bracketed = (low > 0 and high <= most) or high == 1
        step = 2 * step
        at = (low + high) // 2 if is_bracketed else (min(low + step, most) if low else max(high - step, 1))
    return low


def _most(is_met: Callable[[int], bool], most: int) -> int:
    """Return the largest number that is met, all below it being met: doubled until one is not, then halved between."""
    low, high = 0, 1
    while high <= most and is_met(high):
        low, high = high, 2 * high
    if high > most:
        if low == most or is_met(most):
            return most
        high = most
    while high - low > 1:
        middle = (low + high) // 2
        if is_met(middle):
            low = middle
        else:
            high = middle
    return low


def _simulated(asked: Trace, twin: TwinConfig, limits: Sequence[RunLimit], at_once: int) -> AtOnce:
    from replay.simulation.run_plan import RunSettings
    from replay.simulation.simulated_run import run
    from replay.trace.measured_window import MeasuredPart, measured_rows
    from traces import finished_ok, request_latencies

    part = MeasuredPart(warmup_frac=BEGINNING)
    done = run(asked, replace(twin, pace=None), RunSettings(at="arrival", measured=part))
    counted = measured_rows(done.trace, part, duration_us=done.simulation.duration_us)
    ok = finished_ok(done.trace) & counted
    latencies = request_latencies(done.trace)
    rounds_per_s, sessions_per_s = _answered_per_s(done.trace)
    return AtOnce(
        number=at_once,
        values_us={each.name: each.of(latencies[f"{each.metric}_us"][ok]) for each in limits},
        failed_frac=float(1 - ok.sum() / max(int(counted.sum()), 1)),
        rounds_per_s=rounds_per_s,
        sessions_per_hour=sessions_per_s * 3600,
        beyond=done.outside,
    )


def _answered_per_s(trace: Trace) -> tuple[float, float]:
    """Return the rounds answered, and the sessions completed, per second while so many were in progress as were asked.

    That is until the last session begins: from then on the run empties, and how long that takes says nothing. Sessions
    are completed at the rate of rounds over the rounds of a session.
    """
    from traces import finished_ok, request_latencies, sent_or_due

    session, names = trace.cells("session_id").codes()
    start = sent_or_due(trace).floats()
    ok = finished_ok(trace)
    end = np.where(ok, start + request_latencies(trace)["e2e_us"], np.inf)
    begins, is_whole = np.full(len(names), np.inf), np.ones(len(names), np.bool_)
    is_of_one = session >= 0
    np.fmin.at(begins, session[is_of_one], start[is_of_one])
    is_whole[session[is_of_one & ~ok]] = False
    begun = begins[np.isfinite(begins)]
    if not len(begun):
        return 0.0, 0.0
    since_us, until_us = begun.min(), begun.max()
    if until_us == since_us:
        until_us = max(end[ok], default=since_us)
    rounds_per_s = float((end <= until_us).sum()) / max(until_us - since_us, 1.0) * 1e6
    return rounds_per_s, rounds_per_s * float(is_whole.sum()) / max(float(ok.sum()), 1.0)
