"""Vidur's profile CSVs: MLP and projections, attention, collectives, CPU overheads.

Columns as microsoft/vidur @ 7d47513 writes them (times in ms; `size` of collectives in bytes), and as its earlier
versions did: CPU overheads in capitals, attention without its cache save.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from calibrate.predictor.measured import (
    MissingRows,
    OperatorTable,
    ProfileError,
    ProfileQuery,
    nearest_name,
    nearest_row,
    operator_table,
    shown,
)
from calibrate.predictor.profiles.profile_cells import sound_cells
from traces import cut

Kind = Literal["mlp", "attention", "network", "cpu"]

US_PER_MS = 1000.0

MLP_OPERATORS: Mapping[str, str] = {
    "attn_pre_proj": "attn_pre_proj",
    "attn_rope": "attn_rope",
    "attn_post_proj": "attn_post_proj",
    "mlp_up_proj": "mlp_up_proj",
    "mlp_act": "mlp_act",
    "mlp_down_proj": "mlp_down_proj",
    "attn_norm": "input_layernorm",
    "mlp_norm": "post_attention_layernorm",
    "add": "add",
    "embedding": "emb",
}
"""Our operators by Vidur's names in `time_stats.NAME.median`."""

CPU_OPERATORS: Mapping[str, str] = {
    "schedule": "schedule",
    "sampler": "sampler_e2e",
    "prepare_inputs": "prepare_inputs_e2e",
    "process_outputs": "process_model_outputs",
    "inter_process": "ray_comm_time",
}
"""The five CPU costs by Vidur's names; a column ends in _median, or _mean where there is no median."""
CPU_TIMES = frozenset(f"{name}_{kind}" for name in CPU_OPERATORS.values() for kind in ("median", "mean"))

NEEDED: Mapping[Kind, tuple[str, ...]] = {
    "mlp": (
        "num_tokens",
        "num_tensor_parallel_workers",
        "n_head",
        "n_kv_head",
        "n_embd",
        "n_expanded_embd",
        "use_gated_mlp",
    ),
    "attention": (
        "n_q_head",
        "n_kv_head",
        "n_embd",
        "num_tensor_parallel_workers",
        "batch_size",
        "prefill_chunk_size",
        "kv_cache_size",
        "is_prefill",
        "time_stats.attn_prefill.median",
        "time_stats.attn_decode.median",
    ),
    "network": ("num_workers", "devices_per_node", "size", "collective"),
    "cpu": ("model_name", "batch_size", "tensor_parallel_degree"),
}
"""Columns without which a file of each kind cannot be used."""

TELLING: Mapping[Kind, tuple[str, ...]] = {
    "attention": ("prefill_chunk_size", "time_stats.attn_prefill.median", "time_stats.attn_decode.median"),
    "mlp": ("time_stats.mlp_up_proj.median", "n_expanded_embd"),
    "network": ("collective", "devices_per_node"),
    "cpu": ("schedule_median", "schedule_mean", "tensor_parallel_degree"),
}
"""A file with any of these is of that kind."""


def read_vidur(path: Path, wanted: ProfileQuery) -> list[OperatorTable]:
    """Return the operators that one CSV has for the model wanted; none where it is no profile at all.

    Raises ProfileError, one line, on a profile without a needed column or without rows of the model's shape.
    """
    try:
        table = pd.read_csv(path)
    except (OSError, ValueError, OverflowError) as error:
        raise ProfileError(f"{path}: not a CSV that can be read ({cut(str(error))})") from error
    table.columns = [c if c.startswith("time_stats.") else c.lower() for c in map(str, table.columns)]
    kind = next((kind for kind, names in TELLING.items() if any(n in table.columns for n in names)), None)
    if kind is None:
        return []
    if table.empty:
        raise ProfileError(f"{path}: no rows, expected measurements")
    times = [name for name in table.columns if name.startswith("time_stats.") or name in CPU_TIMES]
    table = sound_cells(table, path, needed=NEEDED[kind], times=times, first_row=2)
    reader = {"mlp": _mlp, "attention": _attention, "network": _network, "cpu": _cpu}[kind]
    return reader(table, path, wanted)


def _mlp(table: pd.DataFrame, path: Path, wanted: ProfileQuery) -> list[OperatorTable]:
    shape = wanted.shape
    rows = _rows_of(
        table,
        path,
        {
            "n_embd": shape.hidden_size,
            "n_expanded_embd": shape.intermediate_size,
            "n_head": shape.attention.num_heads,
            "n_kv_head": shape.attention.num_kv_heads,
            "use_gated_mlp": int(shape.is_gated),
            "num_tensor_parallel_workers": wanted.tp,
        },
    )
    found = []
    for operator, theirs in MLP_OPERATORS.items():
        column = f"time_stats.{theirs}.median"
        if column in rows.columns and rows[column].notna().any():
            found.append(_timed(operator, rows, column, {"tokens": "num_tokens"}, path))
    if not found:
        near = nearest_name("time_stats.mlp_up_proj.median", map(str, table.columns))
        raise ProfileError(f"{path}: no column 'time_stats.mlp_up_proj.median' (nearest: {near!r})")
    return found


def _attention(table: pd.DataFrame, path: Path, wanted: ProfileQuery) -> list[OperatorTable]:
    attention = wanted.shape.attention
    rows = _rows_of(
        table,
        path,
        {
            "n_embd": wanted.shape.hidden_size,
            "n_q_head": attention.num_heads,
            "n_kv_head": attention.num_kv_heads,
            "num_tensor_parallel_workers": wanted.tp,
        },
    )
    is_prefill = rows["is_prefill"].astype(bool)
    prefill, decode = rows[is_prefill & (rows["batch_size"] == 1)], rows[~is_prefill]
    for name, part in (("prefill", prefill), ("decode", decode)):
        if part.empty:
            raise ProfileError(f"{path}: column 'is_prefill': no {name} rows, expected some of both")
    chunks = {"kv": "kv_cache_size", "chunk": "prefill_chunk_size"}
    found = [
        _timed("attn_prefill", prefill, "time_stats.attn_prefill.median", chunks, path),
        _timed(
            "attn_decode",
            decode.assign(keys=decode["kv_cache_size"] + 1),
            "time_stats.attn_decode.median",
            {"batch": "batch_size", "keys": "keys"},
            path,
        ),
    ]
    saved = "time_stats.attn_kv_cache_save.median"
    if saved in rows.columns and rows[saved].notna().any():
        tokens = np.where(is_prefill, rows["prefill_chunk_size"], rows["batch_size"])
        rows = rows.assign(num_tokens=tokens)
        found.append(_timed("attn_kv_cache_save", rows, saved, {"tokens": "num_tokens"}, path))
    return found


def _network(table: pd.DataFrame, path: Path, wanted: ProfileQuery) -> list[OperatorTable]:
    kinds = set(table["collective"].astype(str))
    found = []
    if "all_reduce" in kinds and wanted.tp > 1:
        rows = table[(table["collective"] == "all_reduce") & (table["num_workers"] == wanted.tp)]
        rows = rows[rows["devices_per_node"] == rows["devices_per_node"].max()]
        if rows.empty:
            have = sorted({int(n) for n in table["num_workers"]})
            near = min(have, key=lambda n: abs(n - wanted.tp))
            raise MissingRows(f"{path}: column 'num_workers': no rows of {wanted.tp} (nearest: {near})")
        column = "time_stats.all_reduce.median"
        for name in wanted.all_reduces:
            found.append(_timed(name, rows, column, {"bytes": "size"}, path))
    if "send_recv" in kinds and wanted.pp > 1:
        rows = _between_stages(table[table["collective"] == "send_recv"], path, wanted)
        column = "time_stats.send_recv.median"
        found.append(_timed("pipeline_parallel_comm", rows, column, {"bytes": "size"}, path))
    return found


def _between_stages(rows: pd.DataFrame, path: Path, wanted: ProfileQuery) -> pd.DataFrame:
    """Return the rows of two GPUs of one node, or, where the model takes several nodes, of two nodes (Vidur's rule)."""
    devices = 1 if wanted.has_several_nodes else int(rows["devices_per_node"].max())
    found = rows[rows["devices_per_node"] == devices]
    if found.empty:
        raise MissingRows(f"{path}: column 'devices_per_node': no send_recv of 1, measured between two nodes")
    return found


def _cpu(table: pd.DataFrame, path: Path, wanted: ProfileQuery) -> list[OperatorTable]:
    """Return the CPU costs of the served model, or over all models of the file where no name was given."""
    rows = table[table["tensor_parallel_degree"] == wanted.tp]
    if rows.empty:
        have = sorted({int(n) for n in table["tensor_parallel_degree"]})
        nearest = min(have, key=lambda n: abs(n - wanted.tp))
        raise MissingRows(
            f"{path}: column 'tensor_parallel_degree': no rows of {wanted.tp} (nearest: {nearest})"
        )
    names = sorted({str(name) for name in rows["model_name"]})
    notes: tuple[str, ...] = (f"median over {len(names)} models: none was named",)
    if wanted.served_model is not None:
        if wanted.served_model not in names:
            near = nearest_name(wanted.served_model, names)
            raise MissingRows(
                f"{path}: column 'model_name': no rows of {wanted.served_model!r} (nearest: {near!r})"
            )
        rows, notes = rows[rows["model_name"] == wanted.served_model], ()
    found = []
    for operator, theirs in CPU_OPERATORS.items():
        column = next((c for c in (f"{theirs}_median", f"{theirs}_mean") if c in rows.columns), None)
        if column is not None:
            found.append(_timed(operator, rows, column, {"sequences": "batch_size"}, path, notes))
    return found


def _rows_of(table: pd.DataFrame, path: Path, shape: Mapping[str, float]) -> pd.DataFrame:
    """Return the rows of a model's shape; raises ProfileError naming the field that differs and the nearest row."""
    columns = list(shape)
    values = table[columns].astype(float)
    rows = table[(values == pd.Series(dict(shape), dtype=float)).all(axis=1)]
    if not rows.empty:
        return rows
    near = nearest_row(dict(shape), values.to_numpy())
    off = {name: value for name, value in shape.items() if near[name] != value}
    raise MissingRows(f"{path}: no rows of {shown(off)} (nearest: {shown({n: near[n] for n in off})})")


def _timed(
    operator: str,
    rows: pd.DataFrame,
    column: str,
    features: Mapping[str, str],
    path: Path,
    notes: tuple[str, ...] = (),
) -> OperatorTable:
    """Return one operator's rows, ms as µs; raises ProfileError where none has its time."""
    if column not in rows.columns:
        raise ProfileError(f"{path}: no column {column!r} (nearest: {nearest_name(column, rows.columns)!r})")
    rows = rows[rows[column].notna()]
    return operator_table(
        operator,
        {name: rows[theirs].astype(float) for name, theirs in features.items()},
        rows[column] * US_PER_MS,
        source=str(path),
        notes=notes,
    )
