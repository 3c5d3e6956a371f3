"""How often the printed intervals of simulated fleets hold what an endless run would have.

Random fleets of one to three A100, each as ``vtwin fleet size`` simulates it with several seeds, against the mean of
long runs of the same engines.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from replay.fleet.check.pool import Verification, verify
from replay.fleet.check.steady import BatchedMean, RunLength
from replay.fleet.inputs.profiles import ProfileSource, from_profile, shipped_profiles
from sim.fleet import Lengths
from sim.fleet.sizing import pool_at
from tests.studies.validation.intervals import Seen, seen_of, table_of

NUM_CASES = 40
NUM_RUNS = 5
NUM_LONG, LONG = 2, 1_000_000
SHARES = (0.5, 0.7, 0.85, 1.0)
"""Of the slots that are taken by formula."""
CONTEXT = 8192
FIGURES = ("ttft_p99", "ttft_p50", "tpot_mean", "tpot_p99")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A fleet under load."""

    source: ProfileSource
    lengths: Lengths
    rate_per_s: float
    engines: int
    service_s: float

    def run(self, seed: int, num_requests: int) -> Verification:
        """Simulate it."""
        return verify(
            self.source,
            self.lengths,
            self.rate_per_s,
            engines=self.engines,
            service_s=self.service_s,
            seed=seed,
            asked=RunLength(num_requests=num_requests),
        )


def case(number: int) -> Case:
    """Return a random fleet; a function of its number."""
    rng = np.random.default_rng(number)
    prompts, answers = rng.uniform(5.0, 7.0), rng.uniform(3.0, 5.5)
    lengths = Lengths(
        input_tokens=np.ceil(rng.lognormal(prompts, rng.uniform(0.3, 1.0), 500)).clip(1, 6000),
        output_tokens=np.ceil(rng.lognormal(answers, rng.uniform(0.3, 0.9), 500)).clip(1, 2000),
    )
    source, engines = (
        from_profile("A100", shipped_profiles()["A100"], context=CONTEXT),
        int(rng.integers(1, 4)),
    )
    size = pool_at(source.profile, lengths, 1.0, context=CONTEXT, engines=engines)
    return Case(
        source=source,
        lengths=lengths,
        rate_per_s=SHARES[number % len(SHARES)] * engines * size.throughput,
        engines=engines,
        service_s=size.service_s,
    )


def intervals_of(number: int) -> list[Seen]:
    """Return the intervals of all runs of a case."""
    fleet = case(number)
    long = [fleet.run(900 + seed, LONG) for seed in range(NUM_LONG)]
    truths = {name: float(np.mean([getattr(each, name).value for each in long])) for name in FIGURES}
    found = []
    for seed in range(NUM_RUNS):
        run = fleet.run(1 + seed, 50_000)
        for name in FIGURES:
            figure: BatchedMean = getattr(run, name)
            is_enough = replace(run, ttft_p99=figure).is_long_enough
            found.append(seen_of(name, figure, truths[name], is_called_enough=is_enough))
    return found


def table(workers: int = 2) -> str:
    """Return the Markdown table."""
    return table_of("figure", intervals_of, num_cases=NUM_CASES, workers=workers)
