"""``python -m tests.conformance.pair.random_run``: random cases, two real vLLM schedulers against two engines of vtwin.

``VLLM_PYTHON`` is a Python that has vLLM, ``VLLM_MODEL`` the directory of a small model. Cases lie in
``conformance-random/pair-seed-S``. Prints a line per case that differs, or that vLLM came to no end with, and at last
how many were identical. Exit codes: 0 all identical, 1 not so.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from tests.conformance.pair.compare import compare_pair, read_pair
from tests.conformance.pair.draw import LINK, SLOW_LINK, rows, text_of

WORK = Path("conformance-random")


def drawn_case(seed: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return configuration and requests of one case: small caches, few seats, chunks, prefixes, both loops."""
    rng = random.Random(seed)
    config: dict[str, Any] = {
        "transfer": rng.choice([LINK, SLOW_LINK]),
        "async_scheduling": rng.random() < 0.5,
        "enable_prefix_caching": rng.random() < 0.7,
        "policy": rng.choice(["fcfs", "fcfs", "priority"]),
    }
    longest = rng.choice([200, 600, 900])
    for role in ("prefill", "decode"):
        needed = longest // 16 + 12
        side: dict[str, Any] = {"num_gpu_blocks": rng.choice([2000, 5 * needed, 2 * needed, needed + 4])}
        side["max_num_seqs"] = rng.choice([2, 8, 32])
        side["max_num_batched_tokens"] = rng.choice([64, 256, 2048])
        side["long_prefill_token_threshold"] = rng.choice([0, 0, 32, 100])
        side["scheduler_reserve_full_isl"] = rng.random() < 0.7
        side["watermark"] = rng.choice([0.0, 0.0, 0.05])
        config[role] = side
    prefixes = rng.choice([(), (), (16, 64, 90)])
    requests = rows(
        seed,
        num=rng.choice([20, 40, 70]),
        gap_us=rng.choice([2_000, 9_000, 30_000]),
        prompts=(100 if prefixes else 10, longest),
        outputs=(1, rng.choice([5, 40, 100])),
        prefixes=prefixes,
        priorities=config["policy"] == "priority",
    )
    return config, requests


def write_cases(folder: Path, number: int, *, seed: int) -> list[Path]:
    """Write cases and return their folders."""
    found = []
    for index in range(number):
        case = folder / f"{index:04d}"
        case.mkdir(parents=True, exist_ok=True)
        for name, text in text_of(*drawn_case(seed * 100_000 + index)).items():
            (case / name).write_text(text)
        found.append(case)
    return found


def recorded(cases: Sequence[Path]) -> dict[str, dict[str, Any]]:
    """Run the cases in a real vLLM and return what it said of each, by name."""
    python = os.environ.get("VLLM_PYTHON", "python")
    command = [python, "-m", "tests.conformance.pair.record", "--blocks", *map(str, cases)]
    answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    lines = [json.loads(line) for line in answer.stdout.splitlines() if line.startswith("{")]
    return {line["case"]: line for line in lines}


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw, record, compare, tell; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.pair.random_run", description=__doc__)
    parser.add_argument("--number", type=int, default=50, help="how many cases (50)")
    parser.add_argument("--seed", type=int, default=1, help="which ones (1)")
    options = parser.parse_args(arguments)
    cases = write_cases(WORK / f"pair-seed-{options.seed}", options.number, seed=options.seed)
    answers = recorded(cases)
    num_different = num_endless = num_steps = 0
    for case in cases:
        error = answers[case.name].get("error")
        if error is not None:
            num_endless += 1
            typer.echo(f"{case.name}: {error}")
            continue
        recording = read_pair(case)
        num_steps += sum(len(steps) for steps in recording.steps.values())
        difference = compare_pair(recording)
        if difference is not None:
            num_different += 1
            typer.echo(f"{case.name}: {difference}")
    num_alike = len(cases) - num_different - num_endless
    typer.echo(
        f"{num_alike} of {len(cases)} identical, {num_different} different, {num_endless} without end; "
        f"{num_steps:,} steps"
    )
    return 1 if num_different else 0


if __name__ == "__main__":
    raise SystemExit(main())
