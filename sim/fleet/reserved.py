"""Engines paid for always and engines paid for when used: how many of the first over a day that comes again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from lazy_dataclasses import dataclass

from sim.config import InvalidConfig

HOURS = 24
DAYS_PER_YEAR = 365.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserved:
    """So many engines reserved, the others of each hour burst. Costs per year, in the prices' currency.

    ``burst_hours``: engine hours of burst in a day.
    """

    reserved: int
    burst_hours: int
    reserved_cost: float
    burst_cost: float

    @property
    def cost(self) -> float:
        """Both together."""
        return self.reserved_cost + self.burst_cost


def cost_with(reserved: int, needed: Sequence[int], *, reserved_price: float, burst_price: float) -> Reserved:
    """Return what a year costs with so many engines reserved; ``needed``: engines in each hour of a day.

    Prices are of an engine and hour. An hour's burst is paid in whole.
    """
    burst_hours = sum(max(each - reserved, 0) for each in needed)
    hours_per_year = DAYS_PER_YEAR * len(needed)
    return Reserved(
        reserved=reserved,
        burst_hours=burst_hours,
        reserved_cost=reserved * hours_per_year * reserved_price,
        burst_cost=burst_hours * DAYS_PER_YEAR * burst_price,
    )


def cheapest_reserved(needed: Sequence[int], *, reserved_price: float, burst_price: float) -> Reserved:
    """Return the cheapest number of reserved engines, the smallest of equals. Raises InvalidConfig.

    One more reserved engine costs 24 hours and saves burst in the hours that need more than are reserved. It pays as
    long as those are more than 24·reserved / burst, so the answer is the smallest R that at most so many hours exceed:
    a quantile of the day's need (the newsvendor's).
    """
    if not needed or min(needed) < 0:
        raise InvalidConfig("reserved: got no hours, or less than no engines, expected engines for each hour")
    if not (0 < reserved_price < math.inf and 0 < burst_price < math.inf):
        raise InvalidConfig(
            f"reserved: got prices of {reserved_price:g} and {burst_price:g}, expected numbers > 0"
        )
    most_hours = len(needed) * reserved_price / burst_price
    best = next(
        number
        for number in sorted({0, *needed})
        if sum(each > number for each in needed) <= most_hours + 1e-9
    )
    return cost_with(best, needed, reserved_price=reserved_price, burst_price=burst_price)


def day_between(peak: float, trough: float, *, peak_hour: int = 14) -> list[float]:
    """Return 24 hourly rates that rise and fall as a cosine between trough and peak. Raises InvalidConfig."""
    if not 0 < trough <= peak < math.inf:
        raise InvalidConfig(f"diurnal: got {peak:g}:{trough:g}, expected peak:trough with peak >= trough > 0")
    middle, swing = (peak + trough) / 2, (peak - trough) / 2
    return [middle + swing * math.cos(2 * math.pi * (hour - peak_hour) / HOURS) for hour in range(HOURS)]
