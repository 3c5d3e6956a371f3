"""The axis of a run's time: in seconds, minutes or hours, by the run's length."""

from __future__ import annotations

from lazy_dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from traces.pages import Scale, linear

UNITS = ((7.2e9, 3.6e9, "h"), (9e8, 6e7, "min"), (0.0, 1e6, "s"))
"""From which length on, µs (two hours, a quarter of an hour), which unit is used, µs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeAxis:
    """The axis from 0 to a run's end; its values are µs over ``divisor``, in ``unit``."""

    scale: Scale
    divisor: float
    unit: str

    def of(self, time_us: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return times, µs, as values of the axis."""
        return np.asarray(time_us / self.divisor)


def time_axis(span_us: float) -> TimeAxis:
    """Return the axis of a run that took this long."""
    _, divisor, unit = next(each for each in UNITS if span_us >= each[0])
    return TimeAxis(scale=linear(0.0, span_us / divisor, label=unit), divisor=divisor, unit=unit)
