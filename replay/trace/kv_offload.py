"""The second KV tier in a run's document: blocks stored and loaded, hits by tier, and how long it took."""

from __future__ import annotations

from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from replay.numbers.distribution import Distribution, distribution
from sim import EngineConfig, Int64s, Outcomes, Totals


class KvOffload(TypedDict):
    """The second KV tier, in blocks; ``hit_frac``: prompt tokens that came back from it, of all that were scheduled.

    ``rules``: engine.kv_offloading. ``gpu_hit_frac``: prompt tokens found in the GPU's prefix cache, likewise.
    ``num_thrashings``: blis: blocks that came back less than 1 ms after they had left. The rest is native's:
    ``num_loads`` and ``num_stores``: transfers; ``load_wait_us``: of all requests together, from the request for blocks
    to the news of their arrival; ``load_us``: the same of each request that loaded; ``num_flushes`` and
    ``flush_wait_us``: stores that a step had to wait for, and how long steps did. ``stored_bytes`` and
    ``loaded_bytes``: in all layers, on all GPUs; None where no model is named.
    """

    rules: str
    num_offloaded_blocks: int
    num_reloaded_blocks: int
    num_thrashings: int
    hit_frac: float | None
    gpu_hit_frac: float | None
    num_loads: int
    num_stores: int
    load_wait_us: int
    load_us: Distribution
    num_flushes: int
    flush_wait_us: int
    stored_bytes: int | None
    loaded_bytes: int | None


def summarize_kv_offload(
    moved: Totals,
    outcomes: Outcomes,
    rows: Int64s,
    *,
    prompt_tokens: Int64s,
    engine: EngineConfig | None,
    block_bytes: int | None = None,
) -> KvOffload | None:
    """Return the blocks stored in and loaded from the second tier; None without one. Each loaded block is a prompt's.

    ``rows``: the requests that are counted. ``block_bytes``: of a block, in all layers on all GPUs, None: not known.
    """
    if engine is None or not engine.has_cpu_tier:
        return None
    scheduled = rows[outcomes.scheduled_us[rows] >= 0]
    num_tokens = float(prompt_tokens[scheduled].sum())
    num_found = float(outcomes.num_cached_tokens[scheduled].sum())
    is_native = engine.has_native_offloading
    num_back = moved.num_kv_loaded_tokens if is_native else moved.num_kv_reloads * engine.block_size
    waits = outcomes.load_wait_us[rows].astype(np.float64)
    return KvOffload(
        rules=engine.kv_offloading,
        num_offloaded_blocks=moved.num_kv_offloads,
        num_reloaded_blocks=moved.num_kv_reloads,
        num_thrashings=moved.num_kv_thrashings,
        hit_frac=_ratio(num_back, num_tokens),
        gpu_hit_frac=_ratio(max(num_found - num_back, 0.0), num_tokens),
        num_loads=moved.num_kv_loads,
        num_stores=moved.num_kv_stores,
        load_wait_us=moved.kv_load_wait_us,
        load_us=distribution(waits[outcomes.num_loaded_tokens[rows] > 0]),
        num_flushes=moved.num_kv_flushes,
        flush_wait_us=moved.kv_flush_wait_us,
        stored_bytes=None if block_bytes is None else moved.num_kv_offloads * block_bytes,
        loaded_bytes=None if block_bytes is None else moved.num_kv_reloads * block_bytes,
    )


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def cached_from(outcomes: Outcomes) -> NDArray[np.object_]:
    """Return where each request's cached tokens were found: gpu, cpu or gpu+cpu, "" where none were."""
    loaded = outcomes.num_loaded_tokens > 0
    on_gpu = outcomes.num_cached_tokens > np.maximum(outcomes.num_loaded_tokens, 0)
    found = np.full(len(loaded), "", object)
    found[on_gpu], found[loaded], found[on_gpu & loaded] = "gpu", "cpu", "gpu+cpu"
    return found


# -- texts ----------------------------------------------------------------------------------------------------


def hits_by_tier(tier: KvOffload) -> str:
    """Return which share of prompt tokens was found where."""
    return f"{percent(tier['gpu_hit_frac'])} GPU, {percent(tier['hit_frac'])} host memory"


RULES = {
    "native": "by vLLM's own connector",
    "shared": "one store for all instances, by vLLM's own connector",
    "blis": "by BLIS's rule, which vLLM does not have",
}
"""Whose rules ``engine.kv_offloading`` follows, in words."""


def offload_text(tier: KvOffload) -> str:
    """Return the rules of the second tier, its blocks stored and loaded, and how long requests waited for them."""
    whose, hits = RULES.get(tier["rules"], tier["rules"]), percent(tier["hit_frac"])
    if tier["rules"] == "blis":
        return (
            f"{whose}: {tier['num_offloaded_blocks']:,} blocks left the GPU, {tier['num_reloaded_blocks']:,} came back "
            f"({hits} of prompt tokens)"
        )
    waited = tier["load_wait_us"] / max(tier["num_loads"], 1) / 1e3
    loaded = (
        f"{tier['num_reloaded_blocks']:,}{_size(tier['loaded_bytes'])} loaded in {tier['num_loads']:,} loads ({hits} "
        f"of prompt tokens), each waited for {waited:,.1f} ms"
        if tier["num_loads"]
        else "none loaded"
    )
    flushed = (
        f"; steps waited {tier['flush_wait_us'] / 1e3:,.1f} ms for stores" if tier["num_flushes"] else ""
    )
    return f"{whose}: {tier['num_offloaded_blocks']:,} blocks{_size(tier['stored_bytes'])} stored, {loaded}{flushed}"


def _size(num_bytes: int | None) -> str:
    return "" if num_bytes is None else f" ({num_bytes / 2**30:,.1f} GiB)"


def percent(value: float | None) -> str:
    """Return a share of prompt tokens, ``-`` for one that is not known."""
    return "-" if value is None else f"{value:.1%}"
