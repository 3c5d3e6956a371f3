"""What exists at an output path: nothing, a file that can be made again, a measured trace, a trace's files."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from traces.errors import ConfigError, TraceError
from traces.files.read import read_header
from traces.tables.paths import check_is_place, companion_file, stem_of

_IN_WORDS: Final = {"real": "measured", "replayed": "simulated", "generated": "drawn or converted"}


def note_replaced(stem: str | Path, *, overwrite: bool) -> str | None:
    """Return a line about the trace that one written to ``stem`` replaces, None where there is none.

    Raises ConfigError, unless ``overwrite``, for files that cannot be made again: a trace of a real server, a .yaml
    that is not a trace's header, a table without a header.
    """
    base = stem_of(stem)
    check_is_place(base)
    if base.is_dir() and any(base.glob("*.yaml")):
        raise ConfigError(
            f"--output: got {base}, a folder that has traces or settings in it, expected another name: commands that "
            f"take folders would not find {base}.csv"
        )
    header = companion_file(base, ".yaml")
    if not header.is_file():
        alone = [
            table for suffix in (".csv", ".parquet") if (table := companion_file(base, suffix)).is_file()
        ]
        return _refuse(alone[0], "a table without a header", overwrite=overwrite) if alone else None
    try:
        mode = read_header(header).mode
    except TraceError:
        return _refuse(header, "a file that is no trace's header", overwrite=overwrite)
    if mode == "real":
        return _refuse(header, "a measured trace", overwrite=overwrite)
    return f"replaces the {_IN_WORDS.get(mode or '', 'older')} trace {header}"


def refuse_input(stem: str | Path, read: Path) -> None:
    """Raise ConfigError where a trace written to ``stem`` would replace a file that the command reads, its settings."""
    header = companion_file(stem_of(stem), ".yaml")
    if header.resolve() == read.resolve():
        raise ConfigError(
            f"--output: {header} is the configuration that is simulated, expected another place (--overwrite does not "
            "replace it)"
        )


def refuse_name_of_trace(path: str | Path) -> None:
    """Raise ConfigError if a file that is not a trace would have the name of one of a trace's own files.

    A second table, or other events, beside a trace's header make the trace unreadable, or change what it says.
    """
    base = stem_of(path)
    header = companion_file(base, ".yaml")
    if base == Path(path) or not header.is_file():
        return
    try:
        read_header(header)
    except TraceError:
        return  # a .yaml of another kind
    raise ConfigError(
        f"--output: {path} has the name of the trace {base} ({header.name} is beside it) and would be taken for a part "
        f"of it, expected another name, as {companion_file(base, '_export' + _ending(Path(path), base))}"
    )


def _ending(path: Path, base: Path) -> str:
    return path.name.removeprefix(base.name)


def _refuse(file: Path, what: str, *, overwrite: bool) -> str:
    """Return a note that ``file`` is replaced, if that is allowed. Raises ConfigError otherwise."""
    if not overwrite:
        raise ConfigError(f"--output: {file} is {what}, expected another place, or --overwrite to replace it")
    return f"replaces {file}, {what}"
