"""A run's requests, simulated repeatedly: with other coefficients, shifted arrivals, steps that scatter."""

from __future__ import annotations

from lazy_dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from sim import Extended, Requests, Status, simulate
from sim.latency import Fitting
from traces import latencies_us
from traces.statistics.bootstrap import Floats

if TYPE_CHECKING:
    from replay import Pacing, TwinConfig
    from traces import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A run's requests, to be simulated repeatedly; ``pacing``: whether answers release them."""

    requests: Requests
    pacing: Pacing

    @staticmethod
    def of(trace: Trace, config: TwinConfig) -> Work:
        """Return the requests of a trace as ``config``'s server would get them."""
        from replay import paced_requests, pacing_of

        pacing = pacing_of(trace)
        requests = paced_requests(
            trace,
            pacing,
            block_size=config.engine.block_size,
            hash_lookahead=config.engine.num_hash_lookahead_tokens,
        )
        return Work(requests=requests, pacing=pacing)

    def moved(self, step_us: float, generator: np.random.Generator) -> Work:
        """Return the same requests, each up to half a step earlier or later."""
        arrival_us = self.requests.arrival_us
        by = np.rint(generator.uniform(-0.5, 0.5, size=len(arrival_us)) * step_us).astype(np.int64)
        return replace(self, requests=replace(self.requests, arrival_us=np.maximum(arrival_us + by, 0)))

    def simulated(self, config: TwinConfig) -> Floats:
        """Return the latencies that a twin gives, [METRICS, requests], NaN for requests that do not finish."""
        outcomes = simulate(
            self.requests,
            config.engine,
            config.latency,
            closed_loop=self.pacing.closed_loop,
            max_concurrency=self.pacing.max_concurrency,
        ).outcomes
        is_done = outcomes.status == Status.OK
        arrival, first, last = (
            np.where(is_done, times, np.nan)
            for times in (outcomes.arrival_us, outcomes.first_token_us, outcomes.last_token_us)
        )
        tokens = outcomes.num_output_tokens.astype(np.float64)
        ttft, _, tpot = latencies_us(arrival, first, last, output_tokens=tokens)
        return np.stack([ttft, tpot])


def scattered(config: TwinConfig, sigma: float, *, seed: int) -> TwinConfig:
    """Return a twin whose steps scatter by ``sigma``; unchanged if its latency model has no scatter."""
    latency = config.latency
    if latency.fitting is Fitting.FREELY:
        latency = Extended.of(latency)
    return replace(config, latency=latency.scattered(sigma, seed=seed))
