"""A sweep in shares, one for each job of an array, and their tables put together."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Final, TypeVar

from traces import ConfigError
from traces.strict.arguments import TEXT, takes

Each = TypeVar("Each")

MOST_SHARDS: Final = 100_000
_FORM: Final = re.compile(r"(\d{1,6})/(\d{1,6})")
_EXPECTED: Final = f"expected I/N with I from 1 to N, and N at most {MOST_SHARDS:,} (2/8)"


@takes(text=TEXT)
def parse_shard(text: str) -> tuple[int, int]:
    """Return the number of a share, from 1, and of how many it is one: ``2/8``. Raises ConfigError."""
    found = _FORM.fullmatch(text.strip())
    number, of = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 1 <= number <= of <= MOST_SHARDS:
        raise ConfigError(f"--shard: got {text!r}, {_EXPECTED}")
    return number, of


def in_shard(runs: Sequence[Each], shard: tuple[int, int]) -> tuple[Each, ...]:
    """Return the share of the runs: every N-th, so that each share has of all workloads and settings."""
    number, of = shard
    return tuple(runs[number - 1 :: of])


def shard_table(grid: Path, shard: tuple[int, int] | None) -> Path:
    """Return the table's default place: in this folder, named after the grid, and after the share."""
    share = "" if shard is None else f".shard-{shard[0]}-of-{shard[1]}"
    return Path(f"{grid.stem}{share}.parquet")


def tables_of(names: Sequence[str]) -> tuple[Path, ...]:
    """Return the tables that names or patterns (``'shards/*.parquet'``) stand for. Raises ConfigError.

    A table whose job was cut short counts, too: its rows wait beside it, in ``.parts``.
    """
    found: dict[Path, None] = {}
    for name in names:
        place = Path(name)
        beside = sorted(place.parent.iterdir()) if place.parent.is_dir() else []
        tables = [each.with_suffix("") if each.suffix == ".parts" else each for each in beside]
        here = [each for each in tables if each.name == place.name or fnmatch(each.name, place.name)]
        if not here:
            raise ConfigError(
                f"--merge: got {name}, which is no table, expected tables of this grid's shards"
            )
        found.update(dict.fromkeys(here))
    return tuple(found)
