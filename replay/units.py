"""Times in the unit in which people read them."""

from __future__ import annotations

import math

_MINUTE_US, _HOUR_US = 6e7, 3.6e9


def shown_time(value_us: float) -> str:
    """Return a time with three digits and its unit: 492 µs, 7.97 ms, 1.21 s, 7.2 min, 1.5 h; ``-`` for NaN."""
    if math.isnan(value_us):
        return "-"
    size = abs(value_us)
    if size >= _HOUR_US:
        return f"{value_us / _HOUR_US:.3g} h"
    if size >= 2 * _MINUTE_US:
        return f"{value_us / _MINUTE_US:.3g} min"
    if size >= 999_500:
        return f"{value_us / 1e6:.3g} s"
    if size >= 999.5:
        return f"{value_us / 1e3:.3g} ms"
    return f"{value_us:.3g} µs" if size else "0 ms"


def or_null(value: float) -> float | None:
    """Return the number, None in place of NaN and infinity, which JSON does not have."""
    return value if math.isfinite(value) else None
