"""How often the 90 % intervals of a fit to steps hold the truth.

``python -m tests.studies.validation.step_coverage [FITS]``. Fits to the steps of simulated servers, as vLLM logs them
and as forward-pass metrics, whose times scatter by 5 %. The priors' centres are drawn anew for each fit, as in
``tests.studies.validation.coverage``.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from dataclasses import replace

import numpy as np

from calibrate.steps.step_fit import NAMES, fit_steps
from calibrate.steps.step_series import series_of
from sim import Blackbox, Extended
from tests.calibrate.known_servers import workload
from tests.calibrate.steps.made_logs import logged_steps
from tests.studies.validation.coverage import EXTENDED, priors_of

FITS = 60
SIGMA = 0.05
NUM_REQUESTS = 150
RATE = 9


def main() -> None:
    """Print, by coefficient, the share of intervals that hold the truth and their median half width."""
    number = int(sys.argv[1]) if sys.argv[1:] else FITS
    truth = EXTENDED.latency
    assert isinstance(truth, Extended)
    print(
        "| coefficient | vLLM's log | half width | forward-pass metrics | half width |\n|---|---|---|---|---|"
    )
    sides = []
    for whole in (False, True):
        held, widths = defaultdict[str, list[bool]](list), defaultdict[str, list[float]](list)
        for seed in range(number):
            server = replace(EXTENDED, latency=replace(truth, sigma=SIGMA, seed=seed))
            load = workload(NUM_REQUESTS, rate=RATE, seed=2000 + seed, prompt=(600, 0.8))
            series, _ = series_of(logged_steps(load, server, whole=whole), name="made", is_async=False)
            found = fit_steps(series, Blackbox(), priors=priors_of(truth, seed=seed), seed=seed)
            for each in found.coefficients:
                value = float(getattr(truth, each.name))
                held[each.name].append((each.low or 0.0) <= value <= (each.high or 0.0))
                widths[each.name].append(((each.high or 0.0) - (each.low or 0.0)) / 2 / value)
        sides.append((held, widths))
    for name in NAMES:
        cells = [
            f"{100 * np.mean(held[name]):.0f} % | {100 * np.median(widths[name]):.0f} %"
            for held, widths in sides
        ]
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
