"""Who sends what: a plan dealt to several processes before the clock starts, by its times and sessions alone."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from observe.plan import SendPlan
from traces import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one process sends: rows of the plan in the order of sending, and its users in a closed loop."""

    order: tuple[int, ...]
    users: int | None

    def of(self, plan: SendPlan) -> SendPlan:
        """Return the plan of this share alone; rows keep their numbers, and with them their prompts."""
        loop = plan.closed_loop
        if loop is None or self.users is None:
            return replace(plan, order=self.order)
        trace = plan.trace.with_header(closed_loop=replace(loop, concurrency=self.users))
        return replace(plan, trace=trace, order=self.order)


def deal(plan: SendPlan, processes: int) -> tuple[Share, ...]:
    """Return the shares of at most ``processes`` processes: none is left without a request or a user.

    Each row, in the order in which the plan sends them, goes to the process that has the least so far, for its
    number of users in a closed loop: a round robin where all weigh alike, so that each sends evenly and a first
    round is dealt user by user. A session stays whole, weighs what it has rows, and is dealt when it begins.
    """
    loop = plan.closed_loop
    keys = _keys(plan)
    number = min(processes, len(set(keys)), processes if loop is None else loop.concurrency)
    users = None if loop is None else split_evenly(loop.concurrency, number)
    weights = Counter(keys)
    piles: list[tuple[float, int]] = [(0.0, place) for place in range(number)]
    place_of: dict[object, int] = {}
    orders: list[list[int]] = [[] for _ in range(number)]
    for row in plan.order:
        key = keys[row]
        if key not in place_of:
            pile, place = piles[0]
            place_of[key] = place
            share = 1 if users is None else users[place]
            heapq.heapreplace(piles, (pile + weights[key] / share, place))
        orders[place_of[key]].append(row)
    return tuple(
        Share(order=tuple(order), users=None if users is None else users[place])
        for place, order in enumerate(orders)
    )


def split_evenly(total: int, number: int) -> list[int]:
    """Return ``number`` whole parts of ``total``, the larger ones first."""
    return [total // number + (place < total % number) for place in range(number)]


def deal_cap(cap: int | None, number: int) -> list[int | None]:
    """Return each process's part of a cap on concurrency. Raises ConfigError where one would be left with none."""
    if cap is None:
        return [None] * number
    if cap < number:
        raise ConfigError(f"--max-concurrency: got {cap}, expected at least one per process ({number})")
    return [*split_evenly(cap, number)]


def _keys(plan: SendPlan) -> Sequence[object]:
    """Return what each row must stay together with: its session, or nothing but itself."""
    sessions = plan.trace.column("session_id").tolist()
    return [name if isinstance(name, str) else row for row, name in enumerate(sessions)]
