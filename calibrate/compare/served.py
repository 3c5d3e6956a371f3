"""A server's absolute numbers, on both sides: run by run, and as a curve of latency over rate."""

from __future__ import annotations

from collections.abc import Sequence
from lazy_dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from calibrate.compare.pair import Pairs
from traces import ConfigError, mean_rate_per_s
from traces.statistics.bootstrap import Floats

if TYPE_CHECKING:
    from replay import TwinConfig
    from traces import Trace

STATISTICS = ("p50", "p99")
LATENCIES = ("ttft_us", "tpot_us", "e2e_us")

CURVE_OF = ("ttft", "e2e")
"""Latencies whose curve over the rate is drawn."""
MOST_REQUESTS = 3000
"""This many requests give a rate's median; of a longer trace the first ones are used."""
LEAST_REQUESTS = 20
NUM_RATES = 14
LOWEST, HIGHEST = 0.1, 1.05
"""The curve's ends, as shares of the twin's highest throughput."""
BESIDE = 0.02
"""A rate of the grid this near to an observed one is left out: the curve would jump between the two."""
SETTLING = 0.1
"""Share of the requests, the first to arrive, that the curve does not measure: they find an empty server."""
ALIKE = 0.2
"""Traces whose mean lengths differ by more than this share are not on one curve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedSide:
    """One side of a run: rates per second from the first arrival to the last token, and latencies in µs.

    ``latencies_us``: by metric, (median, 99th percentile), None where no request has it.
    """

    requests_per_s: float | None
    output_tokens_per_s: float | None
    latencies_us: dict[str, tuple[float, float] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RatePoint:
    """A rate, requests/s, and by latency (median, 99th percentile) in µs."""

    rate_per_s: float
    latencies_us: dict[str, tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RateCurve:
    """The twin's latency over the rate, of the requests of one trace, and what was observed of such requests.

    ``capacity_per_s``: the twin's highest rate of answers; if the requests are too few to find it, its rate with all of
    them at once, which is less. ``fitted_to_per_s``: the highest fitted load. ``observed``: by trace, at its own rate.
    ``elsewhere``: traces that cannot be on this curve, with the reason.
    """

    trace: str
    points: tuple[RatePoint, ...]
    capacity_per_s: float
    fitted_to_per_s: float | None
    observed: dict[str, RatePoint]
    elsewhere: dict[str, str]


def served_sides(pairs: Pairs) -> tuple[ServedSide, ServedSide]:
    """Return the figures of a run's compared requests, observed and simulated."""
    return _side(pairs, pairs.observed, ""), _side(pairs, pairs.simulated, "simulated_")


def _side(pairs: Pairs, latencies: pd.DataFrame, prefix: str) -> ServedSide:
    arrival = pairs.requests[f"{prefix}arrival_us"].to_numpy(dtype=np.float64)
    ends = arrival + latencies["e2e_us"].to_numpy()
    tokens = pairs.requests[f"{prefix}output_tokens"].to_numpy(dtype=np.float64)
    span_s = (np.nanmax(ends) - np.nanmin(arrival)) / 1e6 if np.isfinite(ends).any() else 0.0
    return ServedSide(
        requests_per_s=float(len(pairs) / span_s) if span_s > 0 else None,
        output_tokens_per_s=float(np.nansum(tokens) / span_s) if span_s > 0 else None,
        latencies_us={name: _median_and_p99(latencies[name].to_numpy()) for name in LATENCIES},
    )


def _median_and_p99(values: Floats) -> tuple[float, float] | None:
    known = values[np.isfinite(values)]
    if len(known) == 0:
        return None
    median, p99 = np.percentile(known, (50, 99))
    return float(median), float(p99)


def rate_curve(runs: Sequence[tuple[str, Trace, Pairs]], twin: TwinConfig) -> RateCurve | None:
    """Return the twin's curve for the requests of the first run that has times to scale; None where none has.

    ``runs``: by name, the observed trace and its pairs, those to draw the curve for first.
    """
    from replay.search import Evaluator, ceiling_of, load_of

    elsewhere: dict[str, str] = {}
    curve_of = None
    for name, trace, pairs in runs:
        try:
            load = load_of(_first_rows(trace), twin)
        except ConfigError:
            elsewhere[name] = "its pace was set by the answers"
            continue
        if len(pairs) < LEAST_REQUESTS:
            elsewhere[name] = f"fewer than {LEAST_REQUESTS} of its requests are compared"
            continue
        curve_of = name, trace, load
        break
    if curve_of is None:
        return None
    name, trace, load = curve_of
    evaluator = Evaluator(loads=[load], limits=[])
    capacity = ceiling_of([load]) or load.scale_per_s()
    if capacity <= 0:
        return None
    observed, others = _observed(runs, like=trace, elsewhere=elsewhere)
    own = [each.rate_per_s for each in observed.values() if each.rate_per_s <= HIGHEST * capacity]
    grid = np.linspace(LOWEST, HIGHEST, NUM_RATES) * capacity
    rates = {*own, *(rate for rate in grid if all(abs(rate / each - 1) > BESIDE for each in own))}
    points = [
        RatePoint(
            rate_per_s=rate, latencies_us={each: evaluator.at(rate).curve_us[each] for each in CURVE_OF}
        )
        for rate in sorted(rates)
    ]
    fitted = None if twin.fitted is None else twin.fitted.rate_per_s
    return RateCurve(
        trace=name,
        points=tuple(points),
        capacity_per_s=capacity,
        fitted_to_per_s=None if fitted is None else fitted[1],
        observed=observed,
        elsewhere=others,
    )


def _first_rows(trace: Trace) -> Trace:
    from traces import select_rows, send_or_arrival_us

    if len(trace) <= MOST_REQUESTS:
        return trace
    keep = np.zeros(len(trace), dtype=bool)
    keep[np.argsort(send_or_arrival_us(trace), kind="stable")[:MOST_REQUESTS]] = True
    return select_rows(trace, keep)


def _observed(
    runs: Sequence[tuple[str, Trace, Pairs]], *, like: Trace, elsewhere: dict[str, str]
) -> tuple[dict[str, RatePoint], dict[str, str]]:
    """Return, by trace, the observed figures at its rate, for traces with similar requests; and the other traces."""
    found: dict[str, RatePoint] = {}
    others = dict(elsewhere)
    lengths = _mean_lengths(like)
    for name, trace, pairs in runs:
        if name in elsewhere:
            continue
        own = _mean_lengths(trace)
        if np.any(np.abs(own / np.maximum(lengths, 1) - 1) > ALIKE):
            others[name] = (
                f"its requests are of other lengths ({own[0]:,.0f} + {own[1]:,.0f} tokens on average)"
            )
            continue
        point = _observed_point(pairs, drawn_per_s=trace.header.rate_per_s)
        if point is None:
            others[name] = "its requests came all at once"
        else:
            found[name] = point
    return found, others


def _mean_lengths(trace: Trace) -> Floats:
    """Return the mean prompt and output, in tokens; for unknown answers their requested length."""
    from traces import prompt_tokens

    outputs = trace.column("output_tokens").to_numpy(np.float64, na_value=np.nan)
    return np.array(
        [float(np.mean(prompt_tokens(trace))), float(np.nanmean(outputs)) if len(outputs) else 0.0]
    )


def _observed_point(pairs: Pairs, *, drawn_per_s: float | None) -> RatePoint | None:
    """Return the observed figures of a run whose requests arrived over time, without its first requests."""
    arrival = pairs.requests["arrival_us"].to_numpy(dtype=np.float64)
    rate = mean_rate_per_s(arrival, drawn_per_s)
    if rate is None:
        return None
    settled = np.argsort(arrival, kind="stable")[int(SETTLING * len(arrival)) :]
    values = {name: _median_and_p99(pairs.observed[f"{name}_us"].to_numpy()[settled]) for name in CURVE_OF}
    known = {name: each for name, each in values.items() if each is not None}
    return RatePoint(rate_per_s=rate, latencies_us=known)
