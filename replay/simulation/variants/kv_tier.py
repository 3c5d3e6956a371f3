"""How much host memory a server's KV needs: hits by tier, waits for loads and the price, variant by variant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from replay.model.gpu_memory import GIB
from replay.model.prices import ServerPrices
from replay.trace.kv_offload import percent
from traces import shown_time

if TYPE_CHECKING:
    from replay.simulation.variants.variant import VariantResult
    from replay.trace.simulation_summary import SimulationSummary
    from replay.twin.twin_config import TwinConfig

MEMORY, RULE = "host memory, GiB", "  rules"
GPU_HITS, CPU_HITS, WAITED = "  found on the GPU", "  in host memory", "  wait for a load"
PRICE, PER_MILLION = "price per hour", "  of 1M output tokens"
EMPTY = dict.fromkeys((MEMORY, RULE, GPU_HITS, CPU_HITS, WAITED, PRICE, PER_MILLION), "-")
SHORT = {"native": "vLLM's", "shared": "vLLM's, shared", "blis": "BLIS's"}
"""Whose rules a tier follows."""
KEPT = 0.99
"""The share of requests that must keep their limits, as on a sweep's front."""


def host_memory_gib(twin: TwinConfig) -> float | None:
    """Return the host memory that all instances have for KV, None where the size of a block is not known."""
    pools = [pool for pool in twin.cluster.pools if pool.engine.has_cpu_tier]
    num_blocks = sum(
        pool.instances * pool.engine.num_cpu_blocks for pool in pools if not pool.engine.has_shared_store
    )
    num_blocks += max(
        (pool.engine.num_cpu_blocks for pool in pools if pool.engine.has_shared_store), default=0
    )
    if num_blocks == 0:
        return 0.0
    return None if twin.kv_block_bytes is None else num_blocks * twin.kv_block_bytes / GIB


def price_per_hour(twin: TwinConfig, prices: ServerPrices) -> float | None:
    """Return what all instances and their host memory cost in an hour; None where a price or a size is not known."""
    memory = host_memory_gib(twin)
    pools = twin.cluster.pools
    if memory is None or len(twin.gpus_of_pools) != len(pools):
        return None
    total = memory * (prices.per_gib or 0.0)
    for pool, (gpu, number) in zip(pools, twin.gpus_of_pools, strict=True):
        if gpu not in prices.per_gpu:
            return None
        total += pool.instances * number * prices.per_gpu[gpu]
    return total


def per_million_tokens(twin: TwinConfig, summary: SimulationSummary, prices: ServerPrices) -> float | None:
    """Return the price of a million output tokens at the variant's throughput."""
    price, per_s = price_per_hour(twin, prices), summary["output_token_throughput"]
    return None if price is None or not per_s else price / (3600 * per_s) * 1e6


def tier_cells(twin: TwinConfig, summary: SimulationSummary, prices: ServerPrices | None) -> dict[str, str]:
    """Return a variant's figures of its second KV tier and its price, ``-`` where there are none."""
    cells = dict(EMPTY)
    memory = host_memory_gib(twin)
    tier = summary["kv_offload"]
    if tier is not None:
        cells |= {
            RULE: SHORT[tier["rules"]],
            GPU_HITS: percent(tier["gpu_hit_frac"]),
            CPU_HITS: percent(tier["hit_frac"]),
        }
        mean = tier["load_us"]["mean"]
        cells[WAITED] = "-" if mean is None else shown_time(mean)
        cells[MEMORY] = "-" if memory is None else f"{memory:,.4g}"
    if prices is not None:
        price, per_million = price_per_hour(twin, prices), per_million_tokens(twin, summary, prices)
        cells[PRICE] = "-" if price is None else f"{price:,.4g}"
        cells[PER_MILLION] = "-" if per_million is None else f"{per_million:,.4g}"
    return cells


def cheapest(results: Sequence[VariantResult], prices: ServerPrices) -> tuple[VariantResult | None, bool]:
    """Return the variant with the least price per hour among those that keep the limits, and whether there are limits.

    Limits are kept where 99 % of the requests meet all of them. Ties go to the shorter mean TTFT. None where none
    keeps them, or no price is known. A variant whose twin has no answer to what was changed is not among them.
    """
    has_limits = any(each.summary["goodput"] is not None for each in results)
    ranked: list[tuple[float, float, int]] = []
    for number, each in enumerate(results):
        twin, summary = each.variant.twin, each.summary
        good, ttft = summary["goodput"], summary["ttft_us"]["mean"]
        keeps = good is None or (good["good_frac"] or 0.0) >= KEPT
        price = price_per_hour(twin, prices)
        if keeps and price is not None and ttft is not None and not twin.unanswered_keys:
            ranked.append((price, ttft, number))
    return (results[min(ranked)[2]] if ranked else None), has_limits


def cheapest_line(results: Sequence[VariantResult], prices: ServerPrices | None) -> list[str]:
    """Return the line that names the cheapest variant, nothing without prices or limits."""
    if prices is None:
        return []
    best, has_limits = cheapest(results, prices)
    if not has_limits:
        return [f"cheapest: --slo says what a variant must keep, in {KEPT:.0%} of requests"]
    if best is None:
        return [_why_none(results, prices)]
    named = ", ".join(f"{key} {value}" for key, value in best.variant.varied.items())
    price = price_per_hour(best.variant.twin, prices)
    lines = [
        f"cheapest of {len(results)} that keeps --slo in {KEPT:.0%} of requests: {named} ({price:,.4g} per hour)"
    ]
    if prices.per_gib is None and any(each.summary["kv_offload"] is not None for each in results):
        lines.append("host memory is counted as free: --prices has no line DRAM, its price per GiB and hour")
    return lines


def _why_none(results: Sequence[VariantResult], prices: ServerPrices) -> str:
    """Return why no variant is the cheapest: a price is missing, or none keeps the limits."""
    missing = dict.fromkeys(
        gpu for each in results for gpu, _ in each.variant.twin.gpus_of_pools if gpu not in prices.per_gpu
    )
    if missing:
        return f"cheapest: not known, --prices has no price of {', '.join(missing)}"
    return f"cheapest: no variant whose price is known keeps --slo in {KEPT:.0%} of requests"
