"""Make the tables of measured products that ship, from the public ones.

``python -m tests.studies.validation.pack_matmuls``.

``VTWIN_DATA`` names the folder with ``aiconfigurator_ops``; see replay/model/matmuls/measured/PROVENANCE.md.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd

from replay.model.matmuls.measured_times import FOLDER, UNITS_PER_E

SOURCES = {gpu: f"{gpu}_sxm/gemm/vllm/0.24.0/gemm_perf.parquet" for gpu in ("h100", "h200", "b200")}
LEAST_SIZE = 256
"""Smaller products than this are no layer's of a model that is served."""
MOST_TOKENS = 16_384
US_PER_MS = 1000.0


def packed_units(time_us: np.ndarray) -> np.ndarray:
    """Return times in µs as they are kept, uint16."""
    return np.asarray(np.rint(UNITS_PER_E * np.log1p(time_us)), np.uint16)


def packed(table: pd.DataFrame) -> dict[str, np.ndarray]:
    """Return a table's arrays: ``m`` and ``sizes`` (of n and of k), and by precision kept times [n, k, m]."""
    kept = table[(table["n"] >= LEAST_SIZE) & (table["k"] >= LEAST_SIZE) & (table["m"] <= MOST_TOKENS)]
    tokens, sizes = np.unique(kept["m"]), np.unique(np.concatenate([kept["n"], kept["k"]]))
    arrays = {"m": tokens.astype(np.int32), "sizes": sizes.astype(np.int32)}
    for precision, rows in kept.groupby("gemm_dtype"):
        fastest = rows.groupby(["n", "k", "m"])["latency"].min()
        times = np.zeros((len(sizes), len(sizes), len(tokens)))
        places = [
            np.searchsorted(values, fastest.index.get_level_values(i))
            for i, values in enumerate((sizes, sizes, tokens))
        ]
        times[tuple(places)] = fastest.to_numpy() * US_PER_MS
        arrays[str(precision)] = packed_units(times)
    return arrays


def main() -> None:
    """Write every table."""
    root = Path(os.environ["VTWIN_DATA"]) / "aiconfigurator_ops"
    for gpu, path in SOURCES.items():
        target = FOLDER / f"{gpu}.npz"
        np.savez_compressed(target, **packed(pd.read_parquet(root / path)))
        print(f"{target}: {target.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
