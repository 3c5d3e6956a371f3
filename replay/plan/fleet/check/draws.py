"""Requests of a workload as a run is given them: Poisson arrivals, lengths drawn with replacement."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sim import Requests
from sim.fleet import Lengths

Floats = NDArray[np.float64]


def drawn(lengths: Lengths, rate_per_s: float, number: int, *, seed: int) -> Requests:
    """Return requests with Poisson arrivals and lengths drawn with replacement; a function of the seed alone."""
    arrival_s, chosen = drawn_rows(len(lengths), rate_per_s, number, seed=seed)
    return requests_at(arrival_s, lengths.at(chosen))


def requests_at(arrival_s: Floats, lengths: Lengths) -> Requests:
    """Return requests that arrive at these times, float64 [n] ascending seconds, and share no prefixes."""
    return Requests(
        arrival_us=np.rint(arrival_s * 1e6).astype(np.int64),
        prompt_tokens=lengths.input_tokens.astype(np.int64),
        output_tokens=lengths.output_tokens.astype(np.int64),
        priority=np.zeros(len(lengths), np.int64),
        hash_offsets=np.zeros(len(lengths) + 1, np.int64),
        hash_ids=np.zeros(0, np.int64),
    )


def drawn_rows(
    num_rows: int, rate_per_s: float, number: int, *, seed: int
) -> tuple[Floats, NDArray[np.int64]]:
    """Return Poisson arrivals in seconds and which row each request is; a function of the seed alone."""
    rng = np.random.Generator(np.random.Philox(seed))
    return np.cumsum(rng.exponential(1 / rate_per_s, number)), rng.integers(0, num_rows, number)
