"""Random cases of KV offloading to host memory: a drawn case, given a tier and two links."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from tests.conformance.draw import Case, blocks_of

TIERS = {"a few blocks": 10, "what one holds": 10, "a share of all": 12, "all": 8}
"""How large the tier is, and in how many of 40 cases."""

LINKS = {"no time": 5, "far less than a step": 12, "about a step": 12, "many steps": 7, "half-way": 4}
"""How long a block takes, and in how many of 40 cases; each direction by itself."""

THRESHOLDS = {0: 28, 1: 2, 2: 7, 3: 3}
"""``store_threshold``, and in how many of 40 cases."""


def value_of(shares: dict[Any, int], name: str, seed: int, index: int) -> Any:  # noqa: ANN401 - whatever was shuffled
    """Return case ``index``'s value: within 40 cases each occurs as often as its share says."""
    number, position = divmod(index, sum(shares.values()))
    values = [value for value, share in shares.items() for _ in range(share)]
    Random(f"{seed} {number} offloading {name}").shuffle(values)
    return values[position]


def num_cpu_blocks(kind: str, needs: list[int], rng: Random) -> int:
    """Return the tier's size for requests of so many blocks each."""
    if kind == "a few blocks":
        return rng.randint(1, 6)
    if kind == "what one holds":
        return rng.randint(1, max(needs))
    return max(1, sum(needs) // (1 if kind == "all" else rng.choice([2, 3, 5])))


def us_per_block(kind: str, step_us: float, rng: Random) -> str:
    """Return how long a block takes, as its decimal text."""
    if kind == "half-way":
        return rng.choice(["0.5", "1.5", "2.5"])
    times = {"no time": 0.0, "far less than a step": 0.02, "about a step": 0.3, "many steps": 4.0}[kind]
    return str(round(times * step_us * rng.choice([0.5, 1, 2]), rng.choice([0, 1, 6])))


def with_offloading(case: Case, seed: int, index: int) -> Case:
    """Return the case with host memory; it has no stages, and a prefix cache, without which nothing is stored."""
    rng = Random(f"{seed} {index} offloading")
    settings = case.settings | {"pipeline_parallel_size": 1, "enable_prefix_caching": True}
    step_us = max(
        1.0, float(settings["beta0"]) + 30 * float(settings["beta1"]) + 8 * float(settings["beta2"])
    )
    settings["groups"] = [
        group | {"mode": "align"} if group["kind"] == "state" else group
        for group in settings.get("groups", [])
    ]
    needs = [blocks_of(row, settings) * max(1, len(settings["groups"])) for row in case.rows]
    settings |= {
        "num_cpu_blocks": num_cpu_blocks(value_of(TIERS, "tier", seed, index), needs, rng),
        "load_us_per_block": us_per_block(value_of(LINKS, "loads", seed, index), step_us, rng),
        "store_us_per_block": us_per_block(value_of(LINKS, "stores", seed, index), step_us, rng),
        "store_threshold": value_of(THRESHOLDS, "threshold", seed, index),
    }
    traits = case.traits | {"stages": "1", "prefix_cache": "on"}
    return replace(case, name=f"offloading_{seed}_{index:04d}", traits=traits, settings=settings)
