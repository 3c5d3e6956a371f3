"""How a file of another tool is to be read, where it does not say so itself: ``report.json#2``, ``trace.jsonl#1024``.

Every place that takes a trace takes these options behind a ``#`` in the file's name, so that each command has them for
each of its files: ``report.json#part=2``, ``trace.jsonl#block_size=1024,time_unit=s``. A bare number is the part.
"""

from __future__ import annotations

from lazy_dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Final, Literal, get_args

from traces.errors import ConfigError
from traces.strict.limits import MOST_TOKENS

TimeUnit = Literal["s", "ms", "us"]
TIME_UNITS: Final = get_args(TimeUnit)
US_PER: Final[dict[str, int]] = {"s": 1_000_000, "ms": 1_000, "us": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingOptions:
    """What the user says of a file. None: as the file shows, or as its format has it.

    ``part``: which of several runs in it, from 1. ``block_size``: tokens that one of its block hashes stands for.
    ``time_unit``: of its times.
    """

    part: int | None = None
    block_size: int | None = None
    time_unit: TimeUnit | None = None

    def given(self) -> dict[str, object]:
        """Return the options that were given, by name."""
        named = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: value for name, value in named.items() if value is not None}

    def over(self, other: ReadingOptions) -> ReadingOptions:
        """Return ``other`` with what is given here in its place."""
        return replace(other, **self.given())  # type: ignore[arg-type]  # values of its own fields

    def option(self, name: str) -> str:
        """Return an option as a command line has it."""
        return f"--{name.replace('_', '-')} {getattr(self, name)}"


def split_name(path: Path) -> tuple[Path, ReadingOptions]:
    """Return the file that a name means, and what it says behind its ``#``; a file of just this name is itself.

    Raises ConfigError for an option that is not known or has no such value.
    """
    name, hash_sign, said = path.name.rpartition("#")
    if not hash_sign or not name or not said or path.exists() or not path.with_name(name).is_file():
        return path, ReadingOptions()
    given: dict[str, object] = {}
    for each in said.split(","):
        key, equals, value = each.partition("=")
        if not equals:
            key, value = "part", key
        key = key.replace("-", "_")
        given[key] = _value(key, value, shown=str(path))
    return path.with_name(name), ReadingOptions(**given)  # type: ignore[arg-type]  # each of its kind


def _value(key: str, value: str, *, shown: str) -> object:
    """Return one option's value. Raises ConfigError."""
    if key == "time_unit":
        if value not in TIME_UNITS:
            raise ConfigError(f"{shown}: time_unit: got {value!r}, expected one of {', '.join(TIME_UNITS)}")
        return value
    if key not in ("part", "block_size"):
        raise ConfigError(
            f"{shown}: got {key!r} behind #, expected part=N, block_size=N or time_unit=s|ms|us"
        )
    if not value.isascii() or not value.isdigit() or not 1 <= int(value[:12]) <= MOST_TOKENS:
        raise ConfigError(f"{shown}: {key}: got {value!r}, expected an integer >= 1")
    return int(value)


def number_of_part(part: int | None, names: list[str], *, what: str, path: Path) -> int:
    """Return which of several runs in a file is meant, from 0: the only one, or the ``part``-th.

    ``names``: of each, in a few words. Raises ConfigError that names all and how to say one, for a part that does not
    exist and where several are there and none is named.
    """
    number = len(names)
    if part is not None and not 1 <= part <= number:
        raise ConfigError(f"{path}: part: got {part}, expected 1 to {number}")
    if part is None and number > 1:
        shown = ", ".join(
            f"{path.name}#{place} ({name})" for place, name in enumerate(names[:_SHOWN], start=1)
        )
        more = f" and {number - _SHOWN} more" if number > _SHOWN else ""
        raise SeveralPartsError(
            f"{path}: got {number} {what}, expected the name of one: {shown}{more}; "
            "or `vtwin trace convert` with --part N",
            number=number,
        )
    return (part or 1) - 1


_SHOWN: Final = 6
"""Parts that a message names."""


class SeveralPartsError(ConfigError):
    """A file holds several runs, and none was named. ``number``: how many."""

    def __init__(self, message: str, *, number: int) -> None:
        super().__init__(message)
        self.number = number
