"""How many nodes are up, and how many are needed so that enough of them are."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from sim.config import InvalidConfig
from sim.fleet.fewest import fewest

HOURS_PER_DAY = 24.0
ASSURANCE = 0.99
"""The share of the time in which enough are up, for the spare that is reported beside the average one."""
MOST_SPARE = 64
"""The search for a number of nodes ends at this many times the average. One node needed of many that are seldom up
takes the most: -ln(1 - assurance) times the average, which is 36.7 with the largest float below 1."""
SPARE_STRIDE = 0.01
"""The search first tries the average number and this share more: with many nodes, little more is enough."""


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


def share_enough(have: int, needed: int, share_up: float) -> float:
    """Return the share of the time in which at least ``needed`` of ``have`` nodes are up, failing independently.

    It is a binomial distribution's chance of at most ``have - needed`` nodes down. Raises InvalidConfig.
    """
    provisioned(needed, share_up)
    if have < needed:
        return 0.0
    if share_up == 1:
        return 1.0
    down = np.arange(have - needed + 1, dtype=np.float64)
    ways = np.concatenate(
        [[0.0], np.cumsum(np.log((have - down[1:] + 1) / down[1:]))]
    )  # log of have over down
    chances = np.exp(ways + (have - down) * math.log(share_up) + down * math.log1p(-share_up))
    return min(float(chances.sum()), 1.0)


def provisioned_for(needed: int, share_up: float, *, assurance: float = ASSURANCE) -> int:
    """Return the fewest nodes of which ``needed`` are up for a share ``assurance`` of the time. Raises InvalidConfig.

    ``provisioned`` is enough on average, and so for about half of the time.
    """
    if not 0 < assurance < 1:
        raise InvalidConfig(f"assurance: got {assurance}, expected a share in (0, 1)")
    on_average = provisioned(needed, share_up)
    return fewest(
        lambda have: share_enough(have, needed, share_up) >= assurance,
        near=(on_average,),
        least=needed,
        most=MOST_SPARE * on_average,
        stride=SPARE_STRIDE,
    )
