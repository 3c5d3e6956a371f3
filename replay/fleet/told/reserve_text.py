"""A day with reserved engines as lines and as JSON."""

from __future__ import annotations

from dataclasses import asdict

from replay.fleet.plans.costs import HEAD, WIDTHS, cost_cells
from replay.fleet.plans.reserve import DayPlan
from replay.fleet.told.text import interval_text
from sim.fleet.energy import HOURS_PER_YEAR
from sim.fleet.reserved import Reserved
from traces import shown_time
from traces.facts import AlignedRows, AnswerPart


def reserve_parts(plan: DayPlan) -> list[AnswerPart]:
    """Return the hours, and the three ways to pay."""
    told = [
        shown_time(ttft * 1e6) if seen is None else interval_text(seen.ttft_p99)
        for ttft, seen in zip(plan.ttft_p99_s, plan.seen, strict=True)
    ]
    wide = max(12, *(2 + len(each) for each in told))
    with_formula = bool(plan.simulated)  # a last column, where the engines are not the formula's
    rows = [["hour", "req/s", "engines", "reserved", "burst", "TTFT p99", *["by formula"] * with_formula]]
    for hour, (rate, needed, ttft, size) in enumerate(
        zip(plan.rates, plan.needed, told, plan.sizes, strict=True)
    ):
        reserved, burst = min(needed, plan.best.reserved), max(needed - plan.best.reserved, 0)
        cells = [f"{hour}", f"{rate:.4g}", f"{needed:,}", f"{reserved:,}", f"{burst:,}", ttft]
        rows.append([*cells, *[f"{size.provisioned:,}"] * with_formula])
    ways = [
        (
            name,
            f"{each.reserved:,}",
            f"{each.burst_hours:,}",
            *cost_cells(each.cost / HOURS_PER_YEAR),
            than_cheapest(each, plan),
        )
        for name, each in plan.ways
    ]
    return [
        f"{how_found(plan)}, every hour in steady state; an engine of {plan.profile} costs {plan.reserved_price:g} "
        f"an hour reserved, {plan.burst_price:g} burst",
        AlignedRows(rows, [4, 10, 9, 10, 7, wide, *[12] * with_formula]),
        "",
        AlignedRows(
            [("", "reserved", "burst hours/day", *HEAD, "than cheapest"), *ways], (-14, 9, 17, *WIDTHS, 16)
        ),
        *(
            f"hour {hour}, {plan.rates[hour]:g} requests/s: no number of engines that was tried meets the SLO in "
            "simulation; the last is shown"
            for hour in plan.broken_hours
        ),
    ]


def how_found(plan: DayPlan) -> str:
    """Return where the engines of the hours are from, in words."""
    return "simulated" if plan.simulated else "by formula"


def than_cheapest(way: Reserved, plan: DayPlan) -> str:
    """Return what a way to pay costs more than the cheapest; nothing of the cheapest itself."""
    return "" if way is plan.best else f"{way.cost / plan.best.cost - 1:+.1%}"


def reserve_document(plan: DayPlan) -> dict[str, object]:
    """Return the JSON document; costs per year, and per hour on average over it, in the prices' currency."""
    return {
        "schema_version": 1,
        "method": "simulated" if plan.simulated else "analytic",
        "profile": plan.profile,
        "gpus_per_engine": plan.gpus_per_engine,
        "met": not plan.broken_hours if plan.simulated else None,
        "reserved_price": plan.reserved_price,
        "burst_price": plan.burst_price,
        "hours": [
            {
                "hour": hour,
                "rate": rate,
                "engines": needed,
                "engines_by_formula": size.provisioned,
                "burst": max(needed - plan.best.reserved, 0),
                "p99_ttft_us": ttft * 1e6,
                "p99_ttft_low_us": None if seen is None else seen.ttft_p99.low * 1e6,
                "p99_ttft_high_us": None if seen is None else seen.ttft_p99.high * 1e6,
                "long_enough": None if seen is None else seen.is_long_enough,
            }
            for hour, (rate, needed, ttft, size, seen) in enumerate(
                zip(plan.rates, plan.needed, plan.ttft_p99_s, plan.sizes, plan.seen, strict=True)
            )
        ],
        "ways": {
            name.replace(" ", "_"): {
                **asdict(each),
                "cost_per_hour": each.cost / HOURS_PER_YEAR,
                "cost_per_year": each.cost,
            }
            for name, each in plan.ways
        },
    }
