"""Fleets of the A100 of the table for three published distributions of lengths at three rates, each simulated.

What the formulas recommend, and what the token-level engine says of it: the fleet that is finally recommended must keep
its SLO in simulation.
"""

from __future__ import annotations

from pathlib import Path

from replay.fleet.check.pool import Verification
from replay.fleet.inputs.fleet_workload import fitting_context, read_workload
from replay.fleet.inputs.need import Need
from replay.fleet.inputs.profiles import read_source
from replay.fleet.plans.size import FleetPlan, SizeCheck, sized_fleet
from sim.fleet.sizing import Objective

WORKLOADS = {
    "Azure": ("azure_cdf.json", 0.5),
    "LMSYS": ("lmsys_cdf.json", 0.5),
    "agents": ("agent_heavy_cdf.json", 3.0),
}
"""File of lengths, and the limit of TTFT p99 in seconds."""
RATES = (50.0, 200.0, 1000.0)


def sized(data: Path, name: str, rate_per_s: float) -> FleetPlan:
    """Return the fleet for a workload at a rate, as ``vtwin fleet size --no-smallest`` sizes and simulates it."""
    file, limit_s = WORKLOADS[name]
    lengths = read_workload(data / file).lengths
    context = fitting_context(lengths)
    return sized_fleet(
        [read_source("A100", lengths, context=context)],
        Need(
            lengths=lengths, rate_per_s=rate_per_s, objective=Objective(ttft_p99_s=limit_s), context=context
        ),
        split=None,
        check=SizeCheck(smallest=False),
    )


def table(data: Path) -> str:
    """Return the Markdown table. ``data``: the folder of the distributions."""
    lines = [
        "| workload, SLO | requests/s | engines by formula | recommended | TTFT p99 by formula, ms | simulated, ms | "
        "known to | running per engine | measured, s | kept | CPU s |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, (_, limit_s) in WORKLOADS.items():
        for rate in RATES:
            plan = sized(data, name, rate)
            (pool,) = plan.pools
            seen = pool.verified
            assert isinstance(seen, Verification)
            window = seen.window
            lines.append(
                f"| {name}, {limit_s:g} s | {rate:,.0f} | {pool.analytic.engines:,} | {pool.engines:,} | "
                f"{pool.analytic.ttft_p99_s * 1e3:.0f} | {seen.ttft_p99.value * 1e3:.0f} | "
                f"±{seen.ttft_p99.half / seen.ttft_p99.value:.1%} | {seen.active:.0f} | {window.begins_s:,.0f} to "
                f"{window.ends_s:,.0f} of {window.last_s:,.0f} | {'yes' if plan.is_met else '**no**'} | "
                f"{sum(each.cpu_s for each in (*pool.tried, *pool.confirmed)):.1f} |"
            )
    return "\n".join(lines)
