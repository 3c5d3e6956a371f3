"""The matrix products of a model's layers, found in a table of measured ones or put together from its neighbours."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from calibrate.predictor.measured import Floats, MissingRows, OperatorTable, nearest_name, operator_table
from replay.model.matmuls import FEWEST_POINTS, Curves, Matmul, between, mixed

DISTURBED = 1.25
"""What took more than this many times as long as the same with more work was disturbed while it was measured. Of the
products in FP8 on B200 every twelfth took some 20 µs too long; each made all after it seem slow (``never_falling``)."""


def matmul_table(product: Matmul, table: pd.DataFrame, path: Path) -> OperatorTable:
    """Return a product's times by m, those of its own (n, k) where measured, else linear between the nearest.

    Beyond the largest n or k of the table, times grow in proportion. Where several kernels did the same product, the
    fastest counts; where some layers have it in another precision, the mean by their shares. Raises MissingRows when
    the table lacks a precision, or has no shapes around.
    """
    found, notes = [], []
    for names, share in product.mix:
        curve, dtype, note = _in_precision(product, names, table, path)
        found.append((curve, share))
        notes += [note] if note else []
        if len(product.mix) > 1:
            notes.append(f"{path.name}: {product.operator}: {share:.0%} of it in {dtype}")
    tokens, times = mixed(found)
    return operator_table(
        product.operator,
        {product.feature: tokens},
        times,
        source=str(path),
        notes=tuple(dict.fromkeys(notes)),
    )


def _in_precision(
    product: Matmul, names: tuple[str, ...], table: pd.DataFrame, path: Path
) -> tuple[tuple[Floats, Floats], str, str]:
    """Return a product's curve in the first of several precisions that a table has, which it is, and what to say."""
    have = {str(each) for each in table["gemm_dtype"]}
    dtype = next((name for name in names if name in have), None)
    if dtype is None:
        raise MissingRows(
            f"{path}: column 'gemm_dtype': no rows of {names[0]!r} for {product.operator} "
            f"(nearest: {nearest_name(names[0], have)!r})"
        )
    curves = {
        size: undisturbed(*each) for size, each in curves_of(table[table["gemm_dtype"] == dtype]).items()
    }
    note = ""
    if (product.n, product.k) in curves:
        curve = curves[product.n, product.k]
    else:
        curve, said = between(product, curves)
        note = f"{path.name}: {said}"
    if len(curve[0]) < FEWEST_POINTS:
        raise MissingRows(
            f"{path}: no {dtype} rows around n={product.n}, k={product.k} for {product.operator}"
        )
    return curve, dtype, note


def undisturbed(work: Floats, time_us: Floats) -> tuple[Floats, Floats]:
    """Return the points of a curve, by ascending work, that took about as long as more work did, or less."""
    least = np.minimum.accumulate(time_us[::-1])[::-1]
    kept = time_us <= DISTURBED * least
    return work[kept], time_us[kept]


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
