"""Attention within a window that was measured with other numbers of heads than a model's.

What a kernel with a window takes is a factor on what attention takes over as many keys as the window holds: it masks
a tile more, and does not split a context among multiprocessors. That factor hardly depends on how heads are grouped.
It is therefore taken from other numbers of heads of the same width and cache: of decodes by sequences times KV heads
(the kernel's blocks), of prompts by their length and by heads times tokens.
tests/studies/validation/unseen_attention.py has its error.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.interpolate import LinearNDInterpolator

Floats = NDArray[np.float64]

HEADS = ["num_heads", "num_key_value_heads"]
FEWEST = 4
"""Points that a surface of prompts needs."""


def windowed_decodes(
    own: pd.DataFrame, others: pd.DataFrame, *, kv_heads: float, window: int
) -> pd.DataFrame | None:
    """Return a model's rows (``batch_size``, ``isl``, ``step``, ``time_us``) with the window, put together.

    ``own``: its decodes over all keys; ``others``: rows of other heads, of all keys (``window_size`` 0) and within the
    window. None where they have no factor to tell.
    """
    factors = _decode_factors(others, window)
    if factors.empty:
        return None
    blocks = np.log(factors.index.to_numpy(float))
    made = []
    for batch in own["batch_size"].unique().tolist():
        curve = own[own["batch_size"] == batch].groupby("step")["time_us"].median()
        keys = curve.index.to_numpy(float) + 1
        factor = np.interp(np.log(batch * kv_heads), blocks, factors.to_numpy())
        within = np.interp(window, keys, curve.to_numpy()) * factor
        times = np.where(keys > window, within, curve.to_numpy())
        made.append(pd.DataFrame({"batch_size": batch, "isl": 1, "step": keys - 1, "time_us": times}))
    return pd.concat(made, ignore_index=True)


def windowed_prompts(
    own: pd.DataFrame, others: pd.DataFrame, *, heads: float, window: int
) -> pd.DataFrame | None:
    """Return the same of prompts (``batch_size``, ``isl``, ``time_us``); those that cannot be told are left out."""
    factors = _prompt_factors(others, window)
    surface = _surface(own)
    if factors.empty or surface is None:
        return None
    short = own[own["isl"] <= window]
    long = own[own["isl"] > window]
    told = _cut(surface, long, window)
    logs = np.log(heads * (long["batch_size"] * long["isl"]).to_numpy(float))
    for length, known in factors.groupby("isl"):
        asked = (long["isl"] == length).to_numpy()
        work = logs[asked]
        told[asked] *= np.interp(work, known["work"], known["factor"])
    told[~long["isl"].isin(factors["isl"]).to_numpy()] = np.nan
    made = long.assign(time_us=told).dropna(subset=["time_us"])
    return pd.concat([short, made], ignore_index=True)[["batch_size", "isl", "time_us"]]


def _pairs(others: pd.DataFrame, window: int) -> Iterator[tuple[pd.DataFrame, pd.DataFrame]]:
    """Yield for each number of heads its rows of all keys, and those within the window."""
    full = dict(list(others[others["window_size"] == 0].groupby(HEADS)))
    for key, rows in others[others["window_size"] == window].groupby(HEADS):
        if key in full:
            yield full[key], rows


def _decode_factors(others: pd.DataFrame, window: int) -> pd.Series:
    """Return the factors by blocks, ascending: sequences times KV heads."""
    found = []
    for full, within in _pairs(others, window):
        longer = within[within["step"] + 1 > window].groupby("batch_size")["time_us"].median()
        for batch in full["batch_size"].unique().tolist():
            curve = full[full["batch_size"] == batch].groupby("step")["time_us"].median()
            if batch in longer.index and curve.index.max() + 1 >= window:
                told = np.interp(window, curve.index.to_numpy(float) + 1, curve.to_numpy())
                found.append((batch * full["num_key_value_heads"].iloc[0], longer[batch] / told))
    return pd.DataFrame(found, columns=["blocks", "factor"]).groupby("blocks")["factor"].median()


def _prompt_factors(others: pd.DataFrame, window: int) -> pd.DataFrame:
    """Return factors by ``isl`` and ``work``, the logarithm of heads times tokens, ascending."""
    found = [pd.DataFrame(columns=["isl", "work", "factor"], dtype=float)]
    for full, within in _pairs(others, window):
        longer, surface = within[within["isl"] > window], _surface(full)
        if surface is not None and not longer.empty:
            work = np.log(longer["num_heads"] * longer["batch_size"] * longer["isl"]).round(1)
            factor = longer["time_us"] / _cut(surface, longer, window)
            found.append(pd.DataFrame({"isl": longer["isl"], "work": work, "factor": factor}).dropna())
    every = pd.concat(found, ignore_index=True)
    return every.groupby(["isl", "work"])["factor"].median().reset_index()


def _surface(full: pd.DataFrame) -> LinearNDInterpolator | None:
    """Return the logarithm of times over those of tokens and of the keys that a query sees on average."""
    if len(full) < FEWEST or full["isl"].nunique() < 2 or full["batch_size"].nunique() < 2:
        return None
    points = np.column_stack([full["batch_size"] * full["isl"], (full["isl"] + 1) / 2])
    return LinearNDInterpolator(np.log(points), np.log(full["time_us"].to_numpy()))


def _cut(surface: LinearNDInterpolator, rows: pd.DataFrame, window: int) -> Floats:
    """Return what attention takes over at most as many keys as the window holds; nan beyond what was measured."""
    asked = np.column_stack(
        [rows["batch_size"] * rows["isl"], np.minimum((rows["isl"] + 1) / 2, float(window))]
    )
    return np.asarray(np.exp(surface(np.log(asked))))
