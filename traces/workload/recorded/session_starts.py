"""When sessions start, how long their clients think and how urgent their requests are, as recorded or changed."""

from __future__ import annotations

from lazy_dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from traces.errors import ConfigError
from traces.header import ClosedLoop
from traces.tables.cells import all_known
from traces.tables.session_tree import has_tree, session_tree

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from traces.trace import Trace
    from traces.workload.recorded.session_priority import SessionPriority
    from traces.workload.recorded.warm_start import WarmStart

US_PER_S = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStarts:
    """Changes to a trace's sessions; None leaves a value as recorded.

    ``at_once``: how many are in progress at a time; the next begins when one has ended. ``rate_per_s``: they start at
    this rate, gaps drawn from an exponential distribution by ``seed``. ``think_scale``: pauses are multiplied by it,
    and then cut to ``most_think_us``. ``warm_start``: the first ``at_once``, or all, begin midway. ``priority``: the
    priorities sent to the server, in place of the recorded ones: ``first-started``, the sessions' own order of
    starting, so that no later session goes before one that has begun (program-level FCFS: Autellix, arXiv:2502.13965;
    Continuum, arXiv:2511.02230); ``running``, requests that continue a session before those that begin one.
    """

    at_once: int | None = None
    rate_per_s: float | None = None
    think_scale: float = 1.0
    most_think_us: int | None = None
    warm_start: WarmStart | None = None
    priority: SessionPriority | None = None
    seed: int = 0

    @property
    def changes_anything(self) -> bool:
        """Whether there is any change."""
        return self != SessionStarts(seed=self.seed)


def started(trace: Trace, asked: SessionStarts) -> Trace:
    """Return the trace with its sessions started as set. Raises ConfigError if it has none."""
    if not asked.changes_anything:
        return trace
    begins = is_first(trace)
    if begins.all():
        raise ConfigError(
            "--sessions, --session-rate, --think-time-scale, --max-think-time, --warm-start, --session-priority: got a "
            "trace without sessions, expected session_id and round_index"
            + (
                "; run and replay have --after TRACE for warm caches without sessions"
                if asked.warm_start
                else ""
            )
        )
    if asked.warm_start is not None:
        from traces.workload.recorded.warm_start import started_midway

        trace = started_midway(trace, asked.warm_start, first_sessions=asked.at_once, seed=asked.seed)
        begins = is_first(trace)
    think = trace.cells("think_time_us")
    if asked.think_scale != 1.0 or asked.most_think_us is not None:
        scaled = np.rint(think.values * asked.think_scale).astype(np.int64)
        if asked.most_think_us is not None:
            scaled = np.minimum(scaled, asked.most_think_us)
        trace = trace.with_columns(think_time_us=replace(think, values=scaled))
    trace = _started_as_asked(trace, begins, asked)
    if asked.priority is None:
        return trace
    values = begins.astype(np.int64) if asked.priority == "running" else _turns(trace, begins)
    return trace.with_columns(vllm_priority=all_known(values))


def _started_as_asked(trace: Trace, begins: NDArray[np.bool_], asked: SessionStarts) -> Trace:
    """Return the trace with other start times of sessions, if any are set."""
    if asked.at_once is None and asked.rate_per_s is None:
        return trace
    arrival = trace.cells("arrival_time_us")
    if asked.at_once is not None:
        values = np.zeros(len(trace), np.int64)
        trace = trace.with_header(closed_loop=ClosedLoop(concurrency=asked.at_once))
    else:
        assert asked.rate_per_s is not None  # noqa: S101 - looked at above
        values = _drawn(trace, begins, rate_per_s=asked.rate_per_s, seed=asked.seed)
    trace = trace.without_columns("send_time_us", "deadline_us")
    return trace.with_columns(
        arrival_time_us=replace(arrival, values=np.where(begins, values, 0), is_known=begins)
    )


def is_first(trace: Trace) -> NDArray[np.bool_]:
    """Return which requests wait for no answer; of a session whose first rounds are cut off, the first that is left."""
    if has_tree(trace.table):
        waiting, _ = session_tree(trace.table).edges()
        first = np.ones(len(trace), np.bool_)
        first[waiting] = False
        return first
    rounds = trace.cells("round_index").values
    return np.asarray(rounds == rounds[trace.lineage.first])


def _numbers(trace: Trace) -> NDArray[np.int64]:
    """Return a number for each request's session; a request without one is a session of its own."""
    codes, names = trace.cells("session_id").codes()
    return np.where(codes < 0, len(names) + np.arange(len(trace)), codes)


def _turns(trace: Trace, begins: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return, per request, the rank of its session by start; sessions with equal starts in the order of the rows."""
    arrival, numbers = trace.cells("arrival_time_us").values[begins], _numbers(trace)
    sessions, at_first, place = np.unique(numbers[begins], return_index=True, return_inverse=True)
    first = np.full(len(sessions), np.iinfo(np.int64).max)
    np.minimum.at(first, place, arrival)
    turn = np.empty(len(sessions), np.int64)
    turn[np.lexsort((at_first, first))] = np.arange(len(sessions))
    return turn[np.searchsorted(sessions, numbers)]  # each session has a request that begins it


def _drawn(trace: Trace, begins: NDArray[np.bool_], *, rate_per_s: float, seed: int) -> NDArray[np.int64]:
    """Return when each session starts, in the order of the rows; the same for all first requests of a session."""
    _, place = np.unique(_numbers(trace)[begins], return_inverse=True)
    gaps = np.random.default_rng([seed, 0x5E55]).exponential(
        US_PER_S / rate_per_s, int(place.max(initial=-1)) + 1
    )
    starts = np.cumsum(gaps) - gaps[:1]
    values = np.zeros(len(trace), np.int64)
    values[begins] = np.rint(starts[place]).astype(np.int64)
    return values
