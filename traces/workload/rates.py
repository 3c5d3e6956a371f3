"""Rates over time, and arrivals under them.

A process whose gaps have mean 1 is drawn once and its clock is bent: arrival i happens when the expected
number of arrivals reaches the sum of the first i + 1 gaps. With a constant rate that is plain scaling; with a
rate that changes it is the time-change of Gerhardt and Nelson (2009, "Transforming renewal processes for
simulation of nonstationary arrival processes"), exact for Poisson. So windows, ramps and days are one rule,
and no draw is lost or redrawn when a rate changes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from traces.workload.model import Client, Window

Floats = npt.NDArray[np.float64]

ALWAYS = Window(start_us=0, end_us=2**62)
"""The activity of a client that names no windows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RateProfile:
    """A rate that is constant between edges and 0 before the first and after the last.

    ``edges_us``: k + 1 times in µs, the last may be inf; ``per_us``: k rates in requests per µs.
    """

    edges_us: Floats
    per_us: Floats

    @property
    def masses(self) -> Floats:
        """Expected number of arrivals up to each edge, k + 1 values from 0; the last may be inf."""
        spans = np.diff(self.edges_us)
        grown = np.where(self.per_us > 0, self.per_us * np.where(self.per_us > 0, spans, 0.0), 0.0)
        return np.concatenate([[0.0], np.cumsum(grown)])

    def expected(self, until_us: float) -> float:
        """Return expected number of arrivals up to ``until_us``."""
        spans = np.clip(until_us - self.edges_us[:-1], 0.0, np.diff(self.edges_us))
        return float(
            np.sum(np.where(self.per_us > 0, self.per_us, 0.0) * np.where(self.per_us > 0, spans, 0.0))
        )

    def times_us(self, counts: Floats) -> Floats:
        """When the expected number of arrivals reaches each of ``counts`` (ascending); inf: never."""
        masses = self.masses
        # side left: what is due exactly at an edge belongs to the segment that ends there
        segment = np.searchsorted(masses, counts, side="left") - 1
        reached = (segment >= 0) & (segment < self.per_us.size)
        at = np.clip(segment, 0, self.per_us.size - 1)
        rates = self.per_us[at]
        safe = np.where(reached & (rates > 0), rates, 1.0)
        return np.where(
            reached, self.edges_us[at] + (counts - np.where(reached, masses[at], 0.0)) / safe, np.inf
        )


def rate_profiles(clients: tuple[Client, ...], rate_per_s: float | None) -> list[RateProfile]:
    """Each client's rate over time: its share of ``rate_per_s`` among those active, or, with None, its own.

    The share is by the window's trace_rate where given, else by rate_fraction; ``rate_multiplier`` scales the
    result.
    """
    windows = [client.windows or (ALWAYS,) for client in clients]
    edges = np.array(
        sorted({0.0, *(float(t) for row in windows for w in row for t in (w.start_us, w.end_us))})
    )
    weights = np.zeros((len(clients), edges.size - 1))
    multipliers = np.zeros_like(weights)
    for i, row in enumerate(windows):
        for window in row:
            first, last = np.searchsorted(edges, [window.start_us, window.end_us])
            rate = window.trace_rate_per_s
            weights[i, first:last] = clients[i].rate_fraction if rate is None else rate
            multipliers[i, first:last] = window.rate_multiplier
    if rate_per_s is not None:
        active = weights.sum(axis=0)
        weights = rate_per_s * weights / np.where(active > 0, active, 1.0)
    edges[edges >= ALWAYS.end_us] = math.inf
    return [RateProfile(edges_us=edges, per_us=row * 1e-6) for row in weights * multipliers]
