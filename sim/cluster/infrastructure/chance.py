"""When instances fail, and for how long: functions of (seed, instance, number), so that no draw shifts another."""

from __future__ import annotations

import math

from sim.cluster.draws import REPAIR, UPTIME, number_drawn


def uptime_us(seed: int, instance: int, number: int, *, mean_us: int) -> int:
    """Return how long an instance runs before its failure of this number, exponential, at least 1 µs."""
    return 1 + int(-math.log(number_drawn(seed, UPTIME + 2 * number, instance)) * mean_us)


def repair_us(seed: int, instance: int, number: int, *, mean_us: int) -> int:
    """Return how long it is down after that, exponential."""
    return int(-math.log(number_drawn(seed, REPAIR + 2 * number, instance)) * mean_us)
