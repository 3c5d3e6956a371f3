"""The cluster's speed.

``python -m tests.studies.bench.cluster``; each work in a process of its own, best of three runs.

``ratio to simulate``: a cluster of one against the single engine on the same requests, both timed in one process.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sim import Blackbox, EngineConfig, Requests, simulate
from sim.cluster.cluster_config import ClusterConfig, Pool, SnapshotIntervals
from sim.cluster.cluster_simulation import simulate_cluster
from sim.cluster.cluster_work import ClusterWork
from sim.cluster.routing.routing_policies import LeastLoaded, PowerOfTwo, RoundRobin, RoutingPolicy, Weighted
from sim.cluster.transfer.disaggregation_config import Disaggregation

REPEATS = 3

LATENCY = Blackbox(alpha0=1000, alpha2=3, beta0=6000, beta1=20, beta2=30)

NUM_FAMILIES, PREFIX_BLOCKS = 20, 12


def synthetic(number: int, *, per_s: float, prompt: int, output: int, shares: bool) -> Requests:
    """Return Poisson arrivals of normal lengths; with ``shares``, prefixes of twenty families."""
    rng = np.random.default_rng(1)
    arrival_us = np.cumsum(rng.exponential(1e6 / per_s, number)).astype(np.int64)
    prompt_tokens = np.maximum(1, rng.normal(prompt, prompt / 2, number)).astype(np.int64)
    output_tokens = np.maximum(1, rng.normal(output, output / 2, number)).astype(np.int64)
    counts = np.minimum(prompt_tokens // 16, PREFIX_BLOCKS) if shares else np.zeros(number, np.int64)
    family = rng.integers(0, NUM_FAMILIES, number)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], counts)
    return Requests(
        arrival_us=arrival_us,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        priority=np.zeros(number, np.int64),
        hash_offsets=offsets,
        hash_ids=np.repeat(family, counts) * PREFIX_BLOCKS + within,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterBench:
    """One work, and what it may take."""

    requests: Callable[[], Requests]
    engine: EngineConfig
    instances: int
    routing: RoutingPolicy
    interval_us: int = 0
    bar_cpu_s: float | None = None
    prefill_instances: int = 0
    kv_bandwidth_gbps: float = 25.0
    points: int | None = None
    latency: Blackbox = LATENCY

    @property
    def pools(self) -> tuple[Pool, ...]:
        """One pool, or some of the instances for prompts and the others for answers."""
        pool = Pool(engine=self.engine, latency=self.latency, instances=self.instances)
        if self.prefill_instances == 0:
            return (pool,)
        rest = self.instances - self.prefill_instances
        return (
            replace(pool, name="p", role="prefill", instances=self.prefill_instances),
            replace(pool, name="d", role="decode", instances=rest),
        )

    @property
    def config(self) -> ClusterConfig:
        """The cluster; KV moves at 131,072 bytes a token."""
        moves = Disaggregation(kv_bytes_per_token=131_072, kv_bandwidth_gbps=self.kv_bandwidth_gbps)
        return ClusterConfig(
            pools=self.pools,
            routing=self.routing,
            disaggregation=moves if self.prefill_instances else None,
            snapshot_interval_us=SnapshotIntervals.every(self.interval_us),
        )


LARGE = EngineConfig(max_model_len=4096, num_gpu_blocks=4000)
SMALL = EngineConfig(max_model_len=2048, max_num_seqs=64, num_gpu_blocks=1000)


def hundred_thousand() -> Requests:
    return synthetic(100_000, per_s=128, prompt=500, output=128, shares=True)


def million() -> Requests:
    return synthetic(1_000_000, per_s=6000, prompt=200, output=64, shares=False)


def at_once() -> Requests:
    requests = synthetic(40_000, per_s=100, prompt=500, output=128, shares=False)
    return replace(requests, arrival_us=np.zeros(40_000, np.int64))


def own_contents() -> Requests:
    requests = synthetic(20_000, per_s=128, prompt=500, output=128, shares=True)
    return replace(requests, hash_ids=np.arange(len(requests.hash_ids), dtype=np.int64))


BENCHES = {
    "16 replicas, 100,000 requests, prefix 3 and queue 2, snapshots 50 ms": ClusterBench(
        requests=hundred_thousand,
        engine=LARGE,
        instances=16,
        routing=Weighted(scorers={"prefix-affinity": 3, "queue-depth": 2}),
        interval_us=50_000,
        bar_cpu_s=8,
    ),
    "16 replicas, 100,000 requests, default weights": ClusterBench(
        requests=hundred_thousand, engine=LARGE, instances=16, routing=Weighted()
    ),
    "1,000 replicas, 1,000,000 requests, round robin": ClusterBench(
        requests=million, engine=SMALL, instances=1000, routing=RoundRobin(), bar_cpu_s=25
    ),
    "1,000 replicas, 1,000,000 requests, power of two": ClusterBench(
        requests=million, engine=SMALL, instances=1000, routing=PowerOfTwo(), bar_cpu_s=40
    ),
    "1,000 replicas, 1,000,000 requests, least loaded": ClusterBench(
        requests=million, engine=SMALL, instances=1000, routing=LeastLoaded()
    ),
    "10,000 replicas, 100,000 requests, least loaded": ClusterBench(
        requests=lambda: synthetic(100_000, per_s=60_000, prompt=200, output=64, shares=False),
        engine=SMALL,
        instances=10_000,
        routing=LeastLoaded(),
        bar_cpu_s=5,
    ),
    "6 prefill and 10 decode replicas, 100,000 requests, least loaded": ClusterBench(
        requests=hundred_thousand, engine=LARGE, instances=16, routing=LeastLoaded(), prefill_instances=6
    ),
    "1 replica, 40,000 requests at once, which join by the length of their prompts": ClusterBench(
        requests=at_once,
        engine=LARGE,
        instances=1,
        routing=RoundRobin(),
        latency=replace(LATENCY, alpha1=10),
    ),
    "16 replicas, 20,000 requests of 226,000 contents, prefix caches seen every 50 ms": ClusterBench(
        requests=own_contents,
        engine=LARGE,
        instances=16,
        routing=Weighted(scorers={"precise-prefix-cache": 3, "queue-depth": 2}),
        interval_us=50_000,
    ),
    "6 prefill and 10 decode replicas, 20,000 requests, least loaded, links of 1 GB/s": ClusterBench(
        requests=lambda: synthetic(20_000, per_s=128, prompt=500, output=128, shares=False),
        engine=LARGE,
        instances=16,
        routing=LeastLoaded(),
        prefill_instances=6,
        kv_bandwidth_gbps=1.0,
    ),
    "10,000 replicas, 60 requests, looked at up to 65 times": ClusterBench(
        requests=lambda: synthetic(60, per_s=20, prompt=200, output=64, shares=False),
        engine=SMALL,
        instances=10_000,
        routing=RoundRobin(),
        points=64,
    ),
    "1 replica, 100,000 requests": ClusterBench(
        requests=lambda: synthetic(100_000, per_s=40, prompt=200, output=64, shares=False),
        engine=LARGE,
        instances=1,
        routing=RoundRobin(),
    ),
}


def measure(name: str) -> dict[str, Any]:
    """Return one row."""
    bench = BENCHES[name]
    requests = bench.requests()
    config = bench.config
    few = requests.take(np.arange(min(100, len(requests))))
    simulate_cluster(ClusterWork(requests=few), config)  # compiled code is loaded
    seconds, alone = [], []
    for _ in range(REPEATS):
        started = time.thread_time()
        done = simulate_cluster(ClusterWork(requests=requests), config, points=bench.points)
        seconds.append(time.thread_time() - started)
        if bench.instances == 1:
            started = time.thread_time()
            simulate(requests, bench.engine, bench.latency)
            alone.append(time.thread_time() - started)
    shares = np.bincount(done.instance, minlength=bench.instances)
    return {
        "work": name,
        "cpu_s": min(seconds),
        "bar_cpu_s": bench.bar_cpu_s,
        "ratio_to_simulate": min(seconds) / min(alone) if alone else None,
        "peak_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "requests_per_instance": [int(shares.min()), int(shares.max())],
    }


def measure_clusters() -> list[dict[str, Any]]:
    """Return every row, each from a process of its own."""
    rows = []
    for name in BENCHES:
        command = [sys.executable, "-m", "tests.studies.bench.cluster", name]
        answer = subprocess.run(command, check=True, capture_output=True, text=True)
        rows.append(json.loads(answer.stdout))
    return rows


def cluster_table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as Markdown."""
    lines = [
        "| work | CPU s | bar | ratio to simulate | MiB | requests per instance |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        bar = row["bar_cpu_s"] or ""
        ratio = f"{row['ratio_to_simulate']:.2f}" if row["ratio_to_simulate"] else ""
        least, most = row["requests_per_instance"]
        lines.append(
            f"| {row['work']} | {row['cpu_s']:.2f} | {bar} | {ratio} | {row['peak_memory_mib']:,.0f} "
            f"| {least:,} to {most:,} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measure(sys.argv[1])))
    else:
        print(cluster_table(measure_clusters()))
