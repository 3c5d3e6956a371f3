"""Splits into a short and a long pool as lines and as JSON."""

from __future__ import annotations

from dataclasses import asdict

from replay.fleet.plans.costs import HEAD, WIDTHS, cost_cells, per_year
from sim.fleet.sizing import PoolSize
from sim.fleet.split import LengthSplit, Splits
from traces import shown_time
from traces.facts import AlignedRows, AnswerPart, frac

MOST_SHOWN = 15


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
