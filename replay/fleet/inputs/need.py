"""What engines have to serve, as every plan of a fleet takes it."""

from __future__ import annotations

from lazy_dataclasses import dataclass

from sim.fleet import GpuProfile, Lengths
from sim.fleet.sizing import MOST_ENGINES, Infeasible, Objective, PoolSize, pool_at, size_pool


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Requests of these ``lengths`` at a rate, within the objective.

    ``context``: tokens of the longest request, for which every engine has room.
    """

    lengths: Lengths
    rate_per_s: float
    objective: Objective
    context: int

    def size(self, profile: GpuProfile) -> PoolSize:
        """Return the smallest pool that meets it by formula, of at most ``MOST_ENGINES``. Raises Infeasible."""
        size = size_pool(profile, self.lengths, self.rate_per_s, self.objective, context=self.context)
        if size.provisioned > MOST_ENGINES:
            raise Infeasible(
                f"rate: got {self.rate_per_s:g} requests/s, expected less: it takes {size.provisioned:,.4g} engines, "
                f"of at most {MOST_ENGINES:,}"
            )
        return size

    def at(self, profile: GpuProfile, engines: int) -> PoolSize:
        """Return what the formulas say of so many engines."""
        return pool_at(profile, self.lengths, self.rate_per_s, context=self.context, engines=engines)
