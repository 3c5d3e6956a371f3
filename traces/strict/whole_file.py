"""A file's bytes, all of them, with a limit: a device has no end, and a file may be larger than the memory."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Final

MOST_BYTES: Final = 4 << 30
"""The largest file that is read."""
MOST_OF_A_STREAM: Final = 64 << 20
"""The limit of anything but a plain file: a pipe, as of ``<(…)``, or a device."""


def whole_file(path: Path, *, most: int = MOST_BYTES) -> bytes:
    """Return a file's bytes. Raises OSError, File too large, for more than ``most``, or than a stream may have."""
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            most = min(most, MOST_OF_A_STREAM)
            content = file.read(most + 1)
        else:
            content = file.read() if status.st_size <= most else b""
        if max(status.st_size, len(content)) <= most:
            return content
    raise OSError(errno.EFBIG, f"more than {most:,} bytes", str(path))


def is_there(path: Path) -> bool:
    """Return whether there is a file of this name; False for a text that cannot be a name, such as a long one."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def is_a_file(path: Path) -> bool:
    """Return whether there is a file, not a folder, of this name; as ``is_there`` for a text that cannot be a name."""
    return is_there(path) and path.is_file()
