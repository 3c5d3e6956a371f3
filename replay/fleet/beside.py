"""Prefill and decode pools beside one pool for the whole of each request: the same demand, GPUs, cost and latencies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from replay.fleet.check.pool import Verification
from replay.fleet.costs import HEAD, WIDTHS, cost_cells, per_year
from replay.fleet.disagg import DisaggPlan
from replay.fleet.inputs.profiles import ProfileSource
from replay.fleet.size import PoolPlan, SizeCheck, plan_pool
from replay.fleet.text import gpus_text, verification_document
from sim.fleet import Lengths, provisioned
from sim.fleet.sizing import Infeasible, Objective
from traces import shown_time
from traces.facts import AlignedRows, AnswerPart


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two fleets. ``seen``: its simulation; None: by formula alone. ``cost_per_hour``: 0 without prices.

    ``ttft_p99_s``, ``tpot_s``: by formula, of the same engines.
    """

    name: str
    engines: str
    gpus: int
    cost_per_hour: float
    ttft_p99_s: float
    tpot_s: float
    seen: Verification | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """One pool and prefill and decode pools; None: none that was tried meets the SLO. ``reason``: why not one pool."""

    one: Side | None
    split: Side | None
    reason: str = ""


def beside(
    plan: DisaggPlan,
    sources: tuple[ProfileSource, ProfileSource],
    lengths: Lengths,
    rate_per_s: float,
    objective: Objective,
    *,
    context: int,
    check: SizeCheck | None,
) -> Beside:
    """Return a disaggregated fleet beside the cheapest single pool of either profile, sized as ``fleet size`` does."""
    found, reasons = list[PoolPlan](), list[str]()
    for source in {each.name: each for each in sources}.values():
        try:
            pool = plan_pool(source, lengths, rate_per_s, objective, context=context, check=check)
        except Infeasible as error:
            reasons.append(str(error))
            continue
        if pool.is_met(objective) is False:
            reasons.append("no number of engines that was tried meets the SLO in simulation")
        else:
            found.append(pool)
    one = min(found, key=lambda pool: (pool.cost_per_year, pool.gpus), default=None)
    return Beside(
        one=None if one is None else _of_pool(one),
        split=_of_split(plan, sources),
        reason="" if one is not None else reasons[0],
    )


def _of_pool(pool: PoolPlan) -> Side:
    at = pool.at
    return Side(
        name="one pool",
        engines=f"{pool.provisioned:,}",
        gpus=pool.gpus,
        cost_per_hour=pool.provisioned * pool.source.profile.cost_per_hour,
        ttft_p99_s=at.ttft_p99_s,
        tpot_s=at.tpot_s,
        seen=pool.verified,
    )


def _of_split(plan: DisaggPlan, sources: tuple[ProfileSource, ProfileSource]) -> Side | None:
    best = plan.recommended
    if best is None:
        return None
    counts = [provisioned(number, plan.objective.availability) for number in (best.prefill, best.decode)]
    profiles = [each.profile for each in sources]
    costs = [number * each.cost_per_hour for number, each in zip(counts, profiles, strict=True)]
    first = [each for each in plan.tried if (each.analytic.prefill, each.analytic.decode) == plan.best]
    return Side(
        name="prefill + decode",
        engines=f"{counts[0]:,} + {counts[1]:,}",
        gpus=sum(number * each.num_gpus for number, each in zip(counts, profiles, strict=True)),
        cost_per_hour=sum(costs) if all(costs) else 0.0,
        ttft_p99_s=best.ttft_p99_s,
        tpot_s=best.tpot_s,
        seen=next((each.check.whole for each in first if each.run == 0), None),
    )


def beside_sentence(found: Beside) -> str:
    """Return which of the two takes fewer GPUs, and what their requests see."""
    one, split = found.one, found.split
    if one is None and split is None:
        return "neither one pool nor prefill and decode pools meet the SLO"
    if one is None or split is None:
        has, lacks = (
            ("one pool", "prefill and decode pools")
            if split is None
            else ("prefill and decode pools", "one pool")
        )
        side = one or split
        assert side is not None  # noqa: S101 - one of them is there
        verb = "meets" if split is None else "meet"
        return f"only {has} {verb} the SLO: {gpus_text(side.gpus)}; {lacks}: none that was tried"
    latency = _latencies(one, split)
    if one.gpus == split.gpus:
        return f"{gpus_text(one.gpus)} either way: {latency}"
    return f"{gpus_text(one.gpus)} in one pool, {split.gpus:,} split into prefill and decode: {latency}"


def _latencies(one: Side, split: Side) -> str:
    if one.seen is None or split.seen is None:
        return (
            f"TTFT p99 {shown_time(split.ttft_p99_s * 1e6)} split, {shown_time(one.ttft_p99_s * 1e6)} in one pool, "
            "by formula"
        )
    parts = [
        f"{name} {shown_time(of_split * 1e6)} split, {shown_time(of_one * 1e6)} in one pool"
        for name, of_split, of_one in (
            ("E2E p99", split.seen.e2e_p99.value, one.seen.e2e_p99.value),
            ("TTFT p99", split.seen.ttft_p99.value, one.seen.ttft_p99.value),
            ("TPOT p99", split.seen.tpot_p99.value, one.seen.tpot_p99.value),
        )
    ]
    return "; ".join(parts)


def beside_parts(found: Beside) -> list[AnswerPart]:
    """Return the sentence, and both fleets as rows."""
    head = ("", "engines", "GPUs", *HEAD, "TTFT p50", "TTFT p99", "TPOT p99", "E2E p50", "E2E p99")
    rows: list[Sequence[str]] = [head]
    for side in (found.one, found.split):
        if side is not None:
            cost = cost_cells(side.cost_per_hour or None)
            rows.append((side.name, side.engines, f"{side.gpus:,}", *cost, *_times(side)))
    reason = [f"one pool: {found.reason}"] if found.reason else []
    return [beside_sentence(found), AlignedRows(rows, (-18, 12, 7, *WIDTHS, 12, 12, 12, 12, 12)), *reason]


def _times(side: Side) -> tuple[str, ...]:
    if side.seen is None:
        return "-", shown_time(side.ttft_p99_s * 1e6), "-", "-", "-"
    seen = side.seen
    figures = (seen.ttft_p50, seen.ttft_p99, seen.tpot_p99, seen.e2e_p50, seen.e2e_p99)
    return tuple(shown_time(each.value * 1e6) for each in figures)


def beside_document(found: Beside) -> dict[str, object]:
    """Return both fleets as the JSON document has them; null where none that was tried meets the SLO."""
    return {
        "sentence": beside_sentence(found),
        "one_pool": _side(found.one),
        "disaggregated": _side(found.split),
        "reason": found.reason or None,
    }


def _side(side: Side | None) -> dict[str, object] | None:
    if side is None:
        return None
    return {
        "engines": side.engines,
        "gpus": side.gpus,
        "cost_per_hour": side.cost_per_hour or None,
        "cost_per_year": per_year(side.cost_per_hour or None),
        "p99_ttft_us": side.ttft_p99_s * 1e6,
        "tpot_us": side.tpot_s * 1e6,
        "verified": None if side.seen is None else verification_document(side.seen),
    }
