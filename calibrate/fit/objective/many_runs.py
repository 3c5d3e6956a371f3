"""Many runs: of several coefficients at a time, and of nearby places, whose average is smooth."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from calibrate.fit.objective.objective import FitObjective
from calibrate.fit.objective.simulated_trace import SimulatedTrace
from traces.statistics.bootstrap import Floats

THREADS = 2
"""Simulations at a time; the engine runs without the interpreter's lock."""
WORTH_A_THREAD = 5000
"""Requests of a trace from which threads pay off: with fewer, the engine, which needs no lock, is the smaller part."""
CLOSE_BY = 0.01
"""The distance of the averaged runs, relative to the coefficients."""
AVERAGED_REQUESTS, CAREFULLY_AVERAGED = 2000, 4800
MOST_PAIRS, MOST_PAIRS_CAREFULLY = 4, 12
"""A place's loss is that of the runs around it with this many simulated requests together, at most twice as many."""


def simulate_many(objective: FitObjective, thetas: Sequence[Floats]) -> list[list[SimulatedTrace]]:
    """Return the runs at several coefficient vectors, in their order; some at a time where that is faster."""
    if max(len(trace.requests) for trace in objective.traces) < WORTH_A_THREAD:
        return [objective.simulate(theta) for theta in thetas]
    with ThreadPoolExecutor(max_workers=THREADS) as pool:
        return list(pool.map(objective.simulate, thetas))


def num_requests(objective: FitObjective) -> int:
    """Return how many requests take part in the loss."""
    return sum(trace.num_used for trace in objective.traces)


def runs_around(
    objective: FitObjective, theta: Floats, *, carefully: bool = False
) -> list[list[SimulatedTrace]]:
    """Return every trace's runs at places close to ``theta``, in mirrored pairs; of many requests fewer."""
    enough, most = (
        (CAREFULLY_AVERAGED, MOST_PAIRS_CAREFULLY) if carefully else (AVERAGED_REQUESTS, MOST_PAIRS)
    )
    wanted = np.ceil(enough / (2 * max(num_requests(objective), 1)))
    num_pairs = int(np.clip(wanted, 1, most))
    generator = np.random.Generator(np.random.Philox(key=[num_pairs, 79]))
    drawn = CLOSE_BY * generator.uniform(-1, 1, size=(num_pairs, len(theta)))
    points = np.clip(theta * (1 + np.concatenate([drawn, -drawn])), 0.0, objective.most())
    return simulate_many(objective, list(points))


def residuals_around(objective: FitObjective, theta: Floats, *, carefully: bool = False) -> list[Floats]:
    """Return, per trace [4, n], the residuals averaged over those runs."""
    sampled = [objective.residuals(runs) for runs in runs_around(objective, theta, carefully=carefully)]
    return [np.mean(values, axis=0) for values in zip(*sampled, strict=True)]


def loss_around(objective: FitObjective, theta: Floats, *, carefully: bool = False) -> float:
    """Return the loss of the averaged residuals: the staircase of one run outweighs what a step gains.

    ``carefully``: averaged over more runs.
    """
    return objective.loss(residuals_around(objective, theta, carefully=carefully), theta)


def latencies_around(objective: FitObjective, theta: Floats) -> list[Floats]:
    """Return, per trace [4, n], the latencies averaged over those runs, by their logs."""
    sampled = [[np.log(run.latency_us) for run in runs] for runs in runs_around(objective, theta)]
    return [np.exp(np.mean(values, axis=0)) for values in zip(*sampled, strict=True)]
