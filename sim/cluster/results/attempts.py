"""Requests that are sent again: a row per attempt in the table that the engines share, and one outcome per request."""

from __future__ import annotations

from lazy_dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from sim.cluster.cluster_work import ClusterWork
from sim.cluster.exits import Exit
from sim.cluster.infrastructure.infrastructure_config import Retries
from sim.cluster.run.world import NEVER
from sim.requests import Int64s, Outcomes


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempts:
    """Every attempt of n requests, m rows of n: attempt k of request r is row k, column r; -1 where never.

    ``num``: int64[n], how many were made, 0 of a request that was not sent. ``exit``: int16, an ``Exit``, NOT_SENT
    where the attempt was not made. ``arrival_us``, ``left_us``: int64. ``instance``: int32.
    """

    num: Int64s
    exit: NDArray[np.int16]
    arrival_us: Int64s
    left_us: Int64s
    instance: NDArray[np.int32]

    @property
    def last_row(self) -> Int64s:
        """Each request's last attempt, by its row in the engines' table."""
        n = len(self.num)
        return np.arange(n) + n * np.maximum(self.num - 1, 0)

    @property
    def num_by_exit(self) -> dict[Exit, int]:
        """How many attempts left in each way; their sum is the number of attempts made, and of requests not sent."""
        made = self.exit[np.arange(len(self.exit))[:, None] < np.maximum(self.num, 1)]
        return {way: int((made == way).sum()) for way in Exit}


def with_attempts(work: ClusterWork, retries: Retries) -> ClusterWork:
    """Return the same work with a row for each attempt that may be made, the first ones first."""
    n = len(work.requests)
    rows = np.tile(np.arange(n), retries.max_attempts)
    requests = work.requests
    if retries.timeout_us:
        given = np.full(n, NEVER, np.int64) if requests.deadline_us is None else requests.deadline_us
        own_us = requests.arrival_us + retries.timeout_us
        requests = replace(requests, deadline_us=np.where(given == NEVER, own_us, given))
    columns = ("session", "tenant", "adapter", "slo_priority", "slo_target_us")
    return replace(
        work,
        requests=requests.take(rows),
        **{name: column[rows] for name in columns if (column := getattr(work, name)) is not None},
    )


def attempts_of(
    *,
    num_requests: int,
    exits: NDArray[np.int16],
    arrival_us: Int64s,
    left_us: Int64s,
    instance: NDArray[np.int32],
) -> Attempts:
    """Return the attempts whose columns these are, one after another."""
    shape = (-1, num_requests) if num_requests else (1, 0)
    arrived_us = arrival_us.reshape(shape)
    return Attempts(
        num=(arrived_us != NEVER).sum(axis=0),
        exit=exits.reshape(shape),
        arrival_us=arrived_us,
        left_us=left_us.reshape(shape),
        instance=instance.reshape(shape),
    )


def of_last_attempts(outcomes: Outcomes, attempts: Attempts) -> Outcomes:
    """Return each request's outcome: that of its last attempt, counted from its first arrival."""
    rows = attempts.last_row
    last = Outcomes(**{field.name: getattr(outcomes, field.name)[rows] for field in fields(Outcomes)})
    return replace(last, arrival_us=attempts.arrival_us[0].copy())
