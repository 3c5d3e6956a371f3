"""Small servers with known coefficients, and traces that they leave."""

from dataclasses import replace

import numpy as np

from calibrate.findings import NamedTrace
from replay import TwinConfig, simulate_trace
from sim import Blackbox, EngineConfig
from traces import Header, Trace, make_trace

TRUTH = {"alpha0": 4000.0, "alpha1": 5.0, "alpha3": 0.0, "beta0": 12000.0, "beta1": 60.0, "beta2": 500.0}
ENGINE = EngineConfig(max_num_seqs=64, async_scheduling=False)
SERVER = TwinConfig(engine=ENGINE, latency=Blackbox(**TRUTH))
GUESS = TwinConfig(engine=ENGINE, latency=Blackbox(alpha0=1000, alpha1=1, beta0=5000, beta1=20, beta2=100))


def workload(
    n: int,
    *,
    rate: float,
    seed: int,
    prompt: tuple[float, float] = (250, 0.7),
    output: tuple[float, float] = (40, 0.5),
) -> Trace:
    """Return Poisson arrivals with lognormal lengths, (median, sigma) each."""
    generator = np.random.default_rng(seed)
    lengths = {
        name: np.maximum(1, np.exp(np.log(median) + sigma * generator.normal(size=n))).astype(np.int64)
        for name, (median, sigma) in (("input_tokens", prompt), ("output_tokens", output))
    }
    return make_trace(
        Header(tool="vtwin", mode="generated"),
        {
            "request_id": [str(i) for i in range(n)],
            "arrival_time_us": np.cumsum(generator.exponential(1e6 / rate, size=n)).astype(np.int64),
            **lengths,
        },
    )


SERVER_TIMES = ("server_queue_us", "server_prefill_us", "server_decode_us")
"""What a simulation knows and no client sees."""


def observed(trace: Trace, server: TwinConfig = SERVER, *, noise: float = 0.0, seed: int = 0) -> Trace:
    """Return what a client sees of a workload; TTFT and the rest vary by these fractions, independently."""
    run, _ = simulate_trace(trace, server, record="spans")
    run = run.without_columns(*SERVER_TIMES)
    if noise == 0:
        return run
    generator = np.random.default_rng(seed)
    columns = ("send_time_us", "content_first_time_us", "last_token_time_us")
    send, first, last = (run.requests[name].to_numpy(dtype=np.float64) for name in columns)
    factors = np.exp(noise * generator.normal(size=(2, len(send))) * [[1.0], [0.2]])
    moved = send + (first - send) * factors[0]
    ended = moved + (last - first) * factors[1]
    return run.with_columns(
        content_first_time_us=moved.round().astype(np.int64),
        first_chunk_time_us=moved.round().astype(np.int64),
        last_token_time_us=ended.round().astype(np.int64),
        last_chunk_time_us=ended.round().astype(np.int64),
    )


def source(name: str, trace: Trace) -> NamedTrace:
    return NamedTrace(name=name, trace=trace)


def with_latency(server: TwinConfig, **coefficients: float) -> TwinConfig:
    return replace(server, latency=Blackbox(**{**TRUTH, **coefficients}))
