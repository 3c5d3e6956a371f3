"""The mean of a figure over repeated runs, its 95 % interval, and the spread of one run: the noise floor."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from lazy_dataclasses import dataclass
from typing import Final

import numpy as np

from traces import RunSpread

LEVEL: Final = 0.95
"""Share of the intervals that hold the server's mean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanOfRuns:
    """A figure over ``num_runs``: their mean, its interval, and ``spread``, one run's standard deviation.

    ``low``, ``high``, ``spread``: in the figure's unit; None of one run.
    """

    mean: float
    low: float | None
    high: float | None
    spread: float | None
    num_runs: int

    @property
    def half_width(self) -> float | None:
        """Half the interval's width."""
        return None if self.high is None else self.high - self.mean

    @property
    def spread_frac(self) -> float | None:
        """The spread as a share of the mean; None where there is none."""
        return None if self.spread is None or self.mean <= 0 else self.spread / self.mean


def mean_of_runs(values: Sequence[float]) -> MeanOfRuns:
    """Return the mean of independent runs' figures [n], n >= 1, with t · s / √n to both sides (Student's t, n - 1)."""
    figures = np.array(values, np.float64)
    number, mean = len(figures), float(figures.mean())
    if number < 2:
        return MeanOfRuns(mean=mean, low=None, high=None, spread=None, num_runs=number)
    spread = float(figures.std(ddof=1))
    half = students_t(number - 1) * spread / math.sqrt(number)
    return MeanOfRuns(mean=mean, low=mean - half, high=mean + half, spread=spread, num_runs=number)


def students_t(freedom: int) -> float:
    """Return the t beyond which, on both sides together, 5 % lie with this many degrees of freedom."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + LEVEL) / 2))


def noise_floor(figures: Mapping[str, MeanOfRuns]) -> RunSpread | None:
    """Return the spread of one run as a trace's header has it: of the figures that all runs have; None of one run."""
    most = max((each.num_runs for each in figures.values()), default=0)
    spread = {
        name: float(f"{share:.6g}")
        for name, each in figures.items()
        if each.num_runs == most and (share := each.spread_frac) is not None
    }
    return RunSpread(num_runs=most, spread=spread) if most > 1 else None
