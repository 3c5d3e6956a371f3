"""The report's pictures of errors: distributions, request by request, residuals."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from calibrate import number_format
from calibrate.compare.gaps import one_basis
from calibrate.compare.metric_errors import METRICS
from calibrate.compare.pair import Pairs
from calibrate.compare.samples import WeightedSample
from traces import pages
from traces.statistics.bootstrap import Floats

CDF_POINTS = 300
MEDIAN_BINS = 14
SIDES = ("observed", "simulated")
ARRIVAL = "arrival, s"


def unit_of(values: Floats) -> tuple[float, str]:
    """Return what to divide µs by, and the unit's name, for values of this size."""
    known = values[np.isfinite(values)]
    typical = float(np.quantile(np.abs(known), 0.9)) if len(known) else 0.0
    if typical >= 2e6:
        return 1e6, "s"
    return (1e3, "ms") if typical >= 2e3 else (1.0, "µs")


def distributions(pairs: Pairs, metrics: Sequence[str], *, noise: Pairs | None = None) -> list[pages.Figure]:
    """Return a picture per metric: the share of requests (of gaps, for ITL) up to each time, both sides.

    ``noise``: the server's two runs of one load. By how much each quantile differs between them is the band around the
    observed curve, whatever load that is of.
    """
    return [
        pages.Figure(
            svg=_distribution(
                name, samples_of(pairs, name), None if noise is None else samples_of(noise, name)
            )
        )
        for name in metrics
    ]


def samples_of(pairs: Pairs, metric: str) -> tuple[WeightedSample, WeightedSample]:
    """Return both sides' values of a metric, those of requests that both sides have."""
    if metric == "itl_us":
        left, right = one_basis(pairs.observed_gaps, pairs.simulated_gaps)
        return WeightedSample.of_gaps(left, num_requests=len(pairs)), WeightedSample.of_gaps(
            right, num_requests=len(pairs)
        )
    observed, simulated = values_of(pairs, metric)
    return WeightedSample.of_requests(observed), WeightedSample.of_requests(simulated)


def values_of(pairs: Pairs, metric: str) -> tuple[Floats, Floats]:
    """Return the two values of every request that has both."""
    observed, simulated = (side[METRICS[metric]].to_numpy() for side in (pairs.observed, pairs.simulated))
    known = np.isfinite(observed) & np.isfinite(simulated)
    return observed[known], simulated[known]


def _distribution(
    metric: str,
    samples: tuple[WeightedSample, WeightedSample],
    noise: tuple[WeightedSample, WeightedSample] | None,
) -> pages.Markup:
    at = np.unique(np.concatenate([np.linspace(0.001, 0.98, CDF_POINTS), np.linspace(0.98, 0.999, 40)]))
    curves = [side.statistics(at)[1:] for side in samples]
    divisor, unit = unit_of(np.concatenate(curves))
    x = pages.scale_of(np.concatenate(curves) / divisor, label=unit)
    marks: list[pages.Mark] = [
        pages.Line(x=curve / divisor, y=at, name=name) for curve, name in zip(curves, SIDES, strict=True)
    ]
    if noise is not None and all(len(side.values) for side in noise):
        low, high = noise_band(curves[0], noise, at=at)
        marks.insert(0, pages.Across(low=low / divisor, high=high / divisor, y=at, name="noise"))
    title = f"{number_format.METRIC_NAMES[metric]}, {number_format.METRIC_MEANINGS[metric]}"
    return pages.chart(title=title, x=x, y=_shares(), marks=marks, height=270)


def noise_band(
    observed: Floats, noise: tuple[WeightedSample, WeightedSample], *, at: Floats
) -> tuple[Floats, Floats]:
    """Return the observed quantiles divided and multiplied by the ratio of the two runs' quantiles at each share."""
    one, other = (np.maximum(side.statistics(at)[1:], 1e-9) for side in noise)
    ratio = np.exp(np.abs(np.log(other / one)))
    return observed / ratio, observed * ratio


def _shares() -> pages.Scale:
    return pages.linear(0.0, 1.0, most=4, text=lambda value: f"{100 * value:.0f} %")


def scatters(pairs: Pairs, metrics: Sequence[str]) -> list[pages.Figure]:
    """Return a picture per metric: each request's simulated time over its observed one."""
    found = []
    for name in metrics:
        observed, simulated = values_of(pairs, name)
        divisor, unit = unit_of(np.concatenate([observed, simulated]))
        axis = pages.scale_of(np.concatenate([observed, simulated]) / divisor, label=f"observed, {unit}")
        up = pages.Scale(low=axis.low, high=axis.high, ticks=axis.ticks, is_log=axis.is_log)
        ends = np.geomspace(axis.low, axis.high, 40) if axis.is_log else np.linspace(axis.low, axis.high, 40)
        marks = (
            pages.Band(x=ends, low=0.9 * ends, high=1.1 * ends, name="tenth"),
            pages.Rule(start=(axis.low, axis.low), end=(axis.high, axis.high)),
            pages.Dots(x=observed / divisor, y=simulated / divisor, name="requests"),
        )
        title = f"{number_format.METRIC_NAMES[name]}, simulated, {unit}"
        found.append(
            pages.Figure(svg=pages.chart(title=title, x=axis, y=up, marks=marks, width=344, height=330))
        )
    return found


def residuals(pairs: Pairs, metrics: Sequence[str]) -> list[pages.Figure]:
    """Return, per metric, three pictures: relative error over arrival, prompt length and load."""
    requests = pairs.requests
    by = (
        (requests["arrival_us"].to_numpy() / 1e6, ARRIVAL),
        (requests["prompt_tokens"].to_numpy(dtype=np.float64), "prompt tokens"),
        (requests["in_flight"].to_numpy(dtype=np.float64), "requests in flight at arrival"),
    )
    found = []
    for name in metrics:
        observed, simulated = (side[METRICS[name]].to_numpy() for side in (pairs.observed, pairs.simulated))
        known = np.isfinite(observed) & np.isfinite(simulated) & (observed > 0)
        error = simulated[known] / observed[known] - 1
        reach = max(0.02, 1.05 * float(np.quantile(np.abs(error), 0.99)))
        up = pages.linear(-reach, reach, most=5, text=lambda value: number_format.percent(value, signed=True))
        for values, label in by:
            x = (
                _time_axis(values[known], label)
                if label == ARRIVAL
                else pages.scale_of(values[known], label=label)
            )
            title = f"{number_format.METRIC_NAMES[name]}, relative error"
            marks = _residual_marks(values[known], error, x)
            found.append(
                pages.Figure(svg=pages.chart(title=title, x=x, y=up, marks=marks, width=344, height=236))
            )
    return found


def _time_axis(values: Floats, label: str) -> pages.Scale:
    return pages.linear(float(values.min()), float(values.max()), label=label)


def _residual_marks(
    values: Floats, error: Floats, axis: pages.Scale
) -> tuple[pages.Rule, pages.Dots, pages.Line]:
    """Return the zero line, the requests, and the median error along the axis."""
    middle, median = running_median(values, error)
    return (
        pages.Rule(start=(axis.low, 0.0), end=(axis.high, 0.0)),
        pages.Dots(x=values, y=error, name="requests"),
        pages.Line(x=middle, y=median, name="median"),
    )


def running_median(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Return the medians of x and y in bins of about equal count; equal x stay together."""
    edges = np.unique(np.quantile(x, np.linspace(0, 1, MEDIAN_BINS + 1)[1:-1]))
    place = np.searchsorted(edges, x, side="left")
    bins = np.unique(place)
    return (
        np.array([float(np.median(x[place == number])) for number in bins]),
        np.array([float(np.median(y[place == number])) for number in bins]),
    )
