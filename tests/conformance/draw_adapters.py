"""Random cases with LoRA adapters: a drawn case, whose requests have some, and a batch room for few of them."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from tests.conformance.draw import Case


def with_adapters(case: Case, seed: int, index: int) -> Case:
    """Return the case with one to four adapters in a batch, and up to six among the requests; some have none."""
    rng = Random(f"{seed} {index} adapters")
    max_loras = rng.choice([1, 1, 2, 2, 3, 4])
    number = max_loras + rng.choice([0, 1, 2])
    share = rng.choice([0.5, 0.8, 1.0])
    rows = [row | {"adapter": rng.randrange(number)} if rng.random() < share else row for row in case.rows]
    name = f"adapters_{seed}_{index:04d}" if case.name.startswith("random") else f"{case.name}_adapters"
    return replace(case, name=name, settings=case.settings | {"max_loras": max_loras}, rows=rows)
