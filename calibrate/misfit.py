"""Misfits of a fitted twin: the kind of request with the largest errors, and loads that it misses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from lazy_dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from calibrate import number_format

if TYPE_CHECKING:
    import pandas as pd

    from calibrate.findings import Calibration, Compared
    from replay.twin.fitted import FittedRange, Range
    from traces import Trace

METRICS = ("ttft_us", "e2e_us", "tpot_us")
KINDS = {
    "prompt_tokens": ("the shortest prompts", "prompts of medium length", "the longest prompts"),
    "output_tokens": ("the shortest answers", "answers of medium length", "the longest answers"),
    "in_flight": ("the fewest others in flight", "a medium number in flight", "the most others in flight"),
}
"""The thirds of the requests by each property, by name."""
LEAST = 10
"""A kind must have at least this many requests."""
GROSS = 0.25
"""A load whose mean TTFT, E2E or TPOT is off by more is missed: the twin is not trusted at it, nor above it."""

LEAST_ANSWER = 10
"""Tokens: a shorter answer has too few gaps for its mean gap to be held against a twin's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Misfit:
    """Requests whose times are off: ``bias`` is the median of simulated / observed, minus 1."""

    trace: str
    kind: str
    metric: str
    bias: float

    def text(self) -> str:
        """Return the misfit's text in a warning."""
        metric, bias = number_format.METRIC_NAMES[self.metric], number_format.percent(self.bias, signed=True)
        return f"{metric} of {self.trace}, requests with {self.kind}: {bias}"


def largest_misfit(calibration: Calibration) -> Misfit | None:
    """Return the misfit with the largest size among those that the fit has seen; None without a fit."""
    if calibration.fit is None:
        return None
    seen = [each for each in calibration.traces if each.role != "held out"]
    found = [misfit for each in seen for misfit in _misfits(each)]
    return max(found, key=lambda each: abs(np.log1p(each.bias)), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Missed:
    """A load that the twin misses: the mean of a metric is off by ``error``, simulated / observed minus 1."""

    trace: str
    metric: str
    error: float

    def text(self) -> str:
        """Return its text in a warning."""
        metric, off = number_format.METRIC_NAMES[self.metric], number_format.percent(self.error, signed=True)
        return f"{self.trace}: the twin misses this load: mean {metric} {off}. Do not trust it at this load or above"


def is_probe(trace: Trace) -> bool:
    """Return whether a run shows what a step takes, and is no load: a plan says so, or requests came one at a time."""
    loop = trace.header.closed_loop
    return loop is not None and (bool(loop.is_probe) or loop.concurrency == 1)


def loads_of(traces: Sequence[Trace], spans: Sequence[FittedRange]) -> list[FittedRange]:
    """Return the spans of the traces that are loads; all of them where every trace is a probe."""
    return [span for trace, span in zip(traces, spans, strict=True) if not is_probe(trace)] or list(spans)


def moves_in_step(trace: Trace) -> bool:
    """Return whether a closed loop's requests are all alike: they then begin and end together.

    TTFT then hangs on which of those that come at one moment is first in a step, which no twin knows.
    """
    if trace.header.closed_loop is None:
        return False
    return all(trace.column(name).nunique(dropna=False) <= 1 for name in ("input_tokens", "output_tokens"))


def missed_load(compared: Compared) -> Missed | None:
    """Return the mean with the largest error if that is gross; None for overloaded runs, probes, and without a twin."""
    trace = compared.source.trace
    if compared.is_saturated or compared.partner is not None or is_probe(trace):
        return None
    found = []
    for metric in METRICS:
        if metric == "ttft_us" and moves_in_step(trace):
            continue
        seen, made = (
            np.asarray(side[metric], np.float64)
            for side in (compared.pairs.observed, compared.pairs.simulated)
        )
        known = np.isfinite(seen) & np.isfinite(made) & _is_judged(compared, metric)
        if known.sum() >= LEAST and seen[known].sum() > 0:
            error = float(made[known].sum() / seen[known].sum()) - 1
            found.append(Missed(trace=compared.source.name, metric=metric, error=error))
    worst = max(found, key=lambda each: abs(each.error), default=None)
    return worst if worst is not None and abs(worst.error) > GROSS else None


def without_missed(fitted: FittedRange, compared: Sequence[Compared]) -> FittedRange:
    """Return a fitted range that ends below the lowest load that the twin misses; no load where none is below it."""
    from replay.twin.fitted import range_of

    missed = [each for each in compared if missed_load(each) is not None]
    if not missed:
        return fitted
    loads = [each for each in compared if not is_probe(each.source.trace)]
    cut = {}
    for name in ("rate_per_s", "concurrency"):
        ends = {id(each): getattr(range_of([each.source.trace], [None]), name) for each in loads}
        least = min((ends[id(each)][1] for each in missed if ends[id(each)]), default=None)
        span = getattr(fitted, name)
        if span is None or least is None:
            cut[name] = None if least is None and len(missed) == len(loads) else span
            continue
        met = [end[1] for end in ends.values() if end and end[1] < least]
        cut[name] = (min(span[0], max(met)), min(span[1], max(met))) if met else None
    return replace(fitted, **cut)


def kept_up_with(runs: Sequence[Compared], fitted: Range | None) -> Range | None:
    """Return the fitted rates up to the highest that did not overload the server; None where none is known."""
    if not any(each.is_saturated for each in runs):
        return fitted
    from replay.twin.fitted import range_of

    loads = [each.source.trace for each in runs if not each.is_saturated and not is_probe(each.source.trace)]
    served = range_of(loads, [None] * len(loads)).rate_per_s
    if fitted is None or served is None or served[1] < fitted[0]:
        return None
    return fitted[0], min(fitted[1], served[1])


def _misfits(compared: Compared) -> Iterator[Misfit]:
    """Yield every kind of a trace's requests with each metric's bias."""
    pairs = compared.pairs
    for by, names in KINDS.items():
        for kind, rows in zip(names, _thirds(pairs.requests[by]), strict=True):
            for metric in METRICS:
                judged = rows & _is_judged(compared, metric)
                ratio = _ratio(pairs.simulated[metric], pairs.observed[metric])[judged]
                known = ratio[np.isfinite(ratio)]
                if len(known) >= LEAST:
                    bias = float(np.median(known)) - 1
                    yield Misfit(trace=compared.source.name, kind=kind, metric=metric, bias=bias)


def _is_judged(compared: Compared, metric: str) -> NDArray[np.bool_]:
    """Return which pairs' values of a metric are judged: TPOT only of answers that are long enough."""
    tokens = compared.pairs.requests["output_tokens"].to_numpy(dtype=np.float64, na_value=np.nan)
    if metric != "tpot_us":
        return np.ones(len(tokens), dtype=bool)
    return np.asarray(~(tokens < LEAST_ANSWER))


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
