"""Reading a socket together with the moment its bytes arrived, as the kernel saw it.

Linux stamps a packet when it comes in (``SO_TIMESTAMPNS``, socket(7)) and hands the stamp of the last byte
read to ``recvmsg``. So a client that is busy, or waits for a core, still knows when the bytes were there. The
kernel's clock is CLOCK_REALTIME, which may be stepped: what is taken from it is only the bytes' *age* at this
moment, and the stamp is the run's clock less that age.
"""

from __future__ import annotations

import socket
import struct
import sys
import time

from observe.senders.exchange import Clock, monotonic_ns

_SO_TIMESTAMPNS = 35  # asm-generic/socket.h; also the type of the message that carries the stamp
_TIMESPEC = struct.Struct("@qq")
_ANCILLARY = socket.CMSG_SPACE(_TIMESPEC.size)
_BUFFER = 1 << 20
"""Bytes of one read. More at once would stamp more of them with the last one's arrival."""

_NS_PER_S = 1_000_000_000
_SLACK_NS = 20_000
"""Two clocks that are read one after the other may disagree by so much."""

_TRIES = 5
"""A process is hardly interrupted between two readings this often in a row."""


class Receiver:
    """Reads sockets into one buffer. ``num_kernel_stamps`` and ``num_clock_stamps`` count where stamps came from.

    ``kernel`` false, a clock that is not the system's, or another system than Linux: the clock at the read.
    """

    def __init__(self, *, clock: Clock = monotonic_ns, kernel: bool = True) -> None:
        self._clock = clock
        self._kernel = kernel and clock is monotonic_ns and sys.platform == "linux"
        self._buffer = bytearray(_BUFFER)
        self._view = memoryview(self._buffer)
        # The kernel begins to stamp a moment after the first socket asks and ends with the last: one that stays.
        self._asking = socket.socket()
        self.prepare(self._asking)
        self.num_kernel_stamps = 0
        self.num_clock_stamps = 0

    def prepare(self, connection: socket.socket) -> None:
        """Ask the kernel to stamp what ``connection`` receives, where it can."""
        if self._kernel:
            try:
                connection.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
            except OSError:
                self._kernel = False

    def receive(self, connection: socket.socket, *, after_ns: int) -> tuple[bytes, int]:
        """Return the received bytes and their time, never before ``after_ns``; no bytes at the connection's end.

        Raises BlockingIOError if there are none, OSError if the connection is broken.
        """
        if not self._kernel:
            size = connection.recv_into(self._buffer)
            self.num_clock_stamps += 1
            return bytes(self._view[:size]), self._clock()
        size, ancillary, _, _ = connection.recvmsg_into([self._buffer], _ANCILLARY)
        now, wall = self._both_clocks()
        if ancillary:
            seconds, nanoseconds = _TIMESPEC.unpack(ancillary[0][2])
            stamp = now - (wall - seconds * _NS_PER_S - nanoseconds)
            if after_ns - _SLACK_NS <= stamp <= now + _SLACK_NS:  # else the wall clock was set meanwhile
                self.num_kernel_stamps += 1
                return bytes(self._view[:size]), min(max(stamp, after_ns), now)
        self.num_clock_stamps += 1
        return bytes(self._view[:size]), now

    def _both_clocks(self) -> tuple[int, int]:
        """Return both clocks at one moment: read again if the process was interrupted between the two."""
        for _ in range(_TRIES):
            before, wall, after = self._clock(), time.time_ns(), self._clock()
            if after - before < _SLACK_NS:
                break
        return after, wall

    def close(self) -> None:
        """Stop the kernel's timestamps."""
        self._asking.close()

    def describe(self) -> str:
        """Return in words where the stamps come from."""
        if self.num_kernel_stamps == 0 and (self.num_clock_stamps or not self._kernel):
            return "CLOCK_MONOTONIC, stamped per read"
        total = self.num_kernel_stamps + self.num_clock_stamps
        rest = f"; {self.num_clock_stamps} of {total} reads by the client" if self.num_clock_stamps else ""
        return f"CLOCK_MONOTONIC, by the kernel's receive stamps (SO_TIMESTAMPNS){rest}"
