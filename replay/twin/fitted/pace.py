"""How far all steps of a fitted twin may be off together: its pace.

A fit that agrees with every trace still describes one server in one hour: the pace differs from run to run, and at
loads other than the fitted ones a step is longer or shorter than the terms say. ``latency.pace`` holds both as 90 %
bounds.
"""

from __future__ import annotations

from lazy_dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated

from replay.numbers.argument_ranges import Within

if TYPE_CHECKING:
    from traces.strict.section import Section

KEY = "pace"
MOST = 0.5
"""A twin whose steps may be off by more is useless."""
Fraction = Annotated[float, Within(least=0, most=MOST)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Fractions by which all steps together may be longer or shorter: ``within`` the fitted loads, and ``beyond``."""

    within: Fraction
    beyond: Fraction

    def lines(self) -> list[str]:
        """Return it as lines of TWIN.yaml's latency section."""
        return [f"  {KEY}: {{within: {self.within!r}, beyond: {self.beyond!r}}}"]

    def of(self, *, is_beyond: bool) -> float:
        """Return the fraction of a run."""
        return self.beyond if is_beyond else self.within


def read_pace(latency: Section | None) -> Pace | None:
    """Return ``latency.pace``, None where there is none; raises ConfigError on what is not two fractions."""
    section = None if latency is None else latency.section(KEY)
    if section is None:
        return None
    names = [each.name for each in fields(Pace)]
    section.refuse_unknown(names)
    return Pace(**{name: _fraction(section, name) for name in names})


def _fraction(section: Section, name: str) -> float:
    expected = f"a fraction, 0 to {MOST:g}"
    value = section.decimal(name, expected=expected)
    if value is None or not 0 <= value <= MOST:
        section.fail(name, got="nothing" if value is None else f"{value}", expected=expected)
    return float(value)
