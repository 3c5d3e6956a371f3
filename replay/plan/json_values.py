"""Numbers as JSON has them: what is not known, or has no end, is null."""

from __future__ import annotations

import math


def or_null(value: float) -> float | None:
    """Return the number, None in place of NaN and infinity, which JSON does not have."""
    return value if math.isfinite(value) else None
