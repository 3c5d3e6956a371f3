"""How many nodes are up, and how many are needed so that enough of them are."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sim.config import InvalidConfig

HOURS_PER_DAY = 24.0


def availability(failures_per_node_day: float, mttr_hours: float) -> float:
    """Return the share of nodes that are up in the long run: A = 1 / (1 + r_f x MTTR), MTTR in days.

    From A = MTTF / (MTTF + MTTR) with MTTF = 1 / r_f. Kokolis et al. 2024 (arXiv:2410.21680) measured r_f of 0.0065
    (16,000 A100) and 0.00234 (8,000 A100). Raises InvalidConfig on a negative one.
    """
    return availability_of([(failures_per_node_day, mttr_hours)])


def availability_of(classes: Sequence[tuple[float, float]]) -> float:
    """Return the same for several classes of failures, each with its own rate and time to repair.

    Downtimes add up: A = 1 / (1 + Σ r x MTTR). ``classes``: (failures per node and day, hours to repair).
    """
    for rate, hours in classes:
        if not (0 <= rate < math.inf and 0 <= hours < math.inf):
            raise InvalidConfig(
                f"availability: got {rate} failures a day and {hours} hours, expected numbers >= 0"
            )
    return 1.0 / (1.0 + sum(rate * hours / HOURS_PER_DAY for rate, hours in classes))


def provisioned(needed: int, share_up: float) -> int:
    """Return how many to have so that ``needed`` are up on average: ceil(n / A). Raises InvalidConfig."""
    if not 0 < share_up <= 1:
        raise InvalidConfig(f"availability: got {share_up}, expected a share in (0, 1]")
    return math.ceil(needed / share_up - 1e-9)  # 60 / (60/61) is 61, whatever its last bit says
