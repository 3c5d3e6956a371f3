"""How often the intervals that ``fleet size``, ``reserve`` and ``flex`` print with ``--verify`` hold an endless run.

Random fleets. ``whatif`` and the hours of ``reserve`` print TTFT p99 of the fewest engines that meet an objective, so
that those are chosen by the very run that is printed; ``flex`` prints that of a fleet with some of its seats gone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from replay.fleet.check.pool import Verification, verify
from replay.fleet.check.steady import RunLength
from replay.fleet.inputs.need import Need
from replay.fleet.inputs.profiles import ProfileSource, from_profile, shipped_profiles
from replay.fleet.plans.flex import cuts_of
from replay.fleet.plans.rates_compared import whatif_of
from replay.fleet.plans.reserve import plan_day
from replay.fleet.plans.size import SizeCheck
from sim.fleet import Lengths
from sim.fleet.reserved import HOURS
from sim.fleet.sizing import Objective, pool_at
from tests.studies.validation.intervals import Seen, seen_of_ttft, table_of

NUM_CASES, NUM_RUNS = 20, 5
NUM_LONG, LONG = 2, 400_000
NUM_REQUESTS = 20_000
"""Of a simulation, as the commands have it."""
CONTEXT = 4096
DAY = (0.4, 0.7, 1.0)
"""Shares of a case's rate that its day goes through, again and again."""
NUM_DAYS = 1
"""A day of each case, with a seed each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A workload, an engine and an objective."""

    source: ProfileSource
    lengths: Lengths
    rate_per_s: float
    objective: Objective

    def truth(self, seen: Verification, source: ProfileSource, service_s: float) -> float:
        """Return TTFT p99 of long runs of the same engines."""
        runs = [
            verify(
                source,
                self.lengths,
                self.rate_per_s,
                engines=seen.engines,
                service_s=service_s,
                seed=7000 + number,
                asked=RunLength(num_requests=LONG),
            )
            for number in range(NUM_LONG)
        ]
        return float(np.mean([each.ttft_p99.value for each in runs]))


def case(number: int) -> Case:
    """Return a random workload whose requests stay for seconds, and 1 to 6 engines' worth of it."""
    rng = np.random.default_rng(2000 + number)
    lengths = Lengths(
        input_tokens=np.ceil(rng.lognormal(rng.uniform(5.0, 6.5), 0.8, 300)).clip(1, 3000),
        output_tokens=np.ceil(rng.lognormal(rng.uniform(2.5, 4.0), 0.6, 300)).clip(1, 500),
    )
    seats = int(rng.choice([16, 32, 64]))
    profile = replace(shipped_profiles()["A100"], max_slots=seats, reserves_context=False)
    alone = pool_at(profile, lengths, 1e-6, context=CONTEXT, engines=1)
    return Case(
        source=from_profile("A100", profile, context=CONTEXT),
        lengths=lengths,
        rate_per_s=float(rng.uniform(1, 6)) * alone.throughput,
        objective=Objective(ttft_p99_s=alone.ttft_p99_s * float(rng.uniform(1.5, 5))),
    )


def of_sizes(number: int) -> Iterator[Seen]:
    """Yield the intervals of ``whatif``."""
    mine, truths = case(number), dict[int, float]()
    for seed in range(1, 1 + NUM_RUNS):
        (answer,) = whatif_of(
            [mine.source],
            [
                Need(
                    lengths=mine.lengths,
                    rate_per_s=mine.rate_per_s,
                    objective=mine.objective,
                    context=CONTEXT,
                )
            ],
            check=SizeCheck(asked=RunLength(num_requests=NUM_REQUESTS), seed=seed),
        )
        if answer.simulated is None or answer.simulated.verified is None:
            continue
        found = answer.simulated.verified
        if found.engines not in truths:
            service = answer.simulated.analytic.service_s
            truths[found.engines] = mine.truth(found, mine.source, service)
        yield seen_of_ttft("whatif", found, truths[found.engines])


def of_cuts(number: int) -> Iterator[Seen]:
    """Yield the intervals of ``flex``: of every third number of seats with which the engines keep up."""
    mine, truths = case(number), dict[int, float]()
    size = pool_at(mine.source.profile, mine.lengths, mine.rate_per_s, context=CONTEXT, engines=1)
    engines = max(1, round(1.3 * mine.rate_per_s / size.throughput))
    for seed in range(1, 1 + NUM_RUNS):
        cuts = cuts_of(
            mine.source,
            Need(lengths=mine.lengths, rate_per_s=mine.rate_per_s, objective=mine.objective, context=CONTEXT),
            engines=engines,
            check=SizeCheck(asked=RunLength(num_requests=NUM_REQUESTS), seed=seed),
        )
        seats = {each.formula.slots: each.seen for each in cuts if each.keeps_up and each.seen is not None}
        for number_of in sorted(seats)[::3]:
            found = seats[number_of]
            if number_of not in truths:
                most = min(number_of, mine.source.engine.max_num_seqs)
                source = replace(mine.source, engine=replace(mine.source.engine, max_num_seqs=most))
                truths[number_of] = mine.truth(found, source, size.service_s)
            yield seen_of_ttft("flex", found, truths[number_of])


def of_days(number: int) -> Iterator[Seen]:
    """Yield the intervals of the hours of ``reserve`` over days of three rates."""
    mine, truths = case(number), dict[tuple[float, int], float]()
    priced = replace(mine.source, profile=replace(mine.source.profile, cost_per_hour=1.0))
    rates = [mine.rate_per_s * share for share in DAY]
    for seed in range(1, 1 + NUM_DAYS):
        plan = plan_day(
            priced,
            [
                Need(lengths=mine.lengths, rate_per_s=rate, objective=mine.objective, context=CONTEXT)
                for rate in rates * (HOURS // len(DAY))
            ],
            burst_price=2.0,
            check=SizeCheck(asked=RunLength(num_requests=NUM_REQUESTS), seed=seed),
        )
        for rate, pool, found in zip(rates, plan.simulated, plan.seen, strict=False):
            if found is None:
                continue
            key = (rate, found.engines)
            if key not in truths:
                of_rate = replace(mine, rate_per_s=rate)
                truths[key] = of_rate.truth(found, mine.source, pool.analytic.service_s)
            yield seen_of_ttft("reserve", found, truths[key])


COMMANDS = {"whatif": of_sizes, "reserve": of_days, "flex": of_cuts}


def intervals_of(number: int) -> list[Seen]:
    """Return the intervals of all runs of a case; ``VTWIN_FLEET_ANSWERS`` names one command alone."""
    alone = os.environ.get("VTWIN_FLEET_ANSWERS")
    return [each for name, make in COMMANDS.items() if alone in {None, name} for each in make(number)]


def table(workers: int = 2) -> str:
    """Return the Markdown table."""
    return table_of("command", intervals_of, num_cases=NUM_CASES, workers=workers)
