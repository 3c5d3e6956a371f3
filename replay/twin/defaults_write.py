"""Writing one entry into a defaults file without disturbing the rest of it."""

from __future__ import annotations

import fcntl
import math
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from lazy_dataclasses import dataclass
from pathlib import Path

import yaml

from replay.twin.defaults import (
    COEFFICIENTS,
    SCHEMA_VERSION,
    USUALLY_ZERO,
    DefaultsEntry,
    Provenance,
    read_defaults,
    version_text,
)
from replay.twin.fitted.fitted_tiles import pairs_text
from traces import ConfigError, atomic_file
from traces.strict.yaml_nodes import read_text

_HISTORY_SHIFT = 4  # columns from an entry's dash to the dashes of its history
_HEADER = f"""\
# Coefficients on record (microseconds), by model, GPU, tensor parallelism and vLLM version.
schema_version: {SCHEMA_VERSION}
entries:
"""
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*")


def write_defaults_entry(path: str | Path, entry: DefaultsEntry) -> None:
    """Put ``entry`` into the defaults file at ``path``, creating the file if need be.

    An entry with the same key gives up its place and becomes the first item of the new one's ``history``;
    every other line of the file, comments included, stays as it is. Atomic, and safe against a second writer.
    Raises ConfigError when the file is not a defaults file.
    """
    path = Path(path)
    with _locked(path.parent):
        text = read_text(path, expected="a defaults file") if path.exists() else _HEADER
        with atomic_file(path, option="defaults") as temporary:
            temporary.write_text(_with_entry(text, entry, file=str(path)), encoding="utf-8")
            read_defaults(temporary)  # the new file must be readable before it replaces the old one


def render_entry(entry: DefaultsEntry, *, column: int = 2) -> list[str]:
    """Return an entry's lines as an item of a block list whose dash stands at ``column``."""
    lines = [
        f"model: {scalar(entry.model)}",
        f"gpu: {scalar(entry.gpu)}",
        f"tp: {entry.tp}",
        f"vllm_version: {quoted(version_text(entry.vllm_version))}",
        *([] if entry.latency_model == "blackbox" else [f"latency_model: {entry.latency_model}"]),
        f"coefficients: {flow(_numbers(entry))}",
        *([] if entry.blackbox is None else [f"blackbox: {flow(_plain_numbers(entry.blackbox))}"]),
        *([f"tiles: {pairs_text(entry.tiles)}"] if entry.tiles else []),
        *([f"num_gpu_blocks: {entry.num_gpu_blocks}"] if entry.num_gpu_blocks is not None else []),
        *([f"block_size: {entry.block_size}"] if entry.block_size is not None else []),
        "provenance:",
        *(f"  {line}" for line in _provenance_lines(entry.provenance)),
    ]
    return [" " * column + ("- " if i == 0 else "  ") + line for i, line in enumerate(lines)]


def _numbers(entry: DefaultsEntry) -> dict[str, str]:
    """Return the coefficients as YAML: blackbox's to 1e-6, the extended model's own, which may be tiny, as they are."""
    own = {
        name: f"{value.normalize():f}"
        for name, value in entry.coefficients.items()
        if name not in COEFFICIENTS
    }
    return _plain_numbers(entry.coefficients) | own


def _plain_numbers(coefficients: Mapping[str, Decimal]) -> dict[str, str]:
    """Return blackbox's coefficients as YAML, less what is usually 0 and is."""
    given = {name: value for name, value in coefficients.items() if value or name not in USUALLY_ZERO}
    return {name: number(given[name]) for name in COEFFICIENTS if name in given}


def _provenance_lines(where: Provenance) -> list[str]:
    """Return where an entry comes from, a line per key that is given."""
    is_async = None if where.async_scheduling is None else str(where.async_scheduling).lower()
    said = {
        "source": scalar(where.source),
        "tool_version": None if where.tool_version is None else quoted(where.tool_version),
        "date": quoted(where.date),
        "identification": where.identification,
        "async_scheduling": is_async,
        "system_fingerprint": None if where.system_fingerprint is None else quoted(where.system_fingerprint),
        "traces": _list(where.traces),
        "digests": _list(where.digests),
        **{
            key: flow({k: f"{v:.6g}" for k, v in values.items()}) if values else None
            for key, values in (("low", where.low), ("high", where.high), ("errors", where.errors))
        },
        "note": None if where.note is None else scalar(where.note),
    }
    return [f"{key}: {value}" for key, value in said.items() if value is not None]


def _list(texts: tuple[str, ...]) -> str | None:
    return f"[{', '.join(map(scalar, texts))}]" if texts else None


def scalar(text: str) -> str:
    """Return text as a YAML scalar, quoted unless it is plainly a word."""
    plain = _PLAIN.fullmatch(text) and yaml.safe_load(text) == text
    return text if plain else quoted(text)


def quoted(text: str) -> str:
    """Return text as a YAML scalar in double quotes, on one line."""
    written: str = yaml.safe_dump(text, default_style='"', allow_unicode=True, width=math.inf)
    return written.strip()


def number(value: Decimal) -> str:
    """Return a decimal to 1e-6, without an exponent and without trailing zeros."""
    text = f"{value.quantize(Decimal('0.000001')):f}".rstrip("0").rstrip(".")
    return text or "0"


def flow(values: Mapping[str, str]) -> str:
    """Return a mapping in YAML's flow style; the values are YAML already."""
    return "{" + ", ".join(f"{scalar(key)}: {value}" for key, value in values.items()) + "}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """An entry's place in the text: lines [first, last), its history's lines [history, last)."""

    key: tuple[str, str, str, str]
    column: int
    first: int
    last: int
    history: int | None
    history_column: int


def _with_entry(text: str, entry: DefaultsEntry, *, file: str) -> str:
    lines = text.splitlines()
    places, end = _places(text, lines, file=file)
    model, gpu, tp, version = entry.key
    old = next((p for p in places if p.key == (model, gpu, str(tp), version)), None)
    column = (old or places[0]).column if places else 2
    new = render_entry(entry, column=column)
    if old is None:
        return "\n".join([*lines[:end], *new, *lines[end:]]) + "\n"
    new += [
        " " * (column + 2) + "history:  # earlier entries of this server, newest first",
        *_as_history(lines, old),
    ]
    return "\n".join([*lines[: old.first], *new, *lines[old.last :]]) + "\n"


def _as_history(lines: list[str], old: _Place) -> list[str]:
    """Return the old entry's own lines, then those of its history, at the indentation of history items."""
    column = old.column + _HISTORY_SHIFT
    own = lines[old.first : old.history if old.history is not None else old.last]
    shifted = [" " * _HISTORY_SHIFT + line if line.strip() else line for line in own]
    if old.history is None:
        return shifted
    earlier = lines[old.history + 1 : old.last]
    by = column - old.history_column
    return shifted + [
        (" " * by + line if by > 0 else line[-by:]) if line.strip() else line for line in earlier
    ]


def _places(text: str, lines: list[str], *, file: str) -> tuple[list[_Place], int]:
    """Return where each entry stands, and the line before which a new one goes."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    pairs = root.value if isinstance(root, yaml.MappingNode) else []
    found = next(((key, value) for key, value in pairs if key.value == "entries"), None)
    if found is None:
        raise ConfigError(f"entries: got nothing, expected a list of entries ({file})")
    key, node = found
    if not isinstance(node, yaml.SequenceNode):  # `entries:` with nothing below it
        return [], key.start_mark.line + 1
    if node.flow_style:
        raise ConfigError(
            f"entries: got a list in brackets, expected one entry per dash ({file}:{key.start_mark.line + 1})"
        )
    starts = [item.start_mark.line for item in node.value] + [node.end_mark.line]
    places = [
        _place(item, lines, last=_end(lines, first=first, limit=limit, column=item.start_mark.column))
        for item, first, limit in zip(node.value, starts, starts[1:], strict=False)
    ]
    return places, places[-1].last


def _place(item: yaml.Node, lines: list[str], *, last: int) -> _Place:
    pairs = item.value if isinstance(item, yaml.MappingNode) else []
    values = {key.value: value.value for key, value in pairs}
    history = next(
        (key.start_mark.line for key, _ in pairs if key.value == "history" and not _in_brackets(item)), None
    )
    first = item.start_mark.line
    return _Place(
        key=(
            str(values.get("model")).lower(),
            str(values.get("gpu")).lower(),
            str(values.get("tp")),
            version_text(str(values.get("vllm_version"))),
        ),
        column=len(lines[first]) - len(lines[first].lstrip()),
        first=first,
        last=last,
        history=history,
        history_column=next(
            (v[0].start_mark.column - 2 for k, v in values.items() if k == "history" and v), 0
        ),
    )


def _in_brackets(node: yaml.Node) -> bool:
    return isinstance(node, yaml.CollectionNode) and bool(node.flow_style)


def _end(lines: list[str], *, first: int, limit: int, column: int) -> int:
    """Return the line after an entry: blank lines and comments that stand further left are not its own."""
    last = min(limit, len(lines))
    while last > first + 1:
        line = lines[last - 1]
        indent = len(line) - len(line.lstrip())
        if line.strip() and not (line.lstrip().startswith("#") and indent < column):
            break
        last -= 1
    return last


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the folder's advisory lock: two calibrations that finish together write one after the other."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise ConfigError(
            f"defaults: got {error.strerror}, expected a folder to write in ({folder})"
        ) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
