"""The two-rank server of LLMServingSim's bench (Qwen3-30B-A3B, DP 2): as one engine, and as two ranks.

Both are fitted by the same search on the first half of the requests by arrival, from one start, and judged on the
second half. Latencies begin when the engine took the request in, between two steps, as in the table of four servers; or
when the client sent it (``arrival_time``, its clock set so that the quickest one took no time to the engine).
``python -m tests.studies.validation.ranks DATA``, DATA being the folder with ``runs``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.optimize import minimize

from calibrate.calibration_run import first_half
from replay.trace.request_columns import requests_from_trace
from sim import Blackbox, EngineConfig, Extended, LatencyModel, Outcomes, Requests, simulate
from sim.cluster.cluster_config import ClusterConfig, Pool, SnapshotIntervals
from sim.cluster.cluster_simulation import simulate_cluster
from sim.cluster.cluster_work import ClusterWork
from sim.cluster.routing.routing_policies import RoundRobin, VllmDp
from traces import convert, request_metrics

RUN = "runs/RTXPRO6000/Qwen3-30B-A3B-Instruct-2507/vllm/requests.jsonl"
METRICS = ("ttft_us", "tpot_us", "e2e_us")
RANK = EngineConfig(max_num_seqs=128, max_num_batched_tokens=2048, max_model_len=32768)
COUNTS_EVERY_US = 100_000
"""How old the counts of vLLM's coordinator may be (vllm/v1/engine/coordinator.py)."""

Server = Callable[[Requests, LatencyModel], Outcomes]


def one_engine(requests: Requests, model: LatencyModel) -> Outcomes:
    """Return what an engine of twice the seats and tokens makes of it."""
    whole = replace(RANK, max_num_seqs=256, max_num_batched_tokens=4096)
    return simulate(requests, whole, model).outcomes


def two_ranks(*, lockstep: bool, is_round_robin: bool = False) -> Server:
    """Return a server of two ranks behind vLLM 0.19's balancer, or taken in turn."""

    def outcomes(requests: Requests, model: LatencyModel) -> Outcomes:
        config = ClusterConfig(
            pools=(Pool(engine=RANK, latency=model, instances=2),),
            routing=RoundRobin() if is_round_robin else VllmDp(vllm_version="0.19.0"),
            snapshot_interval_us=SnapshotIntervals.every(COUNTS_EVERY_US),
            lockstep=lockstep,
        )
        return simulate_cluster(ClusterWork(requests=requests), config).outcomes

    return outcomes


SERVERS: dict[str, Server] = {
    "one engine of twice the seats": one_engine,
    "two ranks, each at its own pace": two_ranks(lockstep=False),
    "two ranks in step": two_ranks(lockstep=True),
    "two ranks in step, in turn": two_ranks(lockstep=True, is_round_robin=True),
}


def model_of(values: np.ndarray, *, is_extended: bool) -> LatencyModel:
    """Return a latency model of logarithms of coefficients."""
    alpha0, beta0, beta1, beta2, *more = np.exp(np.clip(values, -20, 14)).tolist()
    known = {"alpha0": alpha0, "beta0": beta0, "beta1": beta1, "beta2": beta2}
    if not is_extended:
        return Blackbox(**known)
    return Extended(**known, beta3=more[0], floor=more[1])


def before_the_engine_us(path: Path) -> dict[str, float]:
    """Return how long each request took from its client to the engine, beyond the quickest one."""
    rows = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
    ahead = {row["request_id"]: row["queued_ts"] - row["arrival_time"] for row in rows}
    quickest = min(ahead.values())
    return {name: 1e6 * (value - quickest) for name, value in ahead.items()}


def fitted(server: Server, data: Path, *, is_extended: bool, from_client: bool) -> dict[str, float]:
    """Return the MAPE (%) of the second half per metric."""
    trace = convert("llmservingsim", data / RUN)
    observed, seen = request_metrics(trace), first_half(trace)
    requests = requests_from_trace(trace, block_size=16)
    real = np.stack([observed[name].to_numpy(float) for name in METRICS])
    if from_client:
        ahead = before_the_engine_us(data / RUN)
        waited_us = np.array([ahead[str(name)] for name in trace.requests["request_id"]])
        sent_us = requests.arrival_us - waited_us.astype(np.int64)
        requests = replace(requests, arrival_us=sent_us - sent_us.min())
        real[[0, 2]] += waited_us

    def relative_errors(values: np.ndarray) -> np.ndarray:
        found = server(requests, model_of(values, is_extended=is_extended))
        first, last = (
            (each - found.arrival_us).astype(float) for each in (found.first_token_us, found.last_token_us)
        )
        tpot = (last - first) / np.maximum(found.num_output_tokens - 1, 1)
        return np.abs(np.stack([first, tpot, last]) - real) / real

    def loss(values: np.ndarray) -> float:
        return float(np.nanmean(relative_errors(values)[:, seen]))

    best = np.log([1000.0, 15000.0, 50.0, 50.0, *([0.05, 5000.0] if is_extended else [])])
    for _ in range(4):  # each starts anew from where the one before got stuck
        found = minimize(loss, best, method="Nelder-Mead", options={"maxfev": 500, "xatol": 1e-3})
        best = found.x
    errors = 100 * np.nanmean(relative_errors(best)[:, ~seen], axis=1)
    return dict(zip(METRICS, errors.tolist(), strict=True))


def main(data: Path) -> None:
    """Print the table."""
    print(
        "| from | simulated as | model | TTFT MAPE % | TPOT MAPE % | E2E MAPE % |\n|---|---|---|---|---|---|"
    )
    for from_client in (True, False):
        for kind in ("blackbox", "extended"):
            for name, server in SERVERS.items():
                errors = fitted(server, data, is_extended=kind == "extended", from_client=from_client)
                figures = " | ".join(f"{errors[metric]:.2f}" for metric in METRICS)
                print(
                    f"| {'client' if from_client else 'engine'} | {name} | {kind} | {figures} |", flush=True
                )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
