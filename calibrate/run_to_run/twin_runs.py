"""The same requests simulated repeatedly, as a server would receive them on other days.

A request that arrives a few ms later falls into another step, and waits for its end: TTFT depends on the place in a
step of a request's arrival, which no trace records exactly. Over many runs it takes every place. The same holds for the
server's pace, which differs between runs of the same requests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from calibrate.compare.pair import LATENCIES
from calibrate.run_to_run.normal_quantiles import normal_quantiles
from replay import paced
from sim import Requests
from traces.statistics.bootstrap import generator_of

if TYPE_CHECKING:
    from replay import TwinConfig
    from traces import Trace

Floats = NDArray[np.float64]

MOST_RUNS, LEAST_RUNS = 20, 5
MOST_REQUESTS = 100_000
"""A trace of many requests is run less often: its means differ less, and each run takes longer."""
STREAM = 27
"""The stream of random numbers of this module alone."""

Simulate = Callable[["TwinConfig", Requests], "Trace"]
"""Simulates requests by a twin, into the trace to be compared."""


def runs_again(
    base: Floats,
    config: TwinConfig,
    requests: Requests,
    *,
    deviation: float,
    seed: int,
    simulate: Simulate,
) -> Floats:
    """Return the latencies of further runs [runs, n, ``LATENCIES``], µs; ``base`` [n, ``LATENCIES``] are of the first.

    In each run every request arrives up to half a step earlier or later, and all steps are longer or shorter by a
    factor whose log has the standard ``deviation``; the factors are the normal distribution's, evenly. A request that a
    run does not finish has the first run's latency.
    """
    from traces import request_metrics

    number = int(np.clip(MOST_REQUESTS // max(len(base), 1), LEAST_RUNS, MOST_RUNS))
    generator = generator_of(seed, STREAM)
    half_us = _step_us(base) / 2
    found = np.empty((number, *base.shape))
    for run, factor in enumerate(_factors(number, deviation, generator)):
        arrival_us = _moved(requests.arrival_us, half_us, generator)
        simulated = simulate(paced(config, factor), replace(requests, arrival_us=arrival_us))
        metrics = request_metrics(simulated)
        again = np.stack([metrics[name].to_numpy(np.float64) for name in LATENCIES], axis=1)
        found[run] = _completed(again, base)
    return found


def _moved(
    arrival_us: NDArray[np.int64], half_us: float, generator: np.random.Generator
) -> NDArray[np.int64]:
    """Return the arrivals moved; equal arrivals stay equal, and those at the start stay there."""
    times, place = np.unique(arrival_us, return_inverse=True)
    moved = times + np.rint(generator.uniform(-half_us, half_us, len(times))).astype(np.int64)
    return np.where(times > 0, np.maximum(moved, 1), times)[place]


def _step_us(base: Floats) -> float:
    """Return the usual time between a request's tokens, which is a step; 0 where no answer has two."""
    tpot = base[:, LATENCIES.index("tpot_us")]
    return float(np.median(tpot[np.isfinite(tpot)])) if np.isfinite(tpot).any() else 0.0


def _factors(number: int, deviation: float, generator: np.random.Generator) -> list[float]:
    """Return the runs' paces: the middles of equal shares of a lognormal distribution, in any order."""
    middles = normal_quantiles((np.arange(number) + 0.5) / number)
    return [float(each) for each in np.exp(deviation * generator.permutation(middles))]


def _completed(again: Floats, base: Floats) -> Floats:
    """Return a run's latencies by the definitions of the first.

    The gaps of a simulated answer are its tokens', so that their mean is TPOT. A moved send does not count as lag: TTFT
    from the due time exceeds TTFT by as much as in the first run.
    """
    ttft, due, itl, tpot = (
        LATENCIES.index(name) for name in ("ttft_us", "ttft_from_due_us", "itl_mean_us", "tpot_us")
    )
    again[:, itl] = again[:, tpot]
    again[:, due] = again[:, ttft] + (base[:, due] - base[:, ttft])
    return np.where(np.isfinite(again) & np.isfinite(base), again, base)
