"""Random cases whose prefix hits may end inside a block: a drawn case with KV cache groups, given a prefix_match_unit.

Most have states beside full groups, the prefix cache on, and prompts that begin alike: there are hits inside blocks.
Windows beside states ask for whole blocks, and without states the unit says only what is hashed.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from tests.conformance.draw import Case, Row, length_of

UNITS = {
    1: (1,),
    2: (1, 2),
    3: (1,),
    4: (1, 2, 4),
    7: (1,),
    8: (1, 2, 4, 4),
    16: (2, 4, 8, 16),
    32: (4, 8, 16),
    64: (8, 16, 32),
}
"""By tokens per block: what a unit can be."""

LEAST_BLOCK = 2
"""Tokens of a block that a hit can end inside."""


def with_units(case: Case, seed: int, index: int) -> Case:
    """Return the case with a unit, in nine of ten cases with states beside full groups or alone."""
    rng = Random(f"{seed} {index} units")
    settings: dict[str, Any] = dict(case.settings)
    size = settings["block_size"] if settings["block_size"] >= LEAST_BLOCK else 8
    changes: dict[str, Any] = {"block_size": size, "prefix_match_unit": rng.choice(UNITS[size])}
    if rng.random() < 9 / 10:
        changes |= {"enable_prefix_caching": True, "groups": groups_with_states(rng)}
        usable = (settings["num_gpu_blocks"] - 1) // len(settings["groups"])
        changes["num_gpu_blocks"] = 1 + usable * len(changes["groups"])
        interval = rng.choice([None, None, 0, 0, size, 3 * size])
        changes["prefix_cache_retention_interval"] = interval
    elif len(settings["groups"]) == 1 or not divides_blocks(
        changes["prefix_match_unit"], settings["groups"], size
    ):
        changes["prefix_match_unit"] = None
    elif settings["prefix_cache_retention_interval"]:
        changes["prefix_cache_retention_interval"] = 0
    rows = let_begin_alike(case.rows, rng) if case.traits["sharing"] == "nothing" else case.rows
    return replace(case, name=case.name.replace("groups", "units"), settings=settings | changes, rows=rows)


def divides_blocks(unit: int, groups: list[dict[str, Any]], size: int) -> bool:
    """Return whether all groups' blocks are whole units."""
    return all((group.get("block_size") or size) % unit == 0 for group in groups)


def groups_with_states(rng: Random) -> list[dict[str, Any]]:
    """Return one or two full groups and one to three of states, in some order; in one case of ten states alone."""
    states = [{"kind": "state", "mode": "align"}] * rng.choice([1, 1, 2, 3])
    full = [{"kind": "full"}] * rng.choice([1, 1, 1, 2])
    if rng.random() < 1 / 10:
        return [*states, states[0]]
    groups = [*full, *states]
    rng.shuffle(groups)
    return groups


def let_begin_alike(rows: list[Row], rng: Random) -> list[Row]:
    """Return the requests with prompts that share a few prefixes, most of them as long as some prompt was."""
    lengths = [max(1, length_of(rng.choice(rows)) - rng.randint(0, 3)) for _ in range(rng.randint(1, 3))]
    alike = []
    for row in rows:
        group = rng.randrange(len(lengths))
        shared = min(lengths[group], length_of(row))
        alike.append(
            row
            | {"prefix_group": group, "prefix_len": shared if rng.random() < 0.8 else rng.randint(0, shared)}
        )
    return alike
