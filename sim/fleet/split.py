"""Two pools, one for short and one for long requests: where to split them, and what that saves."""

from __future__ import annotations

from collections.abc import Sequence
from lazy_dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sim.fleet.profile import GpuProfile
from sim.fleet.sizing import Infeasible, Objective, PoolSize, size_pool
from sim.fleet.workload import Lengths

Floats = NDArray[np.float64]

SAME = 0.01
"""Times that differ by less count as equal: the formulas are no more precise, and no user notices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthSplit:
    """A pool for requests of at most ``threshold`` tokens and one for the others; None: no request is longer.

    ``share``: of the requests that go to the short pool. ``cost_per_hour``: of all provisioned engines.
    """

    threshold: int
    factor: float
    share: float
    short: PoolSize | None
    long: PoolSize | None
    cost_per_hour: float
    is_best: bool = False

    @property
    def ttft_p99_s(self) -> float:
        """The slower pool's 99th percentile of TTFT, seconds."""
        return max(each.ttft_p99_s for each in (self.short, self.long) if each is not None)

    @property
    def engines(self) -> int:
        """How many engines both pools have, those in repair included."""
        return sum(each.provisioned for each in (self.short, self.long) if each is not None)


def size_split(
    profiles: tuple[GpuProfile, GpuProfile],
    lengths: Lengths,
    rate_per_s: float,
    objective: Objective,
    *,
    threshold: int,
    context: int,
    factor: float = 1.0,
) -> LengthSplit:
    """Return the two pools, sized; ``profiles``: of the short and of the long one.

    ``factor`` above 1: requests up to so many times too long have their prompts cut, and go to the short pool. Raises
    Infeasible where one of them cannot keep the objective.
    """
    requests = lengths.compressed(threshold, factor=factor) if factor > 1 else lengths
    short, long, share = requests.up_to(threshold)
    sizes = [
        None if part is None else size_pool(profile, part, rate_per_s * of_all, objective, context=longest)
        for profile, part, of_all, longest in (
            (profiles[0], short, share, threshold),
            (profiles[1], long, 1 - share, context),
        )
    ]
    cost = sum(
        size.provisioned * profile.cost_per_hour
        for size, profile in zip(sizes, profiles, strict=True)
        if size is not None
    )
    return LengthSplit(
        threshold=threshold, factor=factor, share=share, short=sizes[0], long=sizes[1], cost_per_hour=cost
    )


def sweep_thresholds(
    profiles: tuple[GpuProfile, GpuProfile],
    lengths: Lengths,
    rate_per_s: float,
    objective: Objective,
    *,
    thresholds: Sequence[int],
    context: int,
    factors: Sequence[float] = (1.0,),
) -> list[LengthSplit]:
    """Return a split per threshold and factor that is feasible."""
    found = []
    for threshold in thresholds:
        for factor in factors:
            try:
                found.append(
                    size_split(
                        profiles,
                        lengths,
                        rate_per_s,
                        objective,
                        threshold=threshold,
                        context=context,
                        factor=factor,
                    )
                )
            except Infeasible:
                continue
    return found


def unbeaten(amounts: Floats, times: Floats, *, same: float = 0.0) -> NDArray[np.bool_]:
    """Return which points no other beats: none takes less and is no slower, or takes as much and is faster.

    ``amounts``, ``times``: float64 [n]. ``same``: the share by which a slower one still counts as no slower.
    """
    beaten = [
        bool(
            (
                ((amounts < amount) & (times <= time * (1 + same))) | ((amounts == amount) & (times < time))
            ).any()
        )
        for amount, time in zip(amounts, times, strict=True)
    ]
    return ~np.array(beaten, bool)


@dataclass(frozen=True, slots=True, kw_only=True)
class Splits:
    """One pool for all, and a split per threshold that keeps the SLO by formula; marked: those that no other beats.

    ``profiles``: of the short and of the long pool; one pool for all has the long one's. ``is_one_best``: whether no
    split beats one pool for all. ``thresholds``, ``factors``: all that were tried, ascending.
    """

    one: PoolSize
    profiles: tuple[GpuProfile, GpuProfile]
    splits: tuple[LengthSplit, ...]
    is_one_best: bool
    thresholds: tuple[int, ...] = ()
    factors: tuple[float, ...] = ()

    @property
    def cheapest(self) -> LengthSplit | None:
        """The split that takes least, the fastest of equals; None without any."""
        return min(self.splits, key=lambda each: (self.amount(each), each.ttft_p99_s), default=None)

    @property
    def has_prices(self) -> bool:
        """Whether costs are known of both pools; else GPUs stand for them."""
        return all(each.cost_per_hour > 0 for each in self.profiles)

    @property
    def one_amount(self) -> float:
        """What one pool for all takes: its cost per hour, or its GPUs."""
        return self.one.provisioned * self._each(1)

    def gpus(self, split: LengthSplit) -> int:
        """Return how many GPUs both pools of a split have."""
        return sum(
            size.provisioned * profile.num_gpus
            for size, profile in zip((split.short, split.long), self.profiles, strict=True)
            if size is not None
        )

    def amount(self, split: LengthSplit) -> float:
        """Return what a split takes: its cost per hour, or its GPUs."""
        return split.cost_per_hour if self.has_prices else self.gpus(split)

    def saving(self, split: LengthSplit) -> float:
        """Return the share of one pool's cost, or GPUs, that a split saves; negative: it takes more."""
        return 1 - self.amount(split) / self.one_amount

    def _each(self, number: int) -> float:
        profile = self.profiles[number]
        return profile.cost_per_hour if self.has_prices else profile.num_gpus


def marked(found: Splits) -> Splits:
    """Return the splits, those marked that no other split nor one pool beats, and whether no split beats one pool.

    A point is beaten by one that takes less and is no slower, within ``SAME``, or takes as much and is faster.
    """
    amounts = np.array([*(found.amount(each) for each in found.splits), found.one_amount])
    times = np.array([*(each.ttft_p99_s for each in found.splits), found.one.ttft_p99_s])
    best = unbeaten(amounts, times, same=SAME)
    splits = [replace(each, is_best=bool(is_best)) for each, is_best in zip(found.splits, best, strict=False)]
    return replace(found, splits=tuple(splits), is_one_best=bool(best[-1]))
