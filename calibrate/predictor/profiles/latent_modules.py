"""Multi-head latent attention as it was measured: a layer's whole module, its projections included, by its heads.

vLLM's MLA module of DeepSeek-V3 (arXiv:2412.19437), which Kimi-K2 has with half the heads. A GPU's share of the heads
counts; where it was not measured, times are linear between the nearest numbers of heads. A step with prompts and
decodes has the module's products twice, once for each, so their weights are read once too often there.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from calibrate.predictor.measured import (
    MissingRows,
    OperatorTable,
    ProfileQuery,
    nearest_name,
    operator_table,
)
from replay.model import ModelShape
from replay.model.matmuls import table_precisions

MEASURED = {
    "hidden_size": 7168,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "rope_head_dim": 64,
    "head_dim": 192,
    "v_head_dim": 128,
}
"""Sizes of the module that was measured."""


def latent_fault(shape: ModelShape) -> str | None:
    """Return why a model's latent attention is not the module that was measured; None: it is, or it has none."""
    attention = shape.attention
    if not attention.is_mla:
        return None
    if len(shape.mixers) > 1 or shape.mixers[0].indexer is not None or shape.is_compressed:
        return f"{shape.name}: latent attention with an index, a window or states beside it, but it was measured alone"
    has = {"hidden_size": shape.hidden_size} | {
        name: getattr(attention, name) for name in MEASURED if name != "hidden_size"
    }
    off = {name: value for name, value in has.items() if value != MEASURED[name]}
    if not off:
        return None
    said = ", ".join(f"{name} {value} ({MEASURED[name]})" for name, value in off.items())
    return (
        f"{shape.name}: latent attention of other sizes than DeepSeek-V3's, which alone were measured: {said}"
    )


def latent_prefill(table: pd.DataFrame, path: Path, wanted: ProfileQuery) -> list[OperatorTable]:
    """Return the module of prompts by the keys that a query sees on average, (isl + 1) / 2, and the step's tokens."""
    found = _rows(table[table["step"] == 0], path, wanted)
    if found is None:
        return []
    rows, notes = found
    features = {"keys": (rows["isl"] + 1) / 2, "tokens": rows["batch_size"] * rows["isl"]}
    return [operator_table("attn_prefill", features, rows["time_us"], source=str(path), notes=notes)]


def latent_decode(table: pd.DataFrame, path: Path, wanted: ProfileQuery) -> list[OperatorTable]:
    """Return the module of decodes by sequences and their KV entries."""
    found = _rows(table, path, wanted)
    if found is None:
        return []
    rows, notes = found
    features = {"batch": rows["batch_size"], "keys": rows["step"] + rows["isl"]}
    return [operator_table("attn_decode", features, rows["time_us"], source=str(path), notes=notes)]


def _rows(
    table: pd.DataFrame, path: Path, wanted: ProfileQuery
) -> tuple[pd.DataFrame, tuple[str, ...]] | None:
    """Return the fastest kernel's rows of a GPU's heads, and what to say of them; None of another attention."""
    if not wanted.shape.attention.is_mla:
        return None
    fault = latent_fault(wanted.shape)
    if fault is not None:
        raise MissingRows(fault)
    table = _of(
        table, "kv_cache_dtype", ("fp8",) if wanted.shape.kv_dtype_bytes == 1 else ("bfloat16",), path
    )
    # fp8 of latent attention's projections is scaled by block, as of experts
    names = table_precisions(wanted.shape.attention_precision.name, of_experts=True)
    return between_heads(
        _of(table, "gemm_type", names, path), path, wanted.shape.attention.num_heads // wanted.tp
    )


def _of(table: pd.DataFrame, column: str, names: tuple[str, ...], path: Path) -> pd.DataFrame:
    """Return the rows of the first of several names that a column has."""
    have = {str(each) for each in table[column]}
    name = next((each for each in names if each in have), None)
    if name is None:
        raise MissingRows(
            f"{path}: column {column!r}: no rows of {names[0]!r} (nearest: {nearest_name(names[0], have)!r})"
        )
    return table[table[column] == name]


def between_heads(table: pd.DataFrame, path: Path, heads: int) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Return rows of so many heads, the fastest kernel's, or linear between the nearest numbers of heads."""
    axes = ["batch_size", "isl", "step"]
    numbers = [int(number) for number in table["num_heads"].unique()]
    fastest = {
        number: table[table["num_heads"] == number].groupby(axes)["time_us"].min() for number in numbers
    }
    if heads in fastest:
        return fastest[heads].reset_index(), ()
    have = np.sort(list(fastest))
    low, high = have[have < heads], have[have > heads]
    if not len(low) or not len(high):
        near = int(high[0] if len(high) else low[-1])
        raise MissingRows(f"{path}: no rows of num_heads={heads} (nearest: num_heads={near})")
    share = (heads - low[-1]) / (high[0] - low[-1])
    mixed = (fastest[low[-1]] * (1 - share) + fastest[high[0]] * share).dropna().rename("time_us")
    return mixed.reset_index(), (f"{path.name}: num_heads={heads} between {low[-1]} and {high[0]}",)
