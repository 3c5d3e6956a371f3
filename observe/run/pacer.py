"""Waiting until a moment of the monotonic clock, closer than the event loop's own timers.

uvloop and asyncio round their timers to a millisecond. Linux's timerfd wakes the loop through epoll instead,
some tens of microseconds late; elsewhere the loop's timer is used.
"""

from __future__ import annotations

import asyncio
import ctypes
import heapq
import os
import sys
from collections.abc import Callable
from typing import Protocol

from observe.senders.exchange import Clock, monotonic_ns

_CLOCK_MONOTONIC = 1  # linux/time.h; what time.monotonic_ns() reads
_TFD_FLAGS = 0o4000 | 0o2000000  # TFD_NONBLOCK | TFD_CLOEXEC (sys/timerfd.h)
_TFD_TIMER_ABSTIME = 1
_NS_PER_S = 1_000_000_000


class Alarm(Protocol):
    """Calls back once at a moment; setting it again moves it."""

    def set(self, due_ns: int) -> None:
        """Ask for the call at ``due_ns``."""

    def close(self) -> None:
        """Call no more."""


class Pacer:
    """Lets many coroutines wait, each until its own moment, over one alarm. Made within a running loop."""

    def __init__(self, *, clock: Clock = monotonic_ns) -> None:
        self._clock = clock
        self._alarm = make_alarm(self._wake_due, clock)
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._count = 0

    async def until(self, due_ns: int) -> None:
        """Return at ``due_ns`` or as soon after it as the loop can; at once when it is past."""
        if self._clock() >= due_ns:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._count += 1
        heapq.heappush(self._waiting, (due_ns, self._count, future))
        if self._waiting[0][2] is future:
            self._alarm.set(due_ns)
        await future

    def close(self) -> None:
        """Release the alarm and cancel everything that still waits."""
        self._alarm.close()
        for _, _, future in self._waiting:
            future.cancel()
        self._waiting.clear()

    def _wake_due(self) -> None:
        now = self._clock()
        while self._waiting and (self._waiting[0][0] <= now or self._waiting[0][2].done()):
            future = heapq.heappop(self._waiting)[2]
            if not future.done():
                future.set_result(None)
        if self._waiting:
            self._alarm.set(self._waiting[0][0])


def make_alarm(callback: Callable[[], None], clock: Clock) -> Alarm:
    """Return the finest alarm there is; a clock that is not the system's needs the loop's timer."""
    if sys.platform == "linux" and clock is monotonic_ns:
        try:
            return TimerfdAlarm(callback)
        except OSError:
            return LoopAlarm(callback, clock)
    return LoopAlarm(callback, clock)


class LoopAlarm:
    """The event loop's own timer."""

    def __init__(self, callback: Callable[[], None], clock: Clock) -> None:
        self._callback = callback
        self._clock = clock
        self._handle: asyncio.TimerHandle | None = None

    def set(self, due_ns: int) -> None:
        """Ask for the call at ``due_ns``."""
        self.close()
        delay_s = max(0, due_ns - self._clock()) / _NS_PER_S
        self._handle = asyncio.get_running_loop().call_later(delay_s, self._callback)

    def close(self) -> None:
        """Call no more."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None


class _Timespec(ctypes.Structure):
    _fields_ = (("tv_sec", ctypes.c_long), ("tv_nsec", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("it_interval", _Timespec), ("it_value", _Timespec))


class TimerfdAlarm:
    """A Linux timer file descriptor in the loop's epoll set. Raises OSError where the kernel gives none."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._callback = callback
        self._fd: int = self._libc.timerfd_create(_CLOCK_MONOTONIC, _TFD_FLAGS)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._fd, self._fire)

    def set(self, due_ns: int) -> None:
        """Ask for the call at ``due_ns`` of CLOCK_MONOTONIC; a past moment rings at once."""
        seconds, nanoseconds = divmod(max(due_ns, 1), _NS_PER_S)
        spec = _Itimerspec(it_value=_Timespec(seconds, nanoseconds))
        if self._libc.timerfd_settime(self._fd, _TFD_TIMER_ABSTIME, ctypes.byref(spec), None) < 0:
            raise OSError(ctypes.get_errno(), "timerfd_settime")

    def close(self) -> None:
        """Call no more."""
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _fire(self) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:  # set again between the wake-up and this read
            return
        self._callback()
