"""A CSV file that grows by complete lines, also when its writer is killed."""

from __future__ import annotations

import csv
import fcntl
import io
import os
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from observe.record.trace_row import Cell
from traces import TraceError, atomic_file

_LONGEST_PIECE = 64 << 20
"""Bytes from the end of a file within which its last complete line ends: more than one write ever holds."""


class CsvAppender:
    """A CSV file that grows by whole lines: a line that cannot be written whole is removed.

    Several processes may append to one file: each holds the file's lock while it writes, and takes back the
    piece of a line that one of them left when it was killed.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd

    @classmethod
    def begin(cls, path: Path, names: Sequence[str]) -> CsvAppender:
        """Begin the file with a line of ``names``; it appears under its name with that line. Raises TraceError."""
        with atomic_file(path, error=TraceError, is_durable=False) as temporary:
            appender = cls(os.open(temporary, os.O_CREAT | os.O_TRUNC | os.O_RDWR | os.O_APPEND, 0o666))
            try:
                appender.append([names])
            except OSError:
                appender.close()
                raise
        return appender

    @classmethod
    def join(cls, path: Path, names: Sequence[str]) -> CsvAppender:
        """Append to a file that was begun with the same ``names``. Raises OSError."""
        appender = cls(os.open(path, os.O_RDWR | os.O_APPEND))
        head = csv_bytes([names])
        assert os.pread(appender._fd, len(head), 0) == head, f"{path} has other columns"  # noqa: S101
        return appender

    @classmethod
    def mend(cls, path: Path) -> None:
        """Remove the piece of a line that a killed process left at a file's end. Raises OSError."""
        appender = cls(os.open(path, os.O_RDWR))
        try:
            appender._size_of_complete_lines()
        finally:
            appender.close()

    def append(self, lines: Sequence[Sequence[Cell]]) -> None:
        """Write ``lines`` in one go. Raises OSError and leaves the file as it was."""
        self.append_bytes(csv_bytes(lines))

    def append_bytes(self, data: bytes) -> None:
        """Do the same with whole lines as they are in the file."""
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        try:
            size = self._size_of_complete_lines()
            try:
                written = os.write(self._fd, data)
                while written < len(data):
                    written += os.write(self._fd, data[written:])
            except OSError:
                os.ftruncate(self._fd, size)
                raise
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def sync(self) -> None:
        """Flush appended lines to the disk. Raises OSError; may run in another thread beside ``append``."""
        os.fsync(self._fd)

    def _size_of_complete_lines(self) -> int:
        """Return the file's size, the piece of a line at its end taken away."""
        size = os.fstat(self._fd).st_size
        if size == 0 or os.pread(self._fd, 1, size - 1) == b"\n":
            return size
        start = max(size - _LONGEST_PIECE, 0)
        size = start + os.pread(self._fd, size - start, start).rfind(b"\n") + 1
        os.ftruncate(self._fd, size)
        return size

    def close(self) -> None:
        """Release the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class KeptLines:
    """Lines that are kept until somebody takes them, in place of a file; another thread may add some meanwhile."""

    def __init__(self) -> None:
        self._kept: deque[bytes] = deque()

    def append_bytes(self, data: bytes) -> None:
        """Keep whole lines."""
        self._kept.append(data)

    def take(self) -> bytes:
        """Return what was kept since the last call."""
        return b"".join(self._kept.popleft() for _ in range(len(self._kept)))

    def sync(self) -> None:
        """Do nothing: the taker keeps the file."""

    def close(self) -> None:
        """Do nothing."""


def csv_bytes(lines: Sequence[Sequence[Cell]]) -> bytes:
    """Return lines of a CSV file, as ``append`` writes them."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(
        [("true" if cell else "false") if isinstance(cell, bool) else cell for cell in line] for line in lines
    )
    return text.getvalue().encode()
