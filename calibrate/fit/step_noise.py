"""How much step times scatter around the model's, from the residuals of the TPOT after the fit of the means.

A request of m gaps averages over m steps, so a scatter sigma of single steps leaves sigma²/m in its log(TPOT); what
the client's stamps add goes with 1/m², since only the first and the last count, and other differences do
not depend on m. Three non-negative numbers, found by least squares over requests of different lengths.
"""

from __future__ import annotations

import numpy as np

from calibrate.fit.objective.fit_trace import LATENCIES
from calibrate.fit.objective.objective import FitObjective, log_ratio
from calibrate.run_to_run.normal_quantiles import deviation_of_median
from traces.statistics.bootstrap import LEVEL, Floats, block_length, over_resamples

MIN_GAPS = 2
MIN_REQUESTS = 40
OUTLIER = 4.0
"""Residuals count as at most this many of their typical sizes: a preemption is no scatter of steps."""
ROUNDS = 4
"""The weights follow from the fit, and the fit from the weights."""
REPLICATES = 200
TPOT = LATENCIES.index("tpot_us")


def step_scatter(objective: FitObjective, theta: Floats, *, seed: int) -> tuple[float, float, float] | None:
    """Return sigma with its interval, None where too few requests have several gaps; steps simulated without any."""
    squares, gaps = [], []
    for trace, run in zip(objective.traces, objective.simulate(theta), strict=True):
        off = log_ratio(run.latency_us, trace.observed_us)[TPOT]
        number = trace.observed_timeline.output_tokens - 1
        known = np.isfinite(off) & (number >= MIN_GAPS) & np.isfinite(run.latency_us[TPOT])
        squares.append(_squares(off[known]))
        gaps.append(number[known])
    square, number = np.concatenate(squares), np.concatenate(gaps)
    if len(square) < MIN_REQUESTS:
        return None
    one = np.ones(len(square))
    best = _sigma(square, number, counts=one)
    drawn = over_resamples(
        lambda counts: np.array([_sigma(square, number, counts=row.astype(np.float64)) for row in counts]),
        len(square),
        block_length(square),
        seed=seed,
        stream=7900,
    )
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return best, min(float(low), best), max(float(high), best)


def sigma_of(off: Floats, gaps: Floats) -> float:
    """Return sigma from each request's log(TPOT) off the twin's, and its gaps; 0 where too few have several."""
    known = np.isfinite(off) & (gaps >= MIN_GAPS)
    if int(known.sum()) < MIN_REQUESTS:
        return 0.0
    return _sigma(_squares(off[known]), gaps[known], counts=np.ones(int(known.sum())))


def _squares(off: Floats) -> Floats:
    """Return squared deviations from the median, with outliers limited."""
    if len(off) == 0:
        return off
    centred = off - np.median(off)
    limit = OUTLIER * deviation_of_median(float(np.median(np.abs(centred))))
    return np.asarray(np.minimum(np.abs(centred), max(limit, 1e-9)) ** 2)


def _sigma(square: Floats, number: Floats, *, counts: Floats) -> float:
    """Return the root of the part that goes with 1/m; each request weighted by what its square may vary by."""
    from scipy.optimize import nnls

    matrix = np.stack([1 / number, 1 / number**2, np.ones(len(number))], axis=1)
    expected = np.full(len(square), max(float(np.average(square, weights=counts)), 1e-12))
    found = np.zeros(3)
    for _ in range(ROUNDS):
        root = np.sqrt(counts) / expected
        found, _ = nnls(matrix * root[:, None], square * root)
        expected = np.maximum(matrix @ found, 1e-3 * expected.mean())
    return float(np.sqrt(found[0]))
