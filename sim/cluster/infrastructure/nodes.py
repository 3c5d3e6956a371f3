"""Nodes with GPUs, and the placement of instances on them."""

from __future__ import annotations

from lazy_dataclasses import dataclass, field

from sim.cluster.infrastructure.infrastructure_config import NodePool


@dataclass(slots=True, kw_only=True)
class Node:
    """One node: ordered, there (``ready_us``), gone (``removed_us``, None while it stays); times in µs.

    ``free_since_us``: since when it has had no instance, None while it has one.
    """

    pool: str
    number: int
    ordered_us: int
    ready_us: int
    num_free_gpus: int
    free_since_us: int | None
    removed_us: int | None = None


@dataclass(slots=True, kw_only=True)
class Nodes:
    """The nodes of one pool, those that are gone included."""

    config: NodePool
    nodes: list[Node] = field(default_factory=list)

    @property
    def present(self) -> list[Node]:
        """Those that were ordered and have not gone."""
        return [node for node in self.nodes if node.removed_us is None]

    def order(self, time_us: int, *, is_there: bool = False) -> Node:
        """Return a new node, there after its provisioning delay or at once."""
        ready_us = time_us if is_there else time_us + self.config.provisioning_us
        node = Node(
            pool=self.config.name,
            number=len(self.nodes),
            ordered_us=time_us,
            ready_us=ready_us,
            num_free_gpus=self.config.gpus_per_node,
            free_since_us=ready_us,
        )
        self.nodes.append(node)
        return node

    def place(self, num_gpus: int, time_us: int, *, is_there: bool = False) -> Node | None:
        """Return the node that gives an instance its GPUs, which may be one on its way; None where there is no room.

        Nodes that are there come first, and a new one is ordered last.
        """
        self.remove_idle(time_us)
        fitting = [node for node in self.present if node.num_free_gpus >= num_gpus]
        if fitting:
            sign = 1 if self.config.placement == "pack" else -1
            node = min(
                fitting,
                key=lambda each: (max(each.ready_us, time_us), sign * each.num_free_gpus, each.number),
            )
        elif len(self.present) < self.config.max_nodes:
            node = self.order(time_us, is_there=is_there)
        else:
            return None
        node.num_free_gpus -= num_gpus
        node.free_since_us = None
        return node

    def release(self, node: Node, num_gpus: int, time_us: int) -> None:
        """Take an instance off its node."""
        node.num_free_gpus += num_gpus
        if node.num_free_gpus == self.config.gpus_per_node:
            node.free_since_us = max(time_us, node.ready_us)

    def remove_idle(self, time_us: int) -> None:
        """Release nodes that have been empty for long enough by ``time_us``, each when it was; the newest first."""
        while len(self.present) > self.config.min_nodes:
            ends = [
                (node.free_since_us + self.config.idle_us, -node.number, node)
                for node in self.present
                if node.free_since_us is not None and node.free_since_us + self.config.idle_us <= time_us
            ]
            if not ends:
                return
            end_us, _, node = min(ends, key=lambda each: each[:2])
            node.removed_us = end_us
