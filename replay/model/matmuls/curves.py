"""Measured products by their shapes, and one that was not measured, put together from the shapes around it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from replay.model.matmuls.products import Matmul

Floats = NDArray[np.float64]
Curves = dict[tuple[int, int], tuple[Floats, Floats]]
"""The m that were measured and their µs, by (n, k)."""
FEWEST_POINTS = 2
"""A line needs two."""


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
    return mixed(known), f"{product.operator} with {of}"


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


def mixed(curves: Sequence[tuple[tuple[Floats, Floats], float]]) -> tuple[Floats, Floats]:
    """Return the mean of several curves by their shares, at the m that all of them have."""
    tokens = curves[0][0][0]
    for (other, _), _ in curves[1:]:
        tokens = np.intersect1d(tokens, other)
    times = sum(
        (np.interp(tokens, m, us) * share for (m, us), share in curves if len(m)), np.zeros(len(tokens))
    )
    return tokens, np.asarray(times)
