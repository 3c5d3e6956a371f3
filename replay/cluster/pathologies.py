"""Problems of a cluster's run, by name: each with the figure that shows it and the limit that it exceeds.

These are tests of recorded figures, not guesses about causes. A run without any of them may still be slow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

import numpy as np
from numpy.typing import NDArray

from replay.cluster.lives import queued_at
from replay.cluster.waiting_causes import IN_WORDS
from replay.trace.group_summary import rows_by_name
from sim import Int64s, Status
from sim.cluster import AlwaysBusiest, CacheAware, Session
from traces import request_priorities
from traces.facts import AnswerPart

if TYPE_CHECKING:
    from collections.abc import Mapping

    from replay.cluster.simulate import FleetRun
    from replay.cluster.waiting_causes import Resource
    from sim.cluster import ClusterConfig

LEAST_SHARE = 0.01
"""Priority inversion and head-of-line blocking are named where they concern at least this share of the requests."""
BLOCKED_US = 1e6
"""A request counts as blocked where it waited this long although its instance had a free seat."""
STARVED_TIMES = 5.0
STARVED_US = 1e6
"""A group starves where its mean wait is the first number times that of all others, and at least the second long."""
WHO_WAITS = ("slo_class", "tenant_id")
IMBALANCE_TIMES = 1.5
"""Instances are uneven where the one with the most work has this many times the mean."""
THRASH_SHARE = 0.1
"""Preemptions per finished request from which the KV cache is said to thrash."""
HERD_LENGTH = 3.0
"""Decisions in a row for one instance, on average; n instances chosen at random give n / (n - 1)."""


class Pathology(TypedDict):
    """``value`` is beyond ``limit``, both of what ``text`` says.

    ``where``: the instance or group, None for the fleet.
    """

    name: str
    where: str | None
    value: float
    limit: float
    text: str


def pathologies(
    run: FleetRun, cluster: ClusterConfig, waited_us: Mapping[Resource, float] | None
) -> list[Pathology]:
    """Return a run's problems, in a fixed order; an empty list if no figure exceeds its limit.

    ``waited_us``: how long requests waited at the instances for each resource; None: not known.
    """
    found = [
        _priority_inversion(run),
        _head_of_line(run, cluster, waited_us or {}),
        *_starvation(run),
        _imbalance(run, cluster),
        _thrash(run),
        _herding(run, cluster),
    ]
    return [each for each in found if each is not None]


def _priority_inversion(run: FleetRun) -> Pathology | None:
    """Name requests that their instance scheduled after a less urgent one that was sent to it later."""
    urgency = request_priorities(run.trace)
    if len(np.unique(urgency)) < 2:
        return None
    outcomes, result = run.result.outcomes, run.result
    overtaken = 0
    for number in range(len(result.instances)):
        rows = np.flatnonzero((queued_at(result) == number) & (outcomes.scheduled_us >= 0))
        overtaken += num_overtaken(outcomes.queued_us[rows], outcomes.scheduled_us[rows], urgency[rows])
    share = overtaken / max(len(urgency), 1)
    if share < LEAST_SHARE:
        return None
    return Pathology(
        name="priority inversion",
        where=None,
        value=share,
        limit=LEAST_SHARE,
        text=f"{overtaken:,} requests ({share:.1%}) were scheduled after a less urgent one that had come later",
    )


def num_overtaken(queued_us: Int64s, scheduled_us: Int64s, urgency: Int64s) -> int:
    """Return how many requests were scheduled after one of a higher ``urgency`` number that had queued later.

    All three int64 [n]; lower urgency numbers are more urgent. O(n log n) per distinct urgency.
    """
    order = np.argsort(queued_us, kind="stable")
    queued, scheduled, urgent = queued_us[order], scheduled_us[order], urgency[order]
    later = np.searchsorted(queued, queued, side="right")  # the first that queued strictly later
    total = 0
    for level in np.unique(urgency):
        of_others = np.where(urgent > level, scheduled, np.iinfo(np.int64).max)
        earliest = np.append(np.minimum.accumulate(of_others[::-1])[::-1], np.iinfo(np.int64).max)
        total += int(((urgent == level) & (earliest[later] < scheduled)).sum())
    return total


def _head_of_line(
    run: FleetRun, cluster: ClusterConfig, waited_us: Mapping[Resource, float]
) -> Pathology | None:
    """Name requests that waited although a seat was free: the head of the queue found no room or no token budget.

    Where most wait for something that holds up nobody else, an adapter's place, they are passed over. The time in which
    a grammar compiles, or a prompt's KV is on its way, is none of either.
    """
    outcomes, result = run.result.outcomes, run.result
    guided = run.work.requests.is_guided
    num_blocked = 0
    for number, instance in enumerate(result.instances):
        rows = np.flatnonzero((queued_at(result) == number) & (outcomes.scheduled_us >= 0))
        left_us = outcomes.last_token_us
        if result.split is not None:
            left_us = np.where(result.split.prefill_instance == number, result.split.prefilled_us, left_us)
        ended = np.where(left_us[rows] >= 0, left_us[rows], result.duration_us)
        engine = cluster.pools[instance.pool].engine
        compiled_us = 0 if guided is None else guided[rows] * engine.guided_compile_us
        blocked_us = blocked_times(
            np.minimum(outcomes.queued_us[rows] + compiled_us, outcomes.scheduled_us[rows]),
            outcomes.scheduled_us[rows],
            ended,
            num_seats=engine.max_num_seqs,
        )
        num_blocked += int((blocked_us >= BLOCKED_US).sum())
    share = num_blocked / max(len(outcomes.status), 1)
    if share < LEAST_SHARE:
        return None
    cause = _beside_a_seat(waited_us)
    return Pathology(
        name="no adapter place" if cause == "adapter" else "head-of-line blocking",
        where=None,
        value=share,
        limit=LEAST_SHARE,
        text=f"{num_blocked:,} requests ({share:.1%}) waited {BLOCKED_US / 1e6:g} s or more beside a free seat"
        + ("" if cause is None else f": for {IN_WORDS.get(cause, cause)}"),
    )


def _beside_a_seat(waited_us: Mapping[Resource, float]) -> Resource | None:
    """Return what requests wait for longest, all together, while a seat is free; None where that is not known."""
    waited = {
        cause: waited
        for cause, waited in waited_us.items()
        if cause not in ("seats", "grammar", "KV transfer") and waited > 0
    }
    return max(waited, key=lambda cause: waited[cause], default=None)


def blocked_times(
    queued_us: Int64s, scheduled_us: Int64s, ended_us: Int64s, *, num_seats: int
) -> NDArray[np.int64]:
    """Return how long each request waited while fewer than ``num_seats`` requests were running, µs, int64 [n]."""
    times = np.concatenate([scheduled_us, ended_us])
    changes = np.concatenate([np.ones_like(scheduled_us), -np.ones_like(ended_us)])
    order = np.lexsort((changes, times))  # a seat is given back before it is taken
    times, running = times[order], np.cumsum(changes[order])
    if len(times) == 0:
        return np.zeros(0, np.int64)
    spans = np.diff(times, append=times[-1]) * (running < num_seats)
    free_until = np.concatenate([[0], np.cumsum(spans)])  # time with a free seat up to times[i]

    def free_before(at: Int64s) -> Int64s:
        place = np.searchsorted(times, at, side="right")
        known = np.maximum(place - 1, 0)
        inside = np.where(place > 0, (at - times[known]) * (running[known] < num_seats), at - times[0])
        return np.asarray(np.where(place > 0, free_until[known], 0) + inside)

    return free_before(scheduled_us) - free_before(queued_us)


def _starvation(run: FleetRun) -> list[Pathology]:
    """Name groups of requests that waited far longer than the others; one that never ran waited to the end."""
    outcomes, result = run.result.outcomes, run.result
    counted = outcomes.status != Status.REJECTED
    until = np.where(outcomes.scheduled_us >= 0, outcomes.scheduled_us, result.duration_us)
    wait_us = np.maximum(until - outcomes.arrival_us, 0).astype(np.float64)
    found = []
    for column in WHO_WAITS:
        for name, rows in rows_by_name(run.trace, column):
            own = np.zeros(len(wait_us), bool)
            own[rows] = True
            own_us, others_us = (
                float(wait_us[group & counted].mean()) if (group & counted).any() else np.nan
                for group in (own, ~own)
            )
            limit_us = max(STARVED_TIMES * others_us, STARVED_US)
            if own_us >= limit_us:
                found.append(
                    Pathology(
                        name="starvation",
                        where=f"{column} {name}",
                        value=own_us,
                        limit=limit_us,
                        text=f"{column} {name} waited {own_us / 1e6:,.1f} s on average to be scheduled, "
                        f"the others {others_us / 1e6:,.1f} s",
                    )
                )
    return found


def _imbalance(run: FleetRun, cluster: ClusterConfig) -> Pathology | None:
    """Name the instance that got far more tokens than the others of its pool; none where instances come and go."""
    if cluster.changes:
        return None
    instances, sent = run.result.instances, run.result.instance
    done = run.work.requests.prompt_tokens + run.result.outcomes.num_output_tokens
    tokens = np.bincount(sent[sent >= 0], weights=done[sent >= 0], minlength=len(instances))
    pools = np.array([each.pool for each in instances])
    mean = np.array([tokens[pools == pool].mean() for pool in pools])
    times = np.divide(tokens, mean, out=np.zeros(len(tokens)), where=mean > 0)
    busiest = int(times.argmax())
    if times[busiest] < IMBALANCE_TIMES:
        return None
    return Pathology(
        name="imbalance",
        where=instances[busiest].name,
        value=float(times[busiest]),
        limit=IMBALANCE_TIMES,
        text=f"instance {instances[busiest].name} got {times[busiest]:.1f} times the mean of its pool in tokens "
        "(prompts and answers)",
    )


def _thrash(run: FleetRun) -> Pathology | None:
    """Name preemptions that are many for the requests that finished."""
    num = sum(each.num_preemptions for each in run.result.instances)
    num_ok = int((run.result.outcomes.status == Status.OK).sum())
    share = num / max(num_ok, 1)
    if share < THRASH_SHARE:
        return None
    return Pathology(
        name="KV thrash",
        where=None,
        value=share,
        limit=THRASH_SHARE,
        text=f"{num:,} preemptions for {num_ok:,} finished requests: the KV cache is too small for the seats in use",
    )


def _herding(run: FleetRun, cluster: ClusterConfig) -> Pathology | None:
    """Name a router that sends many requests in a row to one instance; routers that do so on purpose are left out.

    So are fleets whose instances come and go: there may have been only one to choose.
    """
    num_candidates = sum(role != "prefill" for role in cluster.role_of)
    if (
        cluster.changes
        or isinstance(cluster.routing, (AlwaysBusiest, CacheAware, Session))
        or num_candidates < 2
    ):
        return None
    routed = np.flatnonzero(run.result.routed_us >= 0)
    chosen = run.result.instance[routed[np.argsort(run.result.routed_us[routed], kind="stable")]]
    if len(chosen) < 10 * num_candidates:
        return None
    length = len(chosen) / (1 + int((np.diff(chosen) != 0).sum()))
    if length < HERD_LENGTH:
        return None
    return Pathology(
        name="herding",
        where=None,
        value=length,
        limit=HERD_LENGTH,
        text=f"{length:.1f} decisions in a row go to one instance on average: what the router sees is stale "
        "(snapshot_interval_us), or its score holds on to one instance",
    )


def pathology_parts(found: list[Pathology]) -> list[AnswerPart]:
    """Return a line per pathology; [] where there is none."""
    return [] if not found else ["", *(f"{each['name']}: {each['text']}" for each in found)]
