"""Whether the interval over repeated runs holds the server's mean, and how often its warnings are right.

``python -m tests.studies.validation.repeats [SETS]``: simulated servers with a queue (``tests/observe/repeats``), of
which 20,000 runs of the same requests say the mean.
"""

from __future__ import annotations

import sys

import numpy as np

from observe.repeats.beyond_chance import LEAST_RUNS, differences
from observe.repeats.mean_of_runs import mean_of_runs
from tests.observe.repeats.known_servers import NAMES, Floats, figures_of_runs, sets_of

LOADS = (0.5, 0.8, 0.95)
BLOCKS = (0.3, 0.5, 0.7, 0.9)


def paces(num: int, size: float) -> dict[str, Floats]:
    """Return by how much each of ``num`` runs is slower, for each kind of difference."""
    first, apart = np.ones(num), np.ones(num)
    first[0] += size
    apart[num // 2] += size
    return {"drift": 1 + size * np.arange(num) / (num - 1), "first": first, "apart": apart}


def main() -> None:
    """Print the shares."""
    sets = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    for load in LOADS:
        truth = {name: values.mean() for name, values in figures_of_runs(20_000, load=load, seed=1).items()}
        for num in (3, 5, 10):
            drawn = sets_of(figures_of_runs(sets * num, load=load, seed=num), num)
            holds = {}
            for name in NAMES:
                found = [mean_of_runs(each[name]) for each in drawn]
                holds[name] = np.mean([(each.low or 0) <= truth[name] <= (each.high or 0) for each in found])
            told = ", ".join(f"{name} {share:.1%}" for name, share in holds.items())
            alarms = np.mean([bool(differences({"run": each})) for each in drawn])
            said = f", false alarms {alarms:.1%}" if num >= LEAST_RUNS else ""
            sys.stdout.write(f"load {load}, {num} runs: {told}{said}\n")
    for num in (4, 5, 8):
        blocks = [
            sets_of(figures_of_runs(sets * num, load=load, seed=round(100 * load)), num) for load in BLOCKS
        ]
        found = [differences(dict(zip("abcd", each, strict=True))) for each in zip(*blocks, strict=True)]
        sys.stdout.write(
            f"4 loads, {num} blocks: false alarms {np.mean([bool(each) for each in found]):.1%}\n"
        )
    for num in (5, 8):
        for size in (0.02, 0.05, 0.1):
            for kind, pace in paces(num, size).items():
                runs = figures_of_runs(sets * num, load=0.5, pace=np.tile(pace, sets), seed=5)
                right = [
                    any(one.kind == kind for one in differences({"run": each})) for each in sets_of(runs, num)
                ]
                sys.stdout.write(f"{num} runs, {kind} of {size:.0%}: told {np.mean(right):.0%}\n")


if __name__ == "__main__":
    main()
