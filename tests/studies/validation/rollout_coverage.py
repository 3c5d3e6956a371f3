"""How often the 90 % interval of ``run --batch`` holds the mean of many batches: of the time, and of what helps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from replay import RolloutSettings, load_config, run_rollouts
from replay.rollouts.rollouts import Rollouts, RolloutWay, estimate
from traces.workload import WorkloadOptions

BATCHES = 600
EACH = 5
"""Batches of one interval: the command's own number where nothing is said."""
TWIN = """\
engine: {max_num_seqs: 32, max_num_batched_tokens: 2048, num_gpu_blocks: 20000, max_model_len: 8192}
latency: {model: blackbox, coefficients: {alpha0: 500, alpha1: 0, alpha2: 0, beta0: 6000, beta1: 20, beta2: 10}}
"""


def table(work: Path) -> str:
    """Return the table: a row per figure, the share of intervals of five batches that hold the mean of all."""
    (work / "rollouts.yaml").write_text(TWIN)
    settings = RolloutSettings(
        prompts=8, samples=8, batches=BATCHES, oversubscriptions=(1.25,), partial_share=1.0
    )
    workload = WorkloadOptions(
        prompt_tokens=200, output_tokens=300, output_tokens_stdev=300, output_tokens_max=4000, seed=1
    )
    found = run_rollouts(workload, load_config(work / "rollouts.yaml"), settings)
    (over,) = (way for way in found.others if way.way == "oversubscribed")
    rows = {
        "time per N x G answers, plain": per_answers(found, found.plain),
        "the same, 1.25 times as many drawn": per_answers(found, over),
        "change by drawing 1.25 times as many": [
            mine / plain - 1
            for mine, plain in zip(per_answers(found, over), per_answers(found, found.plain), strict=True)
        ],
    }
    lines = ["| figure of five batches | intervals | hold the mean of all |", "|---|---|---|"]
    lines += [
        f"| {name} | {BATCHES // EACH} | {100 * coverage(values):.1f} % |" for name, values in rows.items()
    ]
    return "\n".join(lines)


def per_answers(found: Rollouts, way: RolloutWay) -> list[float]:
    """Return each batch's time per as many answers as it has samples."""
    return [found.full_us(batch) for batch in way.batches]


def coverage(values: Sequence[float]) -> float:
    """Return the share of intervals of ``EACH`` values in a row that hold the mean of all."""
    truth, held = float(np.mean(values)), 0
    for start in range(0, len(values), EACH):
        each = estimate(values[start : start + EACH])
        held += abs(each.mean - truth) <= (each.half_width or 0.0)
    return held * EACH / len(values)
