"""The matrix products of a model's layers, found in a table of measured ones or put together from its neighbours."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from calibrate.predictor.measured import MissingRows, OperatorTable, nearest_name, operator_table
from replay.model.matmuls import FEWEST_POINTS, Curves, Matmul, between


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
