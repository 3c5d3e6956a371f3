"""JSON lines, plain or gzip'ed, to columns; every error names file and line."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from itertools import chain
from lazy_dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final, cast

from traces.errors import TraceError
from traces.strict.json_text import parser_of, read_bytes

Column = list[object]
LINES_AT_ONCE: Final = 1 << 16
"""Lines whose objects are in memory together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """The allowed values of a key: in words, and as a test whether all of some values are."""

    words: str
    fits: Callable[[Column], bool]


def _are_counts(values: Column) -> bool:
    if not set(map(type, values)) <= {int}:
        return False
    counts = cast("list[int]", values)
    return not counts or (min(counts) >= 0 and max(counts) < 2**63)


def _are_numbers(values: Column) -> bool:
    return set(map(type, values)) <= {int, float} and all(map(math.isfinite, cast("list[float]", values)))


def _are_lists_of_integers(values: Column) -> bool:
    if not set(map(type, values)) <= {list}:
        return False
    return set(map(type, chain.from_iterable(cast("list[list[object]]", values)))) <= {int}


COUNT: Final = Kind(words="an integer >= 0", fits=_are_counts)
NUMBER: Final = Kind(words="a number", fits=_are_numbers)
TEXT: Final = Kind(words="text", fits=lambda values: set(map(type, values)) <= {str})
INTEGERS: Final = Kind(words="a list of integers", fits=_are_lists_of_integers)


def read_jsonl(
    path: Path, kinds: Mapping[str, Kind], *, optional: Mapping[str, Kind] = MappingProxyType({})
) -> dict[str, Column]:
    """Return one column per key of ``kinds`` and ``optional``, an entry per line; other keys and blank lines are left.

    A line may lack a key of ``optional``, or have null there: None. Raises TraceError if the file cannot be read, holds
    no row, or a line is not a JSON object, lacks a key of ``kinds`` or has a wrong type.
    """
    columns: dict[str, Column] = {key: [] for key in (*kinds, *optional)}
    optional = {key: kind for key, kind in optional.items() if key not in kinds}
    content = read_bytes(path, expected="a readable file")
    parse, lines = parser_of(content), content.splitlines()
    for first in range(0, len(lines), LINES_AT_ONCE):
        some = lines[first : first + LINES_AT_ONCE]
        found = _columns_of(some, parse, kinds, optional)
        if found is None:
            raise _first_fault(some, parse, kinds, optional, file=path.name, before=first)
        for key, values in found.items():
            columns[key] += values
    if not next(iter(columns.values())):
        raise TraceError(f"{path.name}: got no rows, expected one JSON object a line ({path})")
    return columns


def _columns_of(
    lines: list[bytes],
    parse: Callable[[bytes], object],
    kinds: Mapping[str, Kind],
    optional: Mapping[str, Kind],
) -> dict[str, Column] | None:
    """Return the values of each key, all lines tested at once; None where any is wrong."""
    try:
        rows = [parse(line) for line in lines if line.strip()]
    except ValueError:
        return None
    if not set(map(type, rows)) <= {dict}:
        return None
    columns = {
        key: [row.get(key) for row in cast("list[dict[str, object]]", rows)] for key in (*kinds, *optional)
    }
    fit = all(kind.fits(columns[key]) for key, kind in kinds.items()) and all(
        kind.fits([value for value in columns[key] if value is not None]) for key, kind in optional.items()
    )
    return columns if fit else None


def _first_fault(
    lines: list[bytes],
    parse: Callable[[bytes], object],
    kinds: Mapping[str, Kind],
    optional: Mapping[str, Kind],
    *,
    file: str,
    before: int,
) -> TraceError:
    """Return what is wrong with the first line that is wrong; ``before``: lines of the file before these."""
    at = next(at for at, line in enumerate(lines) if _columns_of([line], parse, kinds, optional) is None)
    where = f"{file}:{before + at + 1}"
    try:
        row = parse(lines[at])
    except json.JSONDecodeError as error:
        return TraceError(f"{where}: {error.msg} at column {error.colno}, expected one JSON object")
    except ValueError as error:
        return TraceError(f"{where}: got {error}, expected one JSON object")
    if not isinstance(row, dict):
        return TraceError(f"{where}: got {type(row).__name__}, expected one JSON object")
    wanted = {**kinds, **{key: kind for key, kind in optional.items() if row.get(key) is not None}}
    key = next(key for key, kind in wanted.items() if not kind.fits([row.get(key)]))
    got = repr(row[key]) if key in row else "nothing"
    return TraceError(f"{where}: {key}: got {got}, expected {wanted[key].words}")
