"""Intervals of ``capacity --sessions`` against many more sessions: how many of twenty draws' hold the number.

Of unlike sessions each draw has others. Alike ones are the same in each, and differ in where they begin; the number
that is true for them is that of very many sessions whose lengths differ by a tenth.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from replay.capacity.sessions import most_sessions
from replay.twin.config_read import load_config
from replay.twin.twin_config import TwinConfig
from traces import Trace
from traces.run_slo import parse_run_slo
from traces.workload import SessionStarts, WorkloadOptions, trace_from_options

NUM_SEEDS = 20
OF_TRUTH = 2_000
"""Sessions of the run that says the true number."""
CASES = {
    "8 seats, TTFT p99 within 120 ms, 50 sessions": (8, "ttft_p99=120ms", 50),
    "8 seats, TTFT p99 within 120 ms, 200 sessions": (8, "ttft_p99=120ms", 200),
    "64 seats, TPOT p90 within 14 ms, 200 sessions": (64, "tpot_p90=14ms", 200),
    "64 seats, TTFT p95 within 300 ms, 100 sessions": (64, "ttft_p95=300ms", 100),
    "32 seats, E2E p95 within 2 s, 200 sessions": (32, "e2e_p95=2s", 200),
}
TWIN = """\
engine: {{max_num_seqs: {seats}, max_num_batched_tokens: 512, num_gpu_blocks: 2000, max_model_len: 4096}}
latency: {{model: blackbox, coefficients: {{alpha0: 500, alpha1: 2, alpha2: 0, beta0: 8000, beta1: 30, beta2: 100}}}}
"""


UNLIKE, NEARLY_ALIKE, ALIKE = (200.0, 50.0), (30.0, 6.0), (None, None)
"""Standard deviations of prompts and answers, tokens."""


def sessions(number: int, *, seed: int, spread: tuple[float | None, float | None] = UNLIKE) -> Trace:
    """Return sessions of four rounds each, whose prompts grow."""
    return trace_from_options(
        WorkloadOptions(
            rate=1.0,
            num_requests=4 * number,
            rounds=4,
            think_time=1.0,
            prompt_tokens=300,
            prompt_tokens_stdev=spread[0],
            output_tokens=60,
            output_tokens_stdev=spread[1],
            context_growth="accumulate",
            seed=seed,
        )
    )


def row(name: str, twin: TwinConfig, *, is_alike: bool) -> str:
    """Return a row of the table: a server, and how many intervals hold the number of very many sessions."""
    _, slo, number = CASES[name]
    limits = list(parse_run_slo(slo))
    many = sessions(OF_TRUTH, seed=10_000, spread=NEARLY_ALIKE if is_alike else UNLIKE)
    true = most_sessions(many, twin, limits, SessionStarts(seed=1)).number
    found = []
    for seed in range(NUM_SEEDS):
        one = sessions(number, seed=seed, spread=ALIKE if is_alike else UNLIKE)
        found.append(most_sessions(one, twin, limits, SessionStarts(seed=100 * seed if is_alike else 1)))
    known = [each for each in found if each.low is not None and each.high is not None]
    held = sum((each.low or 0) <= true <= (each.high or 0) for each in known)
    width = np.median([(each.high or 0) - (each.low or 0) for each in known])
    middle = np.mean([each.number for each in known])
    kind = "alike" if is_alike else "unlike"
    return f"| {name} | {kind} | {true:,} | {len(known)} | {held} | {middle:.1f} | {width:.0f} |"


def table(folder: Path) -> str:
    """Return how many intervals hold the number of very many sessions."""
    lines = [
        "| server | sessions | true number | searches | hold it | number, mean | median width |",
        "|---" * 7 + "|",
    ]
    for name, (seats, _, _) in CASES.items():
        path = folder / "twin.yaml"
        path.write_text(TWIN.format(seats=seats))
        twin = load_config(path)
        lines += [row(name, twin, is_alike=is_alike) for is_alike in (False, True)]
    return "\n".join(lines)
