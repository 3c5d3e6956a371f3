"""A plan divided among several processes before the clock starts, by its times and sessions alone."""

from __future__ import annotations

import heapq
from lazy_dataclasses import dataclass, replace

from observe.plan.chains import Chain
from observe.plan.send_plan import SendPlan
from traces import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one process sends: sessions of the plan in the order of sending, and its users in a closed loop."""

    chains: tuple[Chain, ...]
    users: int | None

    def of(self, plan: SendPlan) -> SendPlan:
        """Return the plan of this share alone; rows keep their numbers, and with them their prompts."""
        loop = plan.closed_loop
        if loop is None or self.users is None:
            return replace(plan, chains=self.chains)
        trace = plan.trace.with_header(closed_loop=replace(loop, concurrency=self.users))
        return replace(plan, trace=trace, chains=self.chains)


def partition_plan(plan: SendPlan, processes: int) -> tuple[Share, ...]:
    """Return the shares of at most ``processes`` processes: none is left without a request or a user.

    Each session, in the order in which the plan begins them, goes to the process with the fewest requests so far,
    relative to its number of users in a closed loop: a round robin if all are equal, so that each sends evenly and a
    first round is divided user by user. Raises ConfigError for waves, whose requests wait for each other.
    """
    loop = plan.closed_loop
    if loop is not None and loop.in_waves and processes > 1:
        raise ConfigError(
            f"--processes: got {processes} for waves, expected 1: each wave waits for the whole previous one"
        )
    number = min(processes, len(plan.chains), processes if loop is None else loop.concurrency)
    users = None if loop is None else split_evenly(loop.concurrency, number)
    piles: list[tuple[float, int]] = [(0.0, place) for place in range(number)]
    dealt: list[list[Chain]] = [[] for _ in range(number)]
    for chain in plan.chains:
        pile, place = piles[0]
        dealt[place].append(chain)
        heapq.heapreplace(piles, (pile + len(chain) / (1 if users is None else users[place]), place))
    return tuple(
        Share(chains=tuple(chains), users=None if users is None else users[place])
        for place, chains in enumerate(dealt)
    )


def split_evenly(total: int, number: int) -> list[int]:
    """Return ``number`` whole parts of ``total``, the larger ones first."""
    return [total // number + (place < total % number) for place in range(number)]


def partition_cap(cap: int | None, number: int, *, option: str) -> list[int | None]:
    """Return each process's part of a cap on concurrency. Raises ConfigError if one would be left with none."""
    if cap is None:
        return [None] * number
    if cap < number:
        raise ConfigError(f"{option}: got {cap}, expected at least one per process ({number})")
    return [*split_evenly(cap, number)]
