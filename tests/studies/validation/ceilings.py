"""The ceiling of ``capacity`` with an SLO of seconds against a long overload: how many of twenty intervals hold it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from replay.capacity.capacity import capacity_of_draws
from replay.search.load import load_of
from sim import Status
from tests.studies.validation.optimisers import OTHER_SEED, RandomCase

NUM_CASES = 20
NUM_REQUESTS = 2_000
OF_TRUTH = 300_000
OVER = 1.5
"""The overload's rate, over the ceiling."""
FROM = 0.3
"""The share of the sending after which answers count."""


def case_of(number: int) -> RandomCase:
    """Return a drawn server of 8 to 256 seats and an SLO of 1 to 10 s."""
    rng = np.random.default_rng([99, number])
    seats, prompt, output = (
        int(2 ** rng.integers(3, 9)),
        int(rng.integers(100, 1500)),
        int(rng.integers(50, 500)),
    )
    blocks = max(int(seats * (prompt + output) / 16 * 10 ** rng.uniform(-0.5, 0.5)), 800)
    base = int(rng.integers(3_000, 20_000))
    return RandomCase(
        number=number,
        twin_yaml=(
            f"engine: {{max_num_seqs: {seats}, max_num_batched_tokens: 2048, num_gpu_blocks: {blocks}, "
            "max_model_len: 8192, async_scheduling: false}\n"
            "latency:\n  model: blackbox\n  coefficients: "
            f"{{alpha0: 500, alpha1: 2, alpha2: 0, beta0: {base}, beta1: {int(rng.integers(5, 40))}, beta2: 20}}\n"
        ),
        slo=f"ttft_p99={rng.uniform(1, 10):.1f}s",
        prompt_tokens=prompt,
        output_tokens=output,
    )


def answered(case: RandomCase, folder: Path, rate: float) -> float:
    """Return what a long overload answers, requests/s."""
    load = load_of(case.drawn(num_requests=OF_TRUTH, seed=OTHER_SEED + case.number), case.twin(folder))
    outcomes, _, _ = load.serve(load.at(rate), "none")
    sent = int(outcomes.arrival_us.max())
    done = outcomes.last_token_us[outcomes.status == Status.OK]
    return float(((done >= FROM * sent) & (done <= sent)).sum()) / ((1 - FROM) * sent) * 1e6


def table(folder: Path) -> str:
    """Return each server's ceiling beside the truth."""
    lines = ["| case | SLO | ceiling (90 % interval) | truth | off | holds it |", "|---" * 6 + "|"]
    held = num = 0
    for number in range(NUM_CASES):
        case = case_of(number)
        found = capacity_of_draws(
            case.drawing()(NUM_REQUESTS, 1),
            case.twin(folder),
            case.limits,
            drawing=case.drawing(),
            with_binding=False,
            with_curve=False,
        )
        most, low, high = found.ceiling_per_s, found.ceiling_low, found.ceiling_high
        if most is None or low is None or high is None:
            lines.append(f"| {number} | {case.slo} | none | - | - | - |")
            continue
        true = answered(case, folder, OVER * most)
        is_held = low <= true <= high
        held, num = held + is_held, num + 1
        lines.append(
            f"| {number} | {case.slo} | {most:.4g} ({low:.4g} to {high:.4g}) | {true:.4g} | {most / true - 1:+.2%} | "
            f"{'yes' if is_held else '**no**'} |"
        )
        print(lines[-1], flush=True)
    return "\n".join([f"{held} of {num} hold it.", "", *lines])
