"""Whether a fleet's engines work beyond what their twins were fitted on: by the rule of ``replay.twin.fitted``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from lazy_dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from replay.fleet.inputs.need import Need
from replay.twin.fitted.fitted_range import INNER, FittedRange, Range, extrapolation_note, union

if TYPE_CHECKING:
    from replay.fleet.inputs.profiles import ProfileSource
    from sim.fleet import Lengths
    from sim.fleet.sizing import PoolSize

TAIL = 2.326
"""The 99th percentile of a normal distribution: how many run is nearly Poisson's, whose variance is its mean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLoad:
    """What one engine of a source has: ``rate_per_s`` requests per second, ``active`` at once on average."""

    source: ProfileSource
    rate_per_s: float
    active: float
    slots: float

    @classmethod
    def of_size(cls, source: ProfileSource, size: PoolSize, rate_per_s: float) -> Self:
        """Return the load of a pool that formulas have sized, at its own rate."""
        return cls(
            source=source, rate_per_s=rate_per_s / size.engines, active=size.active, slots=float(size.slots)
        )

    @classmethod
    def of_engines(cls, source: ProfileSource, need: Need, *, engines: int) -> Self:
        """Return the load, by formula, of so many engines."""
        return cls.of_size(source, need.at(source.profile, engines), need.rate_per_s)

    @property
    def range(self) -> FittedRange:
        """The load as a run has it: the rate, and the 99th percentile of the requests that run."""
        most = min(self.active + TAIL * math.sqrt(self.active), self.slots)
        return FittedRange(rate_per_s=(self.rate_per_s,) * 2, concurrency=(most, most))


def outside_notes(sources: Sequence[ProfileSource], lengths: Lengths) -> Iterator[str]:
    """Yield how a twin's server, and the workload's lengths, leave what it was fitted on, a line each."""
    for each in sources:
        beyond = extrapolation_note(each.fitted, _lengths_of(lengths))
        yield from (f"{each.name}: {note}" for note in (each.outside_server, beyond) if note is not None)


def outside_loads(loads: Iterable[EngineLoad]) -> Iterator[str]:
    """Yield how far engines go beyond the loads of their twins' fits: a line for each twin, of the furthest."""
    by_name: dict[str, list[EngineLoad]] = {}
    for load in loads:
        by_name.setdefault(load.source.name, []).append(load)
    for name, alike in by_name.items():
        where = (
            "on each engine" if len(alike) == 1 else f"on an engine in the furthest of {len(alike)} fleets"
        )
        note = extrapolation_note(alike[0].source.fitted, union([each.range for each in alike]), where=where)
        yield from () if note is None else (f"{name}: {note}",)


def _lengths_of(lengths: Lengths) -> FittedRange:
    def inner(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Range:
        low, high = np.percentile(values, INNER)
        return float(low), float(high)

    return FittedRange(prompt_tokens=inner(lengths.input_tokens), output_tokens=inner(lengths.output_tokens))
