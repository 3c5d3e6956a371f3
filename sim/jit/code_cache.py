"""Compiled code on disk: in a folder that is the user's alone, checked before it runs, rebuilt where it is damaged.

numba's own cache ends in an error or runs corrupted code from disk, falls back to another folder in silence, and is
read by numba alone. Here a file is a digest, a line that describes the function, and its object file; what goes wrong
with the folder is one line on stderr.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from sim.jit.numba_settings import processor
from sim.jit.object_file import MachineCode

_DIGEST_BYTES = 32
ENDING: Final = ".code"
_told: set[str] = set()


def private_folder(wanted: Path) -> Path | None:
    """Return ``wanted``, made with mode 0700, or a place among temporary files where others could have written to it.

    None if neither can be used: then nothing is kept. A line on stderr says what is not as wanted.
    """
    fault = _fault(wanted)
    if fault is None:
        return wanted
    other = Path(tempfile.gettempdir()) / f"vtwin-{os.getuid()}" / wanted.name
    if _fault(other) is not None:
        _tell("folder", f"{fault}; compiled for this run only")
        return None
    _tell("folder", f"{fault}; kept in {other.parent}")
    return other


def _fault(folder: Path) -> str | None:
    """Return why a folder and its parent, both made where they lack, cannot be trusted with code; None: they can."""
    for each in (folder.parent, folder):
        try:
            each.parent.mkdir(parents=True, exist_ok=True)
            each.mkdir(mode=0o700, exist_ok=True)
            found = each.stat()
            is_shared = bool(found.st_mode & (stat.S_IWGRP | stat.S_IWOTH))
            if found.st_uid != os.getuid() and (each == folder or found.st_uid != 0):
                return f"{each}: got a folder of another user, expected one of yours"
            if is_shared and (each == folder or not found.st_mode & stat.S_ISVTX):
                return f"{each}: got a folder that others can write to, expected one that only you can (chmod 700)"
            if each == folder and stat.S_IMODE(found.st_mode) != 0o700:
                each.chmod(0o700)
        except OSError as error:
            return f"{each}: got {error.strerror}, expected a folder that can be written"
    return None


@contextmanager
def one_process_at_a_time(folder: Path | None, what: str) -> Iterator[None]:
    """Allow one process at a time to compile ``what`` into a folder; others that need the same wait, and find it there.

    Without a folder, or in one that cannot be written or locked, no process waits.
    """
    with ExitStack() as stack:
        if folder is not None:
            with suppress(OSError):
                file = stack.enter_context((folder / f"compiling-{what}").open("w"))
                fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _tell(what: str, line: str) -> None:
    """Print a line on stderr, one of its kind per process."""
    if what not in _told:
        _told.add(what)
        sys.stderr.write(f"compiled code: {line}\n")


class CodeFolder:
    """A folder of machine code, a file for each kind of arguments of a function, each the user's own or root's.

    The folder may have been open to others before it was the user's alone, or be changed for theirs later.
    """

    are_users_own = True

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def processor(self) -> tuple[str, str, str] | None:
        """Return what its code is for: LLVM's names of platform, processor and its features."""
        return processor()

    def has_any(self, stem: str) -> bool:
        """Return whether there is a file whose name begins so, of whatever content."""
        place = self.folder / stem
        try:
            return any(each.startswith(f"{place.name}.") for each in os.listdir(place.parent))  # noqa: PTH208 - names
        except OSError:
            return False

    def load(self, name: str) -> MachineCode | None:
        """Return what a file holds; None: there is none, or it is not to be run."""
        path = self.folder / f"{name}{ENDING}"
        try:
            with path.open("rb") as file:
                if self.are_users_own and os.fstat(file.fileno()).st_uid not in (0, os.getuid()):
                    _tell(
                        "owner", f"{path}: got a file of another user, expected one of yours; compiled again"
                    )
                    return None
                content = file.read()
        except OSError:
            return None
        if hashlib.sha256(memoryview(content)[_DIGEST_BYTES:]).digest() != content[:_DIGEST_BYTES]:
            _tell("damaged", f"{path}: got a damaged file, expected what was written; compiled again")
            return None
        return self.unpacked(content[_DIGEST_BYTES:])

    @staticmethod
    def unpacked(data: bytes) -> MachineCode:
        """Return what the content of a file stands for."""
        line, code = data.split(b"\n", 1)
        symbol, returns, *needs = line.decode().split(" ")
        return MachineCode(symbol, returns, tuple(needs), code)

    def save(self, name: str, stored: MachineCode) -> None:
        """Write a file in one piece; a full disk costs the next run time, not this one."""
        line = " ".join((stored.symbol, stored.returns, *stored.needs))
        try:
            write_checked(self.folder / f"{name}{ENDING}", line.encode() + b"\n" + stored.code)
        except OSError as error:
            expected = "expected room for a file; compiled for this run only"
            _tell("full", f"{self.folder}: got {error.strerror}, {expected}")


class NoFolder(CodeFolder):
    """Keeps nothing."""

    def __init__(self) -> None:
        super().__init__(Path(os.devnull))

    def save(self, name: str, stored: MachineCode) -> None:
        """Do nothing."""


def write_checked(path: Path, data: bytes) -> None:
    """Write a file that begins with a digest of its data; no process ever sees half of it."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        try:
            file.write(hashlib.sha256(data).digest() + data)
            file.close()
            Path(file.name).replace(path)
        except OSError:
            Path(file.name).unlink(missing_ok=True)
            raise


def checked(path: Path) -> bytes:
    """Return the data of a file that ``write_checked`` wrote."""
    return path.read_bytes()[_DIGEST_BYTES:]
