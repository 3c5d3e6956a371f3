"""What matrix products took on real GPUs: tables that ship, by GPU and precision, in ``measured/GPU.npz``.

Where they come from and how they are packed: ``measured/PROVENANCE.md``.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np

from replay.model.matmuls.curves import Curves

FOLDER = Path(__file__).with_name("measured")
UNITS_PER_E = 4000.0
"""A time of t µs is kept as rint(4000·ln(1 + t)), in 16 bits, to 0.013 %; 0: not measured."""


def measured_gpus() -> tuple[str, ...]:
    """Return the names of the GPUs that have a table, in lower case."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.npz")))


@lru_cache(maxsize=8)
def measured_products(gpu: str, precisions: tuple[str, ...]) -> Curves:
    """Return a GPU's products by shape, in the first of the ``precisions`` that were measured; none: an empty table."""
    if gpu.lower() not in measured_gpus():
        return {}
    with np.load(FOLDER / f"{gpu.lower()}.npz") as packed:
        name = next((each for each in precisions if each in packed), None)
        if name is None:
            return {}
        tokens, sizes = packed["m"].astype(np.float64), packed["sizes"]
        units = packed[name]
    times = unpacked(units)
    found: Curves = {}
    for i, n in enumerate(sizes.tolist()):
        for j, k in enumerate(sizes.tolist()):
            known = units[i, j] > 0
            if known.any():
                found[n, k] = (tokens[known], times[i, j, known])
    return found


def unpacked(units: np.ndarray) -> np.ndarray:
    """Return kept times as float64 µs."""
    return np.asarray(np.expm1(units / UNITS_PER_E), np.float64)
