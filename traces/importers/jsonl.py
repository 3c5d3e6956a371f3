"""JSON lines, plain or gzip'ed, to columns; every error names file and line."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from lazy_dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from traces.errors import TraceError
from traces.strict.json_text import parser_of, read_bytes

Column = list[object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """The allowed values of a key: in words, and as a test."""

    words: str
    fits: Callable[[object], bool]


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_integers(value: object) -> bool:
    return isinstance(value, list) and set(map(type, value)) <= {int}


COUNT: Final = Kind(words="an integer >= 0", fits=_is_count)
NUMBER: Final = Kind(words="a number", fits=_is_number)
TEXT: Final = Kind(words="text", fits=lambda value: isinstance(value, str))
INTEGERS: Final = Kind(words="a list of integers", fits=_is_integers)


def read_jsonl(
    path: Path, kinds: Mapping[str, Kind], *, optional: Mapping[str, Kind] = MappingProxyType({})
) -> dict[str, Column]:
    """Return one column per key of ``kinds`` and ``optional``, an entry per line; other keys and blank lines are left.

    A line may lack a key of ``optional``, or have null there: None. Raises TraceError if the file cannot be read, holds
    no row, or a line is not a JSON object, lacks a key of ``kinds`` or has a wrong type.
    """
    columns: dict[str, Column] = {key: [] for key in (*kinds, *optional)}
    optional = {key: kind for key, kind in optional.items() if key not in kinds}
    name = path.name
    tests = [(key, kind.fits, columns[key].append) for key, kind in kinds.items()]
    content = read_bytes(path, expected="a readable file")
    parse = parser_of(content)
    for number, line in enumerate(content.splitlines(), start=1):
        if not line.strip():
            continue
        row = _row(line, parse, file=name, number=number)
        for key, fits, take in tests:
            if key not in row or not fits(row[key]):
                raise _misfit(row, key, kind=kinds[key], where=f"{name}:{number}")
            take(row[key])
        for key, kind in optional.items():
            value = row.get(key)
            if value is not None and not kind.fits(value):
                raise _misfit(row, key, kind=kind, where=f"{name}:{number}")
            columns[key].append(value)
    if not next(iter(columns.values())):
        raise TraceError(f"{path.name}: got no rows, expected one JSON object a line ({path})")
    return columns


def _row(line: bytes, parse: Callable[[bytes], object], *, file: str, number: int) -> dict[str, object]:
    """Return a line's object. Raises TraceError; the line's place is formatted only for that."""
    try:
        row = parse(line)
        if isinstance(row, dict):
            return row
    except json.JSONDecodeError as error:
        raise TraceError(
            f"{file}:{number}: {error.msg} at column {error.colno}, expected one JSON object"
        ) from error
    except ValueError as error:
        raise TraceError(f"{file}:{number}: got {error}, expected one JSON object") from error
    raise TraceError(f"{file}:{number}: got {type(row).__name__}, expected one JSON object")


def _misfit(row: Mapping[str, object], key: str, *, kind: Kind, where: str) -> TraceError:
    got = repr(row[key]) if key in row else "nothing"
    return TraceError(f"{where}: {key}: got {got}, expected {kind.words}")
