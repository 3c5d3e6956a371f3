"""A fleet as a page: its pools, cost over load, the effect of each assumption, and where a split would pay off."""

from __future__ import annotations

from collections.abc import Sequence
from lazy_dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from replay.fleet.check.pool import Verification
from replay.fleet.check.slo_limits import Limit, limits_of
from replay.fleet.check.steady import BatchedMean
from replay.fleet.inputs.need import Need
from replay.fleet.inputs.profiles import ProfileSource
from replay.fleet.plans.costs import per_year
from replay.fleet.plans.length_splits import splits_of
from replay.fleet.plans.size import FleetPlan, PoolPlan
from replay.fleet.told.headline import headlines
from replay.fleet.told.split_text import split_headline
from replay.fleet.told.text import NOISE, broken_text, cost_per_hour, error_lines, gpus_text
from sim.fleet import GpuProfile, Lengths
from sim.fleet.sizing import Infeasible
from traces import pages, shown_time, tool_version, write_text

Floats = NDArray[np.float64]

LOADS = np.linspace(0.1, 2.0, 20)
"""Multiples of the planned rate at which the cost is drawn."""
SWING = 0.2
"""Each assumption is made larger and smaller by this share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Swing:
    """The number of engines with a fifth less and a fifth more of one assumption."""

    name: str
    less: int | None
    more: int | None

    @property
    def reach(self) -> int:
        """The distance between the two, 0 where one is unknown."""
        return 0 if self.less is None or self.more is None else abs(self.more - self.less)


def write_page(
    path: Path, plan: FleetPlan, *, one_pool: tuple[Sequence[ProfileSource], Need] | None = None
) -> None:
    """Write the page. Raises ConfigError where the file cannot be written.

    ``one_pool``: the profiles and the need of a fleet of one pool, beside which splits are drawn.
    """
    more = [_tornado(plan)]
    if one_pool is not None:
        more.append(_front(*one_pool))
    write_text(path, pages.render(page_of(plan, more)), option="--report")


def page_of(plan: FleetPlan, more: Sequence[pages.PageSection] = ()) -> pages.Page:
    """Return the page; ``more``: sections that need other plans than this one."""
    gpus, cost = sum(pool.gpus for pool in plan.pools), cost_per_hour(plan)
    return pages.Page(
        name="vtwin fleet",
        eyebrow="vtwin fleet size",
        title=f"{gpus_text(gpus)} for {plan.rate_per_s:g} requests per second",
        lead=_lead(plan),
        more=_more(plan),
        headlines=[
            pages.Headline(label="GPUs", value=f"{gpus:,}"),
            *([] if cost is None else [_cost(cost)]),
            *(each for pool in plan.pools for each in _headlines(pool, plan)),
        ],
        sections=[_pools(plan), _load(plan), *more],
        footer=f"vtwin {tool_version()} · vtwin fleet size --json prints every number of the plan",
    )


def _cost(per_hour: float) -> pages.Headline:
    return pages.Headline(
        label="Cost per year", value=f"{per_year(per_hour):,.0f}", details=(f"{per_hour:,.2f} an hour",)
    )


def _lead(plan: FleetPlan) -> str:
    """Return whether the fleet meets its limits, all of them named."""
    limits = _within(plan.objective.ttft_p99_s, plan.objective.tpot_p99_s)
    if plan.is_met is None:
        return f"By formula, not simulated: 99 of 100 requests have {limits}."
    if plan.is_met:
        of = " of all pools together" if plan.together is not None else ""
        return f"In simulation{of}, 99 of 100 requests have {limits}."
    return "In simulation no number that was tried meets the SLO."


def _more(plan: FleetPlan) -> list[str]:
    """Return why formula and simulation differ, a sentence per pool, or which limits the last fleet broke."""
    if plan.is_met is not False:
        return [f"{each}." for each in headlines(plan)]
    of_pools = [each for pool in plan.pools for each in pool.checks]
    seen = of_pools if plan.together is None else [plan.together]
    broken = "; ".join(filter(None, (broken_text(each, plan.objective) for each in seen)))
    return [f"The last that was tried: {broken}."]


def _within(ttft_s: float, tpot_s: float | None) -> str:
    limits = [f"TTFT within {shown_time(ttft_s * 1e6)}"]
    return " and ".join([*limits, *([] if tpot_s is None else [f"TPOT within {shown_time(tpot_s * 1e6)}"])])


def _headlines(pool: PoolPlan, plan: FleetPlan) -> list[pages.Headline]:
    """Return a pool's TTFT and TPOT, simulated where they are, with the formula's beside them."""
    seen, at = pool.verified, pool.at
    if seen is None:
        return [
            pages.Headline(label=f"TTFT p99, {pool.name}, by formula", value=shown_time(at.ttft_p99_s * 1e6)),
            pages.Headline(label=f"TPOT mean, {pool.name}, by formula", value=shown_time(at.tpot_s * 1e6)),
        ]
    formulas = {"TTFT p99": at.ttft_p99_s, "TPOT p99": at.tpot_s}
    return [
        _headline(name, pool, seen, measured, of_formula=formulas[name], plan=plan)
        for name, measured in (("TTFT p99", seen.ttft_p99), ("TPOT p99", seen.tpot_p99))
    ]


def _headline(
    name: str,
    pool: PoolPlan,
    seen: Verification,
    measured: BatchedMean,
    *,
    of_formula: float,
    plan: FleetPlan,
) -> pages.Headline:
    limit = next((each for each in limits_of(seen, plan.objective) if each.name == name), None)
    mean = " (its mean)" if name == "TPOT p99" else ""
    return pages.Headline(
        label=f"{name}, {pool.name}, simulated",
        value=shown_time(measured.value * 1e6),
        details=(
            f"{_kept(limit, plan)}± {shown_time(measured.half * 1e6)}, noise of the simulation (90 %)",
            f"by formula {shown_time(of_formula * 1e6)}{mean}",
        ),
    )


def _kept(limit: Limit | None, plan: FleetPlan) -> str:
    """Return whether a limit is kept, and which it is; nothing where it is all pools' together, or there is none."""
    if limit is None or plan.together is not None:
        return ""
    return f"{'✓' if limit.is_kept else '✗'} limit {shown_time(limit.limit * 1e6)}, "


def _pools(plan: FleetPlan) -> pages.PageSection:
    sizes: list[list[str | pages.Cell]] = []
    times: list[list[str | pages.Cell]] = []
    for pool in plan.pools:
        seen = pool.verified
        sizes.append(
            [
                *(pool.name, pool.source.name, f"{pool.need.rate_per_s:.4g}", f"{pool.need.context:,}"),
                *(f"{pool.at.slots:,}", f"{pool.analytic.engines:,}", f"{pool.provisioned:,}"),
            ]
        )
        found = () if seen is None else (seen.ttft_p99, seen.tpot_mean, seen.tpot_p99)
        ttft, tpot, tpot_p99 = (shown_time(each.value * 1e6) for each in found) if found else ("-",) * 3
        formula = [shown_time(each * 1e6) for each in (pool.at.ttft_p99_s, pool.at.tpot_s)]
        times.append([pool.name, formula[0], ttft, formula[1], tpot, tpot_p99])
    broken = [
        f"{pool.name}: {seen.engines:,} engines, as the formula has it, break {told}."
        for pool in plan.pools
        if (seen := pool.of_formula) is not None
        and plan.together is None
        and (told := broken_text(seen, plan.objective))
    ]
    notes = [*broken, *(f"Known error of {each}." for each in error_lines(plan)), f"{NOISE}."]
    parts: list[pages.Part] = [
        pages.PageTable(
            head=["pool", "profile", "requests/s", "longest", "seats", "engines by formula", "recommended"],
            rows=sizes,
            align="llrrrrr",
        ),
        pages.PageTable(
            head=[
                "pool",
                *("TTFT p99, formula", "simulated"),
                *("TPOT mean, formula", "simulated"),
                "TPOT p99, simulated",
            ],
            rows=times,
            align="lrrrrr",
        ),
        *(pages.Prose(markup=each) for each in (*notes, *plan.notes)),
    ]
    return pages.PageSection(title="Pools", anchor="pools", parts=parts)


def _load(plan: FleetPlan) -> pages.PageSection:
    """Draw engines over load, all pools together, by formula, and the number recommended at the planned rate."""
    totals = []
    for factor in LOADS:
        engines = 0
        for pool in plan.pools:
            rate = pool.need.rate_per_s * float(factor)
            size = _size(pool.source.profile, replace(pool.need, rate_per_s=rate, objective=plan.objective))
            engines += size if size is not None else 0
        totals.append(engines)
    rates = LOADS * plan.rate_per_s
    x = pages.linear(0.0, float(rates[-1]) * 1.03, label="requests/s")
    recommended = sum(pool.provisioned for pool in plan.pools)
    y = pages.linear(0.0, max(*totals, recommended) * 1.1 + 1, label="engines")
    marks: list[pages.Mark] = [
        pages.Line(x=rates, y=np.array(totals, float), name="simulated", steps=True),
        pages.Rule(start=(plan.rate_per_s, y.low), end=(plan.rate_per_s, y.high), name="capacity"),
        pages.Dots(x=np.array([plan.rate_per_s]), y=np.array([float(recommended)]), name="run simulated"),
    ]
    lead = "Dashed upwards: the planned rate. Dot: the number that is recommended."
    of_formula = sum(pool.analytic.provisioned for pool in plan.pools)
    if recommended != of_formula:
        lead += (
            f" The simulation needs {recommended:,} there, the formula says {of_formula:,}: at other loads, too, "
            "the line may be too low or too high."
        )
    picture = pages.chart(title="Engines over load, by formula", x=x, y=y, marks=marks, width=640)
    parts: list[pages.Part] = [pages.Figures(figures=[pages.Figure(svg=picture)], columns=1)]
    return pages.PageSection(title="Cost against load", anchor="load", lead=lead, parts=parts)


def _size(profile: GpuProfile, need: Need) -> int | None:
    try:
        return need.size(profile).provisioned
    except Infeasible:
        return None


def swings_of(plan: FleetPlan) -> list[Swing]:
    """Return the effect of each assumption, the largest first, by formula and over all pools."""

    def engines(
        change: dict[str, float], rate: float = 1.0, limit: float = 1.0, longer: float = 1.0
    ) -> int | None:
        total = 0
        for pool in plan.pools:
            profile = pool.source.profile
            kwargs = {
                name: type(getattr(profile, name))(getattr(profile, name) * by) for name, by in change.items()
            }
            lengths = pool.need.lengths
            stretched = Lengths(
                input_tokens=lengths.input_tokens,
                output_tokens=np.maximum(lengths.output_tokens * longer, 1.0),
            )
            need = replace(
                pool.need,
                lengths=stretched,
                rate_per_s=pool.need.rate_per_s * rate,
                objective=replace(plan.objective, ttft_p99_s=plan.objective.ttft_p99_s * limit),
            )
            size = _size(replace(profile, **kwargs), need)
            if size is None:
                return None
            total += size
        return total

    down, up = 1 - SWING, 1 + SWING
    found = [
        Swing(name="requests per second", less=engines({}, rate=down), more=engines({}, rate=up)),
        Swing(name="output tokens", less=engines({}, longer=down), more=engines({}, longer=up)),
        Swing(name="W, an iteration's base", less=engines({"w_s": down}), more=engines({"w_s": up})),
        Swing(name="H, per request", less=engines({"h_s": down}), more=engines({"h_s": up})),
        Swing(name="KV blocks", less=engines({"num_blocks": down}), more=engines({"num_blocks": up})),
        Swing(name="seats", less=engines({"max_slots": down}), more=engines({"max_slots": up})),
        Swing(name="TTFT limit", less=engines({}, limit=down), more=engines({}, limit=up)),
    ]
    return sorted(found, key=lambda each: -each.reach)


def _tornado(plan: FleetPlan) -> pages.PageSection:
    swings, base = swings_of(plan), sum(pool.analytic.provisioned for pool in plan.pools)
    rows: list[list[str | pages.Cell]] = [
        [
            each.name,
            _or_none(each.less),
            f"{base:,}",
            _or_none(each.more),
            pages.Cell(svg=_bar(each, base, swings[0].reach)),
        ]
        for each in swings
    ]
    parts: list[pages.Part] = [
        pages.Prose(
            markup="Engines by formula where one assumption is a fifth smaller or larger, the others as they are."
        ),
        pages.PageTable(
            head=["assumption", "20 % less", "as planned", "20 % more", "range"], rows=rows, align="lrrrl"
        ),
    ]
    return pages.PageSection(title="Sensitivity", anchor="sensitivity", parts=parts)


def _or_none(engines: int | None) -> str:
    return "none meets the SLO" if engines is None else f"{engines:,}"


def _bar(swing: Swing, base: int, reach: int) -> pages.Markup | None:
    """Return the range of engines as a bar around the plan; None where it is not known."""
    if swing.less is None or swing.more is None or reach == 0:
        return None
    width, half = 160, 80
    low, high = sorted((swing.less, swing.more))
    left, right = (half + half * (each - base) / reach for each in (low, high))
    across = f"M{left:.1f} 3H{max(right, left + 1):.1f}V11H{left:.1f}Z"
    return pages.element(
        "svg",
        pages.size_of(width, 14) | {"role": "img"},
        pages.element("title", {}, f"{low:,} to {high:,} engines"),
        pages.element("path", {"class": "band simulated", "style": "opacity:.6", "d": across}),
        pages.element("path", {"class": "axis", "d": f"M{half} 0V14"}),
    )


def _front(sources: Sequence[ProfileSource], need: Need) -> pages.PageSection:
    """Draw cost and TTFT of every threshold between two pools, by formula."""
    found = splits_of(sources, need, factors=(1.0,))
    splits = found.splits
    cost = np.array([found.amount(each) for each in splits], dtype=np.float64)
    ttft = np.array([each.ttft_p99_s * 1e3 for each in splits])
    best = np.array([each.is_best for each in splits], dtype=bool)
    if not len(splits):
        return pages.PageSection(
            title="Two pools",
            anchor="front",
            parts=[pages.Prose(markup="No threshold meets the SLO in both pools.")],
        )
    x = _around(np.append(cost, found.one_amount), label="cost per hour" if found.has_prices else "GPUs")
    y = _around(np.append(ttft, found.one.ttft_p99_s * 1e3), label="TTFT p99, ms")
    order = np.argsort(cost[best], kind="stable")
    marks: list[pages.Mark] = [
        pages.Dots(x=cost, y=ttft, name="observed"),
        pages.Line(x=cost[best][order], y=ttft[best][order], name="simulated"),
        pages.Dots(
            x=np.array([found.one_amount]), y=np.array([found.one.ttft_p99_s * 1e3]), name="run simulated"
        ),
    ]
    picture = pages.chart(title="Every threshold between short and long", x=x, y=y, marks=marks, width=640)
    text = f"{split_headline(found).capitalize()}."
    parts: list[pages.Part] = [
        pages.Prose(markup=text),
        pages.Figures(figures=[pages.Figure(svg=picture)], columns=1),
    ]
    return pages.PageSection(
        title="Two pools",
        anchor="front",
        lead="By formula. The line: the Pareto front. The orange dot: one pool for all.",
        parts=parts,
    )


def _around(values: Floats, *, label: str) -> pages.Scale:
    """Return an axis from just below the smallest value to just above the largest."""
    low, high = float(values.min()), float(values.max())
    margin = 0.06 * (high - low)
    return pages.linear(max(low - margin, 0.0), high + margin, label=label)
