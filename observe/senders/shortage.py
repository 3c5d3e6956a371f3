"""Shortages of this machine: file descriptors, ports, memory. They are not the server's faults."""

from __future__ import annotations

import errno
import resource

_OWN = {errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.ENOBUFS, errno.ENOMEM}
_FOR_OTHERS = 64
"""Descriptors for everything but requests: files, the loop, the terminal, questions to the server."""


def is_own_shortage(fault: BaseException) -> bool:
    """Return whether ``fault``, or what caused it, is a shortage on this machine."""
    inner = getattr(fault, "os_error", fault)
    return isinstance(inner, OSError) and inner.errno in _OWN


def own_shortage(fault: BaseException) -> str:
    """Return one line for such a fault."""
    inner = getattr(fault, "os_error", fault)
    said = f"client: {getattr(inner, 'strerror', None) or inner}"
    if getattr(inner, "errno", None) != errno.EMFILE:
        return said
    return f"{said}: no connection (ulimit -n {resource.getrlimit(resource.RLIMIT_NOFILE)[0]})"


def missing_descriptors(num_at_once: int) -> tuple[int, int] | None:
    """Return (there, needed) where one process cannot have ``num_at_once`` connections, else None."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = num_at_once + _FOR_OTHERS
    return (hard, needed) if hard not in (resource.RLIM_INFINITY, -1) and needed > hard else None
