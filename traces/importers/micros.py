"""Times of other tools to whole microseconds; impossible ones are refused."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from traces.errors import TraceError
from traces.strict.limits import MOST_US


def micros(times: NDArray[np.float64], us_per_unit: int, *, what: str) -> NDArray[np.int64]:
    """Return times in whole µs, halves to even; ``what`` names them: ``FILE: COLUMN``.

    Raises TraceError for one that is not a number, or beyond ``MOST_US``.
    """
    scaled = times * float(us_per_unit)
    bad = np.flatnonzero(~(np.abs(scaled) <= MOST_US))
    if len(bad):
        raise TraceError(f"{what}: got {times[bad[0]]:g}, expected a time of at most {MOST_US} µs")
    whole: NDArray[np.int64] = np.rint(scaled).astype(np.int64)
    return whole
