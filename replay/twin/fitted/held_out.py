"""How well a fitted twin did on requests that its fit had not seen, and when: ``latency.held_out``.

A run of another day is held against it: a twin that was good then and is off by one factor now is no bad twin. And
every answer of a twin that was far off says so.
"""

from __future__ import annotations

from lazy_dataclasses import dataclass, fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from traces.strict.section import Section

KEY = "held_out"
ERRORS = ("ttft", "tpot", "e2e")
TOO_LARGE, TOO_LARGE_P99 = "far", "far_p99"
OF_RUNS = tuple(f"{name}_{statistic}" for name in ERRORS for statistic in ("mean", "p99"))
FAR = 0.10
"""A twin with a larger error is not trustworthy, unless run-to-run noise is as large: the band that
the report shades around equal times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """The day of the fit (UTC, 2026-11-29), and the mean error per request of each latency, a fraction.

    ``ttft_mean`` and the like: by how much the twin's own error may change a run's mean (or p99) beside another's, by
    the runs fitted and held out, a fraction. ``far``: whose errors calibrate's verdict calls too large, where it had
    one: it knows by how much the server differs from itself. ``far_p99``: whose p99 over the held-out run it calls so.
    None where it is not known.
    """

    date: str | None = None
    ttft: float | None = None
    tpot: float | None = None
    e2e: float | None = None
    ttft_mean: float | None = None
    ttft_p99: float | None = None
    tpot_mean: float | None = None
    tpot_p99: float | None = None
    e2e_mean: float | None = None
    e2e_p99: float | None = None
    far: tuple[str, ...] | None = None
    far_p99: tuple[str, ...] | None = None

    @property
    def errors(self) -> dict[str, float]:
        """The errors that are known, by name."""
        found = {name: getattr(self, name) for name in ERRORS}
        return {name: value for name, value in found.items() if value is not None}

    @property
    def text(self) -> str:
        """The errors in words."""
        told = ", ".join(f"{name.upper()} {value:.0%}" for name, value in self.errors.items())
        return f"{told} per request, on requests that the twin's fit had not seen"

    @property
    def far_names(self) -> tuple[str, ...]:
        """Whose errors are too large to trust: those that the verdict calls so, else those above a tenth."""
        if self.far is not None:
            return self.far
        return tuple(name for name, value in self.errors.items() if value > FAR)

    @property
    def far_p99_names(self) -> tuple[str, ...] | None:
        """Whose p99 is too far off to trust: those that the verdict calls so, else by the runs'; None: not known."""
        if self.far_p99 is not None:
            return self.far_p99
        known = {name: value for name in ERRORS if (value := getattr(self, f"{name}_p99")) is not None}
        return tuple(name for name, value in known.items() if value > FAR) or None

    @property
    def doubt(self) -> str:
        """What must not be trusted, and why, as every answer of the twin says it; "" where all errors are small."""
        far = self.far_names
        if not far and self.far_p99_names:
            names = " and ".join(name.upper() for name in self.far_p99_names)
            return f"do not trust this twin's p99 of {names}: it was off by more than {FAR:.0%}"
        if not far:
            return ""
        names = " and ".join(name.upper() for name in far)
        named = "this twin yet" if self.e2e is None or "e2e" in far else f"this twin's {names}"
        limit = f"more than {FAR:.0%} is far, per request or of a run's mean"
        if not self.errors:
            return f"do not trust {named}: its error of {names} was too large ({limit})"
        return f"do not trust {named}: its errors were {self.text} ({limit})"

    def lines(self) -> list[str]:
        """Return it as lines of TWIN.yaml's latency section."""
        known = {name: value for name in (*ERRORS, *OF_RUNS) if (value := getattr(self, name)) is not None}
        parts = [
            *([f'date: "{self.date}"'] if self.date else []),
            *(f"{name}: {value!r}" for name, value in known.items()),
            *(
                f"{key}: [{', '.join(names)}]"
                for key in (TOO_LARGE, TOO_LARGE_P99)
                if (names := getattr(self, key)) is not None
            ),
        ]
        return [f"  {KEY}: {{{', '.join(parts)}}}"] if parts else []


def read_held_out(latency: Section | None) -> HeldOut | None:
    """Return ``latency.held_out``, None where there is none; raises ConfigError on what is not a day and fractions."""
    section = None if latency is None else latency.section(KEY)
    if section is None:
        return None
    section.refuse_unknown([each.name for each in fields(HeldOut)])
    day = section.text("date", expected='a day, "2026-11-29"')
    if day is not None and not _is_day(day):
        section.fail("date", got=day, expected='a day, "2026-11-29"')
    return HeldOut(
        date=day,
        far=_names(section, TOO_LARGE),
        far_p99=_names(section, TOO_LARGE_P99),
        **{name: _fraction(section, name) for name in (*ERRORS, *OF_RUNS)},
    )


def _names(section: Section, key: str) -> tuple[str, ...] | None:
    found = section.texts(key)
    if not set(found) <= set(ERRORS):
        section.fail(key, got=f"[{', '.join(found)}]", expected=f"a list of {', '.join(ERRORS)}")
    return found if key in section else None


def _is_day(text: str) -> bool:
    from datetime import date

    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _fraction(section: Section, name: str) -> float | None:
    value = section.decimal(name, expected="a fraction >= 0")
    return None if value is None else float(value)
