"""The band of one request's latency: where nine of ten observed ones are, around what the twin expects of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibrate.compare.bootstrap import LEVEL
from calibrate.compare.pair import LATENCIES, Pairs

Floats = NDArray[np.float64]

BANDED = ("ttft_us", "tpot_us", "e2e_us")
LEAST = 20
"""Fewer fitted requests say nothing of the last one in ten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """One metric's bands: from ``low`` to ``high`` times what is expected, the median over the held-out requests.

    ``holds_frac``: of how many of those n the observed value is within. ``widened_log``: what the fitted requests show
    that further runs do not, as a log of both ends.
    """

    low: float
    high: float
    holds_frac: float
    n: int
    widened_log: float


def bands_of(fitted: Pairs, held_out: Pairs) -> dict[str, Band]:
    """Return the bands of TTFT, TPOT and E2E; without those that no run or too few fitted requests have.

    A request's band is from the 5th to the 95th percentile of the twin's runs. Unless nine of ten fitted requests are
    within, both ends are moved outwards by one factor for all requests, the one that lets them be (conformalized
    quantile regression: Romano, Patterson and Candès, NeurIPS 2019).
    """
    found = {}
    for name in BANDED:
        known, new = _scores(fitted, name), _scores(held_out, name)
        if known is None or new is None or len(known[0]) < LEAST or len(new[0]) == 0:
            continue
        scores, (strays, low, high) = known[0], new
        rank = min(int(np.ceil(LEVEL * (len(scores) + 1))), len(scores))
        widened = max(
            float(np.sort(scores)[rank - 1]), 0.0
        )  # another run has another pace: never narrower than runs
        found[name] = Band(
            low=float(np.exp(np.median(low) - widened)),
            high=float(np.exp(np.median(high) + widened)),
            holds_frac=float(np.mean(strays <= widened)),
            n=len(strays),
            widened_log=widened,
        )
    return found


def _scores(pairs: Pairs, name: str) -> tuple[Floats, Floats, Floats] | None:
    """Return how far each observed value is outside its runs' percentiles (log; below 0 inside), and these two [n].

    The percentiles are logs relative to the median. None without runs; a request without the metric is left out.
    """
    if pairs.again is None:
        return None
    observed = pairs.observed[name].to_numpy(np.float64)
    runs = pairs.again[:, :, LATENCIES.index(name)]
    known = np.isfinite(observed) & (observed > 0) & (np.isfinite(runs) & (runs > 0)).all(axis=0)
    logs = np.log(runs[:, known])
    low, middle, high = np.quantile(logs, [(1 - LEVEL) / 2, 0.5, (1 + LEVEL) / 2], axis=0)
    seen = np.log(observed[known])
    return np.maximum(low - seen, seen - high), low - middle, high - middle
