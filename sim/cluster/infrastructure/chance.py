"""When instances fail, and for how long: functions of (seed, instance, number), so that none shifts another."""

from __future__ import annotations

import math

from sim.cluster.draws import number_drawn

FAILURE_DRAWS = 1 << 20
"""Where an instance's draws begin among those of its number: far behind what a request of that number draws."""


def uptime_us(seed: int, instance: int, number: int, *, mean_us: int) -> int:
    """Return how long an instance runs before its failure of this number, exponential, at least 1 µs."""
    return 1 + int(-math.log(number_drawn(seed, instance, FAILURE_DRAWS + 2 * number)) * mean_us)


def repair_us(seed: int, instance: int, number: int, *, mean_us: int) -> int:
    """Return how long it is down after that, exponential."""
    return int(-math.log(number_drawn(seed, instance, FAILURE_DRAWS + 2 * number + 1)) * mean_us)
