"""How many cases a test draws: a fifth of what it names in `make test`, five times as many in `make nightly`.

``VTWIN_THOROUGH`` in the environment is the factor. Without it the cases are the same ones each time; with it they
differ from run to run, and one that fails is printed.
"""

from __future__ import annotations

import os
from typing import Final

from hypothesis import HealthCheck, settings

THOROUGH: Final = int(os.environ.get("VTWIN_THOROUGH", "0"))
"""Times as many cases as a test names; 0: a fifth of them."""
LEAST = 10
"""So many cases, where a test names as many, are drawn whatever they cost."""


def few_or_all(few: int, every: int) -> int:
    """Return how many cases a loop takes: ``few`` in `make test`, ``every`` one in `make nightly`."""
    return every if THOROUGH else few


def examples(number: int, *, is_counted: bool = False) -> settings:
    """Return settings for a test that names ``number`` cases. Where draws are counted, a part is too few."""
    fifth = number if is_counted else min(number, max(LEAST, -(-number // 5)))
    return settings(
        max_examples=number * THOROUGH or fifth,
        deadline=None,
        derandomize=not THOROUGH,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
