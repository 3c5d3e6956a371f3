"""``vtwin fleet routers``, ``flex`` and ``reserve``. What is heavy is imported by the command."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replay.fleet.commands.fleet_answer import say_fleet_answer
from replay.fleet.commands.layouts import demand_of
from replay.fleet.commands.options import (
    DemandOptions,
    DrawnRunOptions,
    FlexOptions,
    LengthOptions,
    NodeOptions,
    ReserveOptions,
    RouterOptions,
)
from replay.twin.own.own_code import with_code_option
from traces.strict.option_table import with_option_tables
from traces.strict.tell import tell

if TYPE_CHECKING:
    from replay.fleet.demand import FleetCheck, FleetDemand


@with_code_option
@with_option_tables
def routers(asked: RouterOptions) -> None:
    """Compare routers between a short and a long pool, both sized by formula.

    Simulated at the level of seats and by the token-level engine.
    """
    from replay.console.progress import working
    from replay.fleet.question import compare_routers

    demand = _with_all_up(asked.demand, asked.lengths, asked.utilization_cap)
    check = _check_of(asked.runs, verify=asked.verify, measure=asked.measure)
    with working("simulating the routers"):
        found = compare_routers(
            demand,
            asked.demand.rate,
            split=asked.split,
            spill=asked.spill,
            factor=asked.compress,
            check=check,
        )
    say_fleet_answer(found, asked.answer)


def _with_all_up(demand: DemandOptions, lengths: LengthOptions, utilization_cap: float) -> FleetDemand:
    """Return what is sized where no node fails."""
    return demand_of(demand, lengths, NodeOptions(utilization_cap=utilization_cap))


def _check_of(runs: DrawnRunOptions, *, verify: bool, measure: str | None = None) -> FleetCheck:
    """Return how a fleet is simulated, with everything compiled."""
    from replay.fleet.demand import FleetCheck, compile_once

    if verify:
        compile_once()
    return FleetCheck(verify=verify, num_requests=runs.num_requests, seed=runs.seed, measure=measure)


@with_code_option
@with_option_tables
def flex(asked: FlexOptions) -> None:
    """Say how much power a fleet can shed, and for how long, within its SLO."""
    from replay.console.progress import working
    from replay.fleet.question import shed_power

    demand = _with_all_up(asked.demand, asked.lengths, asked.utilization_cap)
    check = _check_of(asked.runs, verify=asked.verify)
    with working("shedding power"):
        found = shed_power(demand, asked.demand.rate, engines=asked.engines, check=check)
    say_fleet_answer(found, asked.answer)


@with_code_option
@with_option_tables
def reserve(asked: ReserveOptions) -> None:
    """Find how many engines to reserve over a day, the others paid by the hour, by formula or simulated.

    The profile's price, or that of --prices, is the reserved one. Exit code 1 where --verify finds no number of engines
    for an hour.
    """
    from replay.console.progress import working
    from replay.fleet.question import reserve_fleet
    from replay.fleet.told.reserve_page import write_reserve_page

    demand = demand_of(asked, asked.lengths, asked.nodes, prices=asked.prices)
    check = _check_of(asked.runs, verify=asked.verify)
    with working("sizing the hours"):
        found = reserve_fleet(demand, asked.diurnal, asked.burst_price, check=check)

    def write_page() -> None:
        if asked.report is not None:
            write_reserve_page(asked.report, found.found)
            tell(f"wrote {asked.report}")

    say_fleet_answer(found, asked.answer, then=write_page)
