"""Strict reading of YAML sections: a table of keys gives a section's keys and their meanings.

The same tables make the reference page. A reader takes a YAML value and returns a typed one, or raises
InvalidWorkload with "got X, expected Y"; each enclosing level adds its key.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from lazy_dataclasses import dataclass
from typing import Any

from traces.strict.yaml_nodes import nearest
from traces.workload.basics import InvalidWorkload

LARGEST = 1e15
"""The largest quantity of a specification: 31 years in µs."""

Reader = Callable[[Any], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class SectionKey:
    """One key of a section: how its value is read, and its text on the reference page."""

    read: Reader
    kind: str
    meaning: str
    required: bool = False
    supported: bool = True


Section = Mapping[str, SectionKey]


@contextmanager
def within(key: str) -> Iterator[None]:
    """Prefix errors raised inside with ``key``."""
    try:
        yield
    except InvalidWorkload as error:
        raise error.within(key) from error.__cause__


def read_section(value: object, section: Section) -> dict[str, Any]:
    """Return the section's values by key, each read; keys that are absent or null are absent.

    Raises InvalidWorkload for a value that is not a mapping, an unknown key (naming the nearest), a missing required
    one.
    """
    if not isinstance(value, Mapping):
        raise InvalidWorkload(f"got {shown(value)}, expected keys {', '.join(section)}")
    for name in value:
        if name not in section:
            close = nearest(str(name), list(section))
            hint = f"did you mean {close}?" if close else f"expected one of {', '.join(section)}"
            raise InvalidWorkload(f"got an unknown key, {hint}").within(str(name))
    given = {name: item for name, item in value.items() if item is not None}
    for name, key in section.items():
        if key.required and name not in given:
            raise InvalidWorkload(f"{name}: got none, expected {key.kind}")
    values = {}
    for name, item in given.items():
        with within(name):
            values[name] = section[name].read(item)
    return values


def key(read: Reader, kind: str, meaning: str, *, required: bool = False) -> SectionKey:
    """Return a key that is understood."""
    return SectionKey(read=read, kind=kind, meaning=meaning, required=required)


def unsupported(meaning: str) -> SectionKey:
    """Return a key of the format that vtwin does not support yet: it is refused, never ignored."""

    def refuse(value: object) -> None:
        raise InvalidWorkload(
            f"got {shown(value)}, expected the key to be absent: not supported yet ({meaning})"
        )

    return SectionKey(read=refuse, kind="not supported yet", meaning=meaning, supported=False)


def shown(value: object) -> str:
    """Return the value as an error message shows it: short, on one line."""
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    return f"{value!r:.60}"


def text(value: object) -> str:
    """Text, or a number in place of a name."""
    if isinstance(value, str) or (isinstance(value, int | float) and not isinstance(value, bool)):
        return str(value)
    raise InvalidWorkload(f"got {shown(value)}, expected text")


def boolean(value: object) -> bool:
    """Return true or false."""
    if isinstance(value, bool):
        return value
    raise InvalidWorkload(f"got {shown(value)}, expected true or false")


def number(value: object) -> float:
    """Return a number."""
    if (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and (value == math.inf or abs(value) <= LARGEST)
    ):
        return float(value)
    raise InvalidWorkload(f"got {shown(value)}, expected a number")


def integer(value: object) -> int:
    """Return a whole number; 512.0 is one."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    try:
        as_number = number(value)
    except InvalidWorkload:
        as_number = math.nan
    if not as_number.is_integer():
        raise InvalidWorkload(f"got {shown(value)}, expected an integer")
    return int(as_number)


def not_negative(value: object) -> int:
    """Return a whole number >= 0."""
    whole = integer(value)
    if whole < 0:
        raise InvalidWorkload(f"got {whole}, expected an integer >= 0")
    return whole


def one_of(*choices: str) -> Reader:
    """Return a reader of text that is one of ``choices``."""

    def read(value: object) -> str:
        if value in choices:
            return str(value)
        raise InvalidWorkload(f"got {shown(value)}, expected one of {', '.join(choices)}")

    return read


def list_of(read: Reader) -> Reader:
    """Return a reader of a list whose items ``read`` takes; an item's errors name its number."""

    def read_all(value: object) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise InvalidWorkload(f"got {shown(value)}, expected a list")
        items = []
        for i, item in enumerate(value):
            try:
                items.append(read(item))
            except InvalidWorkload as error:
                raise error.within(f"[{i}]") from error.__cause__
        return tuple(items)

    return read_all
