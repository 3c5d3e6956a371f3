"""Arrivals as a trace has them, tested as statistics: the law of the gaps, and how much counts scatter.

Where the rate changes, time is counted in expected arrivals (the time-rescaling theorem): the gaps then follow the
law of a process of rate 1, whatever the rate did. The expected counts are written down here once more, from what
the options and the specification say, not taken from the code that draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import yaml
from scipy import special, stats

from traces import Trace
from traces.workload import WorkloadOptions, synth, trace_from_options
from traces.workload.spec.spec_read import parse_spec

P_LEAST = 1e-3
"""Seeds are fixed: a right process stays right, a wrong one gives p-values many orders of magnitude below."""

N = 20_000
RATE = 5.0
Floats = npt.NDArray[np.float64]


def arrivals_s(trace: Trace) -> Floats:
    return trace.column("arrival_time_us").to_numpy(dtype=np.float64) / 1e6


def gamma_law(burstiness: float) -> Any:  # noqa: ANN401 - scipy's
    return stats.gamma(burstiness, scale=1 / burstiness)


def weibull_law(burstiness: float) -> Any:  # noqa: ANN401 - scipy's
    """The Weibull whose cv is burstiness^-½: its shape found from the moments, independently of the code."""
    shapes = np.geomspace(0.2, 20, 200_001)
    log_cv2 = special.gammaln(1 + 2 / shapes) - 2 * special.gammaln(1 + 1 / shapes)
    shape = shapes[np.argmin(np.abs(np.expm1(log_cv2) - 1 / burstiness))]
    return stats.weibull_min(shape, scale=1 / math.gamma(1 + 1 / shape))


PROCESSES: list[tuple[dict[str, Any], Any]] = [
    ({}, stats.expon()),
    ({"arrival": "poisson"}, stats.expon()),
    ({"burstiness": 0.25}, gamma_law(0.25)),
    ({"arrival": "gamma", "burstiness": 4.0}, gamma_law(4.0)),
    ({"arrival": "weibull", "burstiness": 0.25}, weibull_law(0.25)),
    ({"arrival": "weibull", "burstiness": 4.0}, weibull_law(4.0)),
]


def dispersion(times: Floats, *, window: float) -> tuple[float, int]:
    """Return variance over mean of the counts per window, and the number of windows."""
    counts = np.bincount((times // window).astype(int))[:-1]
    return float(counts.var(ddof=1) / counts.mean()), counts.size


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    ("options", "law"), PROCESSES, ids=lambda it: str(it) if isinstance(it, dict) else ""
)
def test_gaps_follow_the_law_that_was_asked_for(options: dict[str, Any], law: Any, seed: int) -> None:  # noqa: ANN401
    trace = trace_from_options(WorkloadOptions(rate=RATE, num_requests=N, seed=seed, **options))
    gaps = np.diff(arrivals_s(trace)) * RATE
    least = 1e-4  # below it, whole microseconds show
    above = gaps[gaps >= least]
    assert above.size / gaps.size == pytest.approx(
        law.sf(least), abs=5 * math.sqrt(law.cdf(least) / N) + 1e-3
    )
    assert stats.kstest(above, lambda x: 1 - law.sf(x) / law.sf(least)).pvalue > P_LEAST


@pytest.mark.parametrize(
    ("options", "law"), PROCESSES, ids=lambda it: str(it) if isinstance(it, dict) else ""
)
def test_counts_scatter_by_the_square_of_the_gaps_cv(options: dict[str, Any], law: Any) -> None:  # noqa: ANN401
    """Renewal theory: in windows of many gaps, variance / mean of the counts tends to cv²."""
    trace = trace_from_options(WorkloadOptions(rate=RATE, num_requests=200_000, seed=3, **options))
    index, windows = dispersion(arrivals_s(trace), window=100 / RATE)
    cv2 = law.var() / law.mean() ** 2
    low, high = stats.chi2(windows - 1).ppf([1e-4, 1 - 1e-4]) / (windows - 1)
    edge = abs(cv2 - 1) / 10  # what the windows' two ends leave of one gap in a hundred
    assert low * cv2 - edge < index < high * cv2 + edge


def test_constant_arrivals_do_not_scatter() -> None:
    trace = trace_from_options(WorkloadOptions(rate=RATE, num_requests=N, arrival="constant"))
    assert set(np.diff(trace.column("arrival_time_us").to_numpy(dtype=np.int64))) == {200_000}
    index, _ = dispersion(arrivals_s(trace) - 0.1, window=1.0)
    assert index == 0


# rates that change


def stages(t: Floats) -> Floats:
    """50/s for 20 s, from 50 to 250/s in 40 s, 20/s for 60 s."""
    ramp = np.clip(t - 20, 0, 40)
    return 50 * np.clip(t, 0, 20) + 50 * ramp + 2.5 * ramp**2 + 20 * np.clip(t - 60, 0, 60)


def day(t: Floats) -> Floats:
    """An hour's rate: a cosine from 1/4 to 1, highest at hour 14, of 0.5/s."""
    hours = np.arange(24)
    rates = 0.5 * (0.25 + 0.75 * (1 + np.cos(2 * np.pi * (hours - 14) / 24)) / 2)
    edges = np.concatenate([[0], np.cumsum(rates * 3600)])
    return np.interp(t, np.arange(25) * 3600, edges)


def spike(t: Floats) -> Floats:
    """30/s always; 90/s more between 40 and 60 s."""
    return 30 * t + 90 * np.clip(t - 40, 0, 20)


def drain(t: Floats) -> Floats:
    """100/s for 50 s, then down to 0 in 100 s, in ten steps."""
    rates = np.concatenate([[100], 100 * (1 - (np.arange(10) + 0.5) / 10)])
    edges = np.concatenate([[0, 50], 50 + 10 * np.arange(1, 11)])
    return np.interp(t, edges, np.concatenate([[0], np.cumsum(rates * np.diff(edges))]))


COHORT = {
    "population": 3,
    "input_distribution": {"type": "constant", "params": {"value": 5}},
    "output_distribution": {"type": "constant", "params": {"value": 5}},
}


def specified(rate: float, horizon_s: float, *cohorts: dict[str, Any]) -> Trace:
    spec = {
        "version": "2",
        "aggregate_rate": rate,
        "horizon": int(horizon_s * 1e6),
        "cohorts": [{**COHORT, "id": f"c{place}", **cohort} for place, cohort in enumerate(cohorts)],
    }
    return synth(parse_spec(yaml.safe_dump(spec), source="test"), seed=5)


def spiky() -> Trace:
    """Absolute rates: a client that is always there beside a cohort that comes for 20 s."""
    lengths = {name: item for name, item in COHORT.items() if name != "population"}
    window = {"start_us": 0, "end_us": 120_000_000, "trace_rate": 30.0}
    spec = {
        "version": "2",
        "aggregate_rate": 0,
        "horizon": 120_000_000,
        "clients": [{"id": "always", **lengths, "lifecycle": {"windows": [window]}}],
        "cohorts": [
            {**COHORT, "spike": {"start_time_us": 40_000_000, "duration_us": 20_000_000, "trace_rate": 90.0}}
        ],
    }
    return synth(parse_spec(yaml.safe_dump(spec), source="test"), seed=5)


SHAPES: dict[str, tuple[Callable[[], Trace], Callable[[Floats], Floats], float]] = {
    "stages": (
        lambda: trace_from_options(WorkloadOptions(stages="50:20s,50-250:40s,20:60s", seed=5)),
        stages,
        120,
    ),
    "diurnal": (
        lambda: specified(0.5, 86_400, {"diurnal": {"peak_hour": 14, "peak_to_trough_ratio": 4}}),
        day,
        86_400,
    ),
    "spike": (spiky, spike, 120),
    "drain": (
        lambda: specified(
            100, 150, {"drain": {"start_time_us": 50_000_000, "ramp_duration_us": 100_000_000}}
        ),
        drain,
        150,
    ),
}


@pytest.mark.parametrize("name", SHAPES)
def test_arrivals_under_a_changing_rate_are_poisson_in_expected_arrivals(name: str) -> None:
    """Three members or two clients at once are Poisson too: their sum is."""
    draw, expected, end_s = SHAPES[name]
    times = arrivals_s(draw())
    total = float(expected(np.array([end_s]))[0])
    assert abs(times.size - total) < 4 * math.sqrt(total)
    rescaled = expected(times)
    assert stats.kstest(rescaled / total, stats.uniform.cdf).pvalue > P_LEAST
    gaps = np.diff(np.concatenate([[0.0], rescaled]))
    assert stats.kstest(gaps, stats.expon.cdf).pvalue > P_LEAST
    index, windows = dispersion(rescaled, window=20.0)
    low, high = stats.chi2(windows - 1).ppf([1e-4, 1 - 1e-4]) / (windows - 1)
    assert low < index < high


def test_a_ramp_of_bursts_keeps_the_bursts_cv_in_expected_arrivals() -> None:
    trace = trace_from_options(WorkloadOptions(stages="20-400:100s", burstiness=0.25, seed=6))
    times = arrivals_s(trace)
    gaps, law = np.diff(20 * times + 1.9 * times**2), gamma_law(0.25)
    assert stats.kstest(gaps[gaps > 1e-3], lambda x: 1 - law.sf(x) / law.sf(1e-3)).pvalue > P_LEAST


def test_a_rate_that_is_off_by_a_tenth_is_seen() -> None:
    """What the tests above look at can fail: under another rate the same arrivals are not Poisson."""
    times = arrivals_s(SHAPES["stages"][0]())
    total = float(stages(np.array([120.0]))[0])
    assert stats.kstest(stages(times * 0.9) / total, stats.uniform.cdf).pvalue < 1e-9
    assert stats.kstest(np.diff(stages(times) * 1.1), stats.expon.cdf).pvalue < 1e-6
