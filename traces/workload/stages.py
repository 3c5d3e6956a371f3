"""``--stages 5:60s,5-20:2m``: rates that hold for a time, and ramps, as a client's windows."""

from __future__ import annotations

from typing import Final

from traces.errors import ConfigError
from traces.workload.model import ActiveWindow

_STEPS: Final = 100
"""Constant pieces that a ramp is made of: each is off by half a hundredth of the ramp's height at most."""

_MOST_RATE_PER_S: Final = 1e9
_MOST_S: Final = 1e9
"""The largest rate and time of all stages; those of ``--rate`` and ``--duration``, too."""

_EXPECTED: Final = "expected RATE:TIME or FROM-TO:TIME, separated by commas (5:60s,5-20:2m)"


def stage_windows(text: str) -> tuple[ActiveWindow, ...]:
    """Return the windows that ``text`` says, one after another from 0. Raises ConfigError."""
    windows: list[ActiveWindow] = []
    start_us = 0
    for part in text.split(","):
        low, high, span_us = _parse(part.strip())
        windows += _pieces(low, high, start_us=start_us, span_us=span_us)
        start_us += span_us
        if start_us > _MOST_S * 1e6:
            raise ConfigError(f"--stages: got {start_us / 1e6:.3g} s in all, expected at most {_MOST_S:g}")
    if not any(window.trace_rate_per_s for window in windows):
        raise ConfigError(f"--stages: got {text!r}, expected a rate > 0 in one of them")
    return tuple(windows)


def _pieces(low: float, high: float, *, start_us: int, span_us: int) -> list[ActiveWindow]:
    """Return a constant rate as one window, a ramp as many, each at the rate of its middle."""
    number = 1 if low == high else min(_STEPS, span_us)
    edges = [start_us + span_us * step // number for step in range(number + 1)]
    return [
        ActiveWindow(
            start_us=edges[step],
            end_us=edges[step + 1],
            trace_rate_per_s=low + (high - low) * (step + 0.5) / number,
        )
        for step in range(number)
    ]


def _parse(part: str) -> tuple[float, float, int]:
    """Return the rate at the start, the rate at the end, and the span in µs."""
    from typer import BadParameter

    from traces.units import parse_seconds

    rates, colon, time = part.partition(":")
    first, dash, second = rates.partition("-")
    try:
        low = float(first)
        high = float(second) if dash else low
        span_us = round(parse_seconds(time) * 1e6)
    except (ValueError, OverflowError, BadParameter):
        raise ConfigError(f"--stages: got {part!r}, {_EXPECTED}") from None
    if not (colon and 0 <= low < float("inf") and 0 <= high < float("inf") and span_us >= 1):
        raise ConfigError(f"--stages: got {part!r}, {_EXPECTED}")
    if max(low, high) > _MOST_RATE_PER_S:
        raise ConfigError(f"--stages: got {part!r}, expected rates of at most {_MOST_RATE_PER_S:g} per s")
    return low, high, span_us
