"""Questions that formulas alone answer: thresholds, rates and GPU types, power."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from replay.fleet.costs import HEAD, WIDTHS, cost_cells, per_year, year_text
from replay.fleet.inputs.fleet_ranges import FACTORS, RATES, in_range, size_pool
from replay.fleet.inputs.profiles import ProfileSource
from replay.fleet.inputs.shared_prefixes import known_to
from replay.fleet.size import PoolPlan, SizeCheck, plan_pool
from replay.fleet.text import gpus_text, power_text, verification_document
from sim.fleet import Lengths
from sim.fleet.energy import Energy
from sim.fleet.sizing import Infeasible, Objective, PoolSize
from sim.fleet.split import LengthSplit, Splits, marked, sweep_thresholds
from traces import shown_time
from traces.facts import AlignedRows, AnswerPart, frac

NUM_THRESHOLDS = 250
NUM_BEYOND = 50
"""This many more thresholds are tried where the best one lies at the end of the first ones."""
MOST_SHOWN = 15
EDGES = (0.01, 0.999)
"""A threshold is tried if the share of short requests is between these."""


def splits_of(
    sources: Sequence[ProfileSource],
    lengths: Lengths,
    rate_per_s: float,
    objective: Objective,
    *,
    context: int,
    factors: Sequence[float],
) -> Splits:
    """Return one pool for all, and a split per threshold, 250 of them evenly through the lengths."""
    for factor in factors:
        in_range("--compress", factor, FACTORS)
    profiles = (sources[0].profile, sources[-1].profile)
    lengths = known_to(lengths, sources)
    one = size_pool(profiles[1], lengths, rate_per_s, objective, context=context)
    total = lengths.total_tokens
    low, high = np.quantile(total, EDGES)
    thresholds = sorted({round(each) for each in np.linspace(low, min(high, context - 1), NUM_THRESHOLDS)})

    def swept(tried: Sequence[int]) -> Splits:
        found = sweep_thresholds(
            profiles, lengths, rate_per_s, objective, thresholds=tried, context=context, factors=factors
        )
        return Splits(one=one, profiles=profiles, splits=tuple(found), is_one_best=False)

    first = swept(thresholds)
    more = _beyond(
        first, thresholds, shortest=float(total.min()), longest=min(float(total.max()), context) - 1
    )
    splits = sorted((*first.splits, *swept(more).splits), key=lambda each: (each.threshold, each.factor))
    return marked(
        replace(
            first,
            splits=tuple(splits),
            thresholds=tuple(sorted({*thresholds, *more})),
            factors=tuple(factors),
        )
    )


def _beyond(first: Splits, tried: Sequence[int], *, shortest: float, longest: float) -> list[int]:
    """Return thresholds beyond the end of those that were tried at which the best one lies; none where it does not."""
    best = first.cheapest
    if best is None or best.threshold not in (tried[0], tried[-1]):
        return []
    low, high = (shortest, tried[0]) if best.threshold == tried[0] else (tried[-1], longest)
    between = {round(each) for each in np.linspace(low, high, NUM_BEYOND)} if low < high else set[int]()
    return sorted(between - set(tried))


def border_lines(found: Splits) -> list[str]:
    """Return that the best split lies at the end of what was tried, with which option more would be tried."""
    best = found.cheapest
    if best is None:
        return []
    said = []
    if best.threshold in (found.thresholds[0], found.thresholds[-1]):
        which = "shortest" if best.threshold == found.thresholds[0] else "longest"
        said.append(f"it is the {which} threshold that was tried: beyond it one of the pools has no requests")
    if len(found.factors) > 1 and best.factor == max(found.factors):
        said.append(
            f"{best.factor:g} is the largest factor that was tried: a larger one may save more (--compress)"
        )
    return said


def split_parts(found: Splits) -> list[AnswerPart]:
    """Return the Pareto front as a table, cheapest first, beside what one pool for all takes."""
    best = sorted(
        (each for each in found.splits if each.is_best),
        key=lambda each: (found.amount(each), each.ttft_p99_s),
    )
    one = found.one
    rows = [
        ("up to", "cut", "short", "engines", "GPUs", "TTFT p99", *HEAD, "saves"),
        ("one pool", "-", "-", str(one.provisioned), *_one_cells(found), "-"),
        *(_split_row(each, found) for each in best[:MOST_SHOWN]),
    ]
    more = [f"… and {len(best) - MOST_SHOWN} more (--json)"] if len(best) > MOST_SHOWN else []
    return [
        split_headline(found),
        *border_lines(found),
        f"{len(found.splits)} splits meet the SLO; {len(best)} are on the Pareto front{_one_told(found)}",
        AlignedRows(rows, (10, 6, 8, 16, 7, 12, *WIDTHS, 9)),
        *more,
        "engines: of the short pool + of the long one. cut: prompts up to this many times too long are cut. saves: "
        "against one pool for all.",
        "A formula can be too optimistic: vtwin fleet size --split TOKENS simulates a split.",
    ]


def _one_cells(found: Splits) -> tuple[str, ...]:
    gpus = found.profiles[1].num_gpus * found.one.provisioned
    cost = cost_cells(found.one_amount if found.has_prices else None)
    return f"{gpus:,}", shown_time(found.one.ttft_p99_s * 1e6), *cost


def _one_told(found: Splits) -> str:
    return ", and so is one pool for all" if found.is_one_best else "; one pool for all is not"


def _split_row(split: LengthSplit, found: Splits) -> tuple[str, ...]:
    return (
        f"{split.threshold:,}",
        f"{split.factor:g}",
        frac(split.share),
        f"{_count(split.short)} + {_count(split.long)}",
        f"{found.gpus(split):,}",
        shown_time(split.ttft_p99_s * 1e6),
        *cost_cells(split.cost_per_hour if found.has_prices else None),
        frac(found.saving(split)),
    )


def split_headline(found: Splits) -> str:
    """Return what the cheapest split saves against one pool for all, in a sentence."""
    if not found.splits:
        return "by formula, no split meets the SLO"
    cheapest = found.cheapest
    assert cheapest is not None  # noqa: S101 - there are splits
    saving, what = found.saving(cheapest), "cost" if found.has_prices else "GPUs"
    if saving <= 0:
        return f"by formula, no split takes less than one pool for all: {found.one.provisioned:,} engines"
    return (
        f"by formula, a split at {cheapest.threshold:,} tokens saves {saving:.1%} of the {what}: {cheapest.engines:,} "
        f"engines in place of {found.one.provisioned:,} in one pool for all"
    )


def _count(pool: PoolSize | None) -> str:
    return "0" if pool is None else str(pool.provisioned)


def split_document(found: Splits) -> dict[str, object]:
    """Return the JSON document; ``saving``: the share of one pool's cost, without prices of its GPUs."""
    cost = found.one_amount if found.has_prices else None
    return {
        "schema_version": 1,
        "method": "analytic",
        "border": border_lines(found),
        "saving_of": "cost" if found.has_prices else "gpus",
        "one_pool": {
            **asdict(found.one),
            "gpus": found.one.provisioned * found.profiles[1].num_gpus,
            "cost_per_hour": cost,
            "cost_per_year": per_year(cost),
            "is_best": found.is_one_best,
        },
        "splits": [
            {
                **asdict(each),
                "gpus": found.gpus(each),
                "cost_per_year": per_year(each.cost_per_hour),
                "saving": found.saving(each),
            }
            for each in found.splits
        ],
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """One profile at one rate. ``size``: by formula; None: ``reason`` says why there is none.

    ``simulated``: the pool as simulation sizes it, whose engines the others are of; None: they are the formula's.
    ``currency``: of the costs, where it is known.
    """

    profile: str
    rate_per_s: float
    size: PoolSize | None = None
    reason: str = ""
    gpus: int = 0
    cost_per_hour: float | None = None
    cost_per_year: float | None = None
    energy: Energy | None = None
    power_between_w: tuple[float, float] | None = None
    simulated: PoolPlan | None = None
    currency: str = ""


def whatif_of(
    sources: Sequence[ProfileSource],
    lengths: Lengths,
    rates: Sequence[float],
    objective: Objective,
    *,
    context: int,
    check: SizeCheck | None = None,
) -> list[WhatIf]:
    """Return every profile at every rate, by formula, or with ``check`` with as many engines as simulation asks for."""
    for rate in rates:
        in_range("--rate", rate, RATES)
    return [
        _whatif(source, lengths, rate, objective, context=context, check=check)
        for source in sources
        for rate in rates
    ]


def _whatif(
    source: ProfileSource,
    lengths: Lengths,
    rate: float,
    objective: Objective,
    *,
    context: int,
    check: SizeCheck | None,
) -> WhatIf:
    none = WhatIf(profile=source.name, rate_per_s=rate, currency=source.currency)
    try:
        plan = plan_pool(source, lengths, rate, objective, context=context, check=check)
    except Infeasible as error:
        return replace(none, reason=str(error))
    if plan.is_met(objective) is False:
        return replace(none, reason="no number of engines that was tried meets the SLO in simulation")
    cost = plan.provisioned * source.profile.cost_per_hour or None
    return replace(
        none,
        size=plan.analytic,
        gpus=plan.gpus,
        cost_per_hour=cost,
        cost_per_year=per_year(cost),
        energy=plan.energy if plan.energy.power_w > 0 else None,
        power_between_w=plan.power_between_w,
        simulated=plan if plan.verified is not None else None,
    )


def whatif_headline(found: Sequence[WhatIf]) -> str:
    """Return which profile to take at each rate, and why; "" where there is nothing to choose from."""
    if len({each.profile for each in found}) < 2:
        return ""
    able = [each for each in found if each.size is not None]
    if not able:
        return "no profile meets the SLO"
    has_prices = all(each.cost_per_hour for each in able)
    told = []
    for rate in dict.fromkeys(each.rate_per_s for each in able):
        at = [each for each in able if each.rate_per_s == rate]
        best = min(at, key=lambda each: (each.cost_per_hour or 0 if has_prices else 0, each.gpus))
        cost = f"{year_text(best.cost_per_hour, best.currency)} on " if best.cost_per_hour else ""
        alone = ", the only one that meets the SLO" if len(at) == 1 else ""
        told.append(f"{best.profile} at {rate:g} requests/s ({cost}{gpus_text(best.gpus)}{alone})")
    return f"{'cheapest' if has_prices else 'fewest GPUs'}: {'; '.join(told)}"


def whatif_parts(found: Sequence[WhatIf]) -> list[AnswerPart]:
    """Return what to take, and a row per profile and rate."""
    wide = max(10, *(len(each.profile) + 2 for each in found))
    head = ("profile", "req/s", "GPUs", "asked by", "TTFT p99", "seats taken", *HEAD, "power", "tok/J")
    widths = (-wide, 8, 8, 13, 12, 12, *WIDTHS, 26, 8)
    rows: list[Sequence[str]] = [head]
    for each in found:
        start = (each.profile, f"{each.rate_per_s:g}")
        if each.size is None:
            rows.append((*start, f"    none: {each.reason}"))
            continue
        power = "-" if each.energy is None else power_text(each.energy.power_w, each.power_between_w)
        tokens = "-" if each.energy is None else f"{each.energy.tokens_per_joule:.3g}"
        ttft, taken, binding = each.size.ttft_p99_s, each.size.active / each.size.slots, each.size.binding
        if each.simulated is not None and each.simulated.verified is not None:
            seen = each.simulated.verified
            ttft, taken = seen.ttft_p99.value, seen.active / each.simulated.at.slots
            binding = f"formula {each.size.engines:,}"
        told = (f"{each.gpus:,}", binding, shown_time(ttft * 1e6), f"{taken:.0%}")
        rows.append((*start, *told, *cost_cells(each.cost_per_hour), power, tokens))
    if any(each.simulated is not None for each in found):
        how = "simulated: the fewest engines that meet the SLO, next to the formula's number"
    else:
        how = "by formula; --verify simulates them"
    first = whatif_headline(found)
    return [*([first] if first else []), AlignedRows(rows, widths), how]


def whatif_document(found: Sequence[WhatIf]) -> dict[str, object]:
    """Return the JSON document."""
    is_simulated = any(each.simulated is not None for each in found)
    return {
        "schema_version": 1,
        "method": "simulated" if is_simulated else "analytic",
        "headline": whatif_headline(found) or None,
        "answers": [
            {
                **asdict(replace(each, simulated=None)),
                "engines": None if each.simulated is None else each.simulated.engines,
                "verified": None
                if each.simulated is None or each.simulated.verified is None
                else verification_document(each.simulated.verified),
            }
            for each in found
        ],
    }
