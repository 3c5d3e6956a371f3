"""Cohorts: many clients of one kind, and their rate over the day, in a spike, in a drain.

BLIS expresses this by on-and-off windows within each hour or step; here the rate changes from one to the next: the same
requests per hour, without the pauses between.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from traces.workload.basics import InvalidWorkload, require
from traces.workload.model import ActiveWindow, Client
from traces.workload.spec.fields import Section, key, not_negative, number, one_of, read_section, text
from traces.workload.spec.length_files import LengthFiles
from traces.workload.spec.sections import SHARED, build_client

MAX_POPULATION: Final = 100_000
"""Members of one cohort (as BLIS has it)."""

HOUR_US: Final = 3_600_000_000
DRAIN_STEPS: Final = 10
"""Stretches of a rate that falls to 0, each at the rate of its middle."""


def _population(value: object) -> int:
    population = not_negative(value)
    require(
        1 <= population <= MAX_POPULATION, f"got {population}, expected an integer in [1, {MAX_POPULATION}]"
    )
    return population


def _diurnal(value: object) -> tuple[ActiveWindow, ...]:
    """24 hours whose rates follow a cosine from 1/ratio, twelve hours off the peak, to 1 at it."""
    given = read_section(value, DIURNAL)
    peak, ratio = given["peak_hour"], given["peak_to_trough_ratio"]
    require(peak <= 23, f"peak_hour: got {peak}, expected an hour in [0, 23]")
    require(1 <= ratio < math.inf, f"peak_to_trough_ratio: got {ratio:g}, expected a number >= 1")
    rise = [(1 + math.cos(2 * math.pi * (hour - peak) / 24)) / 2 for hour in range(24)]
    return tuple(
        ActiveWindow(
            start_us=hour * HOUR_US,
            end_us=(hour + 1) * HOUR_US,
            rate_multiplier=1 / ratio + (1 - 1 / ratio) * up,
        )
        for hour, up in enumerate(rise)
    )


def _spike(value: object) -> tuple[ActiveWindow, ...]:
    given = read_section(value, SPIKE)
    start, rate = given["start_time_us"], given.get("trace_rate")
    require(given["duration_us"] > 0, "duration_us: got 0, expected µs > 0")
    return (ActiveWindow(start_us=start, end_us=start + given["duration_us"], trace_rate_per_s=rate),)


def _drain(value: object) -> tuple[ActiveWindow, ...]:
    """Full rate up to the start, then equal steps whose rates fall in a line to 0."""
    given = read_section(value, DRAIN)
    start, ramp = given["start_time_us"], given["ramp_duration_us"]
    require(ramp >= DRAIN_STEPS, f"ramp_duration_us: got {ramp}, expected µs >= {DRAIN_STEPS}")
    edges = [start + ramp * step // DRAIN_STEPS for step in range(DRAIN_STEPS + 1)]
    steps = [
        ActiveWindow(
            start_us=edges[step], end_us=edges[step + 1], rate_multiplier=1 - (step + 0.5) / DRAIN_STEPS
        )
        for step in range(DRAIN_STEPS)
    ]
    return (*([ActiveWindow(start_us=0, end_us=start)] if start > 0 else []), *steps)


DIURNAL: Final[Section] = {
    "peak_hour": key(
        not_negative, "0 … 23", "Hour of the highest rate, counted from the run's start.", required=True
    ),
    "peak_to_trough_ratio": key(number, "number >= 1", "Highest rate / lowest rate.", required=True),
}

SPIKE: Final[Section] = {
    "start_time_us": key(not_negative, "µs", "When the cohort begins.", required=True),
    "duration_us": key(not_negative, "µs", "How long it lasts.", required=True),
    "trace_rate": key(number, "requests/s", "As in a window; of the whole cohort."),
}

DRAIN: Final[Section] = {
    "start_time_us": key(not_negative, "µs", "Until then the full rate.", required=True),
    "ramp_duration_us": key(not_negative, "µs", "From then on down to none, in ten steps.", required=True),
}

COHORT: Final[Section] = {
    "id": key(text, "text", "Its members are called id-0, id-1 … Default cohort-0, cohort-1 …"),
    "population": key(
        _population, "integer", "Number of clients; rate_fraction is theirs together.", required=True
    ),
    **SHARED,
    "prefix_sharing": key(
        one_of("shared", "per_member"),
        "shared / per_member",
        "Whether all members have one prefix group or each its own. Default shared.",
    ),
    "diurnal": key(_diurnal, "mapping", "One day of rates; scales what rate_fraction gives."),
    "spike": key(_spike, "mapping", "The cohort is active for a while only."),
    "drain": key(_drain, "mapping", "The cohort's rate runs out."),
}

_PATTERNS = ("diurnal", "spike", "drain")


def read_cohort(value: object) -> dict[str, Any]:
    """One entry of ``cohorts``: read and checked, for ``build_cohort``."""
    given = read_section(value, COHORT)
    patterns = [name for name in _PATTERNS if name in given]
    if len(patterns) > 1:
        raise InvalidWorkload(f"{patterns[0]}: cannot be combined with {' and '.join(patterns[1:])}")
    return given


def build_cohort(
    given: Mapping[str, Any], *, name: str, prefixes: Mapping[str, int], files: LengthFiles
) -> list[Client]:
    """Return the members of a cohort: equal except for their ids, each with its part of the cohort's rate."""
    shared = {field: item for field, item in given.items() if field in SHARED}
    windows = next((given[pattern] for pattern in _PATTERNS if pattern in given), ())
    population = given["population"]
    parts = [
        window if window.trace_rate_per_s is None
        else replace(window, trace_rate_per_s=window.trace_rate_per_s / population)
        for window in windows
    ]  # fmt: skip
    entry = {**shared, "windows": tuple(parts)}
    one = build_client(entry, name=given.get("id", name), prefixes=prefixes, files=files)
    apart = given.get("prefix_sharing") == "per_member" and one.prefix_group is not None
    return [
        replace(
            one,
            id=f"{one.id}-{member}",
            rate_fraction=one.rate_fraction / population,
            prefix_group=f"{one.prefix_group}-{member}" if apart else one.prefix_group,
        )
        for member in range(population)
    ]
