"""How much memory a cluster's run takes, estimated before it starts."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import TYPE_CHECKING

from sim import UNBOUNDED
from traces import counted
from traces.strict.free_memory import require_memory

if TYPE_CHECKING:
    from sim.cluster import ClusterConfig

BYTES_OF_PROGRAM = 190_000_000
"""Before any request: Python, numpy and the compiled code; where something is compiled, numba takes 60 MB more."""
BYTES_PER_REQUEST = 700
"""An attempt's rows in the engines' and the cluster's tables, and in the trace that is written. Measured, the
whole: a million requests over 1,000 instances take 1.13 GB, 20,000 take 0.64, 60 over 10,000 take 2.24."""
BYTES_PER_INSTANCE = 176_000
"""An engine's counts and tables, without its KV blocks."""
BYTES_OF_LOGS = 180_000
"""The logs of an engine that serves any request."""
BYTES_PER_BLOCK = 24
"""A KV block in an engine's tables."""
MANY_BLOCKS = 1_000_000
"""From here on a message names the blocks."""
BYTES_PER_NEW_BLOCK = 26
"""Besides, while an engine's tables are made."""
BYTES_PER_CPU_BLOCK: Mapping[str, int] = {"blis": 75, "native": 136, "shared": 48}
"""A block of the second tier, by ``kv_offloading``: each engine has it, but a shared store is there once."""


def check_memory(cluster: ClusterConfig, *, num_requests: int) -> None:
    """Raise ConfigError if a run would take more memory than there is; checked on Linux only."""
    attempts = _attempts_of(cluster)
    each = f", each sent up to {attempts:,} times," if attempts > 1 else ""
    engines = [pool.engine for pool in cluster.pools]
    blocks = max(0 if each.num_gpu_blocks == UNBOUNDED else each.num_gpu_blocks for each in engines)
    host = max(each.num_cpu_blocks for each in engines)
    held = f" with up to {blocks:,} GPU and {host:,} CPU blocks" if max(blocks, host) > MANY_BLOCKS else ""
    instances = counted(cluster.num_instances, "instance")
    require_memory(
        f"cluster: got {num_requests:,} requests{each} and {instances}{held}, which take",
        bytes_needed(cluster, num_requests=num_requests),
    )


def bytes_needed(cluster: ClusterConfig, *, num_requests: int) -> int:
    """Return about how many bytes a run takes at its peak, the program and what it writes included."""
    needed = BYTES_OF_PROGRAM + num_requests * _attempts_of(cluster) * BYTES_PER_REQUEST
    for pool in cluster.pools:
        engine = pool.engine
        blocks = 0 if engine.num_gpu_blocks == UNBOUNDED else engine.num_gpu_blocks
        needed += pool.num_slots * (BYTES_PER_INSTANCE + BYTES_PER_BLOCK * blocks)
        needed += BYTES_PER_NEW_BLOCK * blocks
        stores = 1 if engine.has_shared_store else pool.num_slots
        needed += stores * engine.num_cpu_blocks * BYTES_PER_CPU_BLOCK[engine.kv_offloading]
    num_serving = min(cluster.num_instances, num_requests * _attempts_of(cluster))
    return needed + num_serving * BYTES_OF_LOGS


def _attempts_of(cluster: ClusterConfig) -> int:
    """Return how often a request is sent at most."""
    return 1 if cluster.retries is None else cluster.retries.max_attempts


def return_freed() -> None:
    """Return freed memory to the system: glibc keeps it while anything behind it is in use.

    Elsewhere nothing happens.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(ctypes.c_size_t(0))
