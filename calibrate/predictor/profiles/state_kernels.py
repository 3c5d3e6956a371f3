"""Layers with a state as they were measured: the kernels of their recurrence, by a GPU's number of heads.

Gated delta nets (arXiv:2412.06464) and Kimi delta attention (arXiv:2510.26692): short convolution and recurrence, of
prompts by how many they are and how long, of decodes by how many. Their products are in the table of products. A
head's recurrence is independent of the others', so half as many heads take what they take at twice the batch.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from calibrate.predictor.measured import (
    MissingRows,
    OperatorTable,
    ProfileQuery,
    nearest_row,
    operator_table,
    shown,
)
from replay.model import LayerState
from replay.model.matmuls import DELTA_NETS, KIMI_DELTA

TABLES = {DELTA_NETS: "gdn", KIMI_DELTA: "kda"}
"""By a layer's name, the ``op_name`` of its kernels."""
CONVOLUTION = "causal_conv1d"
HEADS = ["num_k_heads", "num_v_heads"]
DIVISORS = (1, 2, 4, 8)


def state_tables(table: pd.DataFrame, path: Path, wanted: ProfileQuery) -> list[OperatorTable]:
    """Return what a layer's recurrence takes of prompts and of decodes; none of another layer.

    Raises MissingRows where the table has no such heads, nor numbers of heads to either side.
    """
    state = wanted.shape.mixers[0].state
    if state is None or TABLES.get(state.name) != str(table["op_name"].iloc[0]):
        return []
    rows, notes = _rows(table, path, state, wanted.tp)
    prompts, decodes = rows[rows["phase"] == "context"], rows[rows["phase"] == "generation"]
    return [
        operator_table(
            "state_prefill",
            {"batch": prompts["batch_size"], "length": prompts["seq_len"]},
            prompts["time_us"],
            source=str(path),
            notes=notes,
        ),
        operator_table(
            "state_decode",
            {"batch": decodes["batch_size"]},
            decodes["time_us"],
            source=str(path),
            notes=notes,
        ),
    ]


def _rows(
    table: pd.DataFrame, path: Path, state: LayerState, tp: int
) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Return (phase, batch_size, seq_len, time_us) of a layer's heads, and what to say of them."""
    sizes = {"head_k_dim": state.key_dim, "head_v_dim": state.head_dim, "d_conv": state.conv_kernel}
    heads = {
        "num_k_heads": float(max(1, state.key_heads // tp)),
        "num_v_heads": float(max(1, state.num_heads // tp)),
    }
    table = table[(table[list(sizes)].astype(float) == pd.Series(sizes, dtype=float)).all(axis=1)]
    if table.empty:
        raise MissingRows(f"{path}: no rows of {shown({k: float(v) for k, v in sizes.items()})}")
    for divisor in DIVISORS:
        part = {name: value / divisor for name, value in heads.items()}
        found = layer_times(table[(table[HEADS].astype(float) == pd.Series(part)).all(axis=1)])
        if not found.empty:
            return _wider(found, divisor), _note(path, part, divisor, heads)
    return _between(table, path, heads)


def _wider(rows: pd.DataFrame, divisor: int) -> pd.DataFrame:
    """Return rows of a part of the heads as those of all, at as much less of the batch."""
    whole = rows[rows["batch_size"] % divisor == 0]
    return whole.assign(batch_size=whole["batch_size"] // divisor)


def _note(path: Path, part: dict[str, float], divisor: int, heads: dict[str, float]) -> tuple[str, ...]:
    if divisor == 1:
        return ()
    return (f"{path.name}: {shown(part)} at {divisor} times the batch for {shown(heads)}",)


def _between(
    table: pd.DataFrame, path: Path, heads: dict[str, float]
) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Return rows of a number of heads between two that were measured with as many values per key, linear in it."""
    ratio = heads["num_v_heads"] / heads["num_k_heads"]
    alike = table[table["num_v_heads"] == ratio * table["num_k_heads"]]
    have = np.sort(alike["num_v_heads"].unique())
    low, high = have[have < heads["num_v_heads"]], have[have > heads["num_v_heads"]]
    if not len(low) or not len(high):
        near = nearest_row(heads, table[HEADS].drop_duplicates().to_numpy(float))
        raise MissingRows(f"{path}: no rows of {shown(heads)} (nearest: {shown(near)})")
    axes = ["phase", "batch_size", "seq_len"]
    below, above = (
        layer_times(alike[alike["num_v_heads"] == each]).set_index(axes)["time_us"]
        for each in (low[-1], high[0])
    )
    share = (heads["num_v_heads"] - low[-1]) / (high[0] - low[-1])
    mixed = (below * (1 - share) + above * share).dropna().rename("time_us").reset_index()
    return mixed, (f"{path.name}: num_v_heads={heads['num_v_heads']:g} between {low[-1]} and {high[0]}",)


def layer_times(rows: pd.DataFrame) -> pd.DataFrame:
    """Return what a layer's kernels take together: its convolution, and the fastest kernel for the recurrence.

    Columns ``phase``, ``batch_size``, ``seq_len``, ``time_us``. Points at which one of both was not measured are left
    out, and so are checks of drafts.
    """
    axes = ["phase", "batch_size", "seq_len"]
    rows = rows[rows["phase"].isin(("context", "generation"))]
    is_convolution = rows["kernel_source"].str.startswith(CONVOLUTION)
    # a kernel's time hardly differs between models of equal heads: their median
    convolution, recurrence = (
        part.groupby([*axes, "kernel_source"])["time_us"].median().groupby(axes).min()
        for part in (rows[is_convolution], rows[~is_convolution])
    )
    return (convolution + recurrence).dropna().rename("time_us").reset_index()
