"""Random cases of models whose layers do not all cache alike: a drawn case, given KV cache groups."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

from tests.conformance.draw import Case

Group = dict[str, Any]


def sliding(rng: Random, size: int) -> Group:
    """Return a window that is short, near the ends of blocks, or long."""
    blocks = rng.choice([1, 2, 3, 4, 6, 12])
    return {"kind": "sliding", "window": max(2, blocks * size + rng.choice([-1, 0, 0, 1, 2, size // 2]))}


def chunked(rng: Random, size: int) -> Group:
    """Return chunks of whole blocks, as vLLM's kernels want them."""
    return {"kind": "chunked", "chunk": size * rng.choice([1, 2, 3, 5, 8, 16])}


def several(group: Group, rng: Random) -> list[Group]:
    """Return one to five groups alike."""
    return [group] * rng.choice([1, 1, 2, 3, 5])


def windows_beside_full(rng: Random, size: int) -> list[Group]:
    groups = [{"kind": "full"}, *several(sliding(rng, size), rng)]
    return groups if rng.random() < 0.5 else groups[::-1]


def two_windows(rng: Random, size: int) -> list[Group]:
    groups = [{"kind": "full"}, *several(sliding(rng, size), rng), sliding(rng, size)]
    rng.shuffle(groups)
    return groups


def windows_alone(rng: Random, size: int) -> list[Group]:
    groups = several(sliding(rng, size), rng)
    return groups if rng.random() < 0.7 else [*groups, sliding(rng, size)]


def chunks_beside_full(rng: Random, size: int) -> list[Group]:
    return [{"kind": "full"}, *several(chunked(rng, size), rng)][:: rng.choice([1, -1])]


def chunks_alone(rng: Random, size: int) -> list[Group]:
    return several(chunked(rng, size), rng)


def chunks_and_windows(rng: Random, size: int) -> list[Group]:
    groups = [{"kind": "full"}, chunked(rng, size), sliding(rng, size)]
    rng.shuffle(groups)
    return groups[: rng.choice([2, 3])]


def states_beside_full(rng: Random, _size: int) -> list[Group]:
    groups = [{"kind": "full"}, *several({"kind": "state"}, rng)]
    return groups if rng.random() < 0.5 else groups[::-1]


def states_and_windows(rng: Random, size: int) -> list[Group]:
    return [{"kind": "full"}, *several({"kind": "state"}, rng), sliding(rng, size)]


def states_alone(rng: Random, _size: int) -> list[Group]:
    return several({"kind": "state"}, rng)


def unlike_sizes(rng: Random, size: int) -> list[Group]:
    """Return a full group and windows whose blocks hold unlike numbers of tokens."""
    times = rng.choice([2, 3, 4])
    large, small = {"block_size": size * times}, {"block_size": size}
    first, second = (large, small) if rng.random() < 0.5 else (small, large)
    window = sliding(rng, rng.choice([size, size * times]))
    groups = [{"kind": "full"} | first, *several(window | second, rng)]
    return groups if rng.random() < 0.5 else groups[::-1]


DRAWS: dict[str, tuple[int, Callable[[Random, int], list[Group]]]] = {
    "windows beside full": (8, windows_beside_full),
    "two windows": (4, two_windows),
    "windows alone": (4, windows_alone),
    "chunks beside full": (5, chunks_beside_full),
    "chunks alone": (2, chunks_alone),
    "chunks and windows": (3, chunks_and_windows),
    "states beside full": (6, states_beside_full),
    "states and windows": (2, states_and_windows),
    "states alone": (2, states_alone),
    "unlike sizes": (4, unlike_sizes),
}
"""What groups there are, and in how many of 40 cases."""


def retention(groups: list[Group], block_size: int, seed: int, index: int) -> int | None:
    """Return the distance of kept windows and states: all, none between prompts' ends, or some blocks."""
    rng = Random(f"{seed} {index} retention")
    distance: int | None = rng.choice([None, None, 0, 0, 0, 1, 2, 3, 7])
    if distance and (
        all(group["kind"] in ("full", "chunked") for group in groups)
        or any(group.get("mode") == "none" for group in groups)
    ):
        return 0
    return distance and distance * math.lcm(*(group.get("block_size") or block_size for group in groups))


def with_groups(case: Case, seed: int, index: int) -> Case:
    """Return the case with groups, its blocks as many times more; states are of the mode that its caching asks for."""
    number, position = divmod(index, sum(share for share, _ in DRAWS.values()))
    kinds = [kind for kind, (share, _) in DRAWS.items() for _ in range(share)]
    Random(f"{seed} {number} groups").shuffle(kinds)
    kind, rng = kinds[position], Random(f"{seed} {index} groups")
    settings = dict(case.settings) | {"pipeline_parallel_size": 1}
    groups = DRAWS[kind][1](rng, settings["block_size"])
    for group in groups:
        if group["kind"] == "state":
            group["mode"] = "align" if settings["enable_prefix_caching"] else "none"
    settings["groups"] = groups
    settings["num_gpu_blocks"] = 1 + (settings["num_gpu_blocks"] - 1) * len(groups)
    if len({group.get("block_size", 0) for group in groups}) > 1:
        settings["num_gpu_blocks"] = 1 + (settings["num_gpu_blocks"] - 1) * rng.choice([1, 2]) // 2 + 2
    settings["prefix_cache_retention_interval"] = retention(groups, settings["block_size"], seed, index)
    traits = case.traits | {"stages": "1"}
    return replace(case, name=f"groups_{seed}_{index:04d}", traits=traits, settings=settings)
