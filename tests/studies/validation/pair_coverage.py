"""How often 90 % intervals of costs from pairs of runs hold the truth.

``python -m tests.studies.validation.pair_coverage [PAIRS] [guided|host]``: pairs of runs of simulated servers whose
steps scatter by 3 %. Guided: half of the requests are guided in the second run. Host: the second run is without async
scheduling, so that the CPU's time shows. Each pair is fitted with a twin that is right and with one whose
coefficients are off by 7 to 100 %.
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from dataclasses import replace

import numpy as np

from calibrate.fit.paired_runs import fit_guided, fit_host
from replay import TwinConfig, simulate_trace
from sim import EngineConfig, Extended
from traces import Header, Trace, make_trace
from traces.statistics.bootstrap import Estimate

PAIRS = 100
NUM_REQUESTS = 400
COMPILE_US, MASK_US = 40_000, 250.0
STEP_US, PREFILL_US = 2_000.0, 4_000.0
TRUTH = TwinConfig(
    engine=EngineConfig(max_num_seqs=64, num_gpu_blocks=20_000),
    latency=Extended(alpha0=2000, beta0=6000, beta1=30, beta2=150, sigma=0.03),
)
TWINS = {
    "right": replace(TRUTH, latency=replace(TRUTH.latency, sigma=0.0)),
    "wrong": replace(TRUTH, latency=Extended(alpha0=4000, beta0=6600, beta1=27, beta2=140)),
}


Found = dict[str, tuple[Estimate, float]]
"""By cost: what a pair of runs shows of it, and the truth."""


def asked(rng: np.random.Generator) -> Trace:
    """Return the requests that both runs of a pair have."""
    columns = {
        "request_id": [str(i) for i in range(NUM_REQUESTS)],
        "arrival_time_us": np.cumsum(rng.exponential(90_000, NUM_REQUESTS)).astype(np.int64),
        "input_tokens": rng.integers(50, 900, NUM_REQUESTS),
        "output_tokens": rng.integers(20, 250, NUM_REQUESTS),
    }
    return make_trace(Header(mode="generated"), columns)


def served(trace: Trace, engine: EngineConfig, *, seed: int) -> Trace:
    """Return what a server makes of the requests."""
    server = replace(TRUTH, engine=engine, latency=replace(TRUTH.latency, seed=seed))
    return simulate_trace(trace, server)[0].with_header(mode="real")


def guided(twin: TwinConfig, seed: int) -> Found:
    """Return the costs of grammars from a plain run and one in which half of the requests are guided."""
    rng = np.random.default_rng(seed)
    plain = asked(rng)
    half = plain.with_columns(guided=rng.random(NUM_REQUESTS) < 0.5)
    engine = replace(TRUTH.engine, guided_compile_us=COMPILE_US, guided_mask_us=MASK_US)
    runs = [served(trace, engine, seed=2 * seed + number) for number, trace in enumerate((plain, half))]
    cost = fit_guided(runs[0], runs[1], twin, seed=seed)
    return {"compile": (cost.compile_us, COMPILE_US), "mask": (cost.mask_us, MASK_US)}


def host(twin: TwinConfig, seed: int) -> Found:
    """Return the CPU's time from a run with async scheduling and one without."""
    trace = asked(np.random.default_rng(seed))
    hidden = replace(TRUTH.engine, async_scheduling=True)
    shown = replace(TRUTH.engine, async_scheduling=False, host_step_us=STEP_US, host_prefill_us=PREFILL_US)
    runs = [served(trace, engine, seed=2 * seed + number) for number, engine in enumerate((hidden, shown))]
    cost = fit_host(runs[0], runs[1], twin, seed=seed)
    return {"step": (cost.step_us, STEP_US), "prefill": (cost.prefill_us, PREFILL_US)}


def main() -> None:
    """Print, per twin and cost, coverage, width, and how far the values lie from the truth."""
    number, started = int(sys.argv[1]) if sys.argv[1:] else PAIRS, time.process_time()
    measure = host if sys.argv[2:] == ["host"] else guided
    rows = defaultdict(list)
    for seed in range(number):
        for name, twin in TWINS.items():
            for label, (found, truth) in measure(twin, seed).items():
                low, high = found.low or 0.0, np.inf if found.high is None else found.high
                rows[name, label].append(
                    (low <= truth <= high, (high - low) / truth, found.value / truth - 1)
                )
    print("| twin | cost | coverage | median width | median of the value | spread of the fits |")
    print("|---|---|---|---|---|---|")
    for (name, label), each in rows.items():
        held, width, off = np.array(each, dtype=float).T
        print(
            f"| {name} | {label} | {held.mean():.3f} | {100 * np.median(width):.1f} % | "
            f"{100 * np.median(off):+.1f} % | {100 * off.std():.1f} % |"
        )
    print(f"{number} pairs, {time.process_time() - started:.0f} CPU s")


if __name__ == "__main__":
    main()
