"""The Pareto front of a sweep: the settings that no other beats in both of two figures, at the same load."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from lazy_dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from replay.sweeps.grid import SweepRun
from replay.sweeps.one_run import Row
from traces import ConfigError, own_figure

PRICE = "price_per_million_tokens"
THROUGHPUT = "output_token_throughput"
LATENCY = "e2e_us.p99"
MORE_IS_BETTER = ("throughput", "frac", "per_s", "goodput")
"""A figure whose name has one of these is better where it is larger."""
NOT_SETTINGS = ("run", "seed", "error")
LOADS = ("workload", "load.")
"""Prefixes of the columns that describe the load: a setting is compared with others under the same load."""
GOOD_FRAC = "goodput.good_frac"
BESIDE = ("ttft_us.p99", "tpot_us.p99", "itl_us.p99", "goodput.good_per_s")
"""Figures that are shown beside the front's two, where the table has them."""
UNANSWERED = "unanswered"
"""The column of keys that a run's twin has no answer to: such a setting is not compared."""
GOOD = 0.99
"""Share of requests within the SLO that a setting must reach to be on the front, where the grid has one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Front:
    """Settings with the means over their seeds.

    ``points``: a row each, its settings, ``x``, ``y``, what is shown beside them (``BESIDE``), and ``is_best``.
    ``loads``: which of the settings say what is asked of the server. ``keeps_slo``: whether only settings within the
    SLO are on the front; None where the grid has no SLO, False where no setting keeps it. ``unanswered``: keys that
    some twins have no answer to; settings of them are on no front. ``num_overloaded``: runs with that verdict, of
    ``num_runs``.
    """

    x: str
    y: str
    settings: tuple[str, ...]
    points: pd.DataFrame
    loads: tuple[str, ...] = ()
    keeps_slo: bool | None = None
    unanswered: tuple[str, ...] = ()
    num_runs: int = 0
    num_overloaded: int = 0

    @property
    def choices(self) -> tuple[str, ...]:
        """The settings that are the server's, not the load's."""
        return tuple(name for name in self.settings if name not in self.loads)


@dataclass(frozen=True, slots=True, kw_only=True)
class GridEnd:
    """A setting of which the front has the largest or the smallest value of the grid."""

    key: str
    value: float
    end: Literal["largest", "smallest"]


def grid_ends(front: Front) -> list[GridEnd]:
    """Return the settings that the front has at the ends of the grid: something beyond may be better.

    Numbers only: a switch, or a name, has no beyond. Loads are what was asked for, and not chosen.
    """
    found = []
    best = front.points[front.points["is_best"]]
    for name in front.choices:
        values = pd.to_numeric(front.points[name], errors="coerce")
        if pd.api.types.is_bool_dtype(front.points[name]) or values.isna().any() or values.nunique() < 2:
            continue
        chosen = set(pd.to_numeric(best[name]))
        ends: tuple[tuple[Literal["largest", "smallest"], float], ...] = (
            ("smallest", float(values.min())),
            ("largest", float(values.max())),
        )
        found += [GridEnd(key=name, value=value, end=end) for end, value in ends if value in chosen]
    return found


def is_more_better(name: str) -> bool:
    """Say whether a larger value of a figure is the better one, by its name."""
    return any(part in name for part in MORE_IS_BETTER)


def _no_figure(option: str, name: str, figures: Sequence[str]) -> ConfigError:
    hint = own_figure(name)
    shown = ", ".join(figures[:12])
    return ConfigError(
        f"{option}: got {name!r}, expected a figure of the table, as {shown}{f'; {hint}' if hint else ''}"
    )


def figures_looked_for(
    rows: Iterable[Row], runs: Sequence[SweepRun], *, x: str | None, y: str | None
) -> Iterator[Row]:
    """Yield rows of runs as they come; once each configuration has a result, look for two figures in these.

    Raises ConfigError where none has one of them: the table of all would not have it either.
    """
    left, seen = {run.config_name for run in runs}, list[Row]()
    for row in rows:
        yield row
        if row["error"] is None and row["config"] in left:
            left.remove(str(row["config"]))
            seen.append(row)
            if not left:
                _check_figures(seen, runs[0].columns(), x=x, y=y)


def _check_figures(rows: Sequence[Row], settings: Collection[str], *, x: str | None, y: str | None) -> None:
    numbers = [
        name for name, value in rows[0].items() if isinstance(value, int | float) and name not in settings
    ]
    for option, name in (("--x", x), ("--y", y)):
        if name is not None and not any(name in row for row in rows):
            raise _no_figure(option, name, numbers)


def front_of(table: pd.DataFrame, settings: tuple[str, ...], *, x: str | None, y: str | None) -> Front:
    """Return all settings with their means of two columns, marked where no other is at least as good in both.

    Only settings under the same load are compared, and where there is an SLO only those that keep it. ``x``: the price
    of a million output tokens where there are prices, else the output tokens per second; ``y``: the 99th percentile of
    E2E. Raises ConfigError on a column that the table does not have.
    """
    x = x or (PRICE if PRICE in table.columns else THROUGHPUT)
    y = y or LATENCY
    for option, name in (("--x", x), ("--y", y)):
        if name not in table.columns or not pd.api.types.is_numeric_dtype(table[name]):
            numbers = [str(each) for each in table.select_dtypes("number").columns if each not in settings]
            raise _no_figure(option, name, numbers)
    done = table[table["error"].isna()].dropna(subset=[x, y])
    varied = tuple(name for name in settings if done[name].nunique(dropna=False) > 1) or settings[:1]
    judged = [GOOD_FRAC] if GOOD_FRAC in table.columns and GOOD_FRAC not in (x, y) else []
    asked = (
        done[UNANSWERED] if UNANSWERED in done.columns else pd.Series(None, index=done.index, dtype=object)
    )
    done = done.assign(has_answer=asked.isna().astype(float))
    known = set(table.select_dtypes("number").columns)
    beside = [name for name in BESIDE if name in known and name not in (x, y)]
    figures = [x, y, *beside, *judged, "has_answer"]
    points = done.groupby(list(varied), dropna=False, sort=False)[figures].mean().reset_index()
    loads = tuple(name for name in varied if name.startswith(LOADS))
    within = (points[GOOD_FRAC] >= GOOD).to_numpy() if judged else np.ones(len(points), np.bool_)
    keeps_slo = bool(within.any()) if judged else None
    within = within & (points["has_answer"] == 1).to_numpy()
    points = points.assign(is_best=_best_of_each_load(points, loads, x=x, y=y, within=within))
    keys = (
        tuple(dict.fromkeys(", ".join(map(str, asked.dropna())).split(", "))) if asked.notna().any() else ()
    )
    return Front(
        x=x,
        y=y,
        settings=varied,
        points=points,
        loads=loads,
        keeps_slo=keeps_slo,
        unanswered=keys,
        num_runs=len(done),
        num_overloaded=int((done["verdict"] == "overloaded").sum()) if "verdict" in done.columns else 0,
    )


def _best_of_each_load(
    points: pd.DataFrame, loads: tuple[str, ...], *, x: str, y: str, within: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Return which settings are on the front of their load; ``within``: which may be."""
    best = np.zeros(len(points), np.bool_)
    of_load = (
        points.groupby(list(loads), dropna=False).ngroup() if loads else pd.Series(0, index=points.index)
    )
    for number in of_load.unique():
        rows = np.flatnonzero((of_load == number).to_numpy() & within)
        chosen = points.iloc[rows]
        best[rows] = is_on_front(_as_cost(chosen[x], x), _as_cost(chosen[y], y))
    return best


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
