"""How much memory a cluster's run takes, estimated before it starts."""

from __future__ import annotations

import ctypes
import resource
from pathlib import Path
from typing import TYPE_CHECKING

from sim import UNBOUNDED
from traces import ConfigError

if TYPE_CHECKING:
    from sim.cluster import ClusterConfig

BYTES_OF_PROGRAM = 250_000_000
"""Before any request: Python, numpy, numba and the compiled code."""
BYTES_PER_REQUEST = 700
"""Of each attempt: its rows in the engines' and the cluster's tables, and in the trace that is written. Measured, the
whole: a million requests over 1,000 instances take 1.13 GB, 20,000 take 0.64, 60 over 10,000 take 2.24."""
BYTES_PER_INSTANCE = 176_000
"""Of an engine's counts and tables, without its KV blocks."""
BYTES_OF_LOGS = 180_000
"""Of an engine that serves any request."""
BYTES_PER_BLOCK = 24
"""Of a KV block in an engine's tables."""
LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""The files in which Linux gives a container's memory limit, of both versions of control groups."""
GIB = 1 << 30


def check_memory(cluster: ClusterConfig, *, num_requests: int) -> None:
    """Raise ConfigError if a run would take more memory than there is; checked on Linux only."""
    free = free_memory()
    attempts = _attempts_of(cluster)
    needed = bytes_needed(cluster, num_requests=num_requests)
    if free is not None and needed > free:
        each = f", each sent up to {attempts:,} times," if attempts > 1 else ""
        raise ConfigError(
            f"cluster: got {num_requests:,} requests{each} and {cluster.num_instances:,} instances, which take about "
            f"{needed / GIB:,.1f} GiB of memory, expected at most the {free / GIB:,.1f} GiB that are free"
        )


def bytes_needed(cluster: ClusterConfig, *, num_requests: int) -> int:
    """Return about how many bytes a run takes at its peak, the program and what it writes included."""
    needed = BYTES_OF_PROGRAM + num_requests * _attempts_of(cluster) * BYTES_PER_REQUEST
    for pool in cluster.pools:
        blocks = 0 if pool.engine.num_gpu_blocks == UNBOUNDED else pool.engine.num_gpu_blocks
        needed += pool.num_slots * (BYTES_PER_INSTANCE + BYTES_PER_BLOCK * blocks)
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


def free_memory() -> int | None:
    """Return how many bytes this process may take at most: what is free, or what it is limited to; None if unknown."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    found = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY:
        found.append(limit)
    for path in LIMITS:
        text = path.read_text(encoding="ascii").strip() if path.is_file() else ""
        if text.isdigit():
            found.append(int(text))
    return min(found, default=None)
