"""Whether held-out errors say of a server what they say of one run.

``python -m tests.studies.validation.run_to_run [CASES]``.

An emulated server whose pace differs from run to run, and a twin whose steps are 2 % longer. Each case holds out one
run and asks: does the interval of the error hold the error against the server's mean over many runs? Against another
run of the same load, with other requests? And how many requests are within the band that others have shown?
"""

from __future__ import annotations

import sys
from collections import defaultdict

import numpy as np

from calibrate import Options
from calibrate.compare.metric_errors import MetricErrors, compare
from calibrate.compare.pair import Pairs
from calibrate.run_to_run.bands import bands_of
from calibrate.run_to_run.normal_quantiles import half_width
from calibrate.run_to_run.server_pace import STATED, RunToRun
from calibrate.simulated_side import against_twin
from replay import TwinConfig
from replay.simulation.pace_band import paced
from tests.calibrate.known_servers import source
from tests.studies.validation.tiles import CHAT, ENGINE, STEADY, trace_of
from traces import Trace

SERVER = TwinConfig(engine=ENGINE, latency=STEADY)
TWIN = paced(SERVER, 1.02)
RATES = (6.0, 12.0)
NUM, MANY = 400, 60
METRICS = ("ttft_us", "tpot_us", "e2e_us")
STATISTICS = ("mean", "p50", "p99")


def run_of(rate: float, *, seed: int) -> Trace:
    """Return a run of the server at its pace of that day, with requests of its own."""
    z = np.random.default_rng(seed).standard_normal()
    server = paced(SERVER, float(np.exp(z * STATED / half_width())))
    return trace_of(server, rate, prompt=CHAT, num=NUM, seed=seed)


def errors_of(
    trace: Trace, *, pace: RunToRun, replicates: int = 400
) -> tuple[dict[str, MetricErrors], Pairs]:
    """Return the errors of the twin on one run, and the requests behind them."""
    options = Options(replicates=replicates, run_to_run=pace)
    pairs = against_twin(source("a", trace), TWIN, options, role="held out").pairs
    return compare(pairs, bootstrap=options.bootstrap(), only=METRICS), pairs


def main() -> None:
    """Print the shares that held."""
    num = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    for rate in RATES:
        runs = [run_of(rate, seed=10_000 + i) for i in range(MANY)]
        many = [errors_of(each, pace=RunToRun(bound=0.0), replicates=20)[0] for each in runs]
        truth = {
            (metric, statistic): float(np.mean([each[metric].rel_error[statistic].value for each in many]))
            for metric in METRICS
            for statistic in STATISTICS
        }
        held: dict[tuple[str, ...], list[bool]] = defaultdict(list)
        within: dict[str, list[float]] = defaultdict(list)
        for case in range(num):
            one, other = (run_of(rate, seed=20_000 + 2 * case + i) for i in (0, 1))
            for name, pace in (("seeds", RunToRun(bound=0.0)), ("with pace", RunToRun())):
                (found, pairs), again = errors_of(one, pace=pace), many[case % MANY]
                for (metric, statistic), value in truth.items():
                    each = found[metric].rel_error[statistic]
                    held[name, metric, statistic, "server"].append(each.low <= value <= each.high)
                    another = again[metric].rel_error[statistic].value
                    held[name, metric, statistic, "other run"].append(each.low <= another <= each.high)
            for metric, band in bands_of(pairs, errors_of(other, pace=pace, replicates=20)[1]).items():
                within[metric].append(band.holds_frac)
        for key, values in held.items():
            print(rate, *key, f"{np.mean(values):.0%} of {len(values)}", flush=True)
        for metric, fractions in within.items():
            print(rate, "band", metric, f"{np.mean(fractions):.1%} (least {min(fractions):.1%})", flush=True)


if __name__ == "__main__":
    main()
