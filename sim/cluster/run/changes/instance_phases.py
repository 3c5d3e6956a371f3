"""What an instance is: one life after another, in each of which it comes, is ready, perhaps down, drains and is off."""

from __future__ import annotations

from dataclasses import dataclass

from sim.cluster.infrastructure.instance_lives import Life

OFF, COMING, READY, DOWN, DRAINING = range(5)
"""What an instance is."""


@dataclass(slots=True)
class Slot:
    """An instance: what it is, its life, and how often that has changed; events of before a change are void."""

    state: int
    life: Life | None
    num_changes: int = 0
    num_failures: int = 0
    is_used: bool = False
