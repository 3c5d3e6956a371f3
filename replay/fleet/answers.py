"""What the questions of ``vtwin fleet`` return."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from lazy_dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar, cast

from replay.fleet.plans.pools import PoolsPlan
from replay.fleet.plans.size import FleetPlan
from replay.fleet.told.text import (
    cost_per_hour,
    fleet_document,
    fleet_parts,
    gpus_text,
    pools_document,
    pools_parts,
)
from sim.fleet import Lengths
from traces.facts import AnswerPart, NotebookAnswer, terminal_lines

if TYPE_CHECKING:
    import pandas as pd

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SizedFleet(NotebookAnswer):
    """A fleet that was sized. ``plan``: its pools with the results of formulas and simulations.

    ``lengths``: that it is sized for. ``behind``: of pools behind a router, the router and the simulations of all
    together; None: of one pool or two.
    """

    drawn_by: ClassVar[str] = "replay.drawn_answers:of_fleet"

    plan: FleetPlan
    lengths: Lengths | None = None
    behind: PoolsPlan | None = None

    @property
    def gpus(self) -> int:
        """GPUs of all pools, those in repair counted."""
        return sum(pool.gpus for pool in self.plan.pools)

    @property
    def cost_per_hour(self) -> float | None:
        """What all pools cost in an hour, in the prices' currency; None without prices."""
        return cost_per_hour(self.plan)

    @property
    def is_met(self) -> bool | None:
        """Whether the simulations kept the limits; None where nothing was simulated."""
        return self.plan.is_met

    @property
    def pools(self) -> pd.DataFrame:
        """A row per pool: profile, engines, gpus, slots, p99_ttft_us, … as ``vtwin fleet size --json`` has them."""
        import pandas as pd

        told = fleet_document(self.plan)
        return pd.json_normalize(cast("list[dict[str, object]]", told["pools"])).set_index("name")

    def document(self) -> dict[str, object]:
        """Return what ``vtwin fleet size --json`` prints; rates in requests/s, times in µs."""
        return fleet_document(self.plan) if self.behind is None else pools_document(self.behind)

    @property
    def parts(self) -> list[AnswerPart]:
        """What people read."""
        return fleet_parts(self.plan) if self.behind is None else pools_parts(self.behind)

    def __repr__(self) -> str:
        """Return the fleet in a line."""
        return f"<SizedFleet: {gpus_text(self.gpus)} for {self.plan.rate_per_s:g} requests/s>"

    def __str__(self) -> str:
        """Return the table that the terminal shows."""
        return "\n".join(terminal_lines(self.parts, width=None))


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetAnswer(Generic[Found]):
    """What another question about a fleet found, with notes for the reader.

    ``is_met``: whether something that was asked for meets the limits; None where nothing was simulated.
    """

    found: Found
    notes: tuple[str, ...]
    is_met: bool | None = None
    told: Callable[[Found], Mapping[str, object]] = field(repr=False)
    shown: Callable[[Found], list[AnswerPart]] = field(repr=False)

    def document(self) -> dict[str, object]:
        """Return what the command's ``--json`` prints."""
        return {**self.told(self.found), "notes": list(self.notes)}

    @property
    def parts(self) -> list[AnswerPart]:
        """What people read."""
        return self.shown(self.found)

    def __str__(self) -> str:
        """Return what the terminal shows."""
        return "\n".join(terminal_lines(self.parts, width=None))
