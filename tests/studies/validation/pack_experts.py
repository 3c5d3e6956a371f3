"""Make the table of measured experts that ships, from the public ones.

``python -m tests.studies.validation.pack_experts``.

``VTWIN_DATA`` names the folder with ``aiconfigurator_ops``; see replay/model/kernels/measured/PROVENANCE.md.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd

from replay.model.kernels.expert_kernels import SHIPPED, SLICE
from tests.studies.validation.pack_matmuls import US_PER_MS, packed_units

GPUS = ("h100", "h200", "b200")
VERSIONS = ("0.14.0", "0.22.0", "0.24.0")
ROUTING = "power_law_1.01"
MOST_TOKENS = 16_384
MOST_GPUS = 64
"""Slices for more GPUs than this are left out."""
COLUMNS = ["hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size"]


def rows_of(root: Path) -> pd.DataFrame:
    """Return all tables' rows of one routing, the fastest kernel of each; ``gpu`` and ``vllm`` say whose they are."""
    tables = []
    for gpu in GPUS:
        for version in VERSIONS:
            path = root / f"{gpu}_sxm/moe/vllm/{version}/moe_perf.parquet"
            if path.exists():
                tables.append(pd.read_parquet(path).assign(gpu=gpu, vllm=version.removesuffix(".0")))
    rows = pd.concat(tables)
    of_us = (rows["distribution"] == ROUTING) & (rows["num_tokens"] <= MOST_TOKENS)
    of_us &= rows["moe_tp_size"] * rows["moe_ep_size"] <= MOST_GPUS
    return rows[of_us]


def packed(rows: pd.DataFrame) -> dict[str, np.ndarray]:
    """Return ``tokens`` [t], names of GPUs, versions and precisions, ``slices`` [n, 9], ``units`` [n, t]."""
    names = {
        key: sorted(rows[column].unique())
        for key, column in (("gpus", "gpu"), ("versions", "vllm"), ("precisions", "moe_dtype"))
    }
    numbered = rows.assign(
        gpu=rows["gpu"].map(names["gpus"].index),
        vllm=rows["vllm"].map(names["versions"].index),
        moe_dtype=rows["moe_dtype"].map(names["precisions"].index),
    )
    fastest = numbered.groupby(["gpu", "vllm", "moe_dtype", *COLUMNS, "num_tokens"])["latency"].min()
    wide = fastest.unstack("num_tokens") * US_PER_MS
    slices = np.array(wide.index.tolist(), np.int32)
    assert slices.shape[1] == len(SLICE)
    return {key: np.array(each) for key, each in names.items()} | {
        "tokens": wide.columns.to_numpy(np.int32),
        "slices": slices,
        "units": packed_units(wide.fillna(0.0).to_numpy()),
    }


def main() -> None:
    """Write the table."""
    root = Path(os.environ["VTWIN_DATA"]) / "aiconfigurator_ops"
    np.savez_compressed(SHIPPED, **packed(rows_of(root)))
    print(f"{SHIPPED}: {SHIPPED.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
