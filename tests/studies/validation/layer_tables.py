"""Operator tables of layers: states, latent and sparse attention, encoders, quantization, and what else was measured.

One reader for all: a table's columns are features that a time grows with, or they tell one shape or kernel from
another. Each shape has a grid of measured points; a time between them is interpolated along both axes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from calibrate.predictor.estimators import GridTimes
from calibrate.predictor.measured import Floats, MissingRows, OperatorTable, ProfileError, operator_table
from calibrate.predictor.measured import nearest_name as nearest

US_PER_MS = 1000.0
BATCH_AND_LENGTH, BATCH_AND_STEP = ("batch_size", "isl"), ("batch_size", "step")

AXES: Mapping[str, tuple[str, ...]] = {
    "gdn": ("batch_size", "seq_len"),
    "kda": ("batch_size", "seq_len"),
    "mla_context_module": BATCH_AND_LENGTH,
    "mla_generation_module": BATCH_AND_STEP,
    "mla_gen_pre": ("num_tokens",),
    "mla_gen_post": ("num_tokens",),
    "dsa_context_module": BATCH_AND_LENGTH,
    "dsa_generation_module": BATCH_AND_STEP,
    "dsv4_csa_context_module": BATCH_AND_LENGTH,
    "dsv4_csa_generation_module": BATCH_AND_STEP,
    "dsv4_hca_context_module": BATCH_AND_LENGTH,
    "dsv4_hca_generation_module": BATCH_AND_STEP,
    "dsv4_hca_attn_module": BATCH_AND_STEP,
    "dsv4_paged_mqa_logits_module": BATCH_AND_STEP,
    "msa_context_module": BATCH_AND_LENGTH,
    "msa_generation_module": BATCH_AND_STEP,
    "pre": ("num_tokens",),
    "post": ("num_tokens",),
    "compute_scale": ("k", "m"),
    "scale_matrix": ("k", "m"),
    "encoder_attention": BATCH_AND_LENGTH,
    "context_attention": BATCH_AND_LENGTH,
    "generation_attention": BATCH_AND_STEP,
    "moe": ("num_tokens",),
    "gemm": ("m",),
    "all_reduce": ("message_size",),
}
"""By `op_name`: what its time grows with; the last one varies most."""

SAYS_NOTHING = frozenset({"framework", "version", "device", "op_name", "latency", "time_us", "beam_width"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTable:
    """One operator of one shape: ``shape`` as the table's columns tell it, and its measured points."""

    shape: Mapping[str, str]
    table: OperatorTable

    def predict(self, points: Floats) -> Floats:
        """Return µs [n] at rows of features [n, number of axes], on the measured grid or between its points.

        Linear along each axis; of two axes, the geometric mean of going along one first and the other first.
        """
        return grid_times(self.table.points, self.table.time_us, points)


def grid_times(points: Floats, time_us: Floats, at: Floats) -> Floats:
    """Return times between measured points; both orders of the axes have the same say."""
    found = GridTimes().fit(points, time_us).predict(at)
    if points.shape[1] == 1:
        return np.asarray(found)
    other = GridTimes().fit(points[:, ::-1], time_us).predict(at[:, ::-1])
    return np.asarray(np.sqrt(np.maximum(found, 0.0) * np.maximum(other, 0.0)))


def read_layer_tables(path: Path, **wanted: object) -> list[LayerTable]:
    """Return each operator and shape that one Parquet table has, those alone whose columns are as ``wanted``.

    Raises ProfileError, one line, on what is no operator table, MissingRows where none is as wanted.
    """
    try:
        rows = pd.read_parquet(path)
    except (OSError, ValueError) as error:
        raise ProfileError(f"{path}: not a Parquet table that can be read ({error})") from error
    for column in ("op_name", "latency"):
        if column not in rows.columns:
            raise ProfileError(f"{path}: no column {column!r} (nearest: {nearest(column, rows.columns)!r})")
    for column, value in wanted.items():
        if column not in rows.columns:
            raise ProfileError(f"{path}: no column {column!r} (nearest: {nearest(column, rows.columns)!r})")
        have = rows[column].astype(str)
        if not (have == str(value)).any():
            raise MissingRows(
                f"{path}: no rows of {column}={value} (nearest: {nearest(str(value), set(have))})"
            )
        rows = rows[have == str(value)]
    rows = rows[rows["latency"] > 0]
    found = []
    for name, part in rows.groupby("op_name", sort=False):
        if name not in AXES:
            raise ProfileError(f"{path}: op_name {name!r}, expected one of {', '.join(AXES)}")
        found += _shapes(part, str(name), path)
    return found


def _shapes(rows: pd.DataFrame, name: str, path: Path) -> list[LayerTable]:
    """Return an operator's shapes."""
    axes = AXES[name]
    lengths = {"num_tokens", "seq_len"} if "seq_len" in axes else set()
    columns = [each for each in rows.columns if each not in {*axes, *lengths, *SAYS_NOTHING}]
    groups = rows.groupby(columns, sort=False, dropna=False) if columns else [((), rows)]
    return [
        LayerTable(
            shape=dict(zip(columns, map(str, key), strict=True)),
            table=operator_table(
                name, {axis: part[axis] for axis in axes}, part["latency"] * US_PER_MS, source=str(path)
            ),
        )
        for key, part in groups
    ]
