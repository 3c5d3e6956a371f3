"""Whether the bounds beyond the fitted load hold: ``python -m tests.studies.validation.beyond_coverage [SERVERS]``.

Simulated power-limited servers: size, threshold and memory of each one's slowdown are drawn from what is expected of
such a GPU. Each is observed at 3 and 6 requests/s, fitted with that expectation, and asked at 1.5 times the higher one.
"""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np

from calibrate.fit.beyond import FACTOR, beyond_load
from calibrate.fit.objective.fit_trace import fit_trace
from calibrate.fit.objective.priors import MEMORY, SLOWDOWN, THRESHOLD
from calibrate.fit.pipeline import fit
from replay import TwinConfig, simulate_trace
from replay.twin.fitted.fitted_range import FittedRange
from sim import Extended
from tests.studies.bench.extrapolation import ENGINE, GUESS, observed, workload
from tests.studies.bench.slowdown import KNOWN, PROMPT, SERVER
from traces import Trace, request_metrics

SERVERS = 30
LOADS = (3.0, 6.0)
NUM_REQUESTS = 300


def drawn(generator: np.random.Generator) -> Extended:
    """Return a server whose slowdown is as the expectation has it."""
    found = {
        name: float(np.clip(generator.normal(prior.centre, prior.width), low, high))
        for name, prior, low, high in (
            ("kappa", SLOWDOWN, 0.0, np.inf),
            ("u0", THRESHOLD, 0.0, 0.95),
            ("tau_s", MEMORY, 0.005, np.inf),
        )
    }
    return replace(SERVER, **found)  # type: ignore[arg-type]


def mean_e2e(trace: Trace, latency: Extended) -> float:
    """Return the mean E2E of a trace's requests, µs, without scatter."""
    run, _ = simulate_trace(
        trace, TwinConfig(engine=ENGINE, latency=replace(latency, sigma=0.0)), record="none"
    )
    return float(request_metrics(run)["e2e_us"].mean())


def judged(seed: int) -> tuple[float, float, float, str]:
    """Return (low, high, the true error of the twin's mean E2E, the basis) at the load beyond."""
    truth = drawn(np.random.default_rng(seed))
    config = TwinConfig(engine=ENGINE, latency=GUESS)
    plans = [
        workload(rate, n=NUM_REQUESTS, seed=10 * seed + i, prompt=PROMPT) for i, rate in enumerate(LOADS)
    ]
    ready = [
        fit_trace(observed(plan, truth, seed=seed + i), config, name=str(i)) for i, plan in enumerate(plans)
    ]
    found = fit(ready, config, latency_model="extended", priors=KNOWN)
    bounds = beyond_load(
        found, ready, ranges=[FittedRange(rate_per_s=(rate, rate)) for rate in LOADS], priors=KNOWN
    )
    assert bounds is not None
    assert isinstance(found.config.latency, Extended)
    arrivals = plans[-1].column("arrival_time_us").to_numpy(np.float64)
    faster = plans[-1].with_columns(arrival_time_us=np.rint(arrivals / FACTOR).astype(np.int64))
    error = mean_e2e(faster, truth) / mean_e2e(faster, found.config.latency) - 1
    return bounds.low, bounds.high, error, bounds.basis


def main() -> None:
    """Print a row per server, and how often the bounds hold."""
    number = int(sys.argv[1]) if sys.argv[1:] else SERVERS
    held = []
    for seed in range(number):
        low, high, error, basis = judged(seed)
        held.append(low - 0.005 <= error <= high + 0.005)
        print(f"{seed}: {low:+.3f} to {high:+.3f} by the {basis}; was {error:+.3f}", flush=True)
    print(f"{sum(held)} of {number} within the bounds, to half a per cent")


if __name__ == "__main__":
    main()
