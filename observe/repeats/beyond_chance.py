"""Whether repeated runs differ by more than chance: a drift, a first run apart from the others, one run apart.

Each is a t test on the logs of a figure. A drift is the slope over the order of the runs. A run is apart by how far
it lies from the mean of the others, in their spread (an externally studentized residual: Cook and Weisberg,
"Residuals and Influence in Regression", 1982, section 2.2.1). Of all runs the one farthest off counts, so its
probability is multiplied by the number of runs (Bonferroni). The first run has a test of its own, as warm-up has a
place. Where several loads are repeated in the same blocks, drift and first run are judged by the mean of each block:
runs of one block may share the server's pace of that hour, and are no independent witnesses. All tests of an answer
together call at most one of twenty sets of sound runs different.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from lazy_dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Kind = Literal["drift", "first", "apart"]

JUDGED: Final = ("ttft_us.mean", "tpot_us.mean")
INSTEAD: Final = ("e2e_us.mean",)
"""Where a run has neither."""
FALSE_ALARMS: Final = 0.05
"""The share of sets of sound runs that are told to differ."""
LEAST: Final = 0.01
"""Smaller differences are of no matter to anyone, however sure."""
LEAST_RUNS: Final = 4
"""Three runs have one degree of freedom beside a slope or a run apart: no difference would be sure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BeyondChance:
    """What differs by more than chance, and by how much: ``change`` as a share, over all runs where they drift.

    ``load``, ``run``: the run that is apart, from 1, and its load, None: of all loads. ``p``: how often sound runs
    would show as much.
    """

    kind: Kind
    figure: str
    change: float
    p: float
    load: str | None = None
    run: int | None = None


def differences(loads: Mapping[str, Mapping[str, Sequence[float]]]) -> list[BeyondChance]:
    """Return what differs, of each figure the surest; figures by load, in the order of their runs."""
    judged = [name for name in JUDGED if any(name in each for each in loads.values())] or INSTEAD
    found = []
    for figure in judged:
        logs = {name: _logs(each.get(figure, ())) for name, each in loads.items()}
        kept = {name: values for name, values in logs.items() if len(values) >= LEAST_RUNS}
        if not kept:
            continue
        most = min(len(values) for values in kept.values())
        blocks = np.mean([values[:most] for values in kept.values()], axis=0)
        tests = [_drift(figure, blocks), _first(figure, blocks), _apart(figure, kept)]
        sure = [
            each
            for each in tests
            if each.p < FALSE_ALARMS / (len(tests) * len(judged)) and abs(each.change) >= LEAST
        ]
        found += sorted(sure, key=lambda each: each.p)[:1]
    return found


def _logs(values: Sequence[float]) -> Floats:
    figures = np.array(values, np.float64)
    return np.log(figures) if len(figures) and bool((figures > 0).all()) else np.empty(0)


def _drift(figure: str, values: Floats) -> BeyondChance:
    place = np.arange(len(values)) - (len(values) - 1) / 2
    slope = float(place @ values / (place @ place))
    rest = values - values.mean() - slope * place
    error = math.sqrt(float(rest @ rest) / (len(values) - 2) / float(place @ place))
    change = math.expm1(slope * (len(values) - 1))
    return BeyondChance(kind="drift", figure=figure, change=change, p=_p(slope, error, len(values) - 2))


def _first(figure: str, values: Floats) -> BeyondChance:
    p, away = _from_others(values, 0)
    return BeyondChance(kind="first", figure=figure, change=math.expm1(away), p=p, run=1)


def _apart(figure: str, loads: Mapping[str, Floats]) -> BeyondChance:
    seen = [
        (*_from_others(values, place), name, place)
        for name, values in loads.items()
        for place in range(len(values))
    ]
    p, change, load, place = min(seen)
    return BeyondChance(
        kind="apart",
        figure=figure,
        change=math.expm1(change),
        p=min(p * len(seen), 1.0),
        load=load,
        run=place + 1,
    )


def _from_others(values: Floats, place: int) -> tuple[float, float]:
    """Return how often a run lies as far from the others, and how far it lies, as a log."""
    others = np.delete(values, place)
    away = float(values[place] - others.mean())
    error = float(others.std(ddof=1)) * math.sqrt(1 + 1 / len(others))
    return _p(away, error, len(others) - 1), away


def _p(value: float, error: float, freedom: int) -> float:
    """Return how often Student's t lies as far off as ``value`` over ``error``, on either side."""
    from scipy.special import stdtr

    if value == 0 or error == 0:
        return float(value == 0)
    return 2 * float(stdtr(freedom, -abs(value) / error))
