"""Routers side by side between a short and a long pool: at the level of seats, and by the token-level engine."""

from __future__ import annotations

from collections.abc import Sequence
from lazy_dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from replay.fleet.check.drawn_requests import Stream, drawn_rows
from replay.fleet.check.routed import EnginePool, RoutedCheck, verify_routed
from replay.fleet.check.steady import RunLength
from replay.fleet.inputs.need import Need
from replay.fleet.inputs.outside_fit import EngineLoad
from replay.fleet.inputs.profiles import ProfileSource, of_context
from replay.fleet.inputs.shared_prefixes import known_to
from sim.fleet import Lengths
from sim.fleet.routers import FleetPool, FleetRouter, RouterName, simulate_routed
from sim.fleet.sizing import Infeasible
from sim.fleet.split import size_split

COMPARED: tuple[RouterName, ...] = ("length", "spillover", "compress", "least-loaded", "random")
SETTLING = 0.2
"""Share of the requests, the first to arrive, that the simulation of seats does not measure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A router's result in a simulation. Times in seconds; ``short_frac``: share of requests sent to the short pool.

    ``ttft_p99_half_s``: half of the 90 % interval, NaN where none is known.
    """

    short_frac: float
    ttft_p50_s: float
    ttft_p99_s: float
    ttft_p99_half_s: float
    short_ttft_p99_s: float
    long_ttft_p99_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Routed:
    """A router on a fleet of (short, long) engines. ``by_engines`` None: not requested."""

    router: RouterName
    engines: tuple[int, int]
    by_slots: Seen
    by_engines: Seen | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What routers are compared on. ``spill``: requests per engine; ``factor``: of prompts that are cut."""

    threshold: int
    spill: float
    factor: float
    seed: int
    asked: RunLength
    with_engines: bool


def routed_of(sources: Sequence[ProfileSource], need: Need, *, on: Comparison) -> list[Routed]:
    """Return every router on a fleet of two pools that formulas size.

    The pools of ``by_slots`` and ``by_engines``: requests by the pool that had them, not by their length.
    Raises Infeasible where a pool cannot meet the objective, or has no requests.
    """
    profiles = (sources[0].profile, sources[-1].profile)
    lengths, rate_per_s = known_to(need.lengths, sources), need.rate_per_s
    split = size_split(
        profiles, lengths, rate_per_s, need.objective, threshold=on.threshold, context=need.context
    )
    if split.short is None or split.long is None:
        raise Infeasible(f"--split {on.threshold}: got a pool without requests, expected some on both sides")
    short, long, _ = lengths.up_to(on.threshold)
    assert short is not None  # noqa: S101 - as just seen
    assert long is not None  # noqa: S101 - as just seen
    pools = [
        EnginePool(source=of_context(source, limit), context=limit, engines=size.engines, slots=size.slots)
        for source, limit, size in (
            (sources[0], on.threshold, split.short),
            (sources[-1], need.context, split.long),
        )
    ]
    stays = (on.asked.stay_s(short, split.short.service_s), on.asked.stay_s(long, split.long.service_s))
    return [
        Routed(
            router=name,
            engines=(pools[0].engines, pools[1].engines),
            by_slots=_by_slots(pools, _router(name, on), lengths, rate_per_s, on=on),
            by_engines=None
            if not on.with_engines
            else _seen(
                verify_routed(
                    _of_slots(pools) if name == "random" else pools,
                    _router(name, on),
                    lengths,
                    rate_per_s,
                    stay_s=max(stays),
                    seed=on.seed,
                    asked=on.asked,
                )
            ),
        )
        for name in COMPARED
    ]


def routed_loads(
    found: Sequence[Routed], sources: Sequence[ProfileSource], need: Need, *, on: Comparison
) -> list[EngineLoad]:
    """Return the loads of an engine of each pool, by formula, where requests go by their length."""
    short, long, share = need.lengths.up_to(on.threshold)
    pools = ((sources[0], short, share, on.threshold), (sources[-1], long, 1 - share, need.context))
    return [
        EngineLoad.of_engines(
            source,
            replace(need, lengths=part, rate_per_s=need.rate_per_s * of_all, context=longest),
            engines=number,
        )
        for (source, part, of_all, longest), number in zip(pools, found[0].engines, strict=True)
        if part is not None
    ]


def _router(name: RouterName, on: Comparison) -> FleetRouter:
    return FleetRouter(name=name, spill_per_gpu=on.spill, factor=on.factor, seed=on.seed)


def _of_slots(pools: Sequence[EnginePool]) -> list[EnginePool]:
    """Return the pools with their seats as shares, as the simulation of seats deals at random."""
    return [replace(each, share=float(each.engines * each.slots)) for each in pools]


def _seen(check: RoutedCheck) -> Seen:
    short, long = check.pools
    return Seen(
        short_frac=check.shares[0],
        ttft_p50_s=check.whole.ttft_p50.value,
        ttft_p99_s=check.whole.ttft_p99.value,
        ttft_p99_half_s=check.whole.ttft_p99.half,
        short_ttft_p99_s=short.ttft_p99.value,
        long_ttft_p99_s=long.ttft_p99.value,
    )


def _by_slots(
    pools: Sequence[EnginePool], router: FleetRouter, lengths: Lengths, rate_per_s: float, *, on: Comparison
) -> Seen:
    stream = Stream(lengths=lengths, rate_per_s=rate_per_s)
    arrival_s, rows = drawn_rows(stream, on.asked.num_requests, seed=on.seed)
    run = simulate_routed(
        [FleetPool(profile=each.source.profile, context=each.context, gpus=each.engines) for each in pools],
        lengths.at(rows),
        arrival_s,
        router,
    )
    measured = np.arange(len(rows)) >= int(SETTLING * len(rows))

    def p99(rows: NDArray[np.bool_]) -> float:
        known = run.ttft_s[rows & ~np.isnan(run.ttft_s)]
        return float(np.percentile(known, 99)) if len(known) else float("nan")

    return Seen(
        short_frac=float((run.pool == 0).mean()),
        ttft_p50_s=float(np.nanpercentile(run.ttft_s[measured], 50)),
        ttft_p99_s=p99(measured),
        ttft_p99_half_s=float("nan"),
        short_ttft_p99_s=p99(measured & (run.pool == 0)),
        long_ttft_p99_s=p99(measured & (run.pool == 1)),
    )
