"""The errors by kind of request: by time in the run, load, lengths, cache, and by a request's own labels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from lazy_dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from calibrate.compare.metric_errors import Bootstrap, relative_errors
from calibrate.compare.pair import KINDS, Pairs, take
from traces.statistics.bootstrap import MIN_REQUESTS, Estimate

BY = ("prompt_tokens", "output_tokens", "in_flight", "window_s")
METRICS = ("ttft_us", "tpot_us", "e2e_us")
LEAST = 3 * MIN_REQUESTS
"""With fewer requests than this a third would be too small to be useful."""
REPLICATES = 400
MOST_KINDS = 12
"""The most frequent tenants, classes or models that are shown."""
UNSTATED = "not stated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stratum:
    """One kind of requests, and their MAPE and bias by metric.

    ``by`` a number: those in [low, high]. ``by`` a word: those that have ``value``, the bounds being None.
    """

    by: str
    n: int
    mape: dict[str, Estimate]
    bias: dict[str, Estimate]
    low: float | None = None
    high: float | None = None
    value: str | None = None

    @property
    def label(self) -> str:
        """Which requests, as text."""
        if self.low is None or self.high is None:
            return self.value or UNSTATED
        return f"{self.low:,.0f} to {self.high:,.0f}"


def strata_of(pairs: Pairs, *, bootstrap: Bootstrap, trace_names: Sequence[str] = ()) -> tuple[Stratum, ...]:
    """Return the errors by thirds of lengths, load and time in the run, and by every text that distinguishes requests.

    Equal values stay together; a kind of fewer than ``MIN_REQUESTS`` requests is left out.
    """
    if len(pairs) < LEAST:
        return ()
    settings = Bootstrap(seed=bootstrap.seed, replicates=min(REPLICATES, bootstrap.replicates))
    found = []
    for by, values in _numbers(pairs).items():
        edges = np.unique(np.quantile(values, [1 / 3, 2 / 3], method="lower"))
        third = np.searchsorted(edges, values, side="left")
        for number in _large(third):
            chosen = third == number
            bounds = (float(values[chosen].min()), float(values[chosen].max()))
            found.append(_stratum(pairs, chosen, by=by, bounds=bounds, settings=settings))
    for by, texts in _values(pairs, trace_names):
        found += [
            _stratum(pairs, texts == value, by=by, value=value, settings=settings)
            for value in _most_frequent(texts)
        ]
    return tuple(found)


def _numbers(pairs: Pairs) -> dict[str, NDArray[np.float64]]:
    requests = pairs.requests
    start = requests.groupby("trace")["arrival_us"].transform("min")
    window = (requests["arrival_us"] - start).to_numpy() / 1e6
    values = {name: requests[name].to_numpy(dtype=np.float64) for name in BY[:3]} | {"window_s": window}
    return {name: each for name, each in values.items() if bool(np.isfinite(each).all())}


def _values(pairs: Pairs, trace_names: Sequence[str]) -> Iterator[tuple[str, NDArray[np.object_]]]:
    """Yield what distinguishes requests: their trace, the cache, their class, model and tenant."""
    requests = pairs.requests
    if len(trace_names) > 1:
        yield "trace", np.array([trace_names[number] for number in requests["trace"]], dtype=object)
    cached = requests["cached_tokens"].to_numpy(dtype=np.float64)
    if bool(np.isfinite(cached).any()):
        values = np.where(cached > 0, "cached in part", "nothing cached")
        yield "cached", np.where(np.isfinite(cached), values, UNSTATED).astype(object)
    for name in KINDS:
        column: pd.Series[str] = requests[name]
        yield name, column.where(column.notna(), UNSTATED).to_numpy(dtype=object)


def _large(third: NDArray[np.intp]) -> list[int]:
    """Return the thirds that are large enough, none where there is only one."""
    numbers, sizes = np.unique(third, return_counts=True)
    return [
        int(n) for n, size in zip(numbers, sizes, strict=True) if size >= MIN_REQUESTS and len(numbers) > 1
    ]


def _most_frequent(values: NDArray[np.object_]) -> list[str]:
    """Return the values that are frequent enough, by name; none where all requests share one."""
    counts = pd.Series(values).value_counts()
    if len(counts) < 2:
        return []
    return sorted(str(value) for value in counts[counts >= MIN_REQUESTS].index[:MOST_KINDS])


def _stratum(
    pairs: Pairs,
    chosen: NDArray[np.bool_],
    *,
    by: str,
    settings: Bootstrap,
    bounds: tuple[float, float] | None = None,
    value: str | None = None,
) -> Stratum:
    errors = relative_errors(take(pairs, chosen), bootstrap=settings, only=METRICS)
    return Stratum(
        by=by,
        low=None if bounds is None else bounds[0],
        high=None if bounds is None else bounds[1],
        value=value,
        n=int(np.count_nonzero(chosen)),
        mape={name: mape for name, (mape, _) in errors.items()},
        bias={name: bias for name, (_, bias) in errors.items()},
    )
