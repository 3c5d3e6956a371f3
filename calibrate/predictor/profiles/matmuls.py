"""The matrix products of a model's layers, found in a table of measured ones or put together from its neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from calibrate.predictor.measured import (
    Floats,
    MissingRows,
    OperatorTable,
    Wanted,
    nearest_name,
    operator_table,
)
from calibrate.predictor.profiles.precisions import table_precisions

Curves = dict[tuple[int, int], tuple[Floats, Floats]]
"""By (n, k): the m that were measured, and their µs."""

FEWEST_POINTS = 2
"""A line needs two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Matmul:
    """A product of m tokens: (m, k) with (k, n). ``feature``: what m is called in the operator's table."""

    operator: str
    n: int
    k: int
    precisions: tuple[str, ...]
    feature: str = "tokens"


def needed_matmuls(wanted: Wanted) -> list[Matmul]:
    """Return the products of one layer and of the LM head, each GPU's share of them under tensor parallelism."""
    shape, tp = wanted.shape, wanted.tp
    attention = shape.attention
    if attention.is_mla:
        raise MissingRows(
            f"{shape.name}: multi-head latent attention, but operators are known for grouped-query attention only"
        )
    heads, kv_heads = attention.num_heads // tp, max(1, attention.num_kv_heads // tp)
    qkv = heads * attention.head_dim + kv_heads * (attention.head_dim + attention.v_head_dim)
    own = table_precisions(shape.attention_precision.name)
    found = [
        Matmul(operator="attn_pre_proj", n=qkv, k=shape.hidden_size, precisions=own),
        Matmul(
            operator="attn_post_proj", n=shape.hidden_size, k=heads * attention.v_head_dim, precisions=own
        ),
        Matmul(
            operator="lm_head",
            n=-(-shape.vocab_size // tp),
            k=shape.hidden_size,
            precisions=("bfloat16",),
            feature="sequences",
        ),
    ]
    shared = shape.experts.shared_size if shape.experts else 0
    precisions = table_precisions(shape.mlp_precision.name)
    if shape.num_dense_layers:
        found += _mlp("mlp", shape.intermediate_size // tp, wanted, precisions)
    if shared:
        found += _mlp("shared", shared // tp, wanted, precisions)
    return found


def _mlp(prefix: str, width: int, wanted: Wanted, precisions: tuple[str, ...]) -> list[Matmul]:
    hidden = wanted.shape.hidden_size
    up = width * (wanted.shape.num_matrices - 1)
    return [
        Matmul(operator=f"{prefix}_up_proj", n=up, k=hidden, precisions=precisions),
        Matmul(operator=f"{prefix}_down_proj", n=hidden, k=width, precisions=precisions),
    ]


def matmul_table(product: Matmul, table: pd.DataFrame, path: Path) -> OperatorTable:
    """Return a product's times by m, those of its own (n, k) where measured, else linear between the nearest.

    Beyond the largest n or k of the table, times grow in proportion. Where several kernels did the same product, the
    fastest counts. Raises MissingRows when the table lacks the precision, or has no shapes around.
    """
    have = {str(each) for each in table["gemm_dtype"]}
    dtype = next((name for name in product.precisions if name in have), None)
    if dtype is None:
        wanted = product.precisions[0]
        raise MissingRows(
            f"{path}: column 'gemm_dtype': no rows of {wanted!r} for {product.operator} "
            f"(nearest: {nearest_name(wanted, have)!r})"
        )
    curves = curves_of(table[table["gemm_dtype"] == dtype])
    notes: tuple[str, ...] = ()
    if (product.n, product.k) not in curves:
        curve, note = between(product, curves)
        notes = (f"{path.name}: {note}",)
    else:
        curve = curves[product.n, product.k]
    tokens, times = curve
    if len(tokens) < FEWEST_POINTS:
        raise MissingRows(
            f"{path}: no {dtype} rows around n={product.n}, k={product.k} for {product.operator}"
        )
    return operator_table(product.operator, {product.feature: tokens}, times, source=str(path), notes=notes)


def curves_of(table: pd.DataFrame) -> Curves:
    """Return, for each measured (n, k), its m in ascending order and the fastest kernel's µs."""
    columns = [table[name].to_numpy(np.float64) for name in ("n", "k", "m", "time_us")]
    n, k, m, time_us = columns
    order = np.lexsort((time_us, m, k, n))
    rows = np.column_stack(columns)[order]
    is_first = np.ones(len(rows), np.bool_)
    is_first[1:] = np.any(np.diff(rows[:, :3], axis=0) != 0, axis=1)
    rows = rows[is_first]
    cuts = np.flatnonzero(np.any(np.diff(rows[:, :2], axis=0) != 0, axis=1)) + 1
    return {(int(part[0, 0]), int(part[0, 1])): (part[:, 2], part[:, 3]) for part in np.split(rows, cuts)}


def between(product: Matmul, curves: Curves) -> tuple[tuple[Floats, Floats], str]:
    """Return a curve of a shape that was not measured: linear in n, then in k, proportional beyond the largest."""
    n_low, n_high, n_share, n_factor = _around(product.n, np.unique([n for n, _ in curves]))
    k_low, k_high, k_share, k_factor = _around(product.k, np.unique([k for _, k in curves]))
    corners = [
        ((n, k), n_weight * k_weight * n_factor * k_factor)
        for n, n_weight in ((n_low, 1 - n_share), (n_high, n_share))
        for k, k_weight in ((k_low, 1 - k_share), (k_high, k_share))
        if n_weight * k_weight > 0
    ]
    of = ", ".join(
        f"{name}={value} of {low}" + (f" and {high}" if high != low else "")
        for name, value, low, high in (("n", product.n, n_low, n_high), ("k", product.k, k_low, k_high))
        if (low, high) != (value, value)
    )
    nothing = (np.zeros(0), np.zeros(0))
    known = [(curves.get(corner, nothing), weight) for corner, weight in corners]
    tokens = known[0][0][0]
    for (other, _), _ in known[1:]:
        tokens = np.intersect1d(tokens, other)
    times = sum(
        (np.interp(tokens, m, time_us) * weight for (m, time_us), weight in known if len(m)),
        np.zeros(len(tokens)),
    )
    return (tokens, np.asarray(times)), f"{product.operator} with {of}"


def _around(value: int, known: NDArray[np.int64]) -> tuple[int, int, float, float]:
    """Return (known value below, above, share of the one above, factor beyond the largest)."""
    if value >= known[-1]:
        return int(known[-1]), int(known[-1]), 0.0, value / float(known[-1])
    if value <= known[0]:
        return int(known[0]), int(known[0]), 0.0, 1.0
    above = int(np.searchsorted(known, value))
    if known[above] == value:
        return value, value, 0.0, 1.0
    low, high = int(known[above - 1]), int(known[above])
    return low, high, (value - low) / (high - low), 1.0
