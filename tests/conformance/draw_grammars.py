"""Random cases with grammars: a drawn case, some of whose answers are held to a grammar that takes its time."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from tests.conformance.draw import Case


def with_grammars(case: Case, seed: int, index: int) -> Case:
    """Return the case with some guided requests; a grammar takes from no time to longer than the case lasts."""
    rng = Random(f"{seed} {index} grammars")
    compile_us = rng.choice([0, 1, 300, 5_000, 5_000, 40_000, 40_000, 300_000, 10_000_000])
    share = rng.choice([0.2, 0.5, 0.5, 1.0])
    rows = [row | {"guided": True} if rng.random() < share else row for row in case.rows]
    name = f"grammars_{seed}_{index:04d}" if case.name.startswith("random") else f"{case.name}_grammars"
    settings = case.settings | {"guided_compile_us": compile_us}
    return replace(case, name=name, settings=settings, rows=rows)
