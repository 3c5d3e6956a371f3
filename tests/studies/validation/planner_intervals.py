"""How often other intervals of the planner hold the truth: the gain of ``tune``, capacities of ``model compare``.

Random servers, each searched several times as the commands do it, with requests of its own. The truth is that of long
runs (``capacity_coverage.truth_of``).
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from replay.gpus.comparison import GpuQuestion, compared_gpus
from replay.model.gpus import find_gpu
from replay.search.load import loads_of
from replay.search.seeds import DEFAULT_SEEDS
from replay.search.workload_draws import DEFAULT_NUM_REQUESTS, Drawing, drawing_of, draws, options_at
from replay.tuning.candidate_search import search
from replay.tuning.candidates import candidates_of
from replay.twin.twin_config import TwinConfig
from tests.studies.validation.capacity_coverage import binomial_interval, truth_of
from tests.studies.validation.optimisers import RandomCase, random_case
from traces import Trace
from traces.run_slo import RunLimit, parse_run_slo
from traces.workload import WorkloadOptions, trace_from_options

NUM_CASES, NUM_RUNS = 10, 5
LONG, NUM_LONG = 50_000, 20
"""Requests of a long run, and how many there are."""
APART = 1000
"""Seeds of runs lie so far apart,"""
TRUTH_SEED = 900_000
"""and those of the truth above all of them."""
AXES = ("engine.max_num_seqs=8,32,128", "engine.max_num_batched_tokens=512,2048")
LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
GPUS = ("A100-80", "H100", "L40S")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A printed interval and the truth, both as the number that is printed; ``cpu_s``: of the search."""

    figure: str
    value: float
    low: float
    high: float
    truth: float
    cpu_s: float

    @property
    def is_held(self) -> bool:
        """Whether the interval holds the truth."""
        return self.low <= self.truth <= self.high


def _true_rate(
    drawn: Callable[[int, int], Trace], twin: TwinConfig, limits: Sequence[RunLimit], *, near: float
) -> float:
    """Return a server's capacity in long runs; ``drawn``: of a number of requests and a seed."""
    loads = loads_of([drawn(LONG, TRUTH_SEED + i) for i in range(NUM_LONG)], twin)
    return truth_of(loads, limits, near=near).rate_per_s


def gains_of(number: int, folder: Path) -> Iterator[Seen]:
    """Yield what ``tune`` says that its best server gains, for several draws of a random case."""
    case = random_case(number)
    tried = candidates_of(case.config(folder), None, [*AXES, "engine.enable_chunked_prefill=true"]).tried
    rates = dict[str, float]()

    def drawn(num_requests: int, seed: int) -> Trace:
        return case.drawn(num_requests=num_requests, seed=seed)

    for run in range(NUM_RUNS):
        started = time.process_time()
        drawing = _drawing(case, seed=APART * (1 + run))
        tuned = search(drawing(DEFAULT_NUM_REQUESTS, 1), tried, case.limits, keep=1, drawing=drawing)
        cpu_s = time.process_time() - started
        if tuned.gain is None or tuned.gain_interval is None or not tuned.best[0][0].settings:
            continue  # nothing is printed: the server is the best as it is
        for candidate, capacity in (tuned.own, tuned.best[0]):
            if candidate.name not in rates:
                near = capacity.rate_per_s or math.nan
                rates[candidate.name] = _true_rate(drawn, candidate.twin, case.limits, near=near)
        low, high = tuned.gain_interval
        yield Seen(
            figure="gain of tune",
            value=1 + tuned.gain,
            low=1 + low,
            high=1 + high,
            truth=rates[tuned.best[0][0].name] / rates[tuned.own[0].name],
            cpu_s=cpu_s,
        )


def _drawing(case: RandomCase, *, seed: int) -> Drawing:
    def draw(num_requests: int, seeds: int) -> list[Trace]:
        return [case.drawn(num_requests=num_requests, seed=seed + i) for i in range(seeds)]

    return Drawing(draw=draw, seeds=DEFAULT_SEEDS, most_seeds=DEFAULT_SEEDS)


def compared_of(number: int, _folder: Path) -> Iterator[Seen]:
    """Yield the capacities of ``model compare`` for several draws of a random load on three GPUs."""
    from replay.gpus.cli import DEFAULT_NUM_REQUESTS as OF_COMPARE
    from replay.gpus.options import DEFAULT_SEEDS as SEEDS_OF_COMPARE

    rng = np.random.default_rng(number)
    prompt, output = int(rng.integers(200, 2000)), int(rng.integers(30, 250))
    limits = parse_run_slo(
        f"ttft_p99={int(rng.integers(300, 2000))}ms,tpot_p99={int(rng.integers(30, 80))}ms"
    )
    asked = GpuQuestion(
        model_config=LLAMA,
        latency_model="physics",
        engine={"max_num_seqs": int(2 ** rng.integers(4, 9))},
        dtype="auto",
        kv_cache_dtype="auto",
        vllm_version=None,
        rate_per_s=1.0,
        limits=limits,
    )

    def options(num_requests: int, seed: int) -> WorkloadOptions:
        plain = WorkloadOptions(
            prompt_tokens=prompt,
            prompt_tokens_stdev=0.5 * prompt,
            output_tokens=output,
            output_tokens_stdev=0.5 * output,
            seed=seed,
        )
        return options_at(plain, rate=asked.rate_per_s, num_requests=num_requests)

    gpu = find_gpu(GPUS[number % len(GPUS)], where="here")
    truth = None
    for run in range(NUM_RUNS):
        plain = options(OF_COMPARE, APART * (1 + run))
        started = time.process_time()
        (found,) = compared_gpus(
            [(gpu, 1)],
            asked,
            draws(plain, SEEDS_OF_COMPARE),
            prices={},
            drawing=drawing_of(plain, seeds=SEEDS_OF_COMPARE),
        )
        cpu_s = time.process_time() - started
        capacity = found.capacity
        if capacity is None or capacity.low is None or capacity.high is None or found.twin is None:
            continue
        rate = capacity.rate_per_s or math.nan
        if truth is None:
            truth = _true_rate(
                lambda long, seed: trace_from_options(options(long, seed)), found.twin, limits, near=rate
            )
        yield Seen(
            figure="capacity of model compare",
            value=rate,
            low=capacity.low,
            high=capacity.high,
            truth=truth,
            cpu_s=cpu_s,
        )


FIGURES: tuple[Callable[[int, Path], Iterator[Seen]], ...] = (gains_of, compared_of)


def table(folder: Path) -> str:
    """Return the Markdown table; every interval is told on stderr as soon as it is there."""
    lines = [
        "| figure | intervals | hold the truth | median width | median error | spread of errors | CPU s |",
        "|---|---|---|---|---|---|---|",
    ]
    for make in FIGURES:
        seen = []
        for number in range(1, 1 + NUM_CASES):
            for each in make(number, folder):
                print(number, each, file=sys.stderr, flush=True)
                seen.append(each)
        held = sum(each.is_held for each in seen)
        least, most = binomial_interval(held, len(seen))
        off = [each.value / each.truth - 1 for each in seen]
        lines.append(
            f"| {seen[0].figure} | {len(seen)} | {held / len(seen):.0%} ({least:.0%} to {most:.0%}) | "
            f"{np.median([(each.high - each.low) / each.value for each in seen]):.1%} | {np.median(off):+.2%} | "
            f"{np.std(off, ddof=1):.2%} | {np.mean([each.cpu_s for each in seen]):.1f} |"
        )
    return "\n".join(lines)
