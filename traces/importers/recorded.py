"""The one door for files of requests: a trace, or a file of another tool in a format that its content shows.

Every command reads through it. What a reader should know of a file goes along in the trace's header (``source``), and
``reading_notes`` are those lines; a file of which the load is not known is refused by ``check_load`` where a load is
asked for.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from traces.errors import TraceError
from traces.importers import PublicFormat, read_public
from traces.importers.reading_options import ReadingOptions, SeveralPartsError, split_name
from traces.importers.recognise import recognised
from traces.strict.arguments import PATH, takes
from traces.tables.paths import companion_file, stem_of

if TYPE_CHECKING:
    from traces.tables.problems import Problem
    from traces.trace import Trace

_NO_OPTIONS = ReadingOptions()


@takes(path=PATH)
def read_recorded(path: Path, *, events: bool = False, options: ReadingOptions = _NO_OPTIONS) -> Trace:
    """Return the trace at ``path``, converted if it is a file of another tool in a recognisable format.

    ``path``: may say behind a ``#`` how the file is to be read (``report.json#2``); ``options`` come before that.
    ``events``: also the times of tokens, where a trace has them. Raises TraceError, which for another file names the
    command that converts, and ConfigError for options that do not fit the file.
    """
    path, said = split_name(path)
    options = options.over(said)
    source = recognised(path)
    if source is not None:
        return read_public(source, path, options=options)
    if options.given():
        return read_public("tracev2", path, options=options)  # which has none: names the formats that do
    from traces.files.read import read_trace

    with telling_formats(path):
        return read_trace(path, events=events)


def format_of(path: Path) -> PublicFormat | None:
    """Return the public format of the file that ``path`` names, options left aside; None for a trace."""
    return recognised(split_name(path)[0])


def file_at(path: Path) -> Path:
    """Return the file that ``path`` names, without what it says behind its ``#``."""
    return split_name(path)[0]


def parts_at(path: Path, *, options: ReadingOptions = _NO_OPTIONS) -> list[Path]:
    """Return a name for each run in a file that holds several, the path itself for any other.

    Raises what reading the file raises.
    """
    if format_of(path) is None:
        return [path]
    try:
        read_recorded(path, options=options)
    except SeveralPartsError as several:
        file, said = split_name(path)
        more = [f"{name}={value}" for name, value in said.given().items()]
        return [
            file.with_name(f"{file.name}#{','.join([f'part={place}', *more])}")
            for place in range(1, several.number + 1)
        ]
    return [path]


class CheckedTrace(NamedTuple):
    """All faults of a trace, and what to know of it, a line each."""

    problems: list[Problem]
    notes: tuple[str, ...] = ()

    def document(self) -> dict[str, object]:
        """Return what ``vtwin trace check --json`` prints."""
        return {
            "schema_version": 1,
            "num_problems": len(self.problems),
            "problems": [
                {"file": each.file, "row": each.row, "column": each.column, "message": each.message}
                for each in self.problems
            ],
            "notes": list(self.notes),
        }


def check_recorded(path: Path, *, options: ReadingOptions = _NO_OPTIONS) -> CheckedTrace:
    """Return all faults of a trace, or of another tool's file; none of a public file that can be converted.

    Raises TraceError if there is no trace to check, and for a public file its first fault.
    """
    if format_of(path) is not None or options.given():
        return CheckedTrace([], reading_notes(read_recorded(path, options=options)))
    from traces.files.check import check_trace

    path = file_at(path)
    with telling_formats(path):
        return CheckedTrace(check_trace(path))


def reading_notes(trace: Trace) -> tuple[str, ...]:
    """Return what a reader of an imported trace should know, a line each; nothing for one of vtwin's own."""
    source = trace.header.source
    return () if source is None else source.lines()


def check_load(trace: Trace, path: Path, *, asked: str) -> None:
    """Raise TraceError where a file does not show the load that was sent, so that ``asked`` has no answer."""
    source = trace.header.source
    if source is not None and source.load_unknown is not None:
        raise TraceError(
            f"{path}: {source.load_unknown}; {asked} needs the load. `vtwin trace info` and `compare` show the "
            "latencies, `--like` with `--rate` draws the lengths under a load of your own"
        )


@contextmanager
def telling_formats(path: Path) -> Iterator[None]:
    """Make an error on reading ``path`` as a trace name the command that converts, if it is a file of another kind.

    Raises TraceError.
    """
    try:
        yield
    except TraceError as error:
        if path.suffix not in (".csv", ".json", ".jsonl", ".gz") or not path.is_file() or has_header(path):
            raise
        if (damage := _damage(path)) is not None:
            raise TraceError(f"{path}: {damage}, expected a trace or a file of a known format") from error
        raise TraceError(
            f"{path}: got a file that is neither a trace nor of a known format, expected one of them; "
            f"`vtwin trace convert {path} --from FORMAT --output STEM` reads a format that you name"
        ) from error


def _damage(path: Path) -> str | None:
    """Return why a file can be of no format: it is empty, or its JSON is cut or broken; None: that is not it."""
    if path.stat().st_size == 0:
        return "got an empty file"
    text = path.read_bytes() if path.suffix == ".json" else b""
    if not text.lstrip().startswith((b"{", b"[")):
        return None
    try:
        json.JSONDecoder().raw_decode(text.decode().lstrip())  # what follows it may be further lines of JSON
    except (ValueError, RecursionError) as error:
        return f"got no whole JSON ({error})"
    return None


def has_header(path: Path) -> bool:
    """Return whether there is a trace's header beside a table; a report of another tool is none."""
    header = companion_file(stem_of(path), ".yaml")
    return header.is_file() and recognised(header) is None
