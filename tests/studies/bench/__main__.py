"""``make bench``: the engine's works, clusters and the commands; prints the tables, writes bench-results/bench.json."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from tests.studies.bench.agents import agents_table, measure_agents
from tests.studies.bench.cluster import cluster_table, measure_clusters
from tests.studies.bench.commands import commands_table, measure_commands
from tests.studies.bench.engine import as_table, machine, measure_all

RESULTS = Path("bench-results/bench.json")


def main() -> None:
    """Measure everything."""
    argparse.ArgumentParser(prog="python -m tests.studies.bench", description=__doc__).parse_args()
    engine = measure_all()
    print(as_table(engine), end="\n\n")
    clusters = measure_clusters()
    print(cluster_table(clusters), end="\n\n")
    commands = measure_commands()
    print(commands_table(commands), end="\n\n")
    agents = measure_agents()
    print(agents_table(agents))
    RESULTS.parent.mkdir(exist_ok=True)
    document = {
        "machine": machine(),
        "engine": engine,
        "clusters": clusters,
        "commands": commands,
        "agents": agents,
    }
    RESULTS.write_text(json.dumps(document, indent=2) + "\n")


main()
