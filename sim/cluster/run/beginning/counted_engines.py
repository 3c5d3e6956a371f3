"""Which of a cluster's engines count KV blocks instead of handing them out (``sim/engine/counting``).

Those of which nobody learns but when a request ends, and what reports at intervals say of queues and KV usage. With
several KV cache groups none does: such a run may have to begin anew.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sim.cluster.cluster_config import ClusterConfig
from sim.cluster.cluster_work import ClusterWork
from sim.cluster.run.beginning.shared_engines import can_jump
from sim.cluster.run.world import World
from sim.config import Record
from sim.countable import may_be_counted
from sim.engine.state import Records, State
from sim.engine.watching.called_run import address_of_counted_run
from sim.requests import Int64s

FEWEST_REQUESTS = 10_000
"""With fewer the code that counts is not loaded, or compiled, for what it would save."""


def counted_addresses(
    work: ClusterWork, config: ClusterConfig, world: World, states: Sequence[State], *, record: Record
) -> Int64s:
    """Return, int64 per instance, where the machine code of the run is that counts its blocks; 0 if it counts none.

    The cluster has not begun; ``work`` is all that it gets.
    """
    counts = [pool.num_slots for pool in config.pools]
    of_pool = np.zeros(len(counts), np.int64)
    if might_count(work, config, world.loop):
        for number, (pool, first) in enumerate(zip(config.pools, np.cumsum([0, *counts]), strict=False)):
            state, longest = states[first], world.entries[number]
            can_pause = can_jump(pool, record) and len(state.kv_cache_groups) == 0
            if can_pause and may_be_counted(state, work.requests, is_paced=False, longest=longest):
                of_pool[number] = address_of_counted_run()
    return np.repeat(of_pool, counts)


def might_count(work: ClusterWork, config: ClusterConfig, loop: Records) -> bool:
    """Return whether it is worth it and nothing of the cluster forbids it; each pool may still."""
    return len(work.requests) >= FEWEST_REQUESTS and not is_watched(config, loop)


def is_watched(config: ClusterConfig, loop: Records) -> bool:
    """Return whether decisions read engines as they are, or anything but the loop over events changes one."""
    asks = ("is_coupled", "reads_engines", "hears_first_tokens", "sees_caches")
    return any(loop[name][0] for name in asks) or config.lockstep or bool(config.changes)
