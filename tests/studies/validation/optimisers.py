"""Each optimiser beside brute force on ten random cases: ``python -m tests.studies.validation --only optimisers``.

Brute force knows nothing of the search: it simulates every rate of a grid, or every candidate, and takes numpy's
percentile. Its requests are others than the search's. ``OPTIMISERS`` lists a function for each, which returns a table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from replay.capacity.capacity import capacity_of_draws
from replay.search.load import Load, load_of
from replay.search.seeds import DEFAULT_SEEDS, MOST_SEEDS
from replay.search.workload_draws import DEFAULT_NUM_REQUESTS, Drawing, searchable
from replay.tuning.candidate_search import search
from replay.tuning.candidates import candidates_of
from replay.twin.config_read import load_config
from replay.twin.twin_config import TwinConfig
from traces import Trace
from traces.run_slo import RunLimit, parse_run_slo
from traces.workload import WorkloadOptions, trace_from_options

NUM_CASES = 10
LONG = 100_000
"""Requests of a run of brute force for a capacity;"""
SHORTER = 20_000
"""for each of many candidates."""
SETTLING = 0.1
GRID = tuple(float(rate) for rate in 1.01 ** np.arange(-8, 9))
"""Rates that are tried, over the one that was found: a hundredth apart."""
OTHER_SEED = 5_000
"""Brute force's requests have seeds from here upwards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomCase:
    """A server and what it is sent, drawn with a number."""

    number: int
    twin_yaml: str
    slo: str
    prompt_tokens: int
    output_tokens: int

    @property
    def limits(self) -> list[RunLimit]:
        """Return the limits."""
        return list(parse_run_slo(self.slo))

    def config(self, folder: Path) -> Path:
        """Write TWIN.yaml; return where it stands."""
        path = folder / f"twin-{self.number}.yaml"
        path.write_text(self.twin_yaml)
        return path

    def twin(self, folder: Path) -> TwinConfig:
        """Return the twin."""
        return load_config(self.config(folder))

    def drawn(self, *, num_requests: int, seed: int) -> Trace:
        """Return the load drawn with a seed."""
        asked = WorkloadOptions(
            prompt_tokens=self.prompt_tokens,
            prompt_tokens_stdev=0.5 * self.prompt_tokens,
            output_tokens=self.output_tokens,
            output_tokens_stdev=0.5 * self.output_tokens,
            num_requests=num_requests,
            seed=seed,
        )
        return trace_from_options(searchable(asked))

    def drawing(self, *, most_seeds: int = DEFAULT_SEEDS) -> Drawing:
        """Return what draws it as the commands do."""

        def draw(num_requests: int, seeds: int) -> list[Trace]:
            return [self.drawn(num_requests=num_requests, seed=1000 * self.number + i) for i in range(seeds)]

        return Drawing(draw=draw, seeds=DEFAULT_SEEDS, most_seeds=most_seeds)


def random_case(number: int) -> RandomCase:
    """Return a case: 8 to 128 seats, steps of 3 to 20 ms, one server, or two to four behind a router."""
    rng = np.random.default_rng(number)
    seats, budget = int(2 ** rng.integers(3, 8)), int(2 ** rng.integers(9, 13))
    base = int(rng.integers(3_000, 20_000))
    instances = int(rng.choice([1, 1, 2, 4]))
    policy = str(rng.choice(["round-robin", "least-loaded"]))
    cluster = f"cluster: {{instances: {instances}, routing: {{policy: {policy}}}}}\n" if instances > 1 else ""
    return RandomCase(
        number=number,
        twin_yaml=(
            f"engine: {{max_num_seqs: {seats}, max_num_batched_tokens: {budget}, num_gpu_blocks: 8000, "
            "max_model_len: 8192, async_scheduling: false}\n"
            "latency:\n  model: blackbox\n  coefficients: "
            f"{{alpha0: 500, alpha1: 2, alpha2: 0, beta0: {base}, beta1: {int(rng.integers(5, 40))}, beta2: 20}}\n"
            + cluster
        ),
        slo=f"ttft_p99={int(rng.integers(300, 2000))}ms,tpot_p99={2 * base + 20_000}us",
        prompt_tokens=int(rng.integers(50, 1500)),
        output_tokens=int(rng.integers(20, 300)),
    )


def keeps(loads: Sequence[Load], rate_per_s: float, limits: Sequence[RunLimit]) -> bool:
    """Say whether runs at a rate, all together, keep limits on percentiles of TTFT and TPOT."""
    values: dict[str, list[NDArray[np.float64]]] = {"ttft": [], "tpot": []}
    for load in loads:
        outcomes, _, _ = load.serve(load.at(rate_per_s), "none")
        rows = np.argsort(outcomes.arrival_us, kind="stable")[int(SETTLING * len(outcomes.arrival_us)) :]
        gaps = np.maximum(outcomes.num_output_tokens - 1, 1)
        values["ttft"].append((outcomes.first_token_us - outcomes.arrival_us)[rows].astype(np.float64))
        values["tpot"].append(((outcomes.last_token_us - outcomes.first_token_us) / gaps)[rows])
    return all(
        each.percent is not None
        and np.percentile(np.concatenate(values[each.metric]), each.percent) <= each.limit_us
        for each in limits
    )


def capacity_table(folder: Path) -> str:
    """Return how far the search for a capacity is from a grid of rates."""
    lines = [
        "| case | capacity found | interval | of a grid, 1 % apart | found over grid | in the interval |",
        "|---|---|---|---|---|---|",
    ]
    for number in range(1, NUM_CASES + 1):
        case = random_case(number)
        found = capacity_of_draws(
            case.drawing()(DEFAULT_NUM_REQUESTS, 1),
            case.twin(folder),
            case.limits,
            drawing=case.drawing(most_seeds=MOST_SEEDS),
            with_binding=False,
            with_curve=False,
        )
        load = load_of(case.drawn(num_requests=LONG, seed=OTHER_SEED + number), case.twin(folder))
        rate, low, high = found.rate_per_s or 0.0, found.low or 0.0, found.high or math.inf
        kept = [share * rate for share in GRID if keeps([load], share * rate, case.limits)]
        brute = max(kept, default=math.nan)
        is_in = low <= brute * GRID[9] and brute <= high  # the grid's next rate is the first that breaks
        lines.append(
            f"| {number} | {rate:.4g} | {low:.4g} to {high:.4g} | {brute:.4g} | {rate / brute - 1:+.1%} | "
            f"{'yes' if is_in else '**no**'} |"
        )
    return "\n".join(lines)


def tune_table(folder: Path) -> str:
    """Return what the advice of ``tune`` loses against the best of all candidates, each searched by itself."""
    lines = [
        "| case | candidates | best by brute force | its rate | advice | its rate by brute force | lost |",
        "|---|---|---|---|---|---|---|",
    ]
    for number in range(1, NUM_CASES + 1):
        case = random_case(number)
        axes = ["engine.max_num_seqs=8,32,128", "engine.max_num_batched_tokens=512,2048"]
        tried = candidates_of(case.config(folder), None, [*axes, "engine.enable_chunked_prefill=true"]).tried
        tuned = search(
            case.drawing()(DEFAULT_NUM_REQUESTS, 1),
            tried,
            case.limits,
            keep=1,
            drawing=case.drawing(),
        )
        trace = case.drawn(num_requests=SHORTER, seed=OTHER_SEED + number)
        rates = {each.name: bisected([load_of(trace, each.twin)], case.limits) for each in tried}
        best, advice = max(rates, key=lambda name: rates[name]), tuned.best[0][0].name
        lines.append(
            f"| {number} | {len(tried)} | {best} | {rates[best]:.4g} | {advice} | {rates[advice]:.4g} | "
            f"{1 - rates[advice] / rates[best]:.1%} |"
        )
    return "\n".join(lines)


def bisected(loads: Sequence[Load], limits: Sequence[RunLimit]) -> float:
    """Return the highest rate at which runs, all together, meet the limits, to half a per cent; 0 where none does."""
    low, high = 0.0, 1e-2
    while keeps(loads, high, limits):
        low, high = high, 2 * high
    while low > 0 and high / low > 1.005:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if keeps(loads, middle, limits) else (low, middle)
    return low


OPTIMISERS: dict[str, Callable[[Path], str]] = {"capacity": capacity_table, "tune": tune_table}


def table(folder: Path) -> str:
    """Return the tables of all optimisers."""
    return "\n\n".join(f"**{name}**\n\n{make(folder)}" for name, make in OPTIMISERS.items())
