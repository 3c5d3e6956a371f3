"""Attention as it was measured: a layer's whole module, its projections included, by a GPU's number of heads.

Multi-head latent attention of DeepSeek-V3 (arXiv:2412.19437), which Kimi-K2 has with half the heads; the sparse one
of DeepSeek-V3.2 (arXiv:2512.02556) and GLM-5, with its index; MiniMax-M3's, which picks blocks of keys;
DeepSeek-V4's, with one entry for 4 or 128 tokens. Where a number of heads was not measured, times are linear between
the nearest. A step with prompts and decodes has the module's products twice, once for each, so their weights are read
once too often.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from lazy_dataclasses import dataclass
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
from replay.model import ModelShape, SharedKeyAttention
from replay.model.matmuls import table_precisions

Sizes = Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredModule:
    """A module that tables have: the prefix of its ``op_name``, whose it is, its sizes.

    ``model``: how the table names the model, None where it has one alone. ``product``: whose precision its rows go by.
    """

    prefix: str
    owner: str
    model: str | None
    sizes: Sizes
    product: str = "latent_module"


_V3: Sizes = {
    "hidden_size": 7168,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "rope_head_dim": 64,
    "head_dim": 192,
    "v_head_dim": 128,
}
_GLM: Sizes = {
    "hidden_size": 6144,
    "q_lora_rank": 2048,
    "kv_lora_rank": 512,
    "rope_head_dim": 64,
    "head_dim": 256,
    "v_head_dim": 256,
}
_INDEX: Sizes = {"index_heads": 64, "index_dim": 128, "top_k": 2048}
_M3: Sizes = {"hidden_size": 6144, "head_dim": 128, "v_head_dim": 128, "index_dim": 128, "top_k": 2048}
_FLASH: Sizes = {"hidden_size": 4096, "q_lora_rank": 1024, "head_dim": 512, "o_lora_rank": 1024}
_PRO: Sizes = {"hidden_size": 7168, "q_lora_rank": 1536, "head_dim": 512, "o_lora_rank": 1024}

MODULES: Mapping[str, Sequence[MeasuredModule]] = {
    "mla": (MeasuredModule(prefix="mla", owner="DeepSeek-V3", model=None, sizes=_V3),),
    "dsa": (
        MeasuredModule(
            prefix="dsa", owner="DeepSeek-V3.2", model="deepseek-ai/DeepSeek-V3.2", sizes={**_V3, **_INDEX}
        ),
        MeasuredModule(
            prefix="dsa", owner="GLM-5", model="zai-org/GLM-5", sizes={**_GLM, **_INDEX, "index_heads": 32}
        ),
    ),
    "msa": (
        MeasuredModule(prefix="msa", owner="MiniMax-M3", model=None, sizes=_M3, product="attn_post_proj"),
    ),
    **{
        prefix: tuple(
            MeasuredModule(
                prefix=prefix,
                owner=f"DeepSeek-V4-{name}",
                model=f"sgl-project/DeepSeek-V4-{name}-FP8",
                sizes={**sizes, **({"top_k": top} if prefix == "dsv4_csa" else {})},
                product="attn_post_proj",
            )
            for name, sizes, top in (("Flash", _FLASH, 512), ("Pro", _PRO, 1024))
        )
        for prefix in ("dsv4_csa", "dsv4_hca")
    },
}
"""The modules that were measured, by the prefix of their tables."""


def module_prefix(shape: ModelShape) -> str | None:
    """Return the prefix of the tables that a model of one kind of layers belongs to; None: of none.

    DeepSeek-V4's layers with a window alone are as those that keep one entry for 128 tokens, within the window.
    """
    mixer, attention = shape.mixers[0], shape.attention
    if mixer.attention is None:
        return None
    if mixer.compression is not None or isinstance(attention, SharedKeyAttention):
        is_picked = mixer.compression is not None and mixer.indexer is not None
        return "dsv4_csa" if is_picked else "dsv4_hca"
    if mixer.indexer is None:
        return "mla" if attention.is_mla else None
    return "msa" if mixer.indexer.block_size else "dsa"


def latent_fault(shape: ModelShape) -> str | None:
    """Return why no table has the module of a model of one kind of layers; None: one may, or it has no module."""
    prefix = module_prefix(shape)
    if prefix is None or _owner(shape, prefix) is not None:
        return None
    index = shape.mixers[0].indexer
    if index is not None and not index.num_heads:
        return f"{shape.name}: sparse attention by the index of the layer before, but it was measured with its own"
    has = _sizes(shape)
    closest = min(
        MODULES[prefix], key=lambda each: sum(has.get(name) != size for name, size in each.sizes.items())
    )
    off = {name: size for name, size in closest.sizes.items() if has.get(name) != size}
    said = ", ".join(f"{name} {has.get(name, 0)} ({size})" for name, size in off.items())
    owners = " or ".join(f"{each.owner}'s" for each in MODULES[prefix])
    return f"{shape.name}: attention of other sizes than {owners}, which alone were measured: {said}"


def _owner(shape: ModelShape, prefix: str) -> MeasuredModule | None:
    """Return the measured module that has a model's sizes; None: none."""
    has = _sizes(shape)
    return next(
        (each for each in MODULES[prefix] if all(has.get(name) == size for name, size in each.sizes.items())),
        None,
    )


def _sizes(shape: ModelShape) -> dict[str, int]:
    """Return the sizes of a model's attention and of its index, by name."""
    names = ("q_latent_rank", "kv_latent_rank", "rope_head_dim", "head_dim", "v_head_dim", "o_latent_rank")
    found = {
        name.replace("latent", "lora"): int(getattr(shape.attention, name, 0)) for name in names
    }  # as config.json calls them
    found["hidden_size"] = shape.hidden_size
    index = shape.mixers[0].indexer
    if index is not None:
        found |= {"index_heads": index.num_heads, "index_dim": index.head_dim, "top_k": index.top_k}
    return found


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
    """Return the fastest kernel's rows of a GPU's heads, and what to say of them; None of another attention.

    Where a checkpoint keeps the module's products in several precisions, times are their mean by shares of the weights.
    """
    shape, prefix = wanted.shape, module_prefix(wanted.shape)
    if prefix is None or not str(table["op_name"].iloc[0]).startswith(f"{prefix}_"):
        return None
    owner = _owner(shape, prefix)
    if owner is None:
        raise MissingRows(latent_fault(shape) or f"{path}: no module of {shape.name}")
    if owner.model is not None:
        table = _of(table, "model", (owner.model,), path)
    table = _of(table, "kv_cache_dtype", ("fp8",) if shape.kv_dtype_bytes == 1 else ("bfloat16",), path)
    heads = shape.attention.num_heads // wanted.tp
    parts, notes = [], []
    for precision, share in shape.precisions_of(owner.product, shape.attention_precision):
        # fp8 of a module's projections is scaled by block, as of experts
        names = table_precisions(precision, of_experts=True)
        rows, said = between_heads(_of(table, "gemm_type", names, path), path, heads)
        parts.append(rows.set_index(["batch_size", "isl", "step"])["time_us"] * share)
        notes += [*said, *([f"{path.name}: {share:.0%} in {names[0]}"] if share < 1 else [])]
    mixed = pd.concat(parts, axis=1, join="inner").sum(axis=1).rename("time_us").reset_index()
    if shape.mixers[0].is_windowed:
        notes.append(f"{path.name}: a window alone as with one entry for 128 tokens, within the window")
    return mixed, tuple(dict.fromkeys(notes))


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
