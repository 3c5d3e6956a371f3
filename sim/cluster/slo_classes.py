"""How much a class of requests matters: higher goes first, below 0 may be shed."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from sim.config import InvalidConfig

SLO_PRIORITIES: Mapping[str, int] = MappingProxyType(
    {"critical": 4, "standard": 3, "batch": -1, "sheddable": -2, "background": -3}
)
"""The classes and their priorities, as inference-sim has them; a request of no class is ``standard``."""

STANDARD = SLO_PRIORITIES["standard"]
LARGEST_PRIORITY = 100


def slo_priority(slo_class: str | None, overrides: Mapping[str, int] = MappingProxyType({})) -> int:
    """Return a class's priority; that of ``standard`` without a class, or for one that has no priority."""
    known = {**SLO_PRIORITIES, **overrides}
    return known["standard"] if slo_class is None else known.get(slo_class, known["standard"])


def check_priorities(overrides: Mapping[str, int]) -> None:
    """Raise InvalidConfig on a priority that is not an integer from -100 to 100."""
    for name, priority in overrides.items():
        is_integer = isinstance(priority, int) and not isinstance(priority, bool)
        if not is_integer or abs(priority) > LARGEST_PRIORITY:
            raise InvalidConfig(
                f"slo_priorities.{name}: got {priority!r}, expected an integer in [-100, 100]"
            )
