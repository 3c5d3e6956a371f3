"""Routers of a fleet: which pool a request goes to, simulated at the level of seats."""

from __future__ import annotations

from collections.abc import Sequence
from lazy_dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from sim.config import InvalidConfig
from sim.fleet.profile import GpuProfile
from sim.fleet.slot_simulation import SlotPool
from sim.fleet.workload import Lengths

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

RouterName = Literal["length", "spillover", "compress", "least-loaded", "random", "label"]
ROUTERS: tuple[RouterName, ...] = get_args(RouterName)


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPool:
    """A pool of a fleet: GPUs that are alike, for requests of at most ``context`` tokens."""

    profile: GpuProfile
    context: int
    gpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetRouter:
    """How a fleet chooses among its pools, given from the shortest context to the longest.

    - ``length``: the first whose context holds the request.
    - ``spillover``: as length; from the short pool to the next where there are ``spill_per_gpu`` requests per GPU,
      which has no default here (``--spill`` has).
    - ``compress``: as length; prompts up to ``factor`` times too long are cut to fit the shorter pool.
    - ``least-loaded``: of the pools that hold it, the one with the fewest requests per seat.
    - ``random``: of the pools that hold it, in proportion to their seats; a function of ``seed``.
    - ``label``: the pool whose number the request has: its model's, or one that your own classifier gives.
    """

    name: RouterName
    spill_per_gpu: float | None = None
    factor: float = 1.5
    seed: int = 1

    def __post_init__(self) -> None:
        """Check the settings. Raises InvalidConfig."""
        if self.name not in ROUTERS:
            raise InvalidConfig(f"router: got {self.name!r}, expected one of {', '.join(ROUTERS)}")
        if self.name == "spillover" and self.spill_per_gpu is None:
            raise InvalidConfig(
                "spill_per_gpu: got nothing, expected requests per GPU, as the router is spillover"
            )
        if self.spill_per_gpu is not None and self.spill_per_gpu <= 0:
            raise InvalidConfig(f"spill_per_gpu: got {self.spill_per_gpu}, expected a number > 0")
        if self.factor < 1:
            raise InvalidConfig(f"factor: got {self.factor}, expected a number >= 1")

    def spills(self, num_requests: float, num_gpus: int) -> bool:
        """Return whether a pool with so many requests is full: the next pool that holds the request gets it."""
        return self.spill_per_gpu is not None and num_requests >= self.spill_per_gpu * num_gpus


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutedRun:
    """The outcomes of n requests: the pool of each (-1: none holds it), TTFT and end, seconds, NaN without one."""

    pool: Ints
    ttft_s: Floats
    end_s: Floats


def simulate_routed(
    pools: Sequence[FleetPool],
    lengths: Lengths,
    arrival_s: Floats,
    router: FleetRouter,
    *,
    labels: Ints | None = None,
) -> RoutedRun:
    """Simulate requests that a router distributes to pools. Raises InvalidConfig.

    ``arrival_s``: ascending seconds. ``labels``: int64 [n], pool numbers, for the router ``label``.
    """
    contexts = [pool.context for pool in pools]
    if not pools or contexts != sorted(contexts):
        raise InvalidConfig("pools: got none, or contexts that fall, expected the shortest context first")
    if router.name == "label" and (
        labels is None or len(labels) != len(lengths) or int(labels.max()) >= len(pools)
    ):
        raise InvalidConfig(
            "labels: got none, or numbers without a pool, expected a pool's number per request"
        )
    served = [lengths if router.name != "compress" else _cut(lengths, pool, router.factor) for pool in pools]
    running = [
        SlotPool(pool.profile, own, arrival_s, context=pool.context, gpus=pool.gpus)
        for pool, own in zip(pools, served, strict=True)
    ]
    draws = np.random.Generator(np.random.Philox(router.seed)).random(len(lengths))
    chosen = np.full(len(lengths), -1, np.int64)
    for request, now in enumerate(arrival_s.tolist()):
        for each in running:
            each.advance(now)
        fits = [i for i, own in enumerate(served) if own.total_tokens[request] <= contexts[i]]
        label = None if labels is None else int(labels[request])
        pool = _choose(router, running, fits, float(draws[request]), label)
        if pool >= 0:
            chosen[request] = pool
            running[pool].accept(request, now)
    ttft, end = np.full(len(lengths), np.nan), np.full(len(lengths), np.nan)
    for number, each in enumerate(running):
        each.advance(np.inf)
        own = chosen == number
        run = each.result()
        ttft[own], end[own] = run.ttft_s[own], run.end_s[own]
    return RoutedRun(pool=chosen, ttft_s=ttft, end_s=end)


def _cut(lengths: Lengths, pool: FleetPool, factor: float) -> Lengths:
    return lengths.compressed(pool.context, factor=factor)


def _choose(
    router: FleetRouter, running: Sequence[SlotPool], fits: Sequence[int], draw: float, label: int | None
) -> int:
    """Return a pool's number, -1 where none holds the request."""
    if router.name == "label":
        return -1 if label is None else label
    if not fits:
        return -1
    first = fits[0]
    if router.name == "spillover":
        is_full = router.spills(running[first].pressure(), 1)
        return fits[1] if is_full and len(fits) > 1 else first
    if router.name == "least-loaded":
        return min(fits, key=lambda i: (running[i].load_frac(), i))
    if router.name == "random":
        slots = np.array([len(running[i].gpus) * running[i].slots for i in fits], np.float64)
        place = int(np.searchsorted(np.cumsum(slots) / slots.sum(), draw, side="right"))
        return fits[min(place, len(fits) - 1)]
    return first
