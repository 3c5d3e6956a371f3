"""The requests of a run repeated: in several laps, a little faster, or some of them at once."""

from __future__ import annotations

from collections.abc import Callable
from lazy_dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sim import Outcomes, Requests

if TYPE_CHECKING:
    from sim.cluster import ClientPlan, ClusterConfig, ClusterWork

Int64s = NDArray[np.int64]
NEVER = -1
BURST = 0.2
"""This share of the customers arrives at once in a burst."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeatable:
    """What was simulated, so that it can be simulated again.

    ``session``: the number of each request's, where rounds wait for answers, else None. ``first``: which requests come
    by themselves. ``serve``: from requests, and for each which row of the run it is, to outcomes; rows that follow each
    other belong to one lap, ``num_each`` rows long.
    """

    requests: Requests
    session: Int64s | None
    first: NDArray[np.bool_]
    serve: Callable[[Requests, Int64s, int], Outcomes]

    def __len__(self) -> int:
        """Return the number of requests."""
        return len(self.requests)


def again(run: Repeatable, laps: int) -> tuple[Outcomes, Int64s | None, int]:
    """Return the outcomes of the requests sent ``laps`` times in a row; their sessions; the length of a lap in µs.

    Contents shared only within one customer are new in each lap; those shared by several customers stay the same.
    """
    n = len(run)
    came = run.requests.arrival_us[run.first]
    num_gaps = max(int(run.first.sum()) - 1, 1)
    period = max(int(came.max()) - int(came.min()) + (int(came.max()) - int(came.min())) // num_gaps, 1)
    rows = np.tile(np.arange(n), laps)
    lap = np.repeat(np.arange(laps), n)
    requests = run.requests.take(rows)
    shift = np.where(run.first[rows], lap * period, 0)
    deadline = requests.deadline_us
    if deadline is not None:
        deadline = np.where(deadline == NEVER, NEVER, deadline + shift)
    requests = replace(
        requests,
        arrival_us=requests.arrival_us + shift,
        deadline_us=deadline,
        hash_offsets=requests.hash_starts + lap * len(run.requests.hash_ids),
        hash_ids=_renewed(run, laps),
    )
    session = None
    if run.session is not None:
        session = np.where(run.session[rows] < 0, -1, run.session[rows] + lap * (int(run.session.max()) + 1))
    return run.serve(requests, rows, n), session, period


def _renewed(run: Repeatable, laps: int) -> Int64s:
    """Return the contents of laps, one behind the other: those of a single customer are new in each lap."""
    ids = run.requests.hash_ids
    if len(ids) == 0:
        return ids
    num = int(ids.max()) + 1
    lowest, highest = np.full(num, np.iinfo(np.int64).max), np.full(num, np.iinfo(np.int64).min)
    low, high = _customers(run)
    np.minimum.at(lowest, ids, low)
    np.maximum.at(highest, ids, high)
    is_private = (lowest == highest)[ids]
    renewed = np.concatenate([ids + np.where(is_private, lap * num, 0) for lap in range(laps)])
    return np.asarray(np.unique(renewed, return_inverse=True)[1], np.int64)


def _customers(run: Repeatable) -> tuple[Int64s, Int64s]:
    """Return the lowest and the highest customer, a session or a request alone, that names each place of the ids."""
    rows = np.arange(len(run))
    customer = rows if run.session is None else np.where(run.session < 0, -1 - rows, run.session)
    num_ids = len(run.requests.hash_ids)
    low, high = np.full(num_ids, np.iinfo(np.int64).max), np.full(num_ids, np.iinfo(np.int64).min)
    starts = run.requests.hash_starts
    for each, start, end in zip(
        customer.tolist(), starts.tolist(), (starts + run.requests.num_hashes).tolist(), strict=True
    ):
        low[start:end] = np.minimum(low[start:end], each)
        high[start:end] = np.maximum(high[start:end], each)
    return low, high


def first_part(run: Repeatable, num: int) -> Repeatable:
    """Return the first customers, with about ``num`` requests; all of them if rounds wait for answers."""
    if num >= len(run) or run.session is not None:
        return run
    kept = np.sort(np.argsort(run.requests.arrival_us, kind="stable")[:num])
    return Repeatable(
        requests=run.requests.take(kept),
        session=None,
        first=run.first[kept],
        serve=lambda requests, rows, num_each: run.serve(requests, kept[rows], num_each),
    )


def faster(run: Repeatable, factor: float) -> Outcomes:
    """Return the outcomes of the requests sent ``factor`` times as fast."""
    arrival = run.requests.arrival_us
    start = int(arrival[run.first].min())
    scaled = start + np.rint((arrival - start) / factor).astype(np.int64)
    return _at(run, np.where(run.first, scaled, arrival))


def after_a_burst(run: Repeatable) -> Outcomes:
    """Return the outcomes of the requests if the first fifth arrives at once, the others at their times."""
    arrival = run.requests.arrival_us
    came = arrival[run.first]
    limit = np.quantile(came, BURST)
    return _at(run, np.where(run.first & (arrival <= limit), int(came.min()), arrival))


def _at(run: Repeatable, arrival_us: Int64s) -> Outcomes:
    """Return the outcomes of the requests at other times; clients are as patient as before."""
    deadline = run.requests.deadline_us
    if deadline is not None:
        deadline = np.where(deadline == NEVER, NEVER, deadline - run.requests.arrival_us + arrival_us)
    requests = replace(run.requests, arrival_us=arrival_us, deadline_us=deadline)
    return run.serve(requests, np.arange(len(run)), len(run))


def work_of_rows(work: ClusterWork, requests: Requests, rows: Int64s, *, num_each: int) -> ClusterWork:
    """Return the work of a cluster for other rows of the same run: ``num_each`` rows a lap."""
    columns = {each.name: getattr(work, each.name) for each in fields(work)}
    taken: dict[str, Any] = {
        name: column[rows] for name, column in columns.items() if isinstance(column, np.ndarray)
    }
    return replace(
        replace(work, **taken),
        requests=requests,
        session=_of_laps(work.session, rows, num_each=num_each),
        clients=None if work.clients is None else _plan_of_laps(work.clients, rows, num_each=num_each),
    )


def _of_laps(session: Int64s | None, rows: Int64s, *, num_each: int) -> Int64s | None:
    """Return sessions' numbers, new ones in each lap."""
    if session is None:
        return None
    lap = np.arange(len(rows)) // num_each
    return np.where(session[rows] < 0, NEVER, session[rows] + lap * (int(session.max()) + 1))


def _plan_of_laps(plan: ClientPlan, rows: Int64s, *, num_each: int) -> ClientPlan:
    """Return the plan for these rows in each lap: which request waits for which other one's answer."""
    lap = np.arange(len(rows)) // num_each
    waiting = awaited = session = None
    if plan.session is not None and plan.waiting is not None and plan.awaited is not None:
        each = num_each * np.arange(int(lap.max(initial=-1)) + 1)[:, None]
        waiting, awaited = (plan.waiting + each).ravel(), (plan.awaited + each).ravel()
        num = int(plan.session.max(initial=-1)) + 1
        session = np.where(plan.session[rows] < 0, NEVER, plan.session[rows] + lap * num)
    return replace(
        plan,
        arrives=plan.arrives[rows],
        due_us=plan.due_us[rows],
        think_us=plan.think_us[rows],
        waiting=waiting,
        awaited=awaited,
        session=session,
    )


def serves_again(work: ClusterWork, cluster: ClusterConfig) -> Callable[[Requests, Int64s, int], Outcomes]:
    """Return what serves rows of a cluster's work by the same cluster."""
    from sim.cluster import simulate_cluster

    return lambda requests, rows, num_each: (
        simulate_cluster(work_of_rows(work, requests, rows, num_each=num_each), cluster).outcomes
    )
