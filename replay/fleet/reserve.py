"""Reserved against burst over a day: engines by hour, the cheapest number reserved, and what the others cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from replay.fleet.check.pool import Verification
from replay.fleet.costs import HEAD, WIDTHS, cost_cells, cost_text
from replay.fleet.inputs.fleet_ranges import PRICES, RATES, in_range, size_pool
from replay.fleet.inputs.profiles import ProfileSource
from replay.fleet.size import PoolPlan, SizeCheck, plan_pool
from replay.fleet.text import interval_text
from sim.fleet import Lengths
from sim.fleet.energy import HOURS_PER_YEAR
from sim.fleet.reserved import HOURS, Reserved, cheapest_reserved, cost_with, day_between
from sim.fleet.sizing import Objective, PoolSize
from traces import ConfigError, pages, shown_time, tool_version, write_text
from traces.facts import AlignedRows, AnswerPart
from traces.strict.whole_file import is_there, whole_file

MOST_OF_A_DAY = 1 << 16
"""Bytes of a file with 24 rates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DayPlan:
    """A day: ``rates`` in requests/s and ``sizes`` by formula, hour by hour, and three ways to pay for it.

    ``simulated``: the hours' pools as simulation sizes them; empty: by formula alone.
    """

    profile: str
    gpus_per_engine: int
    rates: tuple[float, ...]
    sizes: tuple[PoolSize, ...]
    objective: Objective
    reserved_price: float
    burst_price: float
    best: Reserved
    all_reserved: Reserved
    all_burst: Reserved
    simulated: tuple[PoolPlan, ...] = ()

    @property
    def needed(self) -> tuple[int, ...]:
        """Engines of each hour, those in repair counted."""
        return tuple(each.provisioned for each in self.simulated or self.sizes)

    @property
    def broken_hours(self) -> tuple[int, ...]:
        """The hours in which no number of engines that was tried meets the objective in simulation."""
        return tuple(hour for hour, pool in enumerate(self.simulated) if pool.is_met(self.objective) is False)

    @property
    def ttft_p99_s(self) -> tuple[float, ...]:
        """TTFT of each hour's engines, 99th percentile, seconds; from the simulation, if there is one."""
        if not self.simulated:
            return tuple(each.ttft_p99_s for each in self.sizes)
        return tuple(
            math.nan if each.verified is None else each.verified.ttft_p99.value for each in self.simulated
        )

    @property
    def seen(self) -> tuple[Verification | None, ...]:
        """Each hour's simulation; None where there is none."""
        return tuple(each.verified for each in self.simulated) or (None,) * len(self.rates)

    @property
    def ways(self) -> tuple[tuple[str, Reserved], ...]:
        """The three by name."""
        return (
            ("cheapest", self.best),
            ("all reserved", self.all_reserved),
            ("all burst", self.all_burst),
        )


def rates_of(text: str) -> list[float]:
    """Return the 24 hourly rates of ``--diurnal``: PEAK:TROUGH, or a file with 24 numbers. Raises ConfigError."""
    peak, colon, trough = text.partition(":")
    if colon and not is_there(Path(text)):
        try:
            ends = [in_range("--diurnal", float(each), RATES) for each in (peak, trough)]
            return day_between(ends[0], ends[1])
        except ConfigError:
            raise
        except ValueError as error:  # InvalidConfig is one
            raise ConfigError(
                f"--diurnal: got {text!r}, expected PEAK:TROUGH in requests/s (peak >= trough > 0), or a file"
            ) from error
    try:
        written = whole_file(Path(text), most=MOST_OF_A_DAY).decode()
        rates = [
            float(each) for each in written.replace(",", " ").replace("[", " ").replace("]", " ").split()
        ]
    except OSError as error:
        raise ConfigError(
            f"--diurnal: got {text!r}, expected PEAK:TROUGH, or a file that can be read ({error.strerror})"
        ) from error
    except ValueError as error:
        raise ConfigError(f"--diurnal: got {text}, expected {HOURS} numbers ({error})") from error
    if len(rates) != HOURS:
        raise ConfigError(
            f"--diurnal: got {len(rates)} numbers in {text}, expected {HOURS} rates, of hour 0 to 23"
        )
    return [in_range(f"--diurnal: hour {hour} of {text}", rate, RATES) for hour, rate in enumerate(rates)]


def burst_price_of(text: str, reserved_price: float) -> float:
    """Return an engine's price per hour by ``--burst-price``: a price, or 1.8x the reserved one. Raises ConfigError."""
    try:
        price = float(text[:-1]) * reserved_price if text.endswith("x") else float(text)
    except ValueError:
        price = 0.0
    low, high = PRICES
    if not low <= price <= high:
        raise ConfigError(
            f"--burst-price: got {text!r}, expected a price per engine and hour, {low:g} to {high:,g}, or a factor as "
            "in 1.8x"
        )
    return price


def plan_day(
    source: ProfileSource,
    lengths: Lengths,
    rates: Sequence[float],
    objective: Objective,
    *,
    context: int,
    burst_price: float,
    check: SizeCheck | None = None,
) -> DayPlan:
    """Return the day's engines, by formula or with ``check`` simulated, and the cheapest number to reserve.

    Raises ConfigError, Infeasible.
    """
    price = source.profile.cost_per_hour
    if price <= 0:
        raise ConfigError(f"--profile {source.name}: got no price, expected --prices with the reserved one")
    sizes = tuple(size_pool(source.profile, lengths, rate, objective, context=context) for rate in rates)
    simulated = (
        () if check is None else _simulated(source, lengths, rates, objective, context=context, check=check)
    )
    needed = [each.provisioned for each in simulated or sizes]
    prices = {"reserved_price": price, "burst_price": burst_price}
    return DayPlan(
        profile=source.name,
        gpus_per_engine=source.profile.num_gpus,
        rates=tuple(rates),
        sizes=sizes,
        objective=objective,
        reserved_price=price,
        burst_price=burst_price,
        best=cheapest_reserved(needed, **prices),
        all_reserved=cost_with(max(needed), needed, **prices),
        all_burst=cost_with(0, needed, **prices),
        simulated=simulated,
    )


def _simulated(
    source: ProfileSource,
    lengths: Lengths,
    rates: Sequence[float],
    objective: Objective,
    *,
    context: int,
    check: SizeCheck,
) -> tuple[PoolPlan, ...]:
    """Return each hour's pool as simulation sizes it; hours of one rate are simulated once."""
    found = dict[float, PoolPlan]()
    for rate in rates:
        key = round(rate, 9)
        if key in found:
            continue
        found[key] = plan_pool(source, lengths, rate, objective, context=context, check=check)
    return tuple(found[round(rate, 9)] for rate in rates)


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
            _against(each, plan),
        )
        for name, each in plan.ways
    ]
    return [
        f"{_how(plan)}, every hour in steady state; an engine of {plan.profile} costs {plan.reserved_price:g} an hour "
        f"reserved, {plan.burst_price:g} burst",
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


def _how(plan: DayPlan) -> str:
    return "simulated" if plan.simulated else "by formula"


def _against(way: Reserved, plan: DayPlan) -> str:
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


def write_reserve_page(path: Path, plan: DayPlan) -> None:
    """Write the page: engines over the day, the reserved line, and the three ways. Raises ConfigError."""
    head = ["", "reserved", "burst hours a day", "cost", "than cheapest"]
    limit = shown_time(plan.objective.ttft_p99_s * 1e6)
    page = pages.Page(
        name="vtwin fleet",
        eyebrow="vtwin fleet reserve",
        title=f"{plan.best.reserved:,} engines reserved, the others when needed",
        lead=f"Every hour has the engines that keep TTFT p99 within {limit}.",
        more=[f"{_how(plan).capitalize()}, {plan.profile}."],
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
        title=f"Engines over the day, {_how(plan)}",
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
            _against(each, plan),
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
