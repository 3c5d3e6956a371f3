"""How many engines a fleet needs, as a function; ``vtwin fleet size`` computes the same and prints it.

Notes that concern limits go to stderr here, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, cast

from replay.fleet.commands.asking import (
    asked_of,
    compile_once,
    infeasible,
    misfit_notes,
    objective_of,
    sources_of,
)
from replay.fleet.inputs.fleet_workload import (
    FleetWorkload,
    fitting_context,
    read_workload,
    workload_of_trace,
)
from replay.fleet.inputs.shared_prefixes import hits_note, with_hits
from replay.fleet.size import NUM_REQUESTS, FleetPlan, SizeCheck, sized_fleet
from replay.fleet.text import cost_per_hour, fleet_document, fleet_parts, gpus_text
from replay.numbers.argument_ranges import AVAILABILITY, FLEET_REQUESTS, LENGTHS, NAMES, RATE, TOKENS
from sim.fleet import Lengths
from sim.fleet.sizing import UTILIZATION_CAP
from traces import ConfigError, Trace
from traces.facts import NotebookAnswer, terminal_lines
from traces.strict.arguments import PATH, SEED, TEXT, takes

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SizedFleet(NotebookAnswer):
    """A fleet that was sized. ``plan``: its pools with the results of formulas and simulations."""

    drawn_by: ClassVar[str] = "replay.drawn_answers:of_fleet"

    plan: FleetPlan

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

    def __repr__(self) -> str:
        """Return the fleet in a line."""
        return f"<SizedFleet: {gpus_text(self.gpus)} for {self.plan.rate_per_s:g} requests/s>"

    def __str__(self) -> str:
        """Return the table that the terminal shows."""
        return "\n".join(terminal_lines(fleet_parts(self.plan), width=None))


@takes(
    workload=LENGTHS,
    rate_per_s=RATE,
    slo=TEXT,
    profiles=NAMES,
    split=TOKENS,
    context=TOKENS,
    availability=AVAILABILITY,
    prices=PATH,
    num_requests=FLEET_REQUESTS,
    seed=SEED,
)
def plan_fleet(  # noqa: PLR0913 - what a fleet can be asked for
    workload: Trace | Lengths | Path | str,
    rate_per_s: float,
    slo: str,
    profiles: str | Path | Sequence[str | Path],
    *,
    split: int | None = None,
    context: int | None = None,
    availability: float = 1.0,
    prices: Path | None = None,
    verify: bool = True,
    num_requests: int = NUM_REQUESTS,
    seed: int = 1,
) -> SizedFleet:
    """Return the smallest fleet that serves ``rate_per_s`` requests/s of a workload within ``slo``.

    ``workload``: a trace, lengths, or a file of either (a CDF as JSON). ``slo``: such as ``"ttft_p99=500ms"``, and
    ``tpot_p99`` if it matters. ``profiles``: of a GPU, by name, TWIN.yaml or MODEL@GPU:TP; two with ``split``: for
    requests of up to ``split`` tokens, and for longer ones. ``context``: longer requests are left out. ``verify``:
    simulate ``num_requests`` or more, and find the smallest fleet that keeps the limits; else by formula. Raises
    ConfigError.
    """
    found = _workload(workload)
    lengths = found.lengths
    if context is not None:
        kept, _, _ = lengths.up_to(context)
        if kept is None:
            raise ConfigError(f"context: got {context}, expected a length that some request has")
        lengths = kept
    longest = fitting_context(lengths) if context is None else context
    objective = objective_of(slo, utilization_cap=UTILIZATION_CAP, availability=availability)
    names = ",".join(map(str, [profiles] if isinstance(profiles, str | Path) else profiles))
    sources = sources_of(names, lengths, longest, prices=prices)
    caching = next((each.engine for each in sources if each.engine.enable_prefix_caching), None)
    if caching is not None:
        lengths = with_hits(lengths, found.whole, caching)
    whole = None if found.whole is None else found.whole.of(lengths)
    check = SizeCheck(asked=asked_of(num_requests, None, whole=whole), seed=seed) if verify else None
    if verify:
        compile_once()
    with infeasible():
        plan = sized_fleet(sources, lengths, rate_per_s, objective, context=longest, split=split, check=check)
    notes = (*found.notes, *hits_note(lengths), *misfit_notes(sources, power=True))
    return SizedFleet(plan=replace(plan, notes=notes))


def _workload(workload: Trace | Lengths | Path | str) -> FleetWorkload:
    if isinstance(workload, Lengths):
        return FleetWorkload(lengths=workload)
    if isinstance(workload, Trace):
        return workload_of_trace(workload, name="a trace")
    return read_workload(Path(workload))
