"""A capacity's interval with other numbers of seats in it, where nobody stated how many the fitted server has."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from replay.capacity.assumed_seats import LIKELY, AssumedSeats, are_seats_assumed
from replay.search.highest import highest_above
from replay.twin.twin_config import with_pools
from traces import RunLimit

if TYPE_CHECKING:
    from replay.capacity.capacity import Capacity
    from replay.twin.twin_config import TwinConfig
    from traces import Trace


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
