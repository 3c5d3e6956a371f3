"""How often 90 % intervals of grammars' costs hold the truth: ``python -m tests.validation.pair_coverage [PAIRS]``.

Pairs of runs of simulated servers whose steps scatter by 3 %, half of the requests guided in the second run. Each pair
is fitted with a twin that is right and with one whose coefficients are off by 7 to 100 %.
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from dataclasses import replace

import numpy as np

from calibrate.fit.paired_runs import fit_guided
from replay import TwinConfig, simulate_trace
from sim import EngineConfig, Extended
from traces import Header, Trace, make_trace

PAIRS = 100
NUM_REQUESTS = 400
COMPILE_US, MASK_US = 40_000, 250.0
TRUTH = TwinConfig(
    engine=EngineConfig(max_num_seqs=64, num_gpu_blocks=20_000),
    latency=Extended(alpha0=2000, beta0=6000, beta1=30, beta2=150, sigma=0.03),
)
TWINS = {
    "right": replace(TRUTH, latency=replace(TRUTH.latency, sigma=0.0)),
    "wrong": replace(TRUTH, latency=Extended(alpha0=4000, beta0=6600, beta1=27, beta2=140)),
}


def pair(seed: int) -> tuple[Trace, Trace]:
    """Return a plain run and one in which half of the requests are guided."""
    rng = np.random.default_rng(seed)
    columns = {
        "request_id": [str(i) for i in range(NUM_REQUESTS)],
        "arrival_time_us": np.cumsum(rng.exponential(90_000, NUM_REQUESTS)).astype(np.int64),
        "input_tokens": rng.integers(50, 900, NUM_REQUESTS),
        "output_tokens": rng.integers(20, 250, NUM_REQUESTS),
    }
    plain = make_trace(Header(mode="generated"), columns)
    guided = plain.with_columns(guided=rng.random(NUM_REQUESTS) < 0.5)
    engine = replace(TRUTH.engine, guided_compile_us=COMPILE_US, guided_mask_us=MASK_US)
    runs = []
    for number, trace in enumerate((plain, guided)):
        server = replace(TRUTH, engine=engine, latency=replace(TRUTH.latency, seed=2 * seed + number))
        runs.append(simulate_trace(trace, server)[0].with_header(mode="real"))
    return runs[0], runs[1]


def main() -> None:
    """Print, per twin and cost, coverage, width, and how far the values lie from the truth."""
    number, started = int(sys.argv[1]) if sys.argv[1:] else PAIRS, time.process_time()
    rows = defaultdict(list)
    for seed in range(number):
        runs = pair(seed)
        for name, twin in TWINS.items():
            cost = fit_guided(*runs, twin, seed=seed)
            for label, found, truth in (
                ("compile", cost.compile_us, COMPILE_US),
                ("mask", cost.mask_us, MASK_US),
            ):
                low, high = found.low or 0.0, found.high or np.inf
                rows[name, label].append(
                    (low <= truth <= high, (high - low) / truth, found.value / truth - 1)
                )
    print("| twin | cost | coverage | median width | median of the value | spread of the fits |")
    print("|---|---|---|---|---|---|")
    for (name, label), found in rows.items():
        held, width, off = np.array(found, dtype=float).T
        print(
            f"| {name} | {label} | {held.mean():.3f} | {100 * np.median(width):.1f} % | "
            f"{100 * np.median(off):+.1f} % | {100 * off.std():.1f} % |"
        )
    print(f"{number} pairs, {time.process_time() - started:.0f} CPU s")


if __name__ == "__main__":
    main()
