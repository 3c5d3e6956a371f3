"""Questions that formulas answer alone: thresholds, disaggregation, rates and GPU types, power."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from replay.plan.fleet.check.draws import drawn
from replay.plan.fleet.inputs.profiles import Source
from replay.plan.json_values import or_null
from replay.units import shown_time
from sim.fleet import Lengths
from sim.fleet.disaggregated import Disaggregated
from sim.fleet.energy import HOURS_PER_YEAR, Curtailment, Energy, energy
from sim.fleet.routers import FleetPool, Router, RouterName, simulate_routed
from sim.fleet.sizing import Infeasible, Objective, PoolSize, size_pool
from sim.fleet.split import Split, size_split, sweep_thresholds

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


def disagg_lines(fleets: Sequence[Disaggregated]) -> list[str]:
    """Return the Pareto set as a table, cheapest first."""
    best = [each for each in fleets if each.is_best]
    if not best:
        return ["by formula: no number of prefill and decode engines keeps the SLO"]
    head = (
        f"{'prefill':>8}{'decode':>8}{'TTFT p99':>12}{'TPOT':>11}{'prefill used':>14}{'decode used':>13}"
        f"{'cost/h':>10}"
    )
    rows = [
        f"{each.prefill:>8}{each.decode:>8}{shown_time(each.ttft_p99_s * 1e6):>12}{shown_time(each.tpot_s * 1e6):>11}"
        f"{each.prefill_utilization:>14.0%}{each.decode_utilization:>13.0%}{each.cost_per_hour:>10.2f}"
        for each in best[:MOST_SHOWN]
    ]
    return [
        f"by formula, {len(fleets)} fleets that keep the SLO, {len(best)} of them on the Pareto front",
        head,
        *rows,
    ]


def disagg_document(fleets: Sequence[Disaggregated]) -> dict[str, object]:
    """Return the JSON document; the first fleet is the recommended one."""
    return {"schema_version": 1, "method": "analytic", "fleets": [asdict(each) for each in fleets]}


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


COMPARED: tuple[RouterName, ...] = ("length", "spillover", "compress", "least-loaded", "random")
SETTLING = 0.2
"""Share of the requests, the first to arrive, that is not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Routed:
    """What a router makes of the same fleet and requests. Times in seconds; ``short_frac``: sent to the short pool."""

    router: str
    engines: tuple[int, int]
    short_frac: float
    ttft_p50_s: float
    ttft_p99_s: float
    short_ttft_p99_s: float
    long_ttft_p99_s: float


def routed_of(
    sources: Sequence[Source],
    lengths: Lengths,
    rate_per_s: float,
    objective: Objective,
    *,
    threshold: int,
    context: int,
    settings: tuple[float, float],
    draw: tuple[int, int],
) -> list[Routed]:
    """Return every router on a fleet of two pools that formulas size; ``settings``: (spill per GPU, factor).

    ``draw``: (number of requests, seed). Raises Infeasible where a pool cannot keep the objective, or has no requests.
    """
    profiles = (sources[0].profile, sources[-1].profile)
    split = size_split(profiles, lengths, rate_per_s, objective, threshold=threshold, context=context)
    if split.short is None or split.long is None:
        raise Infeasible(f"--split {threshold}: got a pool without requests, expected some on both sides")
    pools = [
        FleetPool(profile=profiles[0], context=threshold, gpus=split.short.engines),
        FleetPool(profile=profiles[1], context=context, gpus=split.long.engines),
    ]
    requests = drawn(lengths, rate_per_s, draw[0], seed=draw[1])
    given = Lengths(
        input_tokens=requests.prompt_tokens.astype(np.float64),
        output_tokens=requests.output_tokens.astype(np.float64),
    )
    arrival_s = requests.arrival_us / 1e6
    measured = np.arange(len(given)) >= int(SETTLING * len(given))
    is_short = given.total_tokens <= threshold
    found = []
    for name in COMPARED:
        router = Router(name=name, spill_per_gpu=settings[0], factor=settings[1], seed=draw[1])
        run = simulate_routed(pools, given, arrival_s, router)
        found.append(
            Routed(
                router=name,
                engines=(pools[0].gpus, pools[1].gpus),
                short_frac=float((run.pool == 0).mean()),
                ttft_p50_s=float(np.nanpercentile(run.ttft_s[measured], 50)),
                ttft_p99_s=float(np.nanpercentile(run.ttft_s[measured], 99)),
                short_ttft_p99_s=float(np.nanpercentile(run.ttft_s[measured & is_short], 99)),
                long_ttft_p99_s=float(np.nanpercentile(run.ttft_s[measured & ~is_short], 99)),
            )
        )
    return found


def routed_lines(found: Sequence[Routed]) -> list[str]:
    """Return a row per router."""
    head = f"{'router':<14}{'to short pool':>14}{'TTFT p50':>12}{'TTFT p99':>12}{'short p99':>12}{'long p99':>12}"
    rows = [
        f"{each.router:<14}{each.short_frac:>14.1%}{shown_time(each.ttft_p50_s * 1e6):>12}"
        f"{shown_time(each.ttft_p99_s * 1e6):>12}{shown_time(each.short_ttft_p99_s * 1e6):>12}"
        f"{shown_time(each.long_ttft_p99_s * 1e6):>12}"
        for each in found
    ]
    short, long = found[0].engines
    return [f"slots simulated, {short} engines for short and {long} for long requests", head, *rows]
