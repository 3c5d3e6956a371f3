"""Whether a fleet's engines work beyond what their twins were fitted on: by the rule of ``replay.twin.fitted``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from replay.twin.fitted.fitted_range import INNER, FittedRange, Range, extrapolation_note

if TYPE_CHECKING:
    from replay.fleet.inputs.profiles import ProfileSource
    from sim.fleet import Lengths


def outside_notes(sources: Sequence[ProfileSource], lengths: Lengths) -> Iterator[str]:
    """Yield how a twin's server, and the workload's lengths, leave what it was fitted on, a line each."""
    for each in sources:
        beyond = extrapolation_note(each.fitted, _lengths_of(lengths))
        yield from (f"{each.name}: {note}" for note in (each.outside_server, beyond) if note is not None)


def outside_rates(loads: Iterable[tuple[ProfileSource, float]]) -> Iterator[str]:
    """Yield by which factor engines get more requests than their twin was fitted on; rates of one engine, per s."""
    for source, rate in loads:
        note = extrapolation_note(source.fitted, FittedRange(rate_per_s=(rate, rate)), where="on each engine")
        yield from () if note is None else (f"{source.name}: {note}",)


def _lengths_of(lengths: Lengths) -> FittedRange:
    def inner(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Range:
        low, high = np.percentile(values, INNER)
        return float(low), float(high)

    return FittedRange(prompt_tokens=inner(lengths.input_tokens), output_tokens=inner(lengths.output_tokens))
