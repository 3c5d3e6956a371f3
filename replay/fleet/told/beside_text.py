"""Two fleets beside each other as lines and as JSON: one pool, and prefill and decode apart."""

from __future__ import annotations

from collections.abc import Sequence

from replay.fleet.plans.beside import ComparedFleet, FleetsCompared
from replay.fleet.plans.costs import HEAD, WIDTHS, cost_cells, per_year, year_text
from replay.fleet.told.text import gpus_text, remarks, verification_document
from traces import shown_time
from traces.facts import AlignedRows, AnswerPart


def beside_sentence(found: FleetsCompared) -> str:
    """Return which of the two is to be taken, why, and what their requests see."""
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
    told = f"{_winner(one, split, found.currency)}. {latency}"
    if found.equal is None or found.equal.seen is None:
        return told
    same = shown_time(found.equal.seen.e2e_p99.value * 1e6)
    return f"{told}. One pool of {found.equal.gpus:,}: E2E p99 {same}"


def _winner(one: ComparedFleet, split: ComparedFleet, currency: str) -> str:
    """Return which fleet costs less, without prices takes fewer GPUs, and of equal ones which is faster."""
    named = ((one, "one pool", "s"), (split, "prefill and decode pools", ""))
    has_prices = one.cost_per_hour > 0 and split.cost_per_hour > 0

    def amount(side: ComparedFleet) -> float:
        return round(side.cost_per_hour, 6) if has_prices else side.gpus

    (less, name, s), (more, other, _) = sorted(named, key=lambda each: (amount(each[0]), _slowness(each[0])))
    if amount(less) == amount(more):
        is_faster = _slowness(less) < _slowness(more)
        return f"{gpus_text(one.gpus)} either way; " + (
            f"{name} answer{s} faster" if is_faster else "as fast"
        )
    if has_prices:
        told = year_text(less.cost_per_hour, currency), year_text(more.cost_per_hour, currency)
        return f"{name} cost{s} less: {told[0]} on {gpus_text(less.gpus)}, {other} {told[1]} on {more.gpus:,}"
    return f"{name} need{s} fewer GPUs: {less.gpus:,}, {other} {more.gpus:,}"


def _slowness(side: ComparedFleet) -> float:
    """Return the seconds by which equal fleets are told apart: E2E p99 as simulated, else TTFT p99 by formula."""
    return side.ttft_p99_s if side.seen is None else side.seen.e2e_p99.value


def _latencies(one: ComparedFleet, split: ComparedFleet) -> str:
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


def beside_parts(found: FleetsCompared) -> list[AnswerPart]:
    """Return the sentence, both fleets as rows, and what runs that are too short leave open."""
    head = ("", "engines", "GPUs", *HEAD, "TTFT p50", "TTFT p99", "TPOT p99", "E2E p50", "E2E p99")
    rows: list[Sequence[str]] = [head]
    for side in (found.one, found.split, found.equal):
        if side is not None:
            cost = cost_cells(side.cost_per_hour or None)
            rows.append((side.name, side.engines, f"{side.gpus:,}", *cost, *_times(side)))
    reason = [f"one pool: {found.reason}"] if found.reason else []
    for each in (found.one, found.split):
        if each is not None and each.seen is not None and not each.seen.is_long_enough:
            reason += remarks(each.name, each.seen)
    return [beside_sentence(found), AlignedRows(rows, (-18, 12, 7, *WIDTHS, 12, 12, 12, 12, 12)), *reason]


def _times(side: ComparedFleet) -> tuple[str, ...]:
    if side.seen is None:
        return "-", shown_time(side.ttft_p99_s * 1e6), "-", "-", "-"
    seen = side.seen
    figures = (seen.ttft_p50, seen.ttft_p99, seen.tpot_p99, seen.e2e_p50, seen.e2e_p99)
    return tuple(shown_time(each.value * 1e6) for each in figures)


def beside_document(found: FleetsCompared) -> dict[str, object]:
    """Return both fleets as the JSON document has them; null where none that was tried meets the SLO."""
    return {
        "sentence": beside_sentence(found),
        "one_pool": _side(found.one),
        "disaggregated": _side(found.split),
        "one_pool_of_as_many": _side(found.equal),
        "reason": found.reason or None,
    }


def _side(side: ComparedFleet | None) -> dict[str, object] | None:
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
