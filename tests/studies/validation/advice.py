"""Advice beside brute force on twenty drawn servers: ``python -m tests.studies.validation --only advice``.

Each server has a model, a GPU, a load and limits of its own. ``tune`` without ``--set`` is held against a wide grid,
``capacity`` against bisection by simulation, and ``sweep``'s front against all pairs of its points.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from replay.capacity.capacity import capacity_of_draws
from replay.search.load import load_of
from replay.sweeps.front import LATENCY, THROUGHPUT, front_of
from replay.sweeps.grid import read_grid
from replay.sweeps.one_run import row_of
from replay.tuning.candidate_search import search
from replay.tuning.candidates import Border, candidates_of
from tests.studies.validation.optimisers import OTHER_SEED, RandomCase, bisected

NUM_CASES = 20
NUM_REQUESTS = 2_000
"""Requests of a run of the search;"""
OF_BRUTE_FORCE = 6_000
"""of brute force for one of many settings,"""
OF_BISECTION, DRAWS_OF_BISECTION = 18_750, 24
"""and for the server as it is: as many as a seed of the search, but three times as many seeds. A single draw of 30,000
scatters by 1 to 5 %, as much as the interval is wide."""
MODELS = (
    ("Qwen/Qwen3-8B", 1),
    ("Qwen/Qwen3-4B", 1),
    ("meta-llama/Llama-3.1-8B", 1),
    ("Qwen/Qwen3-14B", 1),
    ("Qwen/Qwen3-32B", 2),
    ("Qwen/Qwen3-30B-A3B", 2),
)
"""Each with the GPUs that it is given."""
GPUS = ("A100-80", "H100", "H200", "L40S")
WIDE = ("engine.max_num_seqs=8,16,32,64,128,256,512", "engine.max_num_batched_tokens=512,1024,2048,4096,8192")


def case_of(number: int) -> RandomCase:
    """Return a drawn server with what it is sent and its limits."""
    rng = np.random.default_rng([77, number])
    model, gpus = MODELS[rng.integers(len(MODELS))]
    gpu = str(rng.choice(GPUS))
    seats, budget = int(rng.choice([16, 64, 256])), int(rng.choice([1024, 2048, 4096]))
    return RandomCase(
        number=number,
        twin_yaml=(
            f"engine: {{max_num_seqs: {seats}, max_num_batched_tokens: {budget}, max_model_len: 8192}}\n"
            f"hardware: {{gpu: {gpu}, tp: {gpus if gpu != 'L40S' else 2 * gpus}}}\n"
            f"latency: {{model: roofline, model_config: {model}}}\n"
        ),
        slo=f"ttft_p99={int(rng.integers(500, 4000))}ms,tpot_p99={int(rng.integers(25, 120))}ms",
        prompt_tokens=int(10 ** rng.uniform(1.7, 3.3)),
        output_tokens=int(10 ** rng.uniform(1.3, 2.5)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What one case gave: rates by the advice and by brute force, requests/s; names of settings."""

    number: int
    capacity: float
    low: float
    high: float
    bisected: float
    advice: str
    of_advice: float
    best: str
    of_best: float
    front: str

    def line(self) -> str:
        """Return the row of the table."""
        lost = 1 - self.of_advice / self.of_best if self.of_best else 0.0
        is_in = self.low <= self.bisected * 1.005 and self.bisected <= self.high * 1.005
        off = f"{self.capacity / self.bisected - 1:+.1%}" if self.bisected else "-"
        return (
            f"| {self.number} | {self.capacity:.4g} ({self.low:.4g} to {self.high:.4g}) | {self.bisected:.4g} "
            f"| {off} | "
            f"{'yes' if is_in else '**no**'} | {self.advice} | {self.best} | {lost:.1%} | {self.front} |"
        )


def held(number: int, folder: str) -> Held:
    """Return what a case gives."""
    case, place = case_of(number), Path(folder)
    config, twin = case.config(place), case.twin(place)
    capacity = capacity_of_draws(
        case.drawing()(NUM_REQUESTS, 1),
        twin,
        case.limits,
        drawing=case.drawing(),
        with_binding=False,
        with_curve=False,
    )
    candidates = candidates_of(config, None, [])  # as the command without --set
    tuned = search(
        case.drawing()(NUM_REQUESTS, 1),
        candidates.tried,
        case.limits,
        keep=1,
        drawing=case.drawing(),
        border=Border(candidates, config),
    )
    trace = case.drawn(num_requests=OF_BRUTE_FORCE, seed=OTHER_SEED + number)
    tried = candidates_of(config, None, list(WIDE)).tried
    advised = tuned.best[0][0] if tuned.best else None
    rates = {each.name: bisected([load_of(trace, each.twin)], case.limits) for each in tried}
    best = max(rates, key=lambda name: rates[name])
    return Held(
        number=number,
        capacity=capacity.rate_per_s or 0.0,
        low=capacity.low or 0.0,
        high=capacity.high or np.inf,
        bisected=bisected(
            [
                load_of(case.drawn(num_requests=OF_BISECTION, seed=OTHER_SEED + 1000 * number + i), twin)
                for i in range(DRAWS_OF_BISECTION)
            ],
            case.limits,
        ),
        advice="none" if advised is None else advised.name,
        of_advice=0.0 if advised is None else bisected([load_of(trace, advised.twin)], case.limits),
        best=best,
        of_best=rates[best],
        front=_front(config, place, capacity.rate_per_s or 1.0, case),
    )


def _front(config: Path, folder: Path, rate: float, case: RandomCase) -> str:
    """Return how many settings the front has, and whether they are those that no other beats in both figures."""
    grid = folder / f"grid-{case.number}.yaml"
    grid.write_text(
        f"config: {config.name}\nset:\n  engine.max_num_seqs: [8, 32, 128]\n"
        "  engine.max_num_batched_tokens: [512, 2048]\n"
        f"workloads:\n  one: {{rate: {0.8 * rate:.4g}, prompt_tokens: {case.prompt_tokens}, "
        f"output_tokens: {case.output_tokens}, num_requests: 500}}\nseeds: 1\n"
    )
    read = read_grid(grid)
    table = pd.DataFrame([{**each.columns(), **row_of(each)} for each in read.runs])
    settings = tuple(name for name in read.runs[0].columns() if name != "seed")
    front = front_of(table, settings, x=None, y=None)
    found = front.points[front.points["is_best"]]
    points = front.points[[front.x, front.y]].to_numpy(np.float64)
    assert (front.x, front.y) == (THROUGHPUT, LATENCY)
    kept = {
        i
        for i, (more, less) in enumerate(points)
        if not any((x >= more and y <= less) and (x > more or y < less) for x, y in points)
    }
    place = {label: i for i, label in enumerate(front.points.index)}
    same = {place[each] for each in found.index} == kept
    return f"{len(found)} of {len(points)}, {'the same' if same else '**others**'}"


def rows(folder: Path, workers: int = 2) -> Iterator[str]:
    """Yield the table's lines."""
    yield (
        "| case | capacity (90 % interval) | by bisection | over it | in the interval | `tune` says | best of the wide "
        "grid | lost | front |"
    )
    yield "|---" * 9 + "|"
    with ProcessPoolExecutor(workers) as pool:
        for found in pool.map(held, range(NUM_CASES), [str(folder)] * NUM_CASES):
            sys.stderr.write(found.line() + "\n")
            yield found.line()


def table(folder: Path) -> str:
    """Return the table of all cases."""
    return "\n".join(rows(folder))
