"""Two pools, one for short and one for long requests: where to part them, and what that saves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from sim.fleet.profile import GpuProfile
from sim.fleet.sizing import Infeasible, Objective, PoolSize, size_pool
from sim.fleet.workload import Lengths


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """A fleet of a pool for requests of at most ``threshold`` tokens and one for the others; None: nobody is so long.

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
) -> Split:
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
    return Split(
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
) -> list[Split]:
    """Return a split per threshold and factor that can be had, marked where none is cheaper and faster as well."""
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
    return marked(found)


def marked(splits: Sequence[Split]) -> list[Split]:
    """Return the splits, those marked that no other beats in cost and in TTFT."""
    cost = np.array([each.cost_per_hour for each in splits])
    ttft = np.array([each.ttft_p99_s for each in splits])
    return [
        replace(each, is_best=not bool(((cost <= c) & (ttft <= t) & ((cost < c) | (ttft < t))).any()))
        for each, c, t in zip(splits, cost, ttft, strict=True)
    ]
