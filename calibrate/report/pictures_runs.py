"""The report's pictures of runs: the load over time, steps against the engine's log, single requests' timelines."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from calibrate import number_format
from calibrate.compare.engine_steps import StepErrors
from calibrate.compare.pair import Pairs
from calibrate.compare.phases import PHASE_NAMES, Origin
from calibrate.compare.served import CURVE_OF, RateCurve
from calibrate.compare.worst_requests import WorstRequest
from calibrate.report.pictures import CDF_POINTS, SIDES, unit_of
from traces import pages
from traces.statistics.bootstrap import Floats

RATE_BINS = 40
PHASE_CLASSES = tuple(f"phase-{name.removesuffix('_phase_us')}" for name in PHASE_NAMES)
PART_CLASSES = {4: PHASE_CLASSES, 2: ("phase-first", "phase-rest"), 1: ("phase-rest",)}
PART_NAMES = [
    *((f"phase-{name.removesuffix('_phase_us')}", meaning) for name, meaning in PHASE_NAMES.items()),
    ("phase-first", "up to the first token"),
    ("phase-rest", "after it"),
]


def rate_curves(curve: RateCurve) -> list[pages.Figure]:
    """Return a picture per latency: the twin's median and 99th percentile over the rate, and what was observed."""
    return [pages.Figure(svg=_rate_curve(curve, name)) for name in CURVE_OF]


def _rate_curve(curve: RateCurve, name: str) -> pages.Markup:
    rates = np.array([each.rate_per_s for each in curve.points])
    median, p99 = (np.array([each.latencies_us[name][i] for each in curve.points]) for i in (0, 1))
    seen = [
        (each.rate_per_s, each.latencies_us[name])
        for each in curve.observed.values()
        if name in each.latencies_us
    ]
    at = np.array([rate for rate, _ in seen])
    dots = [np.array([values[i] for _, values in seen]) for i in (0, 1)]
    below = rates <= curve.capacity_per_s
    divisor, unit = unit_of(np.concatenate([median[below], p99[below], *dots]))
    x = pages.linear(0.0, float(rates[-1]), label="requests/s")
    y = pages.scale_of(np.concatenate([median[below], p99[below], *dots]) / divisor, label=unit)
    marks: list[pages.Mark] = [
        pages.Line(x=rates, y=p99 / divisor, name="p99", label="twin, p99"),
        pages.Line(x=rates, y=median / divisor, name="simulated", label="twin, median"),
        pages.Dots(x=at, y=dots[1] / divisor, name="observed p99"),
        pages.Dots(x=at, y=dots[0] / divisor, name="observed"),
        pages.Rule(start=(curve.capacity_per_s, y.low), end=(curve.capacity_per_s, y.high), name="capacity"),
    ]
    if curve.fitted_to_per_s is not None and curve.fitted_to_per_s < rates[-1]:
        fitted = curve.fitted_to_per_s
        marks.insert(0, pages.Rule(start=(fitted, y.low), end=(fitted, y.high), name="fitted"))
    metric = number_format.METRIC_NAMES[f"{name}_us"]
    title = f"{metric}, {number_format.METRIC_MEANINGS[f'{name}_us']}, over the rate"
    return pages.chart(title=title, x=x, y=y, marks=marks, height=250)


def loads(traces: Mapping[str, Pairs]) -> list[pages.Figure]:
    """Return two pictures per trace: requests in flight over time, and requests that finish per second, both sides."""
    found = []
    for name, pairs in traces.items():
        found += [_in_flight(name, pairs), _finished(name, pairs)]
    return found


def _in_flight(name: str, pairs: Pairs) -> pages.Figure:
    """Return how many compared requests were under way over time."""
    curves = [in_flight(pairs, prefix) for prefix in ("", "simulated_")]
    times = np.concatenate([curve[0] for curve in curves]) / 1e6
    most = max(float(curve[1].max()) for curve in curves)
    marks = [
        pages.Line(x=curve[0] / 1e6, y=curve[1], name=side, steps=True)
        for curve, side in zip(curves, SIDES, strict=True)
    ]
    picture = pages.chart(
        title=f"{name}, requests in flight",
        x=pages.linear(float(times.min()), float(times.max()), label="time, s", most=10),
        y=pages.linear(0.0, max(1.0, 1.05 * most), most=4),
        marks=marks,
        width=1048,
        height=230,
    )
    return pages.Figure(svg=picture)


def _finished(name: str, pairs: Pairs) -> pages.Figure:
    """Return the requests that arrived, and that finished on either side, per second."""
    ends = [
        pairs.requests[f"{prefix}arrival_us"].to_numpy() + side["e2e_us"].to_numpy()
        for prefix, side in (("", pairs.observed), ("simulated_", pairs.simulated))
    ]
    arrival = pairs.requests["arrival_us"].to_numpy()
    edges = np.linspace(arrival.min(), max(float(end.max()) for end in ends), RATE_BINS + 1)
    if not edges[-1] > edges[0]:
        edges = np.array([edges[0], edges[0] + 1.0])
    rates = [np.histogram(times, edges)[0] / np.diff(edges) * 1e6 for times in (arrival, *ends)]
    at = edges[:-1] / 1e6
    marks: list[pages.Mark] = [
        pages.Line(x=at, y=rate, name=label, steps=True)
        for rate, label in zip(rates, ("arrived", *SIDES), strict=True)
    ]
    picture = pages.chart(
        title=f"{name}, requests per second: finished, and (dashed) arriving",
        x=pages.linear(float(edges[0]) / 1e6, float(edges[-1]) / 1e6, label="time, s", most=10),
        y=pages.linear(0.0, 1.05 * max(float(rate.max()) for rate in rates), most=4),
        marks=marks,
        width=1048,
        height=210,
    )
    return pages.Figure(svg=picture)


def steps_picture(name: str, steps: StepErrors) -> list[pages.Figure]:
    """Return two pictures: predicted over logged step times, and the relative error over the sequences that decode."""
    logged, predicted = steps.steps.duration_us, steps.predicted_us
    divisor, unit = unit_of(np.concatenate([logged, predicted]))
    axis = pages.scale_of(np.concatenate([logged, predicted]) / divisor, label=f"logged, {unit}")
    up = pages.Scale(low=axis.low, high=axis.high, ticks=axis.ticks, is_log=axis.is_log)
    scatter = pages.chart(
        title=f"{name}, step time predicted, {unit}",
        x=axis,
        y=up,
        marks=(
            pages.Rule(start=(axis.low, axis.low), end=(axis.high, axis.high)),
            pages.Dots(x=logged / divisor, y=predicted / divisor, name="requests"),
        ),
    )
    error = predicted / logged - 1
    reach = max(0.02, 1.05 * float(np.quantile(np.abs(error), 0.99)))
    tokens = steps.steps.prefill_tokens + steps.steps.decode_tokens
    x = pages.scale_of(tokens, label="tokens in the step")
    residual = pages.chart(
        title=f"{name}, relative error of a step",
        x=x,
        y=pages.linear(-reach, reach, most=5, text=lambda value: number_format.percent(value, signed=True)),
        marks=(
            pages.Rule(start=(x.low, 0.0), end=(x.high, 0.0)),
            pages.Dots(x=tokens, y=error, name="requests"),
        ),
    )
    return [pages.Figure(svg=scatter), pages.Figure(svg=residual)]


def timeline(worst: WorstRequest) -> pages.Markup:
    """Return a request's two timelines, observed above simulated, on one scale."""
    sides = (worst.observed_phases, worst.simulated_phases)
    end = max(worst.observed_e2e_us, worst.simulated_e2e_us)
    rows = [list(zip(PART_CLASSES[len(side)], side, strict=True)) for side in sides]
    return pages.bars(rows, end=end, label="observed above simulated")


def mean_request(origin: Origin) -> pages.Markup:
    """Return the mean request's two timelines, observed above simulated."""
    sides = [
        [(phase.observed or 0.0) for phase in origin.phases.values()],
        [(phase.simulated or 0.0) for phase in origin.phases.values()],
    ]
    rows = [list(zip(PHASE_CLASSES, side, strict=True)) for side in sides]
    return pages.bars(
        rows, end=max(sum(side) for side in sides), label="a mean request, observed above simulated"
    )


def in_flight(pairs: Pairs, prefix: str) -> tuple[Floats, Floats]:
    """Return times and the number of compared requests between arrival and last token from then on."""
    side = pairs.simulated if prefix else pairs.observed
    arrival = pairs.requests[f"{prefix}arrival_us"].to_numpy()
    last = arrival + side["e2e_us"].to_numpy()
    times = np.concatenate([arrival, last])
    change = np.concatenate([np.ones(len(arrival)), -np.ones(len(last))])
    order = np.argsort(times, kind="stable")
    return _on_a_grid(times[order], np.cumsum(change[order]))


def _on_a_grid(times: Floats, counts: Floats) -> tuple[Floats, Floats]:
    """Return a staircase as the mean of each of at most 400 spans of time, or as it is where it is short."""
    if len(times) <= CDF_POINTS:
        return times, counts
    reached = np.concatenate([[0.0], np.cumsum(counts[:-1] * np.diff(times))])
    edges = np.linspace(times[0], times[-1], CDF_POINTS + 1)
    means = np.diff(np.interp(edges, times, reached)) / np.diff(edges)
    return edges[:-1], means
