"""A measured cluster: eight engines behind three gateways at eleven rates, beside vtwin's clusters of the same.

The requests are the measured ones, at their measured times. The runs of a gateway are one simulation, so that caches
stay warm from the run before; it begins with the load that the benchmark's script sends first. Step times are fitted
to requests of the lowest rates alone, block counts follow from the GPU's memory (``vtwin model info --gpu H20``).
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import brentq

from sim import EngineConfig, Extended, Requests
from sim.cluster.cluster_config import ClusterConfig, Pool
from sim.cluster.cluster_simulation import simulate_cluster
from sim.cluster.cluster_work import ClusterWork
from sim.cluster.routing.own import FleetView, RequestView
from sim.cluster.routing.routing_policies import KubeProxy, OwnPolicy, RoutingPolicy

NUM_ENGINES, BLOCK_SIZE = 8, 16
NUM_PROMPT_TOKENS, NUM_SHARED_BLOCKS, NUM_USER_BLOCKS = 21_073, 65, 1_315
"""A first prompt; its blocks up to the end of the system prompt, and up to that of a user's own context."""
NUM_NEW_TOKENS = NUM_PROMPT_TOKENS - NUM_SHARED_BLOCKS * BLOCK_SIZE
"""Those of a prompt whose user the engine does not know."""
WARM_UP_USERS, WARM_UP_GAP_S = 335, 0.6
"""Before the runs a new user comes every 0.6 s for 200 s and asks twice: no user above 335 is found cached later."""
PAUSE_S = 300.0
"""Longer than measured between two runs: a simulated run that ends late must not delay the next."""
IDLE_BELOW = 1.0
"""Requests of lower rates are fitted to, requests/s."""
ATTENTION_SHARE = 0.29
"""Of the operations of such a prompt: 20,033 tokens through 7.0 G weights, 2.2e8 pairs of 524,288 operations each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """What requests that meet nobody show, s: TTFT of a new user and of a cached one, the token of 1, 2, 3 decodes."""

    cold: float
    hit: float
    tokens: tuple[float, float, float]

    def latency(self, *, steps_per_prompt: int) -> Extended:
        """Return step times with these figures; ``tokens`` follow a + b·D^p."""
        one, two, three = self.tokens
        power = brentq(lambda p: (3**p - 2**p) / (2**p - 1) - (three - two) / (two - one), 0.01, 1)
        company = (two - one) / (2**power - 1)
        prefill = self.cold - self.hit + one - steps_per_prompt * (one - company)
        pairs = NUM_NEW_TOKENS * (NUM_SHARED_BLOCKS * BLOCK_SIZE + NUM_NEW_TOKENS / 2)
        return Extended(
            alpha0=1e6 * (self.hit - one),
            beta0=1e6 * (one - company),
            beta1=1e6 * prefill * (1 - ATTENTION_SHARE) / NUM_NEW_TOKENS,
            beta2=1e6 * company,
            beta4=1e6 * prefill * ATTENTION_SHARE / pairs,
            concavity=1 - power,
        )


def median_between(values: pd.Series, low: float, high: float) -> float:
    """Return the median of the values between two bounds: of one mode of a distribution with several."""
    return float(values[values.between(low, high)].median())


def idle_of(rows: pd.DataFrame) -> Idle:
    """Return what the requests of the lowest rates show; a mode of 1.25, 1.65, 1.96 s for 99 tokens each."""
    idle = rows[rows["qps"] < IDLE_BELOW]
    times = idle["generation_time"]
    one, two, three = (median_between(times, *mode) / 99 for mode in ((1.2, 1.3), (1.6, 1.7), (1.9, 2.1)))
    cold, hit = median_between(idle["ttft"], 2.9, 3.1), median_between(idle["ttft"], 0, 0.1)
    return Idle(cold=cold, hit=hit, tokens=(one, two, three))


def idle_of_dram(rows: pd.DataFrame, naive: Idle) -> tuple[Idle, float]:
    """Return the same of the engines with a tier, two and three decodes as much slower, and µs to load a block."""
    idle = rows[rows["qps"] < IDLE_BELOW]
    whole = idle[idle["generation_tokens"] == 100]["generation_time"]
    one = median_between(whole, 1.0, 1.15) / 99
    hit, loaded = median_between(idle["ttft"], 0, 0.1), median_between(idle["ttft"], 0.35, 0.6)
    _, two, three = (one + each - naive.tokens[0] for each in naive.tokens)
    load_us = 1e6 * (loaded - hit) / (NUM_USER_BLOCKS - NUM_SHARED_BLOCKS)
    return Idle(cold=median_between(idle["ttft"], 3.0, 3.6), hit=hit, tokens=(one, two, three)), load_us


def read(path: Path) -> pd.DataFrame:
    """Return a gateway's requests in the order in which they were sent, ``launch_time`` in s from the first."""
    rows = pd.read_csv(path).sort_values("launch_time", kind="stable", ignore_index=True)
    begins = rows.groupby("qps")["launch_time"].transform("min")
    return rows.assign(launch_time=rows["launch_time"] - begins.min(), run=begins.rank(method="dense") - 1)


def whole_load(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the requests, what warms the caches up before, and each client's ten greetings; sorted by time."""
    users = np.arange(1, WARM_UP_USERS + 1)
    first = pd.DataFrame({"user_id": users, "launch_time": users * WARM_UP_GAP_S, "run": -1})
    first = first.assign(prompt_tokens=NUM_PROMPT_TOKENS)
    again = first.assign(launch_time=first["launch_time"] + 5, prompt_tokens=NUM_PROMPT_TOKENS + 129)
    shifted = rows["launch_time"] + PAUSE_S * (rows["run"] + 1) + first["launch_time"].max()
    begins = shifted.groupby(rows["run"]).min().repeat(10) - 2
    greetings = pd.DataFrame({"user_id": -1, "launch_time": begins, "run": -1, "prompt_tokens": 130})
    every = pd.concat([first, again, greetings, rows.assign(launch_time=shifted)], ignore_index=True)
    every["generation_tokens"] = every["generation_tokens"].fillna(100)
    return every.sort_values("launch_time", kind="stable", ignore_index=True)


def requests_of(load: pd.DataFrame) -> Requests:
    """Return the load as the engine takes it; a prompt's blocks: everybody's, its user's, its user's in its run."""
    ids: dict[tuple[int, ...], int] = {}
    contents = []
    for tokens, user, run in load[["prompt_tokens", "user_id", "run"]].astype(int).itertuples(index=False):
        names = [
            (k,) if k < NUM_SHARED_BLOCKS else (k, user) if k < NUM_USER_BLOCKS else (k, user, run)
            for k in range(tokens // BLOCK_SIZE if user > 0 else 0)
        ]
        contents.append([ids.setdefault(name, len(ids)) for name in names])
    return Requests(
        arrival_us=np.rint(1e6 * load["launch_time"].to_numpy()).astype(np.int64),
        prompt_tokens=load["prompt_tokens"].to_numpy(np.int64),
        output_tokens=load["generation_tokens"].to_numpy(np.int64),
        priority=np.zeros(len(load), np.int64),
        hash_ids=np.concatenate(contents).astype(np.int64),
        hash_offsets=np.cumsum([0, *map(len, contents)]).astype(np.int64),
    )


def prefix_cache(seed: int, *, most_apart: int = 8, num_deviations: int = 1) -> OwnPolicy:
    """Return AIBrix 0.3's prefix-cache rule (pkg/plugins/gateway/algorithms/prefix_cache.go) with draws of its own.

    Its blocks are 128 characters, 42 tokens of this load: every third of ours stands for one. 200,000 are remembered.
    Nobody looks at prefixes where the counts are further apart than ``most_apart``; 8 and 1 are the source's defaults.
    """
    places: OrderedDict[int, set[int]] = OrderedDict()
    draws = random.Random(seed)

    def choose(fleet: FleetView, request: RequestView, _time_us: int) -> int:
        counts, blocks = fleet.num_in_flight, request.hash_ids[::3].tolist()
        least = draws.choice(np.flatnonzero(counts == counts.min()).tolist())
        matched: dict[int, int] = {}
        if counts.max() - counts.min() <= most_apart:
            left = set(fleet.candidates.tolist())
            for i, block in enumerate(blocks):
                left &= places.get(block, set())
                matched |= dict.fromkeys(left, (i + 1) * 100 // len(blocks))
        known = sorted(matched, key=lambda each: (-matched[each], counts[each], draws.random()))
        most = counts.mean() + num_deviations * counts.std()
        chosen = next((each for each in known if counts[each] <= most), least)
        for block in blocks:
            places.setdefault(block, set()).add(chosen)
            places.move_to_end(block)
        while len(places) > 200_000:
            places.popitem(last=False)
        return int(chosen)

    return OwnPolicy(choose=choose)


def plain_engine() -> EngineConfig:
    """Return vLLM 0.8.5 as its first two gateways had it: the flag against chunks does nothing in its newer engine."""
    return EngineConfig(
        vllm_version="0.12.0",
        scheduler_reserve_full_isl=False,
        async_scheduling=False,
        max_num_batched_tokens=8192,
        max_model_len=32_000,
        num_gpu_blocks=35_623,
    )


def engine_with_tier(load_us: float) -> EngineConfig:
    """Return it with VLLM_USE_V1=0 and 120 GB of host memory, as the third gateway had it."""
    return EngineConfig(
        batching="vllm-v0",
        enable_chunked_prefill=False,
        async_scheduling=False,
        max_num_batched_tokens=32_000,
        max_model_len=32_000,
        num_gpu_blocks=34_275,
        watermark=0.01,
        num_cpu_blocks=57_220,
        kv_offloading="native",
        kv_load_us_per_block=load_us,
    )


def simulated(
    rows: pd.DataFrame, engine: EngineConfig, latency: Extended, routing: RoutingPolicy, seed: int
) -> pd.Series:
    """Return the mean TTFT at each rate, s; index ``qps``."""
    load = whole_load(rows)
    pool = Pool(engine=engine, latency=latency, instances=NUM_ENGINES)
    config = ClusterConfig(pools=(pool,), routing=routing, seed=seed)
    outcomes = simulate_cluster(ClusterWork(requests=requests_of(load)), config).outcomes
    ttft = outcomes.first_token_us / 1e6 - load["launch_time"]
    return pd.Series(ttft).groupby(load["qps"]).mean()


def table(data: Path) -> str:
    """Return the table: mean TTFT measured and simulated, at each rate behind each gateway."""
    folder = data / "aibrix_8xa100"
    naive, routed, tiered = (
        read(folder / f"{name}.csv.gz")
        for name in ("naive", "aibrix_naive_prefix_routing", "aibrix_kvcache_dram")
    )
    idle = idle_of(naive)
    idle_tiered, load_us = idle_of_dram(tiered, idle)
    plain, plain_latency = plain_engine(), idle.latency(steps_per_prompt=3)
    loose = partial(
        prefix_cache, most_apart=16, num_deviations=2
    )  # the README's limits; see docs/validation/clusters.md
    tier_latency = idle_tiered.latency(steps_per_prompt=1)
    cases: dict[str, tuple[pd.DataFrame, EngineConfig, Extended, Callable[[int], RoutingPolicy], int]] = {
        "kube-proxy": (naive, plain, plain_latency, lambda _: KubeProxy(), 8),
        "AIBrix, prefix-cache": (routed, plain, plain_latency, prefix_cache, 4),
        "AIBrix with a KV tier": (tiered, engine_with_tier(load_us), tier_latency, loose, 4),
    }
    lines = ["| gateway | rate/s | measured s | simulated s | draws | error % |", "|---|---|---|---|---|---|"]
    for name, (rows, engine, latency, policy, num_draws) in cases.items():
        draws = pd.DataFrame(
            {seed: simulated(rows, engine, latency, policy(seed), seed) for seed in range(num_draws)}
        )
        for (rate, measured), at in zip(
            rows.groupby("qps")["ttft"].mean().items(), draws.to_numpy(), strict=True
        ):
            lines.append(
                f"| {name} | {rate} | {measured:.2f} | {at.mean():.2f} | {at.min():.2f} to {at.max():.2f} "
                f"| {100 * (at.mean() / measured - 1):+.0f} |"
            )
    return "\n".join(lines)
