"""A capacity where nobody knows how many seats the fitted server has: its interval holds those of all likely numbers.

A fit at light load says how long steps take, and nothing of a limit that was never reached. A file that a fit has
written without having seen the server's flags does not have ``max_num_seqs``; vLLM's default is assumed then.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from replay.search.highest import highest_above
from replay.twin.twin_config import with_pools
from traces import RunLimit

if TYPE_CHECKING:
    from replay.capacity.capacity import Capacity
    from replay.twin.twin_config import TwinConfig
    from traces import Trace

SEATS = "max_num_seqs"
LIKELY = (8, 16, 32, 64, 128, 256, 512, 1024)
"""Numbers of seats that servers are started with; 1,024 is vLLM's default on large GPUs."""
ALIKE = 0.005
"""Capacities that differ by less do not depend on the seats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AssumedSeats:
    """The seats that were assumed, and the capacities, requests/s, with the fewest and the most that are likely."""

    assumed: int
    rate_of_seats: dict[int, float]

    @property
    def is_open(self) -> bool:
        """Whether the capacity depends on them."""
        rates = self.rate_of_seats.values()
        return max(rates) > min(rates) * (1 + ALIKE)

    @property
    def text(self) -> str:
        """Return the sentence about them, with the way out."""
        (fewest, low), *_, (most, high) = sorted(self.rate_of_seats.items())
        return (
            f"how many seats the server has is not known: {SEATS} {self.assumed:,} is assumed; the capacity is "
            f"{low:.4g} requests/s with {fewest:,} and {high:.4g} with {most:,}. Observe with --scrape, or say "
            f"--set engine.{SEATS}=N"
        )


def are_seats_assumed(twin: TwinConfig) -> bool:
    """Return whether a twin is fitted to a server whose number of seats nobody stated."""
    return twin.fitted is not None and SEATS in twin.assumed


def with_assumed_seats(
    found: Capacity, trace: Trace, twin: TwinConfig, limits: Sequence[RunLimit]
) -> Capacity:
    """Return a capacity whose interval holds those with fewer and more seats, where their number is assumed.

    Fewer than the fitted load had in flight are not likely: that server answered as one in which none waits.
    """
    if not are_seats_assumed(twin) or found.rate_per_s is None:
        return found
    assumed = twin.engine.max_num_seqs
    seen = twin.fitted.concurrency if twin.fitted is not None else None
    least = LIKELY[0] if seen is None else max(1, math.ceil(seen[1]))
    most = min(LIKELY[-1], twin.engine.max_num_batched_tokens)
    rates = {
        seats: _rate(seats, trace, twin, limits) for seats in sorted({min(least, assumed), assumed, most})
    }
    known = {seats: rate for seats, rate in rates.items() if rate is not None}
    if len(known) < len(rates):
        return found
    own = known[assumed]
    scaled = {seats: found.rate_per_s * rate / own for seats, rate in known.items()}
    seats = AssumedSeats(assumed=assumed, rate_of_seats=scaled)
    if not seats.is_open:
        return found
    low, high = (found.rate_per_s if each is None else each for each in (found.low, found.high))
    return replace(
        found,
        low=low * min(known.values()) / own,
        high=high * max(known.values()) / own,
        assumed_seats=seats,
    )


def _rate(seats: int, trace: Trace, twin: TwinConfig, limits: Sequence[RunLimit]) -> float | None:
    """Return the capacity for one draw with a number of seats on every server."""
    pools = tuple(
        replace(pool, engine=replace(pool.engine, max_num_seqs=seats)) for pool in twin.cluster.pools
    )
    return highest_above(trace, with_pools(twin, pools), limits, least=0.0).rate_per_s
