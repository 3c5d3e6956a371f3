"""Tables of layers are read whole, one grid per shape, and times between their points follow from those around."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from calibrate.predictor.measured import MissingRows, ProfileError
from tests.studies.validation.layer_tables import AXES, read_layer_tables

SETS = (
    "linear_attention",
    "kda",
    "mla",
    "mla_bmm",
    "sparse_attention",
    "msa",
    "mhc",
    "quantize",
    "encoder_attention",
)


def _table(folder: Path) -> Path:
    rows = [
        {
            "op_name": "mla_generation_module",
            "num_heads": h,
            "batch_size": b,
            "step": s,
            "latency": (h + b * s) / 1000,
        }
        for h in (8, 16)
        for b in (1, 2, 4)
        for s in (1, 3, 7)
    ]
    path = folder / "mla.parquet"
    pd.DataFrame(rows).to_parquet(path)
    return path


def test_a_time_between_points_is_that_of_a_law_that_is_linear_along_each_axis(tmp_path: Path) -> None:
    small, large = read_layer_tables(_table(tmp_path))
    assert (small.shape, large.shape) == ({"num_heads": "8"}, {"num_heads": "16"})
    assert small.table.features == ("batch_size", "step")
    at = np.array([[1.0, 3.0], [3.0, 5.0], [2.0, 2.0]])
    assert large.predict(at) == pytest.approx(16 + at[:, 0] * at[:, 1])


def test_a_shape_that_is_not_there_is_named_with_the_nearest(tmp_path: Path) -> None:
    path = _table(tmp_path)
    assert len(read_layer_tables(path, num_heads=8)) == 1
    with pytest.raises(MissingRows, match=r"no rows of num_heads=9 \(nearest: "):
        read_layer_tables(path, num_heads=9)
    with pytest.raises(ProfileError, match=r"no column 'heads' \(nearest: 'num_heads'\)"):
        read_layer_tables(path, heads=8)
    pd.DataFrame({"op_name": ["x"], "latency": [1.0]}).to_parquet(path)
    with pytest.raises(ProfileError, match="op_name 'x', expected one of gdn"):
        read_layer_tables(path)


@pytest.mark.skipif("VTWIN_DATA" not in os.environ, reason="needs the public tables (VTWIN_DATA)")
def test_every_table_of_layers_is_read() -> None:
    root = Path(os.environ["VTWIN_DATA"]) / "aiconfigurator_ops" / "b200_sxm"
    read = {
        each.table.operator
        for name in SETS
        for path in (root / name).rglob("*.parquet")
        for each in read_layer_tables(path)
    }
    assert set(AXES) - read == {"context_attention", "generation_attention", "moe", "gemm", "all_reduce"}
