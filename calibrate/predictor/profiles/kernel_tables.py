"""Operator tables of measured vLLM kernels, as ai-dynamo/aiconfigurator collects them (Parquet, latency in ms).

They hold kernels by their dimensions, not models: the ones that a model's layers are made of are picked here, and
where a matrix product of its very shape was not measured, it is put together from the shapes around it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from calibrate.predictor.components import WINDOWED
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
from calibrate.predictor.profiles.latent_modules import latent_decode, latent_fault, latent_prefill
from calibrate.predictor.profiles.matmuls import matmul_table
from calibrate.predictor.profiles.other_heads_windows import windowed_decodes, windowed_prompts
from replay.model.matmuls import needed_matmuls, table_precisions
from traces import ConfigError

US_PER_MS = 1000.0
BYTES_PER_ELEMENT = 2
"""All-reduce tables count elements of bfloat16."""

NEEDED: Mapping[str, tuple[str, ...]] = {
    "gemm": ("m", "n", "k", "gemm_dtype"),
    "context_attention": (
        "batch_size",
        "isl",
        "num_heads",
        "num_key_value_heads",
        "head_dim",
        "kv_cache_dtype",
    ),
    "generation_attention": (
        "batch_size",
        "isl",
        "step",
        "num_heads",
        "num_key_value_heads",
        "head_dim",
        "kv_cache_dtype",
    ),
    "mla_context_module": ("batch_size", "isl", "step", "num_heads", "kv_cache_dtype", "gemm_type"),
    "mla_generation_module": ("batch_size", "isl", "step", "num_heads", "kv_cache_dtype", "gemm_type"),
    "moe": (
        "num_tokens",
        "hidden_size",
        "inter_size",
        "topk",
        "num_experts",
        "moe_tp_size",
        "moe_ep_size",
        "moe_dtype",
        "distribution",
    ),
    "all_reduce": ("num_gpus", "message_size"),
}
"""Columns of each kind of table, `op_name` and `latency` besides; the first of `op_name` says which it is."""

DISTRIBUTIONS = ("power_law_1.01", "power_law_1.2", "balanced")
"""How unevenly tokens go to experts, the one that is taken first first: real routers are not balanced."""


def read_kernels(path: Path, wanted: ProfileQuery) -> list[OperatorTable]:
    """Return the operators that one Parquet table has for the model wanted; none where it is no such table.

    Raises ProfileError, one line, on a table without a needed column or without the model's shapes.
    """
    try:
        table = pd.read_parquet(path)
    except (OSError, ValueError) as error:
        raise ProfileError(f"{path}: not a Parquet table that can be read ({error})") from error
    if "op_name" not in table.columns or table.empty:
        return []
    name = str(table["op_name"].iloc[0])
    if name not in NEEDED:
        return []
    for column in (*NEEDED[name], "latency"):
        if column not in table.columns:
            raise ProfileError(
                f"{path}: no column {column!r} (nearest: {nearest_name(column, table.columns)!r})"
            )
    if not pd.api.types.is_numeric_dtype(table["latency"]) or not (table["latency"] > 0).all():
        raise ProfileError(f"{path}: column 'latency': got a time that is not positive, expected ms > 0")
    table = table.assign(time_us=table["latency"] * US_PER_MS)
    reader = {
        "gemm": _matmuls,
        "mla_context_module": latent_prefill,
        "mla_generation_module": latent_decode,
        "context_attention": _prefill,
        "generation_attention": _decode,
        "moe": _experts,
        "all_reduce": _all_reduce,
    }[name]
    return reader(table, path, wanted)


def _matmuls(table: pd.DataFrame, path: Path, wanted: ProfileQuery) -> list[OperatorTable]:
    fault = latent_fault(wanted.shape)
    if fault is not None:
        raise MissingRows(fault)
    try:
        products = needed_matmuls(wanted.shape, tp=wanted.tp, are_modules_measured=True)
    except ConfigError as error:
        raise MissingRows(str(error)) from error
    return [matmul_table(each, table, path) for each in products]


def _heads(wanted: ProfileQuery) -> dict[str, float]:
    attention = wanted.shape.attention
    if attention.is_mla:
        raise MissingRows(
            latent_fault(wanted.shape)
            or f"{wanted.shape.name}: multi-head latent attention, but this table has grouped-query attention only"
        )
    return {
        "num_heads": max(1, attention.num_heads // wanted.tp),
        "num_key_value_heads": max(1, attention.num_kv_heads // wanted.tp),
        "head_dim": attention.head_dim,
    }


def _attention_rows(
    table: pd.DataFrame, path: Path, wanted: ProfileQuery, *, window: int = 0
) -> tuple[pd.DataFrame, float, tuple[str, ...]]:
    """Return the rows of a model's heads, by how much they must be widened, and what to say of it.

    ``window``: those of attention within so many keys; 0: of all.

    Heads are independent of each other: where a table has half as many heads and KV heads, twice the batch is the
    same work. Where it has no such row either, the nearest number of query heads per KV head stands in.
    """
    if "window_size" in table.columns:
        table = table[table["window_size"] == window]
    table = table[table["kv_cache_dtype"] == _kv_dtype(wanted)]
    heads = _heads(wanted)
    if table.empty:
        raise MissingRows(f"{path}: column 'kv_cache_dtype': no rows of {_kv_dtype(wanted)!r}")
    for divisor in (1, 2, 4, 8, 16, 32):
        part = {name: value / (1 if name == "head_dim" else divisor) for name, value in heads.items()}
        rows = table[(table[list(part)].astype(float) == pd.Series(part)).all(axis=1)]
        if not rows.empty:
            note = f"{path.name}: {shown(part)} at {divisor} times the batch for {shown(heads)}"
            return rows, float(divisor), (note,) if divisor > 1 else ()
    same = table[
        (table["num_key_value_heads"] == heads["num_key_value_heads"])
        & (table["head_dim"] == heads["head_dim"])
    ]
    if not same.empty:
        return _between_heads(same, path, heads)
    near = nearest_row(heads, table[list(heads)].drop_duplicates().to_numpy(float))
    off = {name: value for name, value in heads.items() if near[name] != value}
    raise MissingRows(f"{path}: no rows of {shown(off)} (nearest: {shown({n: near[n] for n in off})})")


def _between_heads(
    same: pd.DataFrame, path: Path, heads: dict[str, float]
) -> tuple[pd.DataFrame, float, tuple[str, ...]]:
    """Return rows for a number of query heads between two measured ones, linear in it."""
    have = np.sort(same["num_heads"].unique())
    low, high = have[have < heads["num_heads"]], have[have > heads["num_heads"]]
    axes = [c for c in ("batch_size", "isl", "step") if c in same.columns]
    if not len(low) or not len(high):
        near = float(high[0] if len(high) else low[-1])
        raise MissingRows(
            f"{path}: no rows of num_heads={heads['num_heads']:g} (nearest: num_heads={near:g})"
        )
    below, above = (
        same[same["num_heads"] == each].groupby(axes)["time_us"].median() for each in (low[-1], high[0])
    )
    share = (heads["num_heads"] - low[-1]) / (high[0] - low[-1])
    mixed = (below * (1 - share) + above * share).dropna().rename("time_us").reset_index()
    note = f"{path.name}: num_heads={heads['num_heads']:g} between {low[-1]} and {high[0]}"
    return mixed, 1.0, (note,)


def _kv_dtype(wanted: ProfileQuery) -> str:
    return "fp8" if wanted.shape.kv_dtype_bytes == 1 else "bfloat16"


def _prefill(table: pd.DataFrame, path: Path, wanted: ProfileQuery) -> list[OperatorTable]:
    """Return prefill attention by the keys that a query sees on average, (isl + 1) / 2, and the tokens of the step.

    Of layers with a window by the keys that it would see without.
    """

    def made(operator: str, found: _Rows) -> OperatorTable:
        rows, divisor, notes = found
        rows = rows[rows["batch_size"] % divisor == 0]
        features = {
            "keys": (rows["isl"] + 1) / 2,
            "tokens": rows["batch_size"] / divisor * rows["isl"],
        }
        return operator_table(operator, features, rows["time_us"], source=str(path), notes=notes)

    return _full_and_windowed("attn_prefill", made, table, path, wanted)


def _decode(table: pd.DataFrame, path: Path, wanted: ProfileQuery) -> list[OperatorTable]:
    """Return decode attention by sequences and the KV entries of each, those outside a window included."""

    def made(operator: str, found: _Rows) -> OperatorTable:
        rows, divisor, notes = found
        rows = rows[rows["batch_size"] % divisor == 0]
        features = {"batch": rows["batch_size"] / divisor, "keys": rows["step"] + rows["isl"]}
        return operator_table(operator, features, rows["time_us"], source=str(path), notes=notes)

    return _full_and_windowed("attn_decode", made, table, path, wanted)


_Rows = tuple[pd.DataFrame, float, tuple[str, ...]]
"""Rows, by how much they must be widened, and what to say of them."""


def _full_and_windowed(
    operator: str,
    made: Callable[[str, _Rows], OperatorTable],
    table: pd.DataFrame,
    path: Path,
    wanted: ProfileQuery,
) -> list[OperatorTable]:
    """Return attention to all keys, and within the model's window where that was measured.

    Where it was measured with other heads alone, it is put together; where it was not at all, it is left out.
    """
    full = _attention_rows(table, path, wanted)
    tables = [made(operator, full)]
    if wanted.shape.num_windowed_layers and "window_size" in table.columns:
        try:
            within: _Rows | None = _attention_rows(table, path, wanted, window=wanted.shape.window)
        except MissingRows:
            within = _put_together(operator, full, table, path, wanted)
        if within is not None:
            tables.append(made(operator + WINDOWED, within))
    return tables


def _put_together(
    operator: str, full: _Rows, table: pd.DataFrame, path: Path, wanted: ProfileQuery
) -> _Rows | None:
    """Return rows within the window, by what it takes other heads of the same width; None: nobody measured it."""
    rows, divisor, notes = full
    heads, window = _heads(wanted), wanted.shape.window
    others = table[(table["kv_cache_dtype"] == _kv_dtype(wanted)) & (table["head_dim"] == heads["head_dim"])]
    if operator == "attn_decode":
        within = windowed_decodes(
            rows, others, kv_heads=heads["num_key_value_heads"] / divisor, window=window
        )
    else:
        within = windowed_prompts(rows, others, heads=heads["num_heads"] / divisor, window=window)
    if within is None:
        return None
    note = f"{path.name}: a window of {window} as with other heads of {heads['head_dim']:g}"
    return within, divisor, (*notes, note)


def _experts(table: pd.DataFrame, path: Path, wanted: ProfileQuery) -> list[OperatorTable]:
    experts = wanted.shape.experts
    if experts is None:
        return []
    sizes: dict[str, float] = {
        "hidden_size": wanted.shape.hidden_size,
        "inter_size": experts.intermediate_size,
        "topk": experts.num_per_token,
        "num_experts": experts.num_experts,
        "moe_tp_size": wanted.tp,
        "moe_ep_size": 1,
    }
    names = table_precisions(wanted.shape.expert_precision.name, of_experts=True)
    dtype = next((name for name in names if name in set(table["moe_dtype"])), None)
    if dtype is None:
        near_name = nearest_name(names[0], {str(d) for d in table["moe_dtype"]})
        raise MissingRows(f"{path}: column 'moe_dtype': no rows of {names[0]!r} (nearest: {near_name!r})")
    table = table[table["moe_dtype"] == dtype]
    rows = table[(table[list(sizes)].astype(float) == pd.Series(sizes)).all(axis=1)]
    if rows.empty:
        near = nearest_row(sizes, table[list(sizes)].drop_duplicates().to_numpy(float))
        off = {name: value for name, value in sizes.items() if near[name] != value}
        raise MissingRows(f"{path}: no rows of {shown(off)} (nearest: {shown({n: near[n] for n in off})})")
    have = set(rows["distribution"])
    distribution = next((d for d in DISTRIBUTIONS if d in have), sorted(have)[0])
    rows = rows[rows["distribution"] == distribution]
    fastest = rows.groupby("num_tokens")["time_us"].min().reset_index()
    note = f"{path.name}: experts in {dtype}, tokens to them as {distribution}"
    return [
        operator_table(
            "moe", {"tokens": fastest["num_tokens"]}, fastest["time_us"], source=str(path), notes=(note,)
        )
    ]


def _all_reduce(table: pd.DataFrame, path: Path, wanted: ProfileQuery) -> list[OperatorTable]:
    if wanted.tp == 1:
        return []
    rows = table[table["num_gpus"] == wanted.tp]
    if rows.empty:
        near = min({int(n) for n in table["num_gpus"]}, key=lambda n: abs(n - wanted.tp))
        raise MissingRows(f"{path}: column 'num_gpus': no rows of {wanted.tp} (nearest: {near})")
    if "kernel_source" in rows.columns and rows["kernel_source"].str.contains("graph").any():
        rows = rows[rows["kernel_source"].str.contains("graph")]  # vLLM's decode steps run in CUDA graphs
    fastest = rows.groupby("message_size")["time_us"].min().reset_index()
    return [
        operator_table(
            "tensor_parallel_comm",
            {"bytes": fastest["message_size"] * BYTES_PER_ELEMENT},
            fastest["time_us"],
            source=str(path),
        )
    ]
