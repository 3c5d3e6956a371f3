"""What a fitted twin does not reproduce: the trace and the kind of request with the largest errors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from calibrate import number_format

if TYPE_CHECKING:
    import pandas as pd

    from calibrate.findings import Calibration, Compared

METRICS = ("ttft_us", "e2e_us", "tpot_us")
KINDS = {
    "prompt_tokens": ("the shortest prompts", "prompts of medium length", "the longest prompts"),
    "output_tokens": ("the shortest answers", "answers of medium length", "the longest answers"),
    "in_flight": ("the fewest others in flight", "a medium number in flight", "the most others in flight"),
}
"""The thirds of the requests by each property, by name."""
LEAST = 10
"""Fewer requests are no kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Misfit:
    """Requests whose times are off: ``bias`` is the median of simulated / observed, minus 1."""

    trace: str
    kind: str
    metric: str
    bias: float

    def text(self) -> str:
        """Return the misfit as a warning says it."""
        metric, bias = number_format.METRIC_NAMES[self.metric], number_format.percent(self.bias, signed=True)
        return f"{metric} of {self.trace}, requests with {self.kind}: {bias}"


def largest_misfit(calibration: Calibration) -> Misfit | None:
    """Return the misfit with the largest size among those that the fit has seen; None without a fit."""
    if calibration.fit is None:
        return None
    seen = [each for each in calibration.traces if each.role != "held out"]
    found = [misfit for each in seen for misfit in _misfits(each)]
    return max(found, key=lambda each: abs(np.log1p(each.bias)), default=None)


def _misfits(compared: Compared) -> Iterator[Misfit]:
    """Yield every kind of a trace's requests with each metric's bias."""
    pairs = compared.pairs
    for by, names in KINDS.items():
        for kind, rows in zip(names, _thirds(pairs.requests[by]), strict=True):
            for metric in METRICS:
                ratio = _ratio(pairs.simulated[metric], pairs.observed[metric])[rows]
                known = ratio[np.isfinite(ratio)]
                if len(known) >= LEAST:
                    bias = float(np.median(known)) - 1
                    yield Misfit(trace=compared.source.name, kind=kind, metric=metric, bias=bias)


def _thirds(values: pd.Series[float]) -> tuple[NDArray[np.bool_], ...]:
    """Return which rows are in the lowest, the middle and the highest third; none where all values are alike."""
    numbers = values.to_numpy(dtype=np.float64)
    low, high = np.quantile(numbers, [1 / 3, 2 / 3])
    if not low < high:
        return (np.zeros(len(numbers), dtype=bool),) * 3
    return numbers <= low, (numbers > low) & (numbers <= high), numbers > high


def _ratio(simulated: pd.Series[float], observed: pd.Series[float]) -> NDArray[np.float64]:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(simulated.to_numpy(dtype=np.float64) / observed.to_numpy(dtype=np.float64))
