"""Which requests of a simulation are measured: all but the warm-up, or those that arrive in a window of time."""

from __future__ import annotations

from lazy_dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from replay.numbers.argument_ranges import TIME_US
from traces import ConfigError, is_warmup, sent_or_due, shown_time
from traces.strict.arguments import Number, check_fields
from traces.strict.limits import MOST_S

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from traces import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """From ``from_us`` up to, not including, ``to_us``, in µs from the run's start."""

    from_us: int
    to_us: int

    def holds(self, time_us: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return which times lie in it; NaN does not."""
        return np.asarray((time_us >= self.from_us) & (time_us < self.to_us))


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPart:
    """The options: ``--measure FROM:TO`` in µs (TO None: to the end), or ``--warmup-frac``, or neither."""

    from_us: int | None = None
    to_us: int | None = None
    warmup_frac: float | None = None

    def __post_init__(self) -> None:
        """Check the numbers. Raises ConfigError."""
        check_fields(self, from_us=TIME_US, to_us=TIME_US, warmup_frac=Number(0, 1))

    def window(self, *, duration_us: int) -> Window | None:
        """Return the window of a run of this duration, None where everything is measured."""
        if self.warmup_frac is not None:
            return Window(from_us=round(duration_us * self.warmup_frac), to_us=duration_us + 1)
        if self.from_us is None:
            return None
        end_us = max(duration_us, self.from_us) + 1
        return Window(from_us=self.from_us, to_us=end_us if self.to_us is None else self.to_us)


EVERYTHING = MeasuredPart()


def parse_measured(measure: str | None, warmup_frac: float | None) -> MeasuredPart:
    """Return the options, checked. Raises ConfigError."""
    if warmup_frac is not None:
        if measure is not None:
            raise ConfigError("--measure: cannot be combined with --warmup-frac")
        if not 0 <= warmup_frac < 1:
            raise ConfigError(f"--warmup-frac: got {warmup_frac:g}, expected a fraction in [0, 1)")
        return MeasuredPart(warmup_frac=warmup_frac)
    if measure is None:
        return EVERYTHING
    first, colon, last = measure.partition(":")
    if not colon:
        raise ConfigError(f"--measure: got {measure!r}, expected FROM:TO (60s:300s, or 60s: to the end)")
    from_us = _microseconds(first) if first.strip() else 0
    to_us = _microseconds(last) if last.strip() else None
    if to_us is not None and to_us <= from_us:
        raise ConfigError(f"--measure: got {measure!r}, expected an end after the beginning")
    return MeasuredPart(from_us=from_us, to_us=to_us)


def parse_horizon(text: str | None) -> int | None:
    """Return the run's end in µs. Raises ConfigError."""
    if text is None:
        return None
    horizon_us = _microseconds(text, "--horizon")
    if horizon_us < 1:
        raise ConfigError(f"--horizon: got {text!r}, expected a time above 0 (300s, 10m)")
    return horizon_us


def _microseconds(text: str, option: str = "--measure") -> int:
    from typer import BadParameter

    from traces import parse_seconds

    try:
        seconds = parse_seconds(text.strip())
    except BadParameter as error:
        raise ConfigError(f"{option}: {error.message}") from error
    if not 0 <= seconds <= MOST_S:
        raise ConfigError(f"{option}: got {text.strip()!r}, expected a time of 0 to {MOST_S:.3g} s")
    return round(seconds * 1e6)


def measured_rows(trace: Trace, part: MeasuredPart, *, duration_us: int) -> NDArray[np.bool_]:
    """Return which requests of a run of this duration enter the latencies: not warm-up and, with a window, sent in it.

    Raises ConfigError for a window that was asked for and holds none.
    """
    counted = ~is_warmup(trace)
    window = part.window(duration_us=duration_us)
    if window is not None:
        counted &= window.holds(sent_or_due(trace).floats())
        if part.from_us is not None and not counted.any():
            raise ConfigError(
                f"--measure: got a time from {shown_time(window.from_us)} in which no request is sent, "
                f"expected one before the run ends, at {shown_time(duration_us)}"
            )
    return counted
