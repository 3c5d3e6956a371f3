"""A cluster's loop as plain Python, without the tables of addresses, gives the same bytes."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import numpy as np

from sim import EngineConfig, Outcomes
from sim.cluster.cluster_config import ClusterConfig, Pool
from sim.cluster.cluster_simulation import simulate_cluster
from sim.cluster.cluster_work import ClusterWork
from sim.cluster.gateway.flow_config import FlowControl
from sim.cluster.infrastructure.infrastructure_config import Autoscaler, Failure, Failures, Retries
from sim.cluster.routing.routing_policies import KvCost, LeastLoaded, PowerOfTwo, Weighted
from sim.cluster.transfer.disaggregation_config import Disaggregation
from tests.sim.cluster.test_cluster import LATENCY, cluster, some_requests

SCALER = Autoscaler(policy="target", metric="in-flight", target=2, max_instances=3, interval_us=20_000)
ROOT = Path(__file__).parents[4]


def digest() -> str:
    """Return a digest of what clusters make of the same requests, some that fail, grow and are asked again."""
    found = hashlib.sha256()
    queue = FlowControl(detector="concurrency", max_concurrency=2)
    engine = EngineConfig(max_num_seqs=8, num_gpu_blocks=400)
    split = tuple(
        Pool(engine=engine, latency=LATENCY, name=role, role=role)  # type: ignore[arg-type]
        for role in ("prefill", "decode")
    )
    for config in (
        ClusterConfig(pools=split, disaggregation=Disaggregation(kv_bytes_per_token=99_999)),
        cluster(routing=Weighted()),
        cluster(routing=PowerOfTwo()),
        cluster(routing=LeastLoaded(), flow_control=queue),
        cluster(
            routing=KvCost(),
            failures=Failures(schedule=(Failure(at_us=90_000, instance=0, down_us=9_000),)),
            retries=Retries(on=("lost",), backoff_us=700, jitter_frac=0.5),
        ),
        ClusterConfig(pools=(Pool(engine=engine, latency=LATENCY, autoscaler=SCALER),), routing=Weighted()),
    ):
        done = simulate_cluster(ClusterWork(requests=some_requests(60, per_s=100, output=8)), config)
        found.update(done.instance.tobytes())
        for field in fields(Outcomes):
            found.update(np.ascontiguousarray(getattr(done.outcomes, field.name)).tobytes())
    return found.hexdigest()


def test_the_cluster_as_plain_python_gives_the_same_bytes() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-W",
            "ignore",
            "-c",
            f"from {__name__} import digest; print(digest())",
        ],
        cwd=ROOT,
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == digest()


def test_a_map_takes_the_32_bit_numbers_of_instances_in_plain_python_without_a_warning() -> None:
    lines = (
        "import numpy as np; from sim.cluster.arrays import new_pairs, put_pair, value_of",
        "pairs = new_pairs(4)",
        "put_pair(pairs, np.int32(3), np.int64(2**40), 7)",
        "assert value_of(pairs, 3, 2**40) == 7",
    )
    done = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", "-c", "\n".join(lines)],
        cwd=ROOT,
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
