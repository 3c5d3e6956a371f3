"""How much power a fleet can shed: by formula, and by simulating engines with the seats that are left."""

from __future__ import annotations

from collections.abc import Sequence
from lazy_dataclasses import dataclass, replace

from replay.fleet.check.pool import Verification, verify
from replay.fleet.inputs.need import Need
from replay.fleet.inputs.profiles import ProfileSource
from replay.fleet.plans.size import SizeCheck
from sim.fleet.energy import Curtailment, curtail
from sim.fleet.profile import GpuProfile

SHARES = tuple(each / 20 for each in range(15))
"""The shares of the fleet's power at this rate that are shed."""
KEEPS_UP = 0.97
"""A fleet keeps up if it answers at least this share of the requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerCut:
    """A share of the power shed. ``seen``: simulated with the seats that are left; None: not, or there are none.

    ``keeps_up``: whether the simulated engines answer as fast as requests come; None: not simulated. ``with_idle``: the
    same share by formula, with the least and with the most power that an idle engine may draw; None where the profile's
    idle power is taken as it is. The more an idle engine draws, the less power is saved by removing seats, so fewer
    seats are left at the same share.
    """

    formula: Curtailment
    seen: Verification | None = None
    keeps_up: bool | None = None
    with_idle: tuple[Curtailment, Curtailment] | None = None

    def between(self, name: str) -> tuple[float, float] | None:
        """Return the lower and the higher of a figure's two values with other idle power, in the figure's unit."""
        if self.with_idle is None:
            return None
        first, second = (getattr(each, name) for each in self.with_idle)
        return min(first, second), max(first, second)


def cuts_of(source: ProfileSource, need: Need, *, engines: int, check: SizeCheck | None) -> list[PowerCut]:
    """Return what shedding each of ``SHARES`` does, by formula, and with ``check`` simulated."""

    def by_formula(profile: GpuProfile) -> list[Curtailment]:
        return curtail(
            profile,
            need.lengths,
            need.rate_per_s,
            need.objective,
            context=need.context,
            engines=engines,
            shares=SHARES,
        )

    cuts = by_formula(source.profile)
    idle = source.idle_between_w
    with_idle: list[tuple[Curtailment, Curtailment] | None] = [None] * len(cuts)
    if idle is not None:
        least, most = (by_formula(replace(source.profile, idle_w=each)) for each in idle)
        with_idle = list(zip(least, most, strict=True))
    seen = {} if check is None else _simulated(source, need, cuts, engines=engines, check=check)
    return [
        PowerCut(
            formula=each,
            seen=seen.get(each.slots),
            keeps_up=None if check is None else _keeps_up(seen.get(each.slots), need.rate_per_s),
            with_idle=others,
        )
        for each, others in zip(cuts, with_idle, strict=True)
    ]


def _simulated(
    source: ProfileSource,
    need: Need,
    cuts: Sequence[Curtailment],
    *,
    engines: int,
    check: SizeCheck,
) -> dict[int, Verification]:
    """Return by number of seats what simulated engines do with this many."""
    service = need.at(source.profile, engines).service_s
    seen = dict[int, Verification]()
    for slots in dict.fromkeys(each.slots for each in cuts if each.slots > 0):
        seats = min(slots, source.engine.max_num_seqs)
        seen[slots] = verify(
            replace(source, engine=replace(source.engine, max_num_seqs=seats)),
            need.lengths,
            need.rate_per_s,
            engines=engines,
            service_s=service,
            seed=check.seed,
            asked=check.asked,
        )
    return seen


def _keeps_up(seen: Verification | None, rate_per_s: float) -> bool:
    return seen is not None and seen.rate_per_s >= KEEPS_UP * rate_per_s
