"""Whether a fleet hangs on a KV cache whose size nobody told: by formula, with a quarter less and more of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from replay.verdict.kv_doubt import MOVED, REMEDY, SHARE
from sim.fleet.sizing import Infeasible

if TYPE_CHECKING:
    from replay.fleet.plans.size import FleetPlan, PoolPlan
    from sim.fleet.sizing import PoolSize


def memory_notes(plan: FleetPlan) -> Iterator[str]:
    """Yield a line for each pool whose number of engines, or TTFT p99, by formula goes by the size of its KV cache."""
    for pool in plan.pools:
        if pool.source.assumes_memory:
            told = _told(pool)
            yield from () if told is None else (f"{pool.source.name}: {told}; {REMEDY}",)


def _told(pool: PoolPlan) -> str | None:
    """Return how far a pool hangs on it; None where it does not."""
    own = pool.at
    parts, hangs = [], False
    for which, factor in (("less", 1 - SHARE), ("more", 1 + SHARE)):
        other = _other(pool, factor)
        if other is None:
            parts.append(f"with {SHARE:.0%} {which} no number of engines keeps the SLO")
            hangs = True
            continue
        engines, at = other
        moved = at.ttft_p99_s / own.ttft_p99_s - 1 if own.ttft_p99_s > 0 else 0.0
        hangs = hangs or engines != pool.analytic.engines or abs(moved) > MOVED
        parts.append(f"with {SHARE:.0%} {which} {engines}, TTFT p99 of {pool.engines} {moved:+.0%}")
    if not hangs:
        return None
    return f"nobody told the size of the KV cache: {pool.analytic.engines} engines by formula, {', '.join(parts)}"


def _other(pool: PoolPlan, factor: float) -> tuple[int, PoolSize] | None:
    """Return how many engines the formulas ask for with so many times the blocks, and what the plan's number does."""
    profile = replace(pool.source.profile, num_blocks=max(round(pool.source.profile.num_blocks * factor), 1))
    try:
        asked, at = pool.need.size(profile), pool.need.at(profile, pool.engines)
    except Infeasible:
        return None
    return asked.engines, at
