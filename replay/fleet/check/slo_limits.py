"""An objective against a simulation's figures: which limits are kept, the simulation's noise included."""

from __future__ import annotations

import math
from lazy_dataclasses import dataclass

from replay.fleet.check.pool import Verification
from replay.fleet.check.steady import BatchedMean
from sim.fleet.sizing import Objective
from traces import MOST_FAILED, shown_time


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """One limit of an objective and what a simulation had there, seconds; of ``failed`` shares of the requests.

    ``most``: the upper end of the value's interval, which must be within the limit.
    """

    name: str
    value: float
    most: float
    limit: float

    @property
    def is_kept(self) -> bool:
        """Whether the value is within the limit even if it is as high as its noise allows."""
        return self.most <= self.limit

    @property
    def text(self) -> str:
        """Return it in a sentence: TPOT p99 21.3 ms, limit 20 ms."""
        if self.name == "failed":
            return f"{self.value:.1%} of the requests not answered, limit {self.limit:.0%}"
        noise = "" if self.value > self.limit else f" (with its noise up to {shown_time(self.most * 1e6)})"
        return f"{self.name} {shown_time(self.value * 1e6)}{noise}, limit {shown_time(self.limit * 1e6)}"


def limits_of(found: Verification, objective: Objective) -> tuple[Limit, ...]:
    """Return every limit of an objective with what a simulated pool had there; all but 1 % must be answered."""
    tpot, failed = objective.tpot_p99_s, found.failed_frac
    return (
        _limit("TTFT p99", found.ttft_p99, objective.ttft_p99_s),
        *(() if tpot is None else (_limit("TPOT p99", found.tpot_p99, tpot),)),
        Limit(name="failed", value=failed, most=failed, limit=MOST_FAILED),
    )


def _limit(name: str, found: BatchedMean, limit: float) -> Limit:
    """Return a limit; where too little was measured for an interval, the value itself decides."""
    most = found.value if math.isnan(found.high) else found.high
    return Limit(name=name, value=found.value, most=most, limit=limit)


def keeps(found: Verification, objective: Objective) -> bool:
    """Say whether a simulated pool keeps all limits of the objective."""
    return all(each.is_kept for each in limits_of(found, objective))
