"""The works that the engine's speed is stated for."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from sim import Blackbox, EngineConfig, Extended, LatencyModel, Physics, Requests, Roofline
from sim.kv_cache_groups import KVCacheGroup

DATA = Path(os.environ.get("VTWIN_DATA", Path(__file__).parents[3] / ".." / "shared" / "data"))
LATENCY = Blackbox(beta0=6000, beta1=20, beta2=30)
SYNC = EngineConfig(
    max_num_seqs=256, max_num_batched_tokens=8192, num_gpu_blocks=60_000, async_scheduling=False
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One row of the bench. ``requests()`` converts the trace anew: hashing and conversion are timed, too.

    ``bar``: requests per CPU second to reach, 0 where none is stated.
    """

    name: str
    config: EngineConfig
    requests: Callable[[], Requests]
    bar: int
    latency: LatencyModel = LATENCY


def normal_requests(num_requests: int, *, rate: float = 14.0) -> Requests:
    """Return Poisson arrivals, prompts and outputs normal(512, 256) clipped to 2..7000, seed 1."""
    random = np.random.default_rng(1)
    gaps = random.exponential(1e6 / rate, num_requests)
    lengths = [np.clip(random.normal(512, 256, num_requests), 2, 7000).astype(np.int64) for _ in range(2)]
    return Requests(
        arrival_us=np.cumsum(gaps).astype(np.int64),
        prompt_tokens=lengths[0],
        output_tokens=lengths[1],
        priority=np.zeros(num_requests, np.int64),
        hash_offsets=np.zeros(num_requests + 1, np.int64),
        hash_ids=np.zeros(0, np.int64),
    )


def trace_requests(path: Path, source: str, block_size: int) -> Callable[[], Requests]:
    """Return what converts a public trace, read beforehand, into the engine's columns."""
    from replay.trace.request_columns import requests_from_trace
    from traces import convert

    trace = convert(source, path)
    return lambda: requests_from_trace(trace, block_size=block_size)


def mooncake(block_size: int, num_gpu_blocks: int, bar: int) -> Work:
    """Return Mooncake's conversations with their prefix hashes; blocks for nine tenths of the hit ceiling."""
    path = DATA / "mooncake_fast25" / "conversation_trace.jsonl.gz"
    return Work(
        name=f"Mooncake conversations, block size {block_size}",
        config=replace(SYNC, max_model_len=131_072, block_size=block_size, num_gpu_blocks=num_gpu_blocks),
        requests=trace_requests(path, "mooncake", block_size),
        bar=bar,
    )


def other_models() -> dict[str, LatencyModel]:
    """Return the other latency models, with steps about as long as those of ``LATENCY``: an 8B model on an H100."""
    from replay.model import find_gpu, read_model_config
    from replay.model.model_peak import peak_times
    from replay.twin.latency import DENSE_PHYSICS, physics_sets

    peak = peak_times(read_model_config("meta-llama/Llama-3.1-8B"), find_gpu("H100"))
    learned = physics_sets()[DENSE_PHYSICS]
    line = {"beta0": 1500, "beta1": 20, "beta2": 15}
    return {
        "extended": Extended(**line, beta3=0.05, beta4=0.0005, floor=5000.0, kappa=0.1),  # type: ignore[arg-type]
        "roofline": Roofline(peak=peak),
        "physics": Physics(peak=peak, **learned),  # type: ignore[arg-type]
    }


def works() -> Iterator[Work]:
    """Yield the rows; those whose data is not at hand are left out."""
    yield Work(name="100,000 requests", config=SYNC, requests=lambda: normal_requests(100_000), bar=5_000_000)
    asynchronous = replace(SYNC, async_scheduling=True)
    yield Work(
        name="100,000 requests, async", config=asynchronous, requests=lambda: normal_requests(100_000), bar=0
    )
    if (DATA / "mooncake_fast25").is_dir():
        yield mooncake(512, 31_000, 100_000)
        yield mooncake(16, 980_000, 20_000)
    azure = DATA / "azure_llm_2023" / "AzureLLMInferenceTrace_conv.csv"
    if azure.is_file():
        yield Work(
            name="Azure conv 2023, 16 sequences",
            config=replace(SYNC, max_num_seqs=16),
            requests=trace_requests(azure, "azure", 16),
            bar=300_000,
        )
    yield Work(
        name="KV pressure",
        config=replace(SYNC, num_gpu_blocks=PRESSURE_BLOCKS),
        requests=lambda: normal_requests(100_000),
        bar=50_000,
    )
    yield Work(
        name="100,000 requests, a long-prefill threshold of 256",
        config=replace(SYNC, long_prefill_token_threshold=256),
        requests=lambda: normal_requests(100_000),
        bar=0,
    )
    yield from works_of_groups()
    for name, latency in other_models().items():
        yield Work(
            name=f"100,000 requests, {name}",
            config=SYNC,
            requests=lambda: normal_requests(100_000),
            bar=0,
            latency=latency,
        )
    yield Work(name="10,000 requests", config=SYNC, requests=lambda: normal_requests(10_000), bar=0)
    yield Work(
        name="1,000,000 requests", config=SYNC, requests=lambda: normal_requests(1_000_000), bar=100_000
    )


def works_of_groups() -> Iterator[Work]:
    """Yield the first work for layers that cache differently: a window, Gemma 3's six groups, states."""
    full, window = KVCacheGroup(kind="full"), KVCacheGroup(kind="sliding", window=1024)
    short, state = KVCacheGroup(kind="sliding", window=128), KVCacheGroup(kind="state", mode="align")
    for name, groups, bar in (
        ("a window of 128 beside full", (full, short), 0),
        ("six groups, windows of 1,024", (full, *[window] * 5), 60_000),
        ("six groups, windows of 128", (full, *[short] * 5), 60_000),
        ("three groups of states beside full", (full, *[state] * 3), 0),
    ):
        yield Work(
            name=f"100,000 requests, {name}",
            config=replace(SYNC, kv_cache_groups=groups),
            requests=lambda: normal_requests(100_000),
            bar=bar,
        )


PRESSURE_BLOCKS = 696
"""A tenth of the 6,958 blocks that the first work holds at its peak."""
