"""Intervals of 99th percentiles and medians against an endless run: how often each holds it, and what ±5 % takes."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from functools import cache

import numpy as np
from numpy.typing import NDArray

from replay import TwinConfig, simulate_trace
from sim import Blackbox, EngineConfig, Status
from tests.studies.validation.verdicts import Drawn, capacity
from traces import Header, Trace, make_trace
from traces.findings.tail_precision import TailPrecision, tail_precision

Floats = NDArray[np.float64]
NUMBERS = (200, 1000, 5000)
SETTLING = 1000
"""Requests before those that count."""
TRUTH = 300_000
"""Requests of the run that stands for an endless one; three of them are pooled."""
LOADS = {"idle": (0.1, 1.0), "half loaded": (0.5, 1.0), "near capacity": (0.9, 1.0), "bursts": (0.5, 3.0)}
"""The share of the capacity, and the coefficient of variation of the gaps."""
METRICS = ("TTFT", "TPOT", "E2E")


def server() -> Drawn:
    """Return a server of 32 seats whose requests have unlike lengths."""
    engine = EngineConfig(
        async_scheduling=False, max_num_seqs=32, max_num_batched_tokens=2048, num_gpu_blocks=100_000
    )
    twin = TwinConfig(engine=engine, latency=Blackbox(beta0=8000, beta1=20, beta2=100))
    return Drawn(twin=twin, prompt=400, output=100, sigma=0.8, most=8000)


@cache
def rate_of_full() -> float:
    """Return the server's capacity, requests/s."""
    most = capacity(server())
    if most is None:
        raise ValueError("server: got requests without an answer, expected all answered (tails)")
    return most


def latencies(load: str, num: int, *, seed: int) -> dict[str, Floats]:
    """Return TTFT, TPOT and E2E of a run, µs, in the order of sending, after it has settled."""
    drawn, (share, cv) = server(), LOADS[load]
    trace = _sent(drawn.load(num + SETTLING, 1.0, seed=seed), share * rate_of_full(), cv=cv, seed=seed)
    found = simulate_trace(trace, drawn.twin)[1].outcomes
    if (found.status != Status.OK).any():
        raise ValueError(f"{load}: got requests without an answer, expected all answered (tails)")
    gaps = found.num_output_tokens - 1
    spans = (found.last_token_us - found.first_token_us).astype(np.float64)
    values = {
        "TTFT": (found.first_token_us - found.arrival_us).astype(np.float64),
        "TPOT": np.where(gaps > 0, spans / np.maximum(gaps, 1), np.nan),
        "E2E": (found.last_token_us - found.arrival_us).astype(np.float64),
    }
    return {name: each[SETTLING:] for name, each in values.items()}


def _sent(trace: Trace, rate: float, *, cv: float, seed: int) -> Trace:
    """Return the requests with gamma gaps at a rate, requests/s."""
    gaps = np.random.default_rng([seed, 1]).gamma(1 / cv**2, cv**2 / rate, size=len(trace))
    columns = {
        name: trace.column(name).to_numpy() for name in ("request_id", "input_tokens", "output_tokens")
    }
    return make_trace(
        Header(tool="vtwin", mode="generated"),
        {**columns, "arrival_time_us": (np.cumsum(gaps) * 1e6).astype(np.int64)},
    )


def truth(load: str) -> dict[str, tuple[float, float]]:
    """Return the medians and 99th percentiles of an endless run, µs."""
    runs = [latencies(load, TRUTH, seed=10_000 + seed) for seed in range(3)]
    pooled = {name: np.concatenate([each[name] for each in runs]) for name in METRICS}
    return {
        name: (float(np.nanpercentile(each, 50)), float(np.nanpercentile(each, 99)))
        for name, each in pooled.items()
    }


def _of_seed(case: tuple[str, int, int]) -> dict[str, TailPrecision | None]:
    load, num, seed = case
    return {name: tail_precision(values) for name, values in latencies(load, num, seed=seed).items()}


def table(num_seeds: int = 400, workers: int = 2) -> str:
    """Return the share of intervals that hold the truth, and the requests for ±5 % against those it takes."""
    lines = [
        "| load | latency | "
        + " | ".join(f"{num:,}: held (no upper end)" for num in NUMBERS)
        + " | for ±5 %, told (median at 5,000) | takes | told / takes | "
        + " | ".join(f"median, {num:,}: held" for num in NUMBERS)
        + " |",
        "|---" * (2 * len(NUMBERS) + 5) + "|",
    ]
    with ProcessPoolExecutor(workers) as pool:
        for load, true in zip(LOADS, pool.map(truth, LOADS), strict=True):
            cells: dict[str, list[str]] = {name: [] for name in METRICS}
            medians: dict[str, list[str]] = {name: [] for name in METRICS}
            for num in NUMBERS:
                cases = [(load, num, seed) for seed in range(num_seeds)]
                runs = list(pool.map(_of_seed, cases, chunksize=10))
                for name in METRICS:
                    known = [each for run in runs if (each := run[name]) is not None]
                    median, p99 = true[name]
                    cells[name].append(_held(known, p99))
                    medians[name].append(_median_held(known, median))
                    if num == NUMBERS[-1]:
                        cells[name].append(_needed(known, p99, num))
            lines += [
                f"| {load} | {name} | {' | '.join([*cells[name], *medians[name]])} |" for name in METRICS
            ]
    return "\n".join(lines)


def _held(known: list[TailPrecision], true: float) -> str:
    held = [each["low"] <= true and (each["high"] is None or true <= each["high"]) for each in known]
    return f"{np.mean(held):.1%} ({np.mean([each['high'] is None for each in known]):.0%})"


def _median_held(known: list[TailPrecision], true: float) -> str:
    ends = [(each["p50_low"], each["p50_high"]) for each in known]
    told = [(low, high) for low, high in ends if low is not None and high is not None]
    return f"{np.mean([low <= true <= high for low, high in told]):.1%}" if told else "-"


def _needed(known: list[TailPrecision], true: float, num: int) -> str:
    """Return what is told and what it takes: the scatter falls with the root of the number."""
    told = [each["num_for_5_percent"] for each in known if each["num_for_5_percent"] is not None]
    at_least = "≥ " if np.mean([each["high"] is None for each in known]) > 0.5 else ""
    scatter = 1.96 * float(np.std([each["p99"] for each in known])) / true
    takes = num * (scatter / 0.05) ** 2
    return f"{at_least}{np.median(told):,.0f} | {takes:,.0f} | {at_least}{np.median(told) / takes:.2f}"
