"""Having the system run a thread before other work, as far as it allows: a client that waits for a core is late.

It stamps what it reads late, where several packets came meanwhile, and sends late. Three ways, the first that is
allowed (sched(7)): real time, ahead of everything ordinary; a niceness; a short slice, which any user may ask of Linux
6.12 and later, and which has a thread that waits for little be served before those that compute at length.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import platform
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

NICENESS: Final = -10
"""Nine times the weight of an ordinary thread."""
SLICE_NS: Final = 100_000
"""The shortest that Linux takes."""
_REAL_TIME: Final = 1
"""The lowest priority in real time."""
_LOOK_S: Final = 0.5
_BUSY: Final = 0.9
"""Of a core."""
_ATTRIBUTES: Final = struct.Struct("=IIQiIQQQ")  # struct sched_attr, its first version (sched_setattr(2))
_CALLS: Final = {"x86_64": (314, 315), "aarch64": (274, 275), "riscv64": (274, 275)}
"""Numbers of sched_setattr and sched_getattr, which older C libraries have no names for."""


@contextmanager
def put_first() -> Iterator[str | None]:
    """Have the system run this thread, and those that it starts, before others; as before at the end.

    Whoever has a niceness or a policy of his own keeps it. Yields how the thread runs, in words; None: as any other.
    """
    own = _own_setting()
    if own is not None:
        yield own
    elif _run_in_real_time():
        try:
            yield f"SCHED_RR {_REAL_TIME}"
        finally:
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
            _set_niceness(0)
    elif _set_niceness(NICENESS):
        try:
            yield f"niceness {NICENESS}"
        finally:
            _set_niceness(0)
    elif _set_slice(SLICE_NS):
        try:
            yield f"slice {SLICE_NS / 1e6:g} ms"
        finally:
            _set_slice(0)
    else:
        yield None


async def step_back_when_busy() -> None:
    """Give up real time, for the niceness, once this thread has computed nearly without rest: others starve else.

    Such a client is the limit of its run anyway. Runs until cancelled, or until it has stepped back.
    """
    while hasattr(os, "sched_getscheduler") and os.sched_getscheduler(0) == os.SCHED_RR:
        wall_s, cpu_s = time.monotonic(), time.thread_time()
        await asyncio.sleep(_LOOK_S)
        if time.thread_time() - cpu_s > _BUSY * (time.monotonic() - wall_s):
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
            _set_niceness(NICENESS)


def _own_setting() -> str | None:
    """Return how the thread runs where that is not as any other."""
    if hasattr(os, "sched_getscheduler") and (policy := os.sched_getscheduler(0)) != os.SCHED_OTHER:
        return f"policy {policy}"
    niceness = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    return f"niceness {niceness}" if niceness else None


def _run_in_real_time() -> bool:
    """Put the thread ahead of all that are not in real time: as root, with CAP_SYS_NICE, or by RLIMIT_RTPRIO."""
    if not hasattr(os, "sched_setscheduler"):
        return False
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(_REAL_TIME))
        return True
    return False


def _set_niceness(niceness: int) -> bool:
    """Set the thread's niceness, where that is allowed, and a thread has one of its own."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), niceness)
        return True
    return False


def _set_slice(slice_ns: int) -> bool:
    """Set the thread's slice, 0 the system's own; return whether the system has taken it."""
    calls = _CALLS.get(platform.machine())
    if platform.system() != "Linux" or calls is None:
        return False
    libc, size = ctypes.CDLL(None), _ATTRIBUTES.size
    asked = ctypes.create_string_buffer(_ATTRIBUTES.pack(size, os.SCHED_OTHER, 0, 0, 0, slice_ns, 0, 0), size)
    taken = ctypes.create_string_buffer(size)
    if libc.syscall(calls[0], 0, asked, 0) != 0 or libc.syscall(calls[1], 0, taken, size, 0) != 0:
        return False
    return int(_ATTRIBUTES.unpack(taken.raw)[5]) == slice_ns
