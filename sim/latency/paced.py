"""A latency model at another pace: all its steps longer, or shorter, by one factor."""

from __future__ import annotations

from lazy_dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sim.config import InvalidConfig
from sim.latency import profiled_lookup, tabulated
from sim.latency.batch import StepBatch
from sim.latency.latency_model import (
    ALPHAS,
    BLACKBOX,
    EXTENDED,
    PROFILED,
    TABULATED,
    Int64s,
    LatencyModel,
)

EXTENDED_TIMES = [*range(7), 8]
"""The terms of Extended that are times: ``STEP`` to ``FLOOR``, ``TAU`` in ``sim.engine.step_time.step_duration``.

With its clock's memory as much longer as its steps, a step is slowed down by the share that it was.
"""
NO_TIMES = ("exposed", "cpu_exposed", "batching", "window", "stages", "captured")
TABLE_TIMES = [place for place, name in tabulated.PLACES.items() if name not in NO_TIMES]
"""The numbers of a ``StepTable`` that are times: all but shares and counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Paced(LatencyModel):
    """``model`` with every step ``factor`` times as long; made by ``at_pace``, which keeps the ways in and out.

    Raises InvalidConfig where the factor is not above 0.
    """

    model: LatencyModel
    factor: float

    def __post_init__(self) -> None:
        """Check the factor."""
        LatencyModel.__post_init__(self)
        if not (np.isfinite(self.factor) and self.factor > 0):
            raise InvalidConfig(f"factor: got {self.factor!r}, expected a number above 0")

    @property
    def engine_kind(self) -> int:
        """The model's own."""
        return self.model.engine_kind

    def engine_coefficients(self) -> Int64s:
        """Return the model's, beta0 to beta2 times the factor."""
        found = self.model.engine_coefficients().copy()
        found[:3] = np.rint(found[:3] * self.factor).astype(np.int64)
        return found

    def engine_terms(self) -> NDArray[np.float64]:
        """Return the model's, those that are times times the factor."""
        terms = np.array(self.model.engine_terms(), np.float64)
        kind = self.engine_kind
        if kind == EXTENDED:
            terms[EXTENDED_TIMES] *= self.factor
        elif kind == TABULATED:
            terms[TABLE_TIMES] *= self.factor
            terms[tabulated.TABLE :] *= self.factor
        elif kind == PROFILED:
            terms[[profiled_lookup.SCALE, profiled_lookup.STEP]] *= self.factor
        else:
            assert kind == BLACKBOX, kind  # noqa: S101 - its steps have no terms
        return terms

    def durations_us(self, batch: StepBatch) -> Int64s:
        """Return what steps take, int64 µs, to 1 µs: the model's own, rounded, times the factor."""
        return np.asarray(np.rint(self.model.durations_us(batch) * self.factor), np.int64)


def at_pace(model: LatencyModel, factor: float) -> Paced:
    """Return a model with every step ``factor`` times as long; raises InvalidConfig where that is not above 0."""
    return Paced(model=model, factor=factor, **{name: getattr(model, name) for name in ALPHAS})
