"""Prefill and decode pools as lines and as JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict

from replay.fleet.check.fewest_engines import MORE
from replay.fleet.check.slo_limits import keeps
from replay.fleet.plans.costs import HEAD, WIDTHS, cost_cells, cost_text, per_year
from replay.fleet.plans.disagg import DisaggPlan, Tried
from replay.fleet.told.text import NOISE, broken_text, interval_text, remarks, verification_document
from sim.cluster import Disaggregation
from sim.fleet import provisioned, provisioned_for, share_enough
from sim.fleet.availability import ASSURANCE
from sim.fleet.disaggregated import Disaggregated
from sim.fleet.sizing import Objective
from traces import shown_time
from traces.facts import AlignedRows, AnswerPart, mark

MOST_SHOWN = 5


def disagg_parts(plan: DisaggPlan) -> list[AnswerPart]:
    """Return the Pareto set as a table, cheapest first, and formula beside simulation."""
    best = [each for each in plan.fleets if each.is_best]
    if not best:
        return ["by formula: no number of prefill and decode engines meets the SLO"]
    head = ("prefill", "decode", "TTFT p99", "TPOT", "prefill used", "decode used", *HEAD)
    rows = [
        (
            *map(str, (each.prefill, each.decode)),
            *(shown_time(seconds * 1e6) for seconds in (each.ttft_p99_s, each.tpot_s)),
            *(f"{share:.0%}" for share in (each.prefill_utilization, each.decode_utilization)),
            *cost_cells(each.cost_per_hour),
        )
        for each in best[:MOST_SHOWN]
    ]
    parts: list[AnswerPart] = [
        f"by formula, {len(plan.fleets)} fleets that meet the SLO, {len(best)} of them on the Pareto front",
        AlignedRows([head, *rows], (8, 8, 12, 11, 14, 13, *WIDTHS)),
        *([f"and {len(best) - MOST_SHOWN} more: --json has all"] if len(best) > MOST_SHOWN else []),
        *border_lines(plan),
    ]
    shown = [
        each
        for each in plan.tried
        if (each.analytic.prefill, each.analytic.decode) == plan.best and each.run >= 0
    ]
    shown = (shown or list(plan.tried[-1:]))[:1]
    for each in shown:
        parts += ["", *_tried_parts(each, plan.objective)]
    if plan.tried:
        parts += ["", *(_tried_line(each, plan.objective) for each in plan.tried if each not in shown)]
        parts += ["", *_recommended(plan), *remarks("fleet", plan.tried[-1].check.whole), NOISE]
    return parts


def border_lines(plan: DisaggPlan) -> list[str]:
    """Return that the front goes on beyond the largest pools that were tried; nothing where it ends before them."""
    edge = [each for each in plan.fleets if each.is_best and each.is_border]
    if not edge:
        return []
    most = max(each.prefill for each in plan.fleets), max(each.decode for each in plan.fleets)
    return [
        f"the front ends where the trying did, at {most[0]:,} prefill or {most[1]:,} decode engines: with more, first "
        "tokens and answers would be faster still. The cheapest is no such edge: smaller pools break the SLO by formula"
    ]


def _tried_line(tried: Tried, objective: Objective) -> str:
    """Return a number of engines that is not recommended, and what it had in simulation."""
    whole = tried.check.whole
    return f"{_name(tried)} {mark(keeps(whole, objective))} TTFT p99 {interval_text(whole.ttft_p99)}"


def _name(tried: Tried) -> str:
    again = {0: "", 1: f", another seed at {MORE} more load", -1: f", a short run at {MORE} more load"}[
        tried.run
    ]
    return f"{tried.analytic.prefill} prefill + {tried.analytic.decode} decode{again}"


def _tried_parts(tried: Tried, objective: Objective) -> list[AnswerPart]:
    """Return formula beside simulation, a row per figure."""
    formula, seen = tried.analytic, tried.check
    whole = seen.whole
    rows = [
        ("", "formula", "simulated"),
        ("TTFT p99", shown_time(formula.ttft_p99_s * 1e6), interval_text(whole.ttft_p99)),
        ("TTFT mean", shown_time(formula.ttft_mean_s * 1e6), shown_time(seen.ttft_mean_s * 1e6)),
        ("TTFT p50", "-", interval_text(whole.ttft_p50)),
        ("TPOT mean", shown_time(formula.tpot_s * 1e6), interval_text(whole.tpot_mean)),
        ("TPOT p99", "-", interval_text(whole.tpot_p99)),
        ("prefill used, prompts at once", f"{formula.prefill_utilization:.0%}", f"{seen.prefill_active:.2f}"),
        ("decode used, requests at once", f"{formula.decode_utilization:.0%}", f"{seen.decode_active:.1f}"),
        ("until the prompt is computed, mean", "-", interval_text(seen.until_prefilled)),
        ("until its KV is moved, mean", "-", interval_text(seen.until_moved)),
        ("until the first token, mean", "-", interval_text(seen.until_token)),
    ]
    window = whole.window
    return [
        f"{_name(tried)} {mark(keeps(whole, objective))}",
        AlignedRows(rows, (-36, 12, 24)),
        f"{whole.num_requests:,} requests simulated, measured from {window.begins_s:,.0f} to {window.ends_s:,.0f} of "
        f"{window.last_s:,.0f} s",
    ]


def _recommended(plan: DisaggPlan) -> list[str]:
    first, last = plan.fleets[0], plan.recommended
    if last is None:
        broken = broken_text(plan.tried[-1].check.whole, plan.objective)
        return [f"no number of engines that was tried meets the SLO in simulation; the last: {broken}"]
    up, more = plan.objective.availability, ""
    counts = [provisioned(number, up) for number in (last.prefill, last.decode)]
    if (first.prefill, first.decode) != plan.best:
        told = broken_text(plan.tried[0].check.whole, plan.objective)
        more = f", where the formula asks for {first.prefill:,} + {first.decode:,}"
        more += f" ({told} there in simulation)" if told else ""
    return [
        f"recommended, if you split: {last.prefill:,} prefill + {last.decode:,} decode engines{more}",
        *([] if up == 1 else [_spare_text(last, counts, up)]),
        *([f"cost {cost_text(cost, plan.currency)}"] if (cost := _cost_per_hour(plan, counts)) else []),
    ]


def _spare_text(fleet: Disaggregated, counts: Sequence[int], up: float) -> str:
    """Return how many with those in repair, how often both pools have enough up, and how many for 99 % of the time."""
    needed = (fleet.prefill, fleet.decode)
    enough = math.prod(share_enough(have, number, up) for have, number in zip(counts, needed, strict=True))
    more = [provisioned_for(number, up, assurance=math.sqrt(ASSURANCE)) for number in needed]
    return (
        f"with spares for failures {counts[0]:,} + {counts[1]:,}: enough of them work {enough:.1%} of the time; for "
        f"{ASSURANCE:.0%} of the time it takes {more[0]:,} + {more[1]:,}"
    )


def _cost_per_hour(plan: DisaggPlan, counts: Sequence[int]) -> float:
    """Return what this many prefill and decode engines cost in an hour; 0 without prices."""
    prices = plan.prices_per_hour
    return counts[0] * prices[0] + counts[1] * prices[1] if all(prices) else 0.0


def transfer_note(transfer: Disaggregation, *, assumed: bool, has_steps: bool) -> str:
    """Return what transfers cost; ``assumed``: no model was named; ``has_steps``: of twins, formulas take it, too."""
    source = " (assumed: a 70B-class model; --kv-bytes-per-token)" if assumed else ""
    moved = (
        f"{transfer.kv_bytes_per_token or 0:,} bytes of KV per token{source} over links of "
        f"{transfer.kv_bandwidth_gbps:g} GB/s"
    )
    return (
        f"transfers: {moved}"
        if has_steps
        else f"simulated transfers: {moved}; the formulas take the three constants instead"
    )


def disagg_document(plan: DisaggPlan) -> dict[str, object]:
    """Return the JSON document; the first fleet is the cheapest by formula, ``recommended`` the one simulated twice."""
    tried = [
        {
            "prefill": each.analytic.prefill,
            "decode": each.analytic.decode,
            "confirms": each.run == 1,
            "is_glance": each.run < 0,
            "analytic": asdict(each.analytic),
            "verified": verification_document(each.check.whole)
            | {
                "until_prefilled_us": each.check.until_prefilled.value * 1e6,
                "until_moved_us": each.check.until_moved.value * 1e6,
                "until_token_us": each.check.until_token.value * 1e6,
                "prefill_active": each.check.prefill_active,
                "decode_active": each.check.decode_active,
            },
        }
        for each in plan.tried
    ]
    up = plan.objective.availability
    last, recommended = plan.recommended, None
    if last is not None:
        cost = _cost_per_hour(plan, [provisioned(each, up) for each in (last.prefill, last.decode)])
        recommended = {
            "prefill": last.prefill,
            "decode": last.decode,
            "prefill_provisioned": provisioned(last.prefill, up),
            "decode_provisioned": provisioned(last.decode, up),
            "enough_up_frac": math.prod(
                share_enough(provisioned(each, up), each, up) for each in (last.prefill, last.decode)
            ),
            "prefill_provisioned_99": provisioned_for(last.prefill, up, assurance=math.sqrt(ASSURANCE)),
            "decode_provisioned_99": provisioned_for(last.decode, up, assurance=math.sqrt(ASSURANCE)),
            "cost_per_hour": cost or None,
            "cost_per_year": per_year(cost),
        }
    return {
        "schema_version": 1,
        "method": "analytic",
        "fleets": [{**asdict(each), "cost_per_year": per_year(each.cost_per_hour)} for each in plan.fleets],
        "border": border_lines(plan),
        "recommended": recommended,
        "tried": tried,
        "met": plan.is_met,
    }
