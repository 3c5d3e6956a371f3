"""The lives of instances and what they cost."""

from __future__ import annotations

from collections.abc import Sequence
from lazy_dataclasses import dataclass, field

from sim.cluster.infrastructure.infrastructure_config import HOUR_US
from sim.cluster.infrastructure.nodes import Node


@dataclass(slots=True, kw_only=True)
class Life:
    """One life of an instance: from being ordered until its GPUs are free; times in µs, None where never.

    ``placed_us``: has its GPUs. ``ready_us``: first got requests. ``drained_us``: gets no more. ``stopped_us``: has
    given its GPUs back. ``downs``: (failed, ready again), the second None where it did not come back.
    """

    instance: int
    pool: int
    num_gpus: int
    ordered_us: int
    placed_us: int | None = None
    ready_us: int | None = None
    drained_us: int | None = None
    stopped_us: int | None = None
    node: Node | None = None
    downs: list[tuple[int, int | None]] = field(default_factory=list)

    def gpu_us(self, end_us: int) -> int:
        """Return how long it has had its GPUs by the end of the run, times their number."""
        if self.placed_us is None:
            return 0
        stopped_us = end_us if self.stopped_us is None else min(self.stopped_us, end_us)
        return self.num_gpus * max(0, stopped_us - self.placed_us)


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeChange:
    """An autoscaler's decision about a pool: when, from how many to how many, those on their way included."""

    time_us: int
    pool: int
    before: int
    after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Infrastructure:
    """The nodes and GPUs that a run's instances used, and for how long; ``end_us``: the end of the run."""

    lives: tuple[Life, ...]
    nodes: tuple[Node, ...]
    changes: tuple[SizeChange, ...]
    end_us: int

    def gpu_hours(self, *, instance: int | None = None, pool: int | None = None) -> float:
        """Return the GPU-hours of all instances, of one, or of a pool's."""
        lives = [
            life
            for life in self.lives
            if (instance is None or life.instance == instance) and (pool is None or life.pool == pool)
        ]
        return gpu_hours_of(lives, self.end_us)

    def gpu_hours_by_instance(self, num_instances: int) -> list[float]:
        """Return the GPU-hours of each instance, by its number."""
        gpu_us = [0] * num_instances
        for life in self.lives:
            gpu_us[life.instance] += life.gpu_us(self.end_us)
        return [each / HOUR_US for each in gpu_us]

    def node_hours(self, node_pool: str) -> float:
        """Return the hours of a node pool's nodes, from the order until they are gone."""
        return (
            sum(
                max(
                    0,
                    min(node.removed_us if node.removed_us is not None else self.end_us, self.end_us)
                    - node.ordered_us,
                )
                for node in self.nodes
                if node.pool == node_pool
            )
            / HOUR_US
        )


def gpu_hours_of(lives: Sequence[Life], end_us: int) -> float:
    """Return the GPU-hours of some lives."""
    return sum(life.gpu_us(end_us) for life in lives) / HOUR_US
