"""How the simulator's work grows: ``python -m tests.studies.bench.growth [--only TEXT]``.

One size at a time goes up, the rest stays. A row has the CPU seconds at each size, the best of three, and the exponent
of the last tenfold: 1 is in proportion, 0 does not grow. Compiled code is loaded before, and set-up is in it.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import log

import numpy as np

from sim import EngineConfig, Requests, simulate
from sim.cluster.cluster_config import ClusterConfig, Pool
from sim.cluster.cluster_simulation import simulate_cluster
from sim.cluster.cluster_work import ClusterWork
from sim.cluster.routing.routing_policies import (
    KvCost,
    LeastLoaded,
    PowerOfTwo,
    RoundRobin,
    RoutingPolicy,
    Weighted,
)
from sim.kv_cache_groups import KVCacheGroup
from tests.studies.bench.cluster import LATENCY, SMALL, synthetic
from tests.studies.bench.engine import reference_loop_s
from tests.studies.bench.works import SYNC, normal_requests

REPEATS = 3
PER_INSTANCE_PER_S = 6.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """A size that goes up: its name, the values, and what is done at one, ready to be called again and again."""

    name: str
    sizes: Sequence[int]
    work: Callable[[int], Callable[[], object]]


def alone(requests: Requests, config: EngineConfig) -> Callable[[], object]:
    """Return the simulation of one engine."""
    return lambda: simulate(requests, config, LATENCY)


def shared(number: int, *, per_s: float = 14.0) -> Requests:
    """Return requests with shared prefixes, which are never counted (``sim.countable``)."""
    return synthetic(number, per_s=per_s, prompt=512, output=256, shares=True)


def at_once(number: int) -> Requests:
    """Return requests that all come at the same time."""
    return replace(shared(number), arrival_us=np.zeros(number, np.int64))


def with_groups(number: int) -> EngineConfig:
    """Return an engine with full attention and ``number - 1`` groups of windows."""
    window = KVCacheGroup(kind="sliding", window=1024)
    return replace(SYNC, kv_cache_groups=(KVCacheGroup(kind="full"), *[window] * (number - 1)))


def routed(instances: int, policy: RoutingPolicy) -> Callable[[], object]:
    """Return the simulation of 100,000 requests over so many instances, at the same load of each."""
    requests = synthetic(100_000, per_s=PER_INSTANCE_PER_S * instances, prompt=200, output=64, shares=False)
    cluster = ClusterConfig(pools=(Pool(engine=SMALL, latency=LATENCY, instances=instances),), routing=policy)
    return lambda: simulate_cluster(ClusterWork(requests=requests), cluster)


def growths() -> list[Growth]:
    """Return the rows."""
    tens = (10_000, 100_000, 1_000_000)
    policies: dict[str, RoutingPolicy] = {
        "round robin": RoundRobin(),
        "power of two": PowerOfTwo(),
        "least loaded": LeastLoaded(),
        "weighted": Weighted(),
        "kv-cost": KvCost(),
    }
    return [
        Growth(name="requests, counted", sizes=tens, work=lambda n: alone(normal_requests(n), SYNC)),
        Growth(name="requests, shared prefixes", sizes=tens, work=lambda n: alone(shared(n), SYNC)),
        Growth(
            name="requests that wait at once",
            sizes=(4_000, 40_000, 400_000),
            work=lambda n: alone(at_once(n), SYNC),
        ),
        Growth(
            name="seats, 20,000 requests at once",
            sizes=(32, 320, 3_200),
            work=lambda n: alone(at_once(20_000), replace(SYNC, max_num_seqs=n, num_gpu_blocks=400_000)),
        ),
        Growth(
            name="blocks of the pool, 20,000 requests",
            sizes=(20_000, 200_000, 2_000_000),
            work=lambda n: alone(shared(20_000), replace(SYNC, num_gpu_blocks=n)),
        ),
        Growth(
            name="KV cache groups, 20,000 requests",
            sizes=(2, 4, 8, 16),
            work=lambda n: alone(normal_requests(20_000), with_groups(n)),
        ),
        *(
            Growth(
                name=f"instances, {name}, 100,000 requests",
                sizes=(10, 100, 1_000, 10_000),
                work=lambda n, policy=policy: routed(n, policy),  # type: ignore[misc]
            )
            for name, policy in policies.items()
        ),
    ]


def best_cpu_s(work: Callable[[], object]) -> float:
    """Return the CPU seconds of the best of three."""
    seconds = []
    for _ in range(REPEATS):
        started = time.thread_time()
        work()
        seconds.append(time.thread_time() - started)
    return min(seconds)


def row_of(growth: Growth) -> str:
    """Return a row of the table: the sizes, their CPU seconds, the exponent between the last two."""
    growth.work(growth.sizes[0])()  # compiled code is loaded
    seconds = [best_cpu_s(growth.work(size)) for size in growth.sizes]
    exponent = log(seconds[-1] / seconds[-2]) / log(growth.sizes[-1] / growth.sizes[-2])
    shown = (", ".join(f"{each:,}" for each in growth.sizes), ", ".join(f"{each:.3g}" for each in seconds))
    return f"| {growth.name} | {shown[0]} | {shown[1]} | {exponent:.2f} |"


def main() -> None:
    """Measure the rows asked for and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="only rows whose name contains this")
    only = parser.parse_args().only
    print(f"loop {reference_loop_s():.3f} s\n\n| what grows | sizes | CPU s | exponent |\n|---|---|---|---|")
    for growth in growths():
        if only in growth.name:
            print(f"{growth.name} …", file=sys.stderr)
            print(row_of(growth), flush=True)


if __name__ == "__main__":
    main()
