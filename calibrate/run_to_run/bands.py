"""The band of one request's latency, which contains nine of ten observed ones around the twin's expected value."""

from __future__ import annotations

from lazy_dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibrate.compare.pair import LATENCIES, Pairs
from traces.statistics.bootstrap import LEVEL

Floats = NDArray[np.float64]

BANDED = ("ttft_us", "tpot_us", "e2e_us")
LEAST = 20
"""With fewer fitted requests the last one in ten is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricBand:
    """One metric's bands: from ``low`` to ``high`` times the expected value, the median over the held-out requests.

    ``holds_frac``: the share of those n whose observed value is within. ``widened_log``: the widening by the fitted
    requests beyond that of further runs, as a log of both ends.
    """

    low: float
    high: float
    holds_frac: float
    n: int
    widened_log: float


def bands_of(fitted: Pairs, held_out: Pairs) -> dict[str, MetricBand]:
    """Return the bands of TTFT, TPOT and E2E; without those that no run or too few fitted requests have.

    A request's band is from the 5th to the 95th percentile of the twin's runs. Unless nine of ten fitted requests are
    within, both ends are moved outwards by one factor for all requests, the smallest that is enough (conformalized
    quantile regression: Romano, Patterson and Candès, NeurIPS 2019). The fitted run and the next have a pace each: the
    fitted requests count at every difference of two paces.
    """
    found = {}
    for name in BANDED:
        known, new = _places(fitted, name), _places(held_out, name)
        if known is None or new is None or len(known.seen) < LEAST or len(new.seen) == 0:
            continue
        scores = np.concatenate([known.strays(shift) for shift in known.shifts])
        rank = min(int(np.ceil(LEVEL * (len(known.seen) + 1))), len(known.seen)) / len(known.seen)
        widened = max(float(np.quantile(scores, rank, method="inverted_cdf")), 0.0)
        found[name] = MetricBand(
            low=float(np.exp(np.median(new.low) - widened)),
            high=float(np.exp(np.median(new.high) + widened)),
            holds_frac=float(np.mean(new.strays(0.0) <= widened)),
            n=len(new.seen),
            widened_log=widened,
        )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Logs relative to each request's median over the runs [n]: what was ``seen``, and the runs' percentiles.

    ``shifts`` [runs]: by how much all of a run's requests may be off from those of another run.
    """

    seen: Floats
    low: Floats
    high: Floats
    shifts: Floats

    def strays(self, shift: float) -> Floats:
        """Return how far each observed value, shifted, would be outside its percentiles; below 0 inside."""
        return np.maximum(self.low - (self.seen + shift), self.seen + shift - self.high)


def _places(pairs: Pairs, name: str) -> Places | None:
    """Return a metric's places; None without runs. A request without the metric is left out."""
    if pairs.again is None:
        return None
    observed = pairs.observed[name].to_numpy(np.float64)
    runs = pairs.again[:, :, LATENCIES.index(name)]
    known = np.isfinite(observed) & (observed > 0) & (np.isfinite(runs) & (runs > 0)).all(axis=0)
    if not known.any():
        return Places(seen=np.zeros(0), low=np.zeros(0), high=np.zeros(0), shifts=np.zeros(1))
    logs = np.log(runs[:, known])
    low, middle, high = np.quantile(logs, [(1 - LEVEL) / 2, 0.5, (1 + LEVEL) / 2], axis=0)
    means = np.log(runs[:, known].mean(axis=1))
    return Places(
        seen=np.log(observed[known]) - middle,
        low=low - middle,
        high=high - middle,
        shifts=np.sqrt(2) * (means - means.mean()),
    )
