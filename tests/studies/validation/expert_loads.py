"""How many tokens the experts of one GPU were given while mixtures of experts were measured.

The tables of AIConfigurator route by a power law: each expert draws its part from a law of exponent ``alpha`` between 1
and 0.8 of the tokens (where there are fewer choices than experts: between 0.01 and 2), and with expert parallelism the
GPU with most tokens is the one that is timed (github.com/ai-dynamo/aiconfigurator, collector/helper.py:
power_law_logits_v3). Which draw a row had is not on record: here are the means of many.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Floats = NDArray[np.float64]

DRAWS, TILE = 16, 16
"""Draws that a mean is of; and rows of a tile, the least that an expert computes."""
LAW, PREFIX = 0.8, "power_law_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Of the GPU that is timed: token copies, experts with any, and copies when each expert's fill tiles of 16."""

    copies: float
    touched: float
    padded: float


def loads(rows: pd.DataFrame) -> tuple[Floats, Floats, Floats]:
    """Return copies, experts touched and padded copies [n] of rows of the experts' table."""
    alphas = rows["distribution"].str.removeprefix(PREFIX).astype(float)
    columns = [rows[name].astype(int) for name in ("num_tokens", "num_experts", "topk", "moe_ep_size")]
    found = [busiest(*map(int, key), alpha=alpha) for *key, alpha in zip(*columns, alphas, strict=True)]
    return (
        np.array([each.copies for each in found]),
        np.array([each.touched for each in found]),
        np.array([each.padded for each in found]),
    )


@lru_cache(maxsize=65536)
def busiest(tokens: int, experts: int, top: int, ep: int, *, alpha: float) -> Load:
    """Return the mean load of the GPU with most tokens among ``ep`` that share the experts."""
    low, high = (1.0, LAW * tokens) if tokens * top > experts else (0.01, 2.0)
    drawn = np.random.default_rng(0).random((DRAWS, experts))
    parts = ((high ** (1 - alpha) - low ** (1 - alpha)) * drawn + low ** (1 - alpha)) ** (1 / (1 - alpha))
    given = np.round(parts / parts.sum(axis=1, keepdims=True) * tokens * top)
    shares = np.maximum(_made_up(given, tokens * top, experts // ep), 0).reshape(DRAWS, ep, experts // ep)
    timed = shares[np.arange(DRAWS), shares.sum(axis=2).argmax(axis=1)]
    return Load(
        copies=float(timed.sum(axis=1).mean()),
        touched=float((timed > 0).sum(axis=1).mean()),
        padded=float((np.ceil(timed / TILE) * TILE).sum(axis=1).mean()),
    )


def _made_up(given: Floats, wanted: int, per_gpu: int) -> Floats:
    """Return what was given, and what rounding lost: most loaded first, of like ones one for each GPU in turn."""
    number = given.shape[1]
    lacking = wanted - given.sum(axis=1, keepdims=True)
    order = np.argsort(np.arange(number) % per_gpu - given * per_gpu, axis=1, kind="stable")
    places = np.argsort(order, axis=1, kind="stable")
    whole, rest = np.divmod(np.abs(lacking), number)
    return np.asarray(given + np.sign(lacking) * (whole + (places < rest)))
