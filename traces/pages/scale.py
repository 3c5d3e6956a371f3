"""Axes: the position of a value between two ends, and the round numbers written along the axis."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from lazy_dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LOG_FROM = 15.0
"""Positive values whose high end is this many times their low end are shown on a logarithmic axis."""
MOST_TICKS = 6
FARTHEST = 5.0
"""A limit this many times beyond the values is left off the axis: reaching it would flatten them."""
LIMIT_AT = 0.8
"""The position of a limit on an axis that has nothing else."""
SMALLEST_SPAN = 1e-9
"""An axis whose ends are nearer to each other than this, relative to their size, is widened."""


def plain(value: float) -> str:
    """Return a number with the digits it needs, thousands set apart, a true minus sign."""
    text = f"{value:,.6g}" if abs(value) < 1e6 else f"{value:,.0f}"
    return text.replace("-", "\u2212")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """An axis from ``low`` to ``high``; ``ticks`` are values with their text, ``label`` says what and in which unit.

    ``write``: how a value of it is written.
    """

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    label: str = ""
    is_log: bool = False
    write: Callable[[float], str] = plain

    @property
    def remark(self) -> str:
        """A note for the reader if the axis does not start at 0 or is not linear; else empty."""
        if self.is_log:
            return "log scale"
        return "not from 0" if self.low > 0 else ""

    def holds(self, value: float) -> bool:
        """Return whether a value lies between the ends."""
        return self.low <= value <= self.high

    def place(self, values: Floats) -> Floats:
        """Return where values lie, 0 at ``low``, 1 at ``high``; beyond the ends they are held there."""
        if self.is_log:
            low, high = math.log(self.low), math.log(self.high)
            shares = (np.log(np.maximum(values, self.low)) - low) / (high - low)
        else:
            shares = (values - self.low) / (self.high - self.low)
        return np.asarray(np.clip(shares, 0.0, 1.0))


def linear(
    low: float,
    high: float,
    *,
    label: str = "",
    text: Callable[[float], str] | None = None,
    most: int = MOST_TICKS,
) -> Scale:
    """Return a linear axis with at most ``most`` ticks at round values; the ends are as given."""
    if not high - low > max(SMALLEST_SPAN * max(abs(low), abs(high)), sys.float_info.min * most):
        low, high = low - 0.5 * max(abs(low), 1.0), low + 0.5 * max(abs(low), 1.0)
    step = _round_step((high - low) / most)
    first = math.ceil(low / step - 1e-9)
    values = [number * step for number in range(first, math.floor(high / step + 1e-9) + 1)]
    write = text or plain
    ticks = tuple((value, write(value)) for value in values)
    return Scale(low=low, high=high, ticks=ticks, label=label, write=write)


def logarithmic(
    low: float, high: float, *, label: str = "", text: Callable[[float], str] | None = None
) -> Scale:
    """Return a logarithmic axis; ``low`` and ``high`` are positive."""
    if not high > low * (1 + SMALLEST_SPAN):
        low, high = low / 1.5, low * 1.5
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1, 2, 3, 5), (1, 2, 5), (1, 3), (1,)):
        values = [step * 10.0**decade for decade in decades for step in steps]
        values = [value for value in values if low * 0.999 <= value <= high * 1.001]
        if len(values) <= MOST_TICKS + 1:
            break
    write = text or plain
    ticks = tuple((value, write(value)) for value in values)
    return Scale(low=low, high=high, ticks=ticks, label=label, is_log=True, write=write)


def scale_of(
    values: Floats,
    *,
    label: str = "",
    text: Callable[[float], str] | None = None,
    limit: float | None = None,
) -> Scale:
    """Return an axis that holds all but the outermost hundredths, logarithmic where they span much.

    It reaches ``limit``, a value > 0, too, unless that is so far away that the values would be flattened
    (``Scale.holds`` says which).
    """
    known = values[np.isfinite(values)]
    if len(known) == 0:
        return linear(0.0, 1.0 if limit is None else limit / LIMIT_AT, label=label, text=text)
    low, high = (float(bound) for bound in np.quantile(known, [0.01, 0.998]))
    is_log = low > 0 and high / low >= LOG_FROM
    if limit is not None and limit <= FARTHEST * high and (not is_log or limit * FARTHEST >= low):
        low, high = min(low, limit), max(high, limit)
    if is_log:
        return logarithmic(low / 1.08, high * 1.08, label=label, text=text)
    margin = 0.04 * (high - low)
    start = 0.0 if 0 <= low < 0.35 * high else low - margin
    return linear(start, high + margin, label=label, text=text)


def _round_step(least: float) -> float:
    """Return the smallest of 1, 2, 2.5, 5 times a power of ten that is not below ``least``."""
    power = 10.0 ** math.floor(math.log10(least))
    steps: Sequence[float] = (1.0, 2.0, 2.5, 5.0, 10.0)
    return next(step * power for step in steps if step * power >= least * (1 - 1e-9))
