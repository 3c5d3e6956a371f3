"""Pools of several kinds behind one router, simulated step by step by the cluster engine.

Routers that need the request alone (length, compress, random) decide before the run. Spillover and least-loaded use the
number of requests that each pool has in flight at the moment, as a gateway counts them. In a pool the engine with the
fewest requests in flight gets the request, the first of equals.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from lazy_dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from replay.fleet.check.pool import Verification, cells_of, measured_of, slots_of
from replay.fleet.check.steady import RunLength
from replay.fleet.check.steady_run import SteadyRun, steady_run
from replay.fleet.inputs.profiles import ProfileSource
from sim.cluster import (
    ClusterConfig,
    FleetView,
    OwnPolicy,
    Pool,
    RequestView,
)
from sim.fleet import Lengths
from sim.fleet.routers import FleetRouter

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginePool:
    """Equal ``engines``, for requests of at most ``context`` tokens; ``slots``: requests at once on one."""

    source: ProfileSource
    context: int
    engines: int
    slots: int
    share: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutedCheck:
    """All pools behind one router: ``whole``, and each pool's own requests. ``shares``: of the requests, by pool."""

    whole: Verification
    pools: tuple[Verification, ...]
    shares: tuple[float, ...]


def verify_routed(
    pools: Sequence[EnginePool],
    router: FleetRouter,
    lengths: Lengths,
    rate_per_s: float,
    *,
    stay_s: float,
    seed: int,
    asked: RunLength,
) -> RoutedCheck:
    """Return what this many engines do behind a router. ``pools``: the shortest context first.

    ``stay_s``: how long a request stays, 95th percentile, in the slowest pool. Raises InvalidConfig on pools that one
    gateway cannot have, ConfigError on a measured part that cannot be.
    """
    cells = cells_of([each.engines for each in pools], asked.least_s(stay_s) * rate_per_s)
    in_cell = [each.engines // cells for each in pools]
    rate = rate_per_s / cells
    served, fits = _held(pools, lengths, router)
    is_held = np.asarray(fits.any(1), np.bool_)
    if not is_held.all():
        served, fits, rate = served.where(is_held), fits[is_held], rate * float(is_held.mean())
    stream = asked.stream(served, rate, share=float(is_held.mean()), part=1 / cells)
    config = ClusterConfig(
        pools=tuple(
            Pool(engine=each.source.engine, latency=each.source.latency, instances=count, name=f"pool {i}")
            for i, (each, count) in enumerate(zip(pools, in_cell, strict=True))
        ),
        seed=seed,
    )

    def routing_of(rows: Ints) -> OwnPolicy:
        return OwnPolicy(choose=_chooser(pools, in_cell, router, fits[rows], seed=seed))

    run = steady_run(stream, config, stay_s=stay_s, seed=seed, asked=asked, routing_of=routing_of)
    return _measured(run, pools, lengths, in_cell=in_cell, cells=cells)


def _measured(
    run: SteadyRun,
    pools: Sequence[EnginePool],
    lengths: Lengths,
    *,
    in_cell: Sequence[int],
    cells: int,
) -> RoutedCheck:
    """Return what was measured of one of so many equal cells: of all requests, and of each pool's."""
    pool_of = np.repeat(np.arange(len(pools)), in_cell)[run.done.instance]
    seats = sum(n * each.source.engine.max_num_seqs for n, each in zip(in_cell, pools, strict=True))
    whole = measured_of(run, engines=sum(in_cell), seats=seats / sum(in_cell))
    parts = []
    for place, each in enumerate(pools):
        found = measured_of(
            run,
            engines=in_cell[place],
            seats=each.source.engine.max_num_seqs,
            slots=in_cell[place] * slots_of(each.source, lengths),
            rows=pool_of == place,
        )
        parts.append(replace(found, engines=each.engines, cells=cells, rate_per_s=found.rate_per_s * cells))
    tightest = min(parts, key=lambda part: part.room)
    return RoutedCheck(
        whole=replace(
            whole,
            engines=sum(each.engines for each in pools),
            cells=cells,
            rate_per_s=whole.rate_per_s * cells,
            room=tightest.room,
            full_spells=tightest.full_spells,
        ),
        pools=tuple(parts),
        shares=tuple(float((pool_of == place).mean()) for place in range(len(pools))),
    )


def _held(pools: Sequence[EnginePool], lengths: Lengths, router: FleetRouter) -> tuple[Lengths, Bools]:
    """Return the requests as they are served, and which pools hold each, bool [n, pools].

    With ``compress`` a request goes to the first pool that holds it with its prompt cut.
    """
    if router.name != "compress":
        limits = np.array([each.context for each in pools])
        return lengths, lengths.total_tokens[:, None] <= limits[None, :]
    inputs, held = lengths.input_tokens.copy(), np.zeros((len(lengths), len(pools)), dtype=bool)
    for place, pool in enumerate(pools):
        cut = lengths.compressed(pool.context, factor=router.factor)
        mine = (cut.total_tokens <= pool.context) & ~held.any(1)
        inputs[mine] = cut.input_tokens[mine]
        held[mine, place] = True
    return replace(lengths, input_tokens=inputs), held


def _chooser(
    pools: Sequence[EnginePool], in_cell: Sequence[int], router: FleetRouter, fits: Bools, *, seed: int
) -> Callable[[FleetView, RequestView, int], int]:
    """Return the router as the cluster engine calls it: from fleet and request to an instance's number."""
    ends: list[int] = np.cumsum(in_cell).tolist()
    begins: list[int] = [end - count for end, count in zip(ends, in_cell, strict=True)]
    slots = [count * each.slots for count, each in zip(in_cell, pools, strict=True)]
    first = fits.argmax(1)
    fixed = None
    if router.name in ("length", "compress"):
        fixed = first
    elif router.name == "random":
        fixed = _at_random(fits * np.array([each.share for each in pools]), seed=seed)
    held: list[list[int]] = [np.flatnonzero(row).tolist() for row in fits] if fixed is None else []

    def pool_for(view: FleetView, request: int) -> int:
        if fixed is not None:
            return int(fixed[request])
        there = held[request]
        load = {each: int(view.num_in_flight[begins[each] : ends[each]].sum()) for each in there}
        if router.name == "spillover":
            is_full = router.spills(load[there[0]], in_cell[there[0]])
            return there[1] if is_full and len(there) > 1 else there[0]
        return min(there, key=lambda each: (load[each] / slots[each], each))

    def choose(view: FleetView, request: RequestView, _time_us: int) -> int:
        pool = pool_for(view, request.number)
        return begins[pool] + int(np.argmin(view.num_in_flight[begins[pool] : ends[pool]]))

    return choose


def _at_random(weight: NDArray[np.float64], *, seed: int) -> Ints:
    """Return a pool per request, in proportion to its weights; a function of the seed."""
    edges = np.cumsum(weight, axis=1)
    draws = np.random.Generator(np.random.Philox(seed + 1)).random(len(weight))
    return np.asarray(
        (draws[:, None] * edges[:, -1:] >= edges).sum(1).clip(max=weight.shape[1] - 1), np.int64
    )
