"""``make validate``: the tables of docs/validation.md that need public data, not a server. Minutes, not in CI."""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

from tests.studies.validation import (
    advice,
    agents,
    aibrix,
    capacity_coverage,
    carried,
    carried_traces,
    ceilings,
    clusters,
    cpu,
    fleet,
    fleet_answers,
    fleet_intervals,
    fleet_sizes,
    fleet_slots,
    h100,
    operators,
    optimisers,
    optimisers_fleet,
    planner_intervals,
    production,
    rollout_coverage,
    server_steps,
    servers,
    session_coverage,
    silicon,
    silicon_profiled,
    tails,
    verdicts,
)

DEFAULT_DATA = Path(__file__).parents[3] / ".." / "shared" / "data"


def main() -> None:
    """Print the tables asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("VTWIN_DATA", DEFAULT_DATA)))
    parser.add_argument("--models", nargs="+", default=["blackbox", "extended", "auto"])
    parser.add_argument(
        "--only",
        choices=(
            "advice",
            "agents",
            "aibrix",
            "rollouts",
            "production",
            "cpu",
            "h100",
            "servers",
            "steps",
            "unfitted",
            "sessions",
            "silicon",
            "operators",
            "profiled",
            "ceilings",
            "clusters",
            "fleet",
            "fleet-sizes",
            "fleet-slots",
            "fleet-intervals",
            "fleet-answers",
            "optimisers-fleet",
            "tails",
            "verdicts",
            "capacity",
            "carried",
            "optimisers",
            "planner-intervals",
        ),
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        bench = options.data / "llmservingsim_bench"
        unfitted = ("roofline", "physics", "physics/blis-iter29")
        tables = {
            "rollouts": lambda: rollout_coverage.table(Path(work)),
            "advice": lambda: advice.table(Path(work)),
            "agents": lambda: agents.table(options.data),
            "aibrix": lambda: aibrix.table(options.data),
            "production": lambda: production.table(options.data, Path(work)),
            "cpu": lambda: cpu.table(options.data, Path(work), tuple(options.models)),
            "h100": lambda: h100.table(Path(work), tuple(options.models)),
            "servers": lambda: servers.table(bench, Path(work), tuple(options.models)),
            "steps": lambda: server_steps.table(options.data, Path(work)),
            "unfitted": lambda: servers.unfitted_table(bench, Path(work), unfitted),
            "sessions": lambda: session_coverage.table(Path(work)),
            "silicon": lambda: silicon.table(options.data / "aiconfigurator_silicon"),
            "fleet": lambda: fleet.table(options.data / "aiconfigurator_silicon"),
            "fleet-sizes": lambda: fleet_sizes.table(options.data / "fleet_cdfs"),
            "fleet-slots": fleet_slots.table,
            "fleet-intervals": fleet_intervals.table,
            "fleet-answers": fleet_answers.table,
            "optimisers-fleet": optimisers_fleet.table,
            "operators": lambda: operators.table(options.data),
            "ceilings": lambda: ceilings.table(Path(work)),
            "clusters": lambda: clusters.table(options.data, Path(work)),
            "profiled": lambda: silicon_profiled.table(options.data),
            "tails": tails.table,
            "verdicts": verdicts.table,
            "optimisers": lambda: optimisers.table(Path(work)),
            "capacity": lambda: capacity_coverage.table(Path(work)),
            "carried": lambda: "\n\n".join([carried.table(options.data), carried_traces.table(options.data)]),
            "planner-intervals": lambda: planner_intervals.table(Path(work)),
        }
        for name, make in tables.items():
            if options.only in (None, name):
                print(make(), end="\n\n")


main()
