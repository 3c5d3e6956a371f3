"""Servers whose figures are known: seats, a queue, a pace of the day, and scatter from request to request."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
NUM = 200
SEATS = 8
PREFILL_S, TOKEN_S, TOKENS = 0.1, 0.02, 50
PACE = 0.005
SCATTER = 0.1
NAMES = (
    "ttft_us.mean",
    "ttft_us.p99",
    "tpot_us.mean",
    "tpot_us.p99",
    "e2e_us.mean",
    "e2e_us.p99",
    "request_throughput",
)


def figures_of_runs(
    runs: int, *, load: float = 0.8, pace: Floats | None = None, seed: int
) -> dict[str, Floats]:
    """Return the figures of runs of the same requests, each [runs].

    ``pace``: [runs], by how much all of a run is slower; besides, a run's pace scatters by ``PACE``.
    """
    rng = np.random.default_rng(seed)
    gaps = np.random.default_rng(7).exponential(1.0, NUM)  # the same requests in all runs
    arrivals = np.cumsum(gaps) * (PREFILL_S + TOKEN_S * TOKENS) / SEATS / load
    slow = np.exp(PACE * rng.standard_normal(runs)) * (np.ones(runs) if pace is None else pace)
    scatter = np.exp(SCATTER * rng.standard_normal((2, runs, NUM)))
    prefill, token = PREFILL_S * slow[:, None] * scatter[0], TOKEN_S * slow[:, None] * scatter[1]
    free, begins = np.zeros((runs, SEATS)), np.empty((runs, NUM))
    for i in range(NUM):
        seat = free.argmin(axis=1)[:, None]
        begins[:, i] = np.maximum(arrivals[i], np.take_along_axis(free, seat, 1)[:, 0])
        ends = begins[:, i] + prefill[:, i] + TOKENS * token[:, i]
        np.put_along_axis(free, seat, ends[:, None], 1)
    ttft = begins + prefill - arrivals
    e2e = ttft + TOKENS * token
    found = {}
    for name, values in (("ttft_us", ttft), ("tpot_us", token), ("e2e_us", e2e)):
        found[f"{name}.mean"] = 1e6 * values.mean(axis=1)
        found[f"{name}.p99"] = 1e6 * np.percentile(values, 99, axis=1)
    found["request_throughput"] = NUM / (arrivals + e2e).max(axis=1)
    return found


def sets_of(figures: dict[str, Floats], num: int) -> list[dict[str, list[float]]]:
    """Return the runs in sets of ``num`` that follow each other."""
    runs = len(figures["ttft_us.mean"])
    return [
        {name: values[begin : begin + num].tolist() for name, values in figures.items()}
        for begin in range(0, runs - num + 1, num)
    ]
