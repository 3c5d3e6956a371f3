"""One owner of an output: who writes to a place for long holds a lock on it, so that a second one is refused."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from traces.atomic import is_written_to
from traces.errors import ConfigError


@contextmanager
def sole_owner(place: Path, *, option: str = "--output") -> Iterator[None]:
    """Own a stem or a folder while the context lasts, by a lock on ``.NAME.lock`` beside it, which goes in the end.

    The lock ends with the process, however that ends; a file that was left behind locks nothing. Raises ConfigError if
    another process owns the place. Where a file system has no locks, or the folder takes no file, nothing is owned.
    """
    if is_written_to(place):
        yield
        return
    absolute = place.absolute()
    name = absolute.with_name(f".{absolute.name}.lock")
    try:
        handle = _locked(name)
    except BlockingIOError:
        with suppress(OSError, ValueError):
            owner = f" (process {int(name.read_text())})"
            raise _taken(place, owner, option=option) from None
        raise _taken(place, "", option=option) from None
    except OSError:
        yield  # what cannot be written is told by who writes
        return
    try:
        os.ftruncate(handle, 0)
        os.pwrite(handle, str(os.getpid()).encode(), 0)
        yield
    finally:
        name.unlink(missing_ok=True)
        os.close(handle)


def _locked(name: Path) -> int:
    """Return the lock's file, opened and locked. Raises BlockingIOError if another has it, else OSError."""
    while True:
        handle = os.open(name, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(handle), name.stat()):
                return handle
        except FileNotFoundError:
            pass  # its owner has just ended, and taken the file away: again
        except OSError:
            os.close(handle)
            raise
        os.close(handle)


def _taken(place: Path, owner: str, *, option: str) -> ConfigError:
    return ConfigError(
        f"{option}: another run writes to {place}{owner}, expected another place, or a later start"
    )
