"""Questions that formulas answer alone: thresholds, rates and GPU types, power."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from replay.plan.fleet.inputs.profiles import Source
from replay.plan.json_values import or_null
from replay.units import shown_time
from sim.fleet import Lengths
from sim.fleet.energy import HOURS_PER_YEAR, Curtailment, Energy, energy
from sim.fleet.sizing import Infeasible, Objective, PoolSize, size_pool
from sim.fleet.split import Split, sweep_thresholds

NUM_THRESHOLDS = 250
MOST_SHOWN = 15
EDGES = (0.01, 0.999)
"""Shares of short requests between which a threshold is worth a look."""


def splits_of(
    sources: Sequence[Source],
    lengths: Lengths,
    rate_per_s: float,
    objective: Objective,
    *,
    context: int,
    factors: Sequence[float],
) -> tuple[PoolSize, list[Split]]:
    """Return one pool for all, and a split per threshold, 250 of them evenly through the lengths."""
    one = size_pool(sources[-1].profile, lengths, rate_per_s, objective, context=context)
    total = lengths.total_tokens
    low, high = np.quantile(total, EDGES)
    thresholds = sorted({round(each) for each in np.linspace(low, min(high, context - 1), NUM_THRESHOLDS)})
    found = sweep_thresholds(
        (sources[0].profile, sources[-1].profile),
        lengths,
        rate_per_s,
        objective,
        thresholds=thresholds,
        context=context,
        factors=factors,
    )
    return one, found


def split_lines(one: PoolSize, splits: Sequence[Split]) -> list[str]:
    """Return the Pareto front as a table, cheapest first, and what one pool for all needs."""
    best = sorted(
        (each for each in splits if each.is_best), key=lambda each: (each.cost_per_hour, each.ttft_p99_s)
    )
    head = f"{'up to':>8}{'cut':>6}{'short':>8}{'engines':>16}{'TTFT p99':>12}{'cost/h':>10}"
    rows = [
        f"{each.threshold:>8,}{each.factor:>6g}{each.share:>8.1%}"
        f"{_count(each.short) + ' + ' + _count(each.long):>16}{shown_time(each.ttft_p99_s * 1e6):>12}"
        f"{each.cost_per_hour:>10.2f}"
        for each in best[:MOST_SHOWN]
    ]
    return [
        f"by formula, {len(splits)} splits that keep the SLO, {len(best)} of them on the Pareto front",
        head,
        *rows,
        f"one pool for all: {one.provisioned} engines, TTFT p99 {shown_time(one.ttft_p99_s * 1e6)}",
        "engines: of the short pool (requests up to so long) + of the long one. cut: prompts up to so many times too "
        "long are cut.",
        "A formula can be too hopeful: vtwin fleet size --split TOKENS simulates a split.",
    ]


def _count(pool: PoolSize | None) -> str:
    return "0" if pool is None else str(pool.provisioned)


def split_document(one: PoolSize, splits: Sequence[Split]) -> dict[str, object]:
    """Return the JSON document."""
    return {
        "schema_version": 1,
        "method": "analytic",
        "one_pool": asdict(one),
        "splits": [asdict(each) for each in splits],
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """One profile at one rate. ``size`` None: ``reason`` says why there is none."""

    profile: str
    rate_per_s: float
    size: PoolSize | None
    reason: str
    gpus: int
    cost_per_year: float | None
    energy: Energy | None


def whatif_of(
    sources: Sequence[Source], lengths: Lengths, rates: Sequence[float], objective: Objective, *, context: int
) -> list[WhatIf]:
    """Return every profile at every rate, by formula."""
    found = []
    for source in sources:
        for rate in rates:
            try:
                size = size_pool(source.profile, lengths, rate, objective, context=context)
            except Infeasible as error:
                found.append(
                    WhatIf(
                        profile=source.name,
                        rate_per_s=rate,
                        size=None,
                        reason=str(error),
                        gpus=0,
                        cost_per_year=None,
                        energy=None,
                    )
                )
                continue
            drawn = energy(source.profile, lengths, rate, context=context, engines=size.engines)
            cost = size.provisioned * source.profile.cost_per_hour * HOURS_PER_YEAR
            found.append(
                WhatIf(
                    profile=source.name,
                    rate_per_s=rate,
                    size=size,
                    reason="",
                    gpus=size.provisioned * source.profile.num_gpus,
                    cost_per_year=cost or None,
                    energy=drawn if drawn.power_w > 0 else None,
                )
            )
    return found


def whatif_lines(found: Sequence[WhatIf]) -> list[str]:
    """Return a row per profile and rate."""
    wide = max(10, *(len(each.profile) + 2 for each in found))
    head = (
        f"{'profile':<{wide}}{'req/s':>8}{'GPUs':>8}{'asked by':>13}{'TTFT p99':>12}{'slots used':>12}"
        f"{'cost/year':>14}{'power':>11}{'tok/J':>8}"
    )
    rows = [head]
    for each in found:
        start = f"{each.profile:<{wide}}{each.rate_per_s:>8g}"
        if each.size is None:
            rows.append(f"{start}    none: {each.reason}")
            continue
        cost = "-" if each.cost_per_year is None else f"{each.cost_per_year:,.0f}"
        power = "-" if each.energy is None else f"{each.energy.power_w / 1000:,.1f} kW"
        tokens = "-" if each.energy is None else f"{each.energy.tokens_per_joule:.3g}"
        rows.append(
            f"{start}{each.gpus:>8,}{each.size.binding:>13}{shown_time(each.size.ttft_p99_s * 1e6):>12}"
            f"{each.size.utilization:>12.0%}{cost:>14}{power:>11}{tokens:>8}"
        )
    return [*rows, "by formula; vtwin fleet size simulates one of them"]


def whatif_document(found: Sequence[WhatIf]) -> dict[str, object]:
    """Return the JSON document."""
    return {"schema_version": 1, "method": "analytic", "answers": [asdict(each) for each in found]}


def flex_lines(cuts: Sequence[Curtailment], *, engines: int) -> list[str]:
    """Return a row per share of power shed."""
    head = f"{'shed':>6}{'power shed':>13}{'slots':>8}{'TTFT p99':>12}{'lasts':>14}"
    rows = [
        f"{each.shed_frac:>6.0%}{each.shed_w / 1000:>10.1f} kW{each.slots:>8}"
        f"{'no end' if math.isinf(each.ttft_p99_s) else shown_time(each.ttft_p99_s * 1e6):>12}"
        f"{_lasts(each.lasts_s):>14}"
        for each in cuts
    ]
    return [
        f"by formula, {engines} engines; slots: requests at once per engine that the rest of the power allows",
        head,
        *rows,
    ]


def _lasts(seconds: float) -> str:
    if math.isinf(seconds):
        return "for ever"
    return "not at all" if seconds == 0 else shown_time(seconds * 1e6)


def flex_document(cuts: Sequence[Curtailment], *, engines: int) -> dict[str, object]:
    """Return the JSON document; null for a time without an end."""
    rows = [{key: or_null(value) for key, value in asdict(each).items()} for each in cuts]
    return {"schema_version": 1, "method": "analytic", "engines": engines, "cuts": rows}
