"""Rates over time, and arrivals under them.

A process whose gaps have mean 1 is drawn once and its clock is bent: arrival i happens when the expected
number of arrivals reaches the sum of the first i + 1 gaps. With a constant rate that is plain scaling; with a
rate that changes it is the time-change of Gerhardt and Nelson (2009, "Transforming renewal processes for
simulation of nonstationary arrival processes"), exact for Poisson. So windows, ramps and days are one rule,
and no draw is lost or redrawn when a rate changes.
"""

from __future__ import annotations

import math
from lazy_dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from traces.workload.model import ActiveWindow, Client

Floats = npt.NDArray[np.float64]

ALWAYS = ActiveWindow(start_us=0, end_us=2**62)
"""The activity of a client without windows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RateProfile:
    """A rate that is constant between edges and 0 before the first and after the last.

    ``edges_us``: k + 1 times in µs, the last may be inf; ``per_us``: k rates in requests per µs.
    """

    edges_us: Floats
    per_us: Floats

    @property
    def spans_us(self) -> Floats:
        """How long each rate holds; 0 where it is 0, so that an endless pause has no infinite share."""
        return np.where(self.per_us > 0, np.diff(self.edges_us), 0.0)

    def expected(self, until_us: float) -> float:
        """Return the expected number of arrivals up to ``until_us``."""
        return float(self.per_us @ np.clip(until_us - self.edges_us[:-1], 0.0, self.spans_us))

    def times_us(self, counts: Floats) -> Floats:
        """Return when the expected number of arrivals reaches each of ``counts`` (>= 0); inf: never."""
        masses = np.concatenate([[0.0], np.cumsum(self.per_us * self.spans_us)])
        # the segment in which a count above 0 is reached has a rate above 0; what is due exactly at an edge
        # belongs to the segment that ends there
        counts = np.maximum(counts, np.finfo(np.float64).tiny)
        ending = np.searchsorted(masses, counts, side="left")
        reached = ending < masses.size
        at = ending[reached] - 1
        times = np.full(counts.shape, np.inf)
        times[reached] = self.edges_us[at] + (counts[reached] - masses[at]) / self.per_us[at]
        return times


def rate_profiles(clients: tuple[Client, ...], rate_per_s: float | None) -> list[RateProfile]:
    """Each client's rate over time: its share of ``rate_per_s`` among those active, or, with None, its own.

    The share is by the window's trace_rate where given, else by rate_fraction; ``rate_multiplier`` scales the
    result. A client whose arrivals have their own rate sends at that rate.
    """
    windows = [client.windows or (ALWAYS,) for client in clients]
    edges = np.array(
        sorted({0.0, *(float(t) for row in windows for w in row for t in (w.start_us, w.end_us))})
    )
    place = {edge: i for i, edge in enumerate(edges.tolist())}
    weights = np.zeros((len(clients), edges.size - 1))
    multipliers = np.zeros_like(weights)
    for i, row in enumerate(windows):
        for window in row:
            first, last = place[float(window.start_us)], place[float(window.end_us)]
            rate = window.trace_rate_per_s
            weights[i, first:last] = clients[i].rate_fraction if rate is None else rate
            multipliers[i, first:last] = window.rate_multiplier
    if rate_per_s is not None:
        active = weights.sum(axis=0)
        weights = rate_per_s * weights / np.where(active > 0, active, 1.0)
    for i, client in enumerate(clients):
        if client.arrival.rate_per_s is not None:  # its gaps have a scale of their own
            weights[i] = np.where(weights[i] > 0, client.arrival.rate_per_s, 0.0)
    edges[edges >= ALWAYS.end_us] = math.inf
    return [RateProfile(edges_us=edges, per_us=row * 1e-6) for row in weights * multipliers]
