"""An instance's phases: in each of its lives it is coming, ready, perhaps down, draining and off."""

from __future__ import annotations

from lazy_dataclasses import dataclass

from sim.cluster.infrastructure.instance_lives import Life

OFF, COMING, READY, DOWN, DRAINING = range(5)
"""The phases of an instance."""


@dataclass(slots=True)
class Slot:
    """An instance's phase, its life, and how often the phase has changed; events planned before a change are void."""

    state: int
    life: Life | None
    num_changes: int = 0
    num_failures: int = 0
    is_used: bool = False
