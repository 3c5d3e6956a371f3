"""A day with reserved engines as a page."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from replay.fleet.plans.costs import cost_text
from replay.fleet.plans.reserve import DayPlan
from replay.fleet.told.reserve_text import how_found, than_cheapest
from sim.fleet.energy import HOURS_PER_YEAR
from sim.fleet.reserved import HOURS
from traces import pages, shown_time, tool_version, write_text


def write_reserve_page(path: Path, plan: DayPlan) -> None:
    """Write the page: engines over the day, the reserved line, and the three ways. Raises ConfigError."""
    head = ["", "reserved", "burst hours a day", "cost", "than cheapest"]
    limit = shown_time(plan.objective.ttft_p99_s * 1e6)
    page = pages.Page(
        name="vtwin fleet",
        eyebrow="vtwin fleet reserve",
        title=f"{plan.best.reserved:,} engines reserved, the others when needed",
        lead=f"Every hour has the engines that keep TTFT p99 within {limit}.",
        more=[f"{how_found(plan).capitalize()}, {plan.profile}."],
        headlines=_headlines(plan),
        sections=[
            pages.PageSection(
                title="The day",
                anchor="day",
                lead="Dashed: the reserved engines. What is above them is burst.",
                parts=[pages.Figures(figures=[pages.Figure(svg=_picture(plan))], columns=1)],
            ),
            pages.PageSection(
                title="Three ways to pay",
                anchor="ways",
                parts=[
                    pages.Prose(
                        markup=f"An engine costs {plan.reserved_price:g} an hour reserved, {plan.burst_price:g} burst."
                    ),
                    pages.PageTable(head=head, rows=_ways(plan), align="lrrrr"),
                ],
            ),
        ],
        footer=f"vtwin {tool_version()} · vtwin fleet reserve --json prints every hour",
    )
    write_text(path, pages.render(page), option="--report")


def _picture(plan: DayPlan) -> pages.Markup:
    """Return the chart of the engines over the day."""
    hours, needed = np.arange(HOURS + 1, dtype=np.float64), [*plan.needed, plan.needed[-1]]
    y = pages.linear(0.0, max(needed) * 1.1 + 1, label="engines")
    marks: list[pages.Mark] = [
        pages.Line(x=hours, y=np.array(needed, np.float64), name="simulated", steps=True),
        pages.Rule(
            start=(0.0, float(plan.best.reserved)),
            end=(float(HOURS), float(plan.best.reserved)),
            name="capacity",
        ),
    ]
    return pages.chart(
        title=f"Engines over the day, {how_found(plan)}",
        x=pages.linear(0.0, float(HOURS), label="hour"),
        y=y,
        marks=marks,
        width=640,
    )


def _ways(plan: DayPlan) -> list[list[str | pages.Cell]]:
    """Return a row per way to pay."""
    return [
        [
            name,
            f"{each.reserved:,}",
            f"{each.burst_hours:,}",
            cost_text(each.cost / HOURS_PER_YEAR),
            than_cheapest(each, plan),
        ]
        for name, each in plan.ways
    ]


def _headlines(plan: DayPlan) -> list[pages.Headline]:
    return [
        pages.Headline(label="Reserved", value=f"{plan.best.reserved:,}"),
        pages.Headline(label="At most", value=f"{max(plan.needed):,}"),
        pages.Headline(
            label="Cost per year",
            value=f"{plan.best.cost:,.0f}",
            details=(f"{plan.best.cost / HOURS_PER_YEAR:,.2f} an hour",),
        ),
    ]
