"""Student's t interval of a mean."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

LEVEL = 0.90
"""Share of the intervals that hold the true mean."""


def half_width(values: NDArray[np.float64]) -> float:
    """Return half the width of the 90 % interval of the mean of independent values, in their unit.

    ``values``: float64 [n], n >= 2. The half width is t · s / √n with Student's t of n - 1 degrees of freedom.
    """
    number = len(values)
    return students_t(number - 1) * float(values.std(ddof=1)) / math.sqrt(number)


def students_t(freedom: int) -> float:
    """Return the t beyond which, on both sides together, 10 % lie with this many degrees of freedom.

    ``scipy.special`` has the same number as ``scipy.stats`` and imports in 0.2 s where that takes 0.65 s.
    """
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + LEVEL) / 2))
