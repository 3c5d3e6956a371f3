"""Memory is asked for before it is taken: how much there is, and one line where a question needs more."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Final

from traces.errors import ConfigError

LIMITS: Final = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""The files in which Linux gives a container's memory limit, of both versions of control groups."""
_MAPPED: Final = {resource.RLIMIT_AS: "VmSize:", resource.RLIMIT_DATA: "VmData:"}
"""What of the process counts against the limits of `ulimit -v` and `ulimit -d`."""
GIB: Final = 1 << 30


def require_memory(what: str, needed: int) -> None:
    """Raise ConfigError if ``needed`` bytes are more than there are; checked on Linux only.

    ``what``: the beginning of the line, up to "which take".
    """
    free = free_memory()
    if free is not None and needed > free:
        raise ConfigError(
            f"{what} about {needed / GIB:,.1f} GiB of memory, expected at most the {free / GIB:,.1f} GiB that are free"
        )


def free_memory() -> int | None:
    """Return how many bytes this process may still take: what is free, or what its limits leave; None if unknown."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        own = Path("/proc/self/status").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    found = [_bytes(line) for line in lines if line.startswith("MemAvailable:")]
    for kind, name in _MAPPED.items():
        limit, _ = resource.getrlimit(kind)
        if limit != resource.RLIM_INFINITY:
            mapped = sum(_bytes(line) for line in own if line.startswith(name))
            found.append(max(limit - mapped, 0))
    for path in LIMITS:
        text = path.read_text(encoding="ascii").strip() if path.is_file() else ""
        if text.isdigit():
            found.append(int(text))
    return min(found, default=None)


def _bytes(line: str) -> int:
    """Return the number of a line of /proc, which counts in KiB."""
    return int(line.split()[1]) * 1024
