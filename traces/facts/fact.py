"""One figure of an answer, with its name for programs and for people, and how figures of each unit are written."""

from __future__ import annotations

import math
from collections.abc import Callable
from lazy_dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from traces.units import four_digits, shown_time

if TYPE_CHECKING:
    from traces.run_slo import RunLimit

Unit = Callable[[Any], str]
"""Writes a value out."""


def count(value: float) -> str:
    """Return a count: 1,234."""
    return f"{value:,}"


def whole(value: float) -> str:
    """Return a figure to its units: 1,235."""
    return f"{value:,.0f}"


def per_s(value: float) -> str:
    """Return a rate with four digits."""
    return f"{value:.4g}"


def frac(value: float) -> str:
    """Return a fraction as a percentage: 12.3%."""
    return f"{value:.1%}"


def four_digits_ms(value_us: float) -> str:
    """Return a time as a run's tables write it, in ms."""
    return four_digits(value_us / 1e3)


def mark(is_met: bool) -> str:
    """Return the sign of a limit that is kept, or of one that is not."""
    return "✓" if is_met else "✗"


@dataclass(frozen=True, slots=True)
class Fact:
    """One figure. ``key``: in JSON, ``a.b`` of a section a; "": shown only. ``term``: for people; None: in JSON only.

    ``unit``: writes the value; ``note``: stands behind it; ``aside``: its interval, which a form puts beside it or into
    a column; ``none``: in place of a value that is None or NaN, which JSON has as null.
    """

    key: str
    term: str | None
    value: Any
    unit: Unit = str
    note: str = ""
    aside: str = ""
    none: str = "-"

    @property
    def text(self) -> str:
        """The figure as text, with its note."""
        is_missing = self.value is None or (isinstance(self.value, float) and math.isnan(self.value))
        return (self.none if is_missing else self.unit(self.value)) + self.note


def of_limit(value_us: float, limit: RunLimit, *, key: str = "values_us", term: str = "") -> Fact:
    """Return a limited latency and whether it is within; ``term``: where it is not the limit's name."""
    note = f" {mark(value_us <= limit.limit_us)}"
    return Fact(f"{key}.{limit.name}", term or limit.name, value_us, shown_time, note=note)
