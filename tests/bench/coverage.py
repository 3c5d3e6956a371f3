"""How often intervals hold the truth: ``python -m tests.bench.coverage [FITS] [MODEL]``; small fits, 90 % intervals."""

from __future__ import annotations

import sys
from collections import defaultdict

import numpy as np

from calibrate.fit.objective.fit_trace import fit_trace
from calibrate.fit.pipeline import fit
from tests.calibrate.known_servers import GUESS, TRUTH, observed, workload

FITS = 200
NOISE = 0.08


def main() -> None:
    """Print coverage and median width of each coefficient over so many fits of two traces of 100 requests."""
    number = int(sys.argv[1]) if sys.argv[1:] else FITS
    held, widths, off = defaultdict(list), defaultdict(list), defaultdict(list)
    for seed in range(number):
        traces = [
            observed(workload(100, rate=rate, seed=1000 + 10 * seed + i), noise=NOISE, seed=seed * 2 + i)
            for i, rate in enumerate((3, 9))
        ]
        found = fit(
            [fit_trace(trace, GUESS, name=str(i)) for i, trace in enumerate(traces)], GUESS, seed=seed
        )
        for each in found.coefficients:
            if each.fitted and each.low is not None and each.high is not None:
                truth = TRUTH[each.name]
                held[each.name].append(each.low <= truth <= each.high)
                widths[each.name].append((each.high - each.low) / truth)
                off[each.name].append(each.value / truth - 1)
    print(f"{number} fits\n\n| coefficient | coverage | median width | median of value | spread |")
    print("|---|---|---|---|---|")
    for name, inside in held.items():
        print(
            f"| {name} | {np.mean(inside):.3f} | {100 * np.median(widths[name]):.1f} % "
            f"| {100 * np.median(off[name]):+.1f} % | {100 * np.std(off[name]):.1f} % |"
        )
    print(f"| all | {np.mean([each for inside in held.values() for each in inside]):.3f} | | | |")


if __name__ == "__main__":
    main()
