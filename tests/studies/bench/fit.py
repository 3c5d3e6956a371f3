"""What a fit costs: five traces of 2,000 requests, intervals included.

``python -m tests.studies.bench.fit [MODEL …]``.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np

from calibrate.fit.model_selection import Asked
from calibrate.fit.objective.fit_trace import fit_trace
from calibrate.fit.pipeline import fit
from replay import TwinConfig, simulate_trace
from sim import Blackbox, EngineConfig, Extended
from traces import Header, Trace, make_trace

ENGINE = EngineConfig(max_num_seqs=256, max_num_batched_tokens=8192, async_scheduling=True)
TRUTH = Extended(
    alpha0=3000,
    alpha1=1.0,
    beta0=1500,
    beta1=20.0,
    beta2=8.0,
    beta3=0.04,
    beta4=0.0008,
    floor=5000,
    kappa=0.5,
)
GUESS = Blackbox(alpha0=1000, alpha1=1, beta0=5000, beta1=20, beta2=20)
RATES = (2.0, 5.0, 8.0, 12.0, 16.0)
NUM_REQUESTS = 2000
BAR_S = 60.0
MODELS: tuple[Asked, ...] = ("blackbox", "extended", "auto")


def observed(rate: float, *, n: int, seed: int, prompt: float = 500, output: float = 150) -> Trace:
    """Return what the true server makes of Poisson arrivals with lognormal lengths; TTFT vary by 8 %, TPOT by 2 %."""
    generator = np.random.default_rng(seed)
    lengths = {
        name: np.clip(np.exp(np.log(median) + sigma * generator.normal(size=n)), 1, 7000).astype(np.int64)
        for name, median, sigma in (("input_tokens", prompt, 0.6), ("output_tokens", output, 0.6))
    }
    planned = make_trace(
        Header(tool="vtwin", mode="generated"),
        {
            "request_id": [str(i) for i in range(n)],
            "arrival_time_us": np.cumsum(generator.exponential(1e6 / rate, size=n)).astype(np.int64),
            **lengths,
        },
    )
    run, _ = simulate_trace(planned, TwinConfig(engine=ENGINE, latency=TRUTH), record="spans")
    send, first, last = (
        run.requests[name].to_numpy(np.float64)
        for name in ("send_time_us", "content_first_time_us", "last_token_time_us")
    )
    factors = np.exp(generator.normal(size=(2, n)) * [[0.08], [0.02]])
    moved = send + (first - send) * factors[0]
    ended = (moved + (last - first) * factors[1]).round().astype(np.int64)
    moved = moved.round().astype(np.int64)
    return run.with_columns(
        content_first_time_us=moved,
        first_chunk_time_us=moved,
        last_token_time_us=ended,
        last_chunk_time_us=ended,
    )


def measure(model: Asked, traces: list[Trace]) -> dict[str, Any]:
    """Return a row: wall and CPU seconds of one fit."""
    config = TwinConfig(engine=ENGINE, latency=GUESS)
    ready = [fit_trace(trace, config, name=str(i)) for i, trace in enumerate(traces)]
    wall, cpu = time.perf_counter(), time.process_time()
    found = fit(ready, config, latency_model=model)
    row = {"model": model, "wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}
    for each in found.coefficients:
        print(each)
    print(found.loss, found.noise)
    return row


def main() -> None:
    """Measure the models named, all by default."""
    traces = [observed(rate, n=NUM_REQUESTS, seed=i) for i, rate in enumerate(RATES)]
    for model in MODELS:
        if not sys.argv[1:] or model in sys.argv[1:]:
            print(measure(model, traces))


if __name__ == "__main__":
    main()
