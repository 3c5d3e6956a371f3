"""Files that appear whole or not at all: written under another name in the same folder, then renamed.

A reader never sees half a file, and a write that fails leaves what was there. Errors of the file system become one
line of the caller's error class: ``OPTION: got No space left on device, expected a place that can be written (PATH)``.

A device, a pipe or a name below ``/dev`` or ``/proc`` (``/dev/null``, ``/dev/stdout``, ``>(…)``) is written to, as
``cp`` does: a file renamed over it would take its place for every program. A link's target is replaced, not the link.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from traces.errors import ConfigError, VtwinError

_PROBE_BYTES = 4096
PAGE = "<!doctype html>"
"""The beginning of every page."""
MARKDOWN = "<!-- vtwin -->"
"""The beginning of an answer as Markdown; no viewer shows it."""
_OURS = (b'<meta name="generator" content="vtwin', MARKDOWN.encode())
_HEAD_BYTES = 4096
"""A page of vtwin is marked as one within this many bytes."""
files_written: list[Path] = []
"""The files that this process has written, for the message after Ctrl-C."""
Stage = Callable[[Path], Path]
"""Returns the temporary path to write in place of a final one."""


@contextmanager
def atomic_files(
    place: Path, *, option: str = "", error: type[VtwinError] = ConfigError, is_durable: bool = True
) -> Iterator[Stage]:
    """Yield a function that gives a temporary path for each final one; rename all when the block ends well.

    They are renamed in the order of the calls. ``place`` is what an error names, after ``option`` if one was given.
    With ``is_durable`` every file is flushed to the disk before any is renamed, so that a machine that stops leaves the
    old files or the new ones, not empty ones; without it nothing waits for a large file. Raises ``error`` for errors of
    the file system, also in the block.
    """
    pairs: list[tuple[Path, Path]] = []

    def stage(final: Path) -> Path:
        if is_written_to(final):
            number, name = tempfile.mkstemp(suffix=final.suffix)
            os.close(number)
            pairs.append((Path(name), final))
            return pairs[-1][0]
        final = final.resolve() if final.is_symlink() else final
        if final.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(final))
        pairs.append((_temporary(final), final))
        return pairs[-1][0]

    with _as_error(place, option=option, error=error):
        try:
            yield stage
            if is_durable:
                for temporary, _ in pairs:
                    _sync(temporary)
            for temporary, final in pairs:
                if is_written_to(final):
                    _write_to(final, temporary)
                    continue
                temporary.replace(final)
                files_written.append(final)
            if is_durable:
                _sync_folders({final.parent for _, final in pairs if not is_written_to(final)})
        finally:
            for temporary, _ in pairs:
                temporary.unlink(missing_ok=True)


@contextmanager
def atomic_file(
    path: Path, *, option: str = "", error: type[VtwinError] = ConfigError, is_durable: bool = True
) -> Iterator[Path]:
    """Yield a temporary path for one file and rename it when the block ends well; see ``atomic_files``."""
    with atomic_files(path, option=option, error=error, is_durable=is_durable) as stage:
        yield stage(path)


def write_text(
    path: Path, text: str, *, option: str = "", error: type[VtwinError] = ConfigError, overwrite: bool = False
) -> None:
    """Write a file of UTF-8 text; see ``atomic_files`` for the errors.

    A page replaces a page, an answer an answer, and another file only with ``overwrite``.
    """
    if text.startswith((PAGE, MARKDOWN)) and not overwrite:
        refuse_foreign(path, option=option, error=error)
    with atomic_file(path, option=option, error=error) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_folder(
    folder: Path, files: Mapping[str, str], *, option: str = "", error: type[VtwinError] = ConfigError
) -> None:
    """Write text files into a folder by their names; a new folder, with its parents, appears with all of them.

    In a folder that exists the files are replaced once all are written; others in it stay. A page replaces a page, and
    no file replaces what a link leads to.
    """
    if folder.exists():
        for name, text in files.items():
            if text.startswith(PAGE):
                refuse_foreign(folder / name, option=option, error=error)
            elif (folder / name).is_symlink():
                raise error(f"{option}: got the link {folder / name}, expected a file or none")
        with atomic_files(folder, option=option, error=error) as stage:
            for name, text in files.items():
                stage(folder / name).write_text(text, encoding="utf-8")
        return
    with _as_error(folder, option=option, error=error):
        temporary = _temporary(folder)
        try:
            temporary.mkdir(parents=True)
            for name, text in files.items():
                (temporary / name).write_text(text, encoding="utf-8")
                _sync(temporary / name)
            temporary.rename(folder)
            files_written.append(folder)
            _sync_folders({folder.parent})
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def refuse_foreign(path: Path, *, option: str = "", error: type[VtwinError] = ConfigError) -> None:
    """Raise ``error`` if a page would replace a file that is not a page of vtwin, also through a link."""
    with _as_error(path, option=option, error=error):
        if is_written_to(path) or not path.exists():
            return
        if not path.is_file():
            raise error(f"{option}: got {path}, expected a file")
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    if head and not any(mark in head for mark in _OURS):
        raise error(f"{option}: {path} is there and no page of vtwin's, expected another place")


def make_folder(folder: Path, *, option: str = "", error: type[VtwinError] = ConfigError) -> None:
    """Make a folder and missing ones above it; see ``atomic_files`` for the errors."""
    with _as_error(folder, option=option, error=error):
        folder.mkdir(parents=True, exist_ok=True)


def check_place(path: Path | None, *, option: str = "", error: type[VtwinError] = ConfigError) -> None:
    """Test whether a file or a folder could be written, before hours of work; nothing is left behind. None: no test.

    See ``atomic_files`` for the errors. For a page, an existing file of another kind is refused as by ``write_text``.
    """
    if path is None or is_written_to(path):
        return
    if path.suffix == ".html":
        refuse_foreign(path, option=option, error=error)
    above = next(each for each in path.absolute().parents if each.exists())
    with _as_error(path, option=option, error=error):
        probe = _temporary(above / path.name)
        try:
            probe.write_bytes(bytes(_PROBE_BYTES))
            _sync(probe)
        finally:
            probe.unlink(missing_ok=True)


def is_written_to(path: Path) -> bool:
    """Return whether a path is no file to replace but a place to write to: a device, a pipe, an open file by number."""
    if path.is_absolute() and path.parts[1:2] in (("dev",), ("proc",)) and path.parts[1:3] != ("dev", "shm"):
        return not path.is_dir()
    try:
        kind = path.stat().st_mode
    except (OSError, ValueError):
        return False
    return not (stat.S_ISREG(kind) or stat.S_ISDIR(kind))


def _write_to(place: Path, source: Path) -> None:
    """Write a file's bytes to a device or a pipe. Raises OSError, also for a pipe that nobody reads, and a socket."""
    number = os.open(place, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK)
    os.set_blocking(number, True)
    with source.open("rb") as content, os.fdopen(number, "wb") as sink:
        shutil.copyfileobj(content, sink)


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.tmp")


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _sync_folders(folders: set[Path]) -> None:
    """Flush the new names to the disk, if the file system can: the files have them already."""
    for folder in folders:
        with suppress(OSError):
            _sync(folder)


@contextmanager
def _as_error(place: Path, *, option: str, error: type[VtwinError]) -> Iterator[None]:
    """Turn an OSError into one line."""
    try:
        yield
    except OSError as fault:
        why = os.strerror(fault.errno) if fault.errno else str(fault)
        where = ("", f" ({place})") if option else (f"{place}", "")
        raise error(
            f"{option or where[0]}: got {why}, expected a place that can be written{where[1]}"
        ) from fault
