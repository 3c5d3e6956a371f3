"""Times as people write them, ``500ms`` or ``2m``."""

from __future__ import annotations

from typing import Final

import typer

_UNITS_S: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def parse_seconds(text: str | float) -> float:
    """Seconds that ``text`` says: a bare number is seconds; us, ms, s, m and h are understood ("500ms")."""
    if isinstance(text, int | float):
        return float(text)
    number = text.strip().rstrip("usmh")
    unit = text.strip()[len(number) :] or "s"
    try:
        return float(number) * _UNITS_S[unit]
    except (KeyError, ValueError):
        raise typer.BadParameter(
            f"got {text!r}, expected seconds (60) or a time with a unit (500ms, 2m)"
        ) from None


def to_us(seconds: float) -> int:
    """Return the time in whole microseconds."""
    return round(seconds * 1e6)
