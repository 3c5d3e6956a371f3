"""Layers with a state as they were measured: the kernels of their recurrence, by a GPU's number of heads.

Gated delta nets (arXiv:2412.06464) and Kimi delta attention (arXiv:2510.26692): short convolution and recurrence, of
prompts by how many they are and how long, of decodes by how many. Their products are in the table of products.
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
"""The ``op_name`` of a layer's kernels, by the layer's name."""
CONVOLUTION = "causal_conv1d"
HEADS = ["num_k_heads", "num_v_heads"]
DIVISORS = (2, 4, 8)


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
    found = rows_of_heads(table, path, heads, name=state.name)
    if found is None:
        near = nearest_row(heads, table[HEADS].drop_duplicates().to_numpy(float))
        raise MissingRows(f"{path}: no rows of {shown(heads)} (nearest: {shown(near)})")
    return found


_Found = tuple[pd.DataFrame, tuple[str, ...]]


def rows_of_heads(table: pd.DataFrame, path: Path, heads: dict[str, float], *, name: str) -> _Found | None:
    """Return (phase, batch_size, seq_len, time_us) of so many heads, and what to say of them; None: of none like it.

    Where they were not measured, Kimi's are nearer to a line between other numbers of heads (1.4 % where half as many
    at twice the batch are 9.5 % off), gated delta nets to half as many (0.3 where the line is 1.7 % off).
    """
    ways = (_part, _between) if name == DELTA_NETS else (_between, _part)
    return _exactly(table, heads) or ways[0](table, path, heads) or ways[1](table, path, heads)


def _exactly(table: pd.DataFrame, heads: dict[str, float]) -> _Found | None:
    found = layer_times(table[(table[HEADS].astype(float) == pd.Series(heads)).all(axis=1)])
    return None if found.empty else (found, ())


def _part(table: pd.DataFrame, path: Path, heads: dict[str, float]) -> _Found | None:
    """Return rows of a part of the heads as those of all, at as much less of the batch."""
    for divisor in DIVISORS:
        part = {name: value / divisor for name, value in heads.items()}
        found = _exactly(table, part)
        if found is not None:
            whole = found[0][found[0]["batch_size"] % divisor == 0]
            note = f"{path.name}: {shown(part)} at {divisor} times the batch for {shown(heads)}"
            return whole.assign(batch_size=whole["batch_size"] // divisor), (note,)
    return None


def _between(table: pd.DataFrame, path: Path, heads: dict[str, float]) -> _Found | None:
    """Return rows of a number of heads between two that were measured with as many values per key, linear in it."""
    ratio = heads["num_v_heads"] / heads["num_k_heads"]
    alike = table[table["num_v_heads"] == ratio * table["num_k_heads"]]
    have = np.sort(alike["num_v_heads"].unique())
    low, high = have[have < heads["num_v_heads"]], have[have > heads["num_v_heads"]]
    if not len(low) or not len(high):
        return None
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
