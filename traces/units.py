"""Times as users write them, ``500ms`` or ``2m``, and numbers in readable form, in a terminal's width."""

from __future__ import annotations

import math
import shutil
import sys
from typing import Final, Literal

import typer

from traces.errors import ConfigError, quoted

_MINUTE_US, _HOUR_US = 6e7, 3.6e9
_UNITS_S: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


class BadTimeError(ConfigError, typer.BadParameter):
    """A text that is no time: an error of vtwin, which the option library shows with the option's name."""

    def __init__(self, got: object) -> None:
        said = f"got {quoted(got)}, expected seconds (60) or a time with a unit (500ms, 2m)"
        typer.BadParameter.__init__(self, said)  # which shows it behind the option's name
        self.whole = str(self)

    def __str__(self) -> str:
        """Return the message for who called the function."""
        return f"text: {self.message}"


def parse_seconds(text: str | float) -> float:
    """Return the seconds in ``text``: a bare number is seconds; us, ms, s, m and h are understood ("500ms").

    Raises BadTimeError, a ConfigError, for what is no time. A caller checks the range: -1 and infinity are times here.
    """
    try:
        if isinstance(text, str):
            number = text.strip().rstrip("usmh")
            seconds = float(number) * _UNITS_S[text.strip()[len(number) :] or "s"]
        else:
            seconds = math.nan if isinstance(text, bool) else float(text)
    except (KeyError, ValueError, TypeError, OverflowError):
        seconds = math.nan
    if math.isnan(seconds):
        raise BadTimeError(text)
    return seconds


def terminal_width() -> int | None:
    """Return the width in columns; None if the output is not a terminal and has no width."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def four_digits(value: float | None) -> str:
    """Return a number as a run's tables write it: four digits, three decimals at most, none where all are 0.

    ``-`` of none. More digits would be noise: the mean of a few hundred requests is known to about one per cent.
    """
    if value is None:
        return "-"
    size = abs(value)
    places = 0 if size >= 999.95 else 1 if size >= 99.995 else 2 if size >= 9.9995 else 3
    whole, _, decimals = f"{value:,.{places}f}".partition(".")
    if decimals.strip("0"):
        return f"{whole}.{decimals}"
    return "0" if whole == "-0" else whole


def counted(number: float, one: str, *, written: str | None = None) -> str:
    """Return a number with its unit, given in the singular: ``1 request/s``, ``1,200 requests/s``.

    ``written``: the number as it is shown, which decides; its default has commas and all its digits.
    """
    written = f"{number:,}" if written is None else written
    if written in ("1", "-1"):
        return f"{written} {one}"
    word, slash, rest = one.partition("/")
    return f"{written} {word}s{slash}{rest}"


TAIL = 0.1
"""A larger share of a run's time after its last request was sent is shown beside its throughput."""


def tail_text(duration_us: float, sending_us: float | None) -> str | None:
    """Return why a throughput over all of a run's time is below the sent rate; None if the tail is short.

    ``sending_us``: until when requests were sent. The last answers take further time, in which no request arrives.
    """
    if sending_us is None or duration_us - sending_us <= TAIL * duration_us:
        return None
    whole, tail = four_digits(duration_us / 1e6), four_digits((duration_us - sending_us) / 1e6)
    return f"over {whole} s; in the last {tail} s no request was sent"


def to_us(seconds: float) -> int:
    """Return the time in whole microseconds."""
    return round(seconds * 1e6)


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


TimeUnit = Literal["ms", "s", "min"]
_IN_US: dict[TimeUnit, float] = {"ms": 1e3, "s": 1e6, "min": 6e7}


def unit_of(typical_us: float) -> TimeUnit:
    """Return the unit in which times around this one are shown: ms, from 10 s on s, from 10 minutes on min."""
    return "ms" if typical_us < 1e7 else ("s" if typical_us < 6e8 else "min")


def in_unit(value_us: float | None, unit: TimeUnit) -> str:
    """Return a time in a unit, with four digits and without the unit's name; ``-`` for None."""
    return four_digits(None if value_us is None else value_us / _IN_US[unit])


def or_null(value: float) -> float | None:
    """Return the number, None in place of NaN and infinity, which JSON does not have."""
    return value if math.isfinite(value) else None
