"""The Pareto front of a sweep: the settings that nothing else beats in both of two figures."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from traces.errors import ConfigError

PRICE = "price_per_million_tokens"
THROUGHPUT = "output_token_throughput"
LATENCY = "e2e_us.p99"
MORE_IS_BETTER = ("throughput", "frac", "per_s", "goodput")
"""A figure whose name has one of these is better where it is larger."""
NOT_SETTINGS = ("run", "seed", "error")


@dataclass(frozen=True, slots=True, kw_only=True)
class Front:
    """Settings with the means over their seeds. ``points``: a row each, its settings, ``x``, ``y`` and ``is_best``."""

    x: str
    y: str
    settings: tuple[str, ...]
    points: pd.DataFrame


def is_more_better(name: str) -> bool:
    """Say whether a larger value of a figure is the better one, by its name."""
    return any(part in name for part in MORE_IS_BETTER)


def front_of(table: pd.DataFrame, settings: tuple[str, ...], *, x: str | None, y: str | None) -> Front:
    """Return all settings with their means of two columns, marked where no other is at least as good in both.

    ``x``: the price of a million output tokens where there are prices, else the output tokens per second; ``y``: the
    99th percentile of E2E. Raises ConfigError on a column that the table does not have.
    """
    x = x or (PRICE if PRICE in table.columns else THROUGHPUT)
    y = y or LATENCY
    for option, name in (("--x", x), ("--y", y)):
        if name not in table.columns or not pd.api.types.is_numeric_dtype(table[name]):
            numbers = [str(each) for each in table.select_dtypes("number").columns if each not in settings]
            raise ConfigError(
                f"{option}: got {name!r}, expected a figure of the table, as {', '.join(numbers[:12])}"
            )
    done = table[table["error"].isna()].dropna(subset=[x, y])
    varied = tuple(name for name in settings if done[name].nunique(dropna=False) > 1) or settings[:1]
    points = done.groupby(list(varied), dropna=False, sort=False)[[x, y]].mean().reset_index()
    points = points.assign(is_best=is_on_front(_as_cost(points[x], x), _as_cost(points[y], y)))
    return Front(x=x, y=y, settings=varied, points=points)


def _as_cost(values: pd.Series[float], name: str) -> NDArray[np.float64]:
    numbers = np.asarray(values, dtype=np.float64)
    return np.negative(numbers) if is_more_better(name) else numbers


def is_on_front(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return for each point whether none is at most as large in both and smaller in one."""
    order = np.lexsort((y, x))
    best = np.zeros(len(x), np.bool_)
    lowest, at = np.inf, np.nan
    for i in order:
        if y[i] < lowest:
            best[i], lowest, at = True, y[i], x[i]
        elif y[i] == lowest and x[i] == at:
            best[i] = True
    return best
