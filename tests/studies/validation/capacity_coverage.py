"""How often the 90 % interval of ``capacity`` holds the truth: ``python -m tests.studies.validation --only capacity``.

Each search is what the command does without a word on requests, and draws them anew. The truth is found without the
search: from runs of ten million requests together, sixty times as many as a search has, with numpy's percentile of all
of them. Searches take hours: with ``VTWIN_SEARCHED=FILE`` each is appended to a file as a line of JSON, and what is
there already is not searched for again.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

from replay.capacity.capacity import capacity_of_draws
from replay.search.load import Load, loads_of
from replay.search.seeds import DEFAULT_SEEDS, MOST_SEEDS
from replay.search.workload_draws import DEFAULT_NUM_REQUESTS, Drawing
from tests.studies.validation.capacity_cases import CASES, Case
from traces import Trace
from traces.run_slo import RunLimit, parse_run_slo

SEARCHES = 100
"""Of each case, unless ``VTWIN_SEARCHES`` says otherwise."""
COMPLETE = 3
"""So many of them, with all that the command looks for, tell what a search takes."""
TRUTH_SEEDS = (900_000, 950_000)
"""The truth is found twice, with requests from these seeds upwards."""
LONG, NUM_LONG = 100_000, 50
"""Requests of a long run, and how many such runs there are of each seed."""
GROUPS = 10
"""Of so many groups of runs, each has a truth of its own; they say how sure all together are."""
SETTLING = 0.05
"""Share of a run that is not measured."""
STEP = 0.016
"""Long runs are simulated at rates so far apart; between the last that meets the limits and the next the ratio to the
limit is taken as a line."""
MOST_STEPS = 8
APART = 1000
"""Searches' seeds lie so far apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """The rate at which all long runs together break the first limit, requests/s, and how sure that is."""

    rate_per_s: float
    standard_error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """What one search said, and what it took."""

    rate_per_s: float
    low: float
    high: float
    cpu_s: float


def truth_of(loads: Sequence[Load], limits: Sequence[RunLimit], *, near: float) -> Truth:
    """Return the capacity of long runs of one workload, near a rate in requests/s."""
    seen = {rate: _latencies(loads, rate) for rate in (near / (1 + STEP / 2), near * (1 + STEP / 2))}
    for _ in range(MOST_STEPS):
        if _worst(seen[min(seen)], limits) > 1:
            rate = min(seen) / (1 + STEP)
        elif _worst(seen[max(seen)], limits) <= 1:
            rate = max(seen) * (1 + STEP)
        else:
            break
        seen[rate] = _latencies(loads, rate)
    rates = sorted(seen)
    above = next(i for i, rate in enumerate(rates) if _worst(seen[rate], limits) > 1)
    low, high = rates[above - 1 : above + 1]
    own = [
        _crossing(*((rate, _worst([seen[rate][i] for i in rows], limits)) for rate in (low, high)))
        for rows in np.array_split(np.arange(len(loads)), min(GROUPS, len(loads)))
    ]
    return Truth(
        rate_per_s=_crossing(*((rate, _worst(seen[rate], limits)) for rate in (low, high))),
        standard_error=float(np.std(own, ddof=1)) / math.sqrt(len(own)),
    )


def together(truths: Sequence[Truth]) -> Truth:
    """Return the mean of several."""
    errors = [each.standard_error for each in truths]
    return Truth(
        rate_per_s=float(np.mean([each.rate_per_s for each in truths])),
        standard_error=math.hypot(*errors) / len(errors),
    )


Latencies = dict[str, NDArray[np.float64]]


def _latencies(loads: Sequence[Load], rate_per_s: float) -> list[Latencies]:
    """Return TTFT and TPOT of each long run, µs."""
    runs = []
    for load in loads:
        outcomes, _, _ = load.serve(load.at(rate_per_s), "none")
        rows = np.argsort(outcomes.arrival_us, kind="stable")[int(SETTLING * len(outcomes.arrival_us)) :]
        gaps = np.maximum(outcomes.num_output_tokens - 1, 1)
        runs.append(
            {
                "ttft": (outcomes.first_token_us - outcomes.arrival_us)[rows].astype(np.float64),
                "tpot": ((outcomes.last_token_us - outcomes.first_token_us) / gaps)[rows],
            }
        )
    return runs


def _worst(runs: Sequence[Latencies], limits: Sequence[RunLimit]) -> float:
    """Return the largest percentile over its limit, of all runs together."""
    return max(
        float(np.percentile(np.concatenate([run[each.metric] for run in runs]), each.percent)) / each.limit_us
        for each in limits
        if each.percent is not None
    )


def _crossing(low: tuple[float, float], high: tuple[float, float]) -> float:
    """Return the rate at which the ratio is 1 on the line through two (rate, ratio), in logarithms."""
    (rate, ratio), (other, its_ratio) = low, high
    return float(rate * (other / rate) ** (-math.log(ratio) / math.log(its_ratio / ratio)))


def search(case: Case, folder: Path, *, number: int, is_complete: bool = False) -> Searched:
    """Return what the search with this number says; ``is_complete``: with the curve, and what binds."""
    started = time.process_time()

    def drawing(num_requests: int, seeds: int) -> list[Trace]:
        return [case.drawn(folder, seed=APART * number + i, num_requests=num_requests) for i in range(seeds)]

    found = capacity_of_draws(
        drawing(DEFAULT_NUM_REQUESTS, 1),
        case.twin(folder),
        parse_run_slo(case.slo),
        drawing=Drawing(draw=drawing, seeds=DEFAULT_SEEDS, most_seeds=MOST_SEEDS),
        with_binding=is_complete,
        with_curve=is_complete,
    )
    assert found.rate_per_s is not None and found.low is not None and found.high is not None
    return Searched(
        rate_per_s=found.rate_per_s,
        low=found.low,
        high=found.high,
        cpu_s=time.process_time() - started,
    )


def all_searches(name: str, case: Case, folder: Path, *, number: int) -> list[Searched]:
    """Return so many searches of a case; those that ``VTWIN_SEARCHED`` names a file of are read from there."""
    kept = Path(os.environ["VTWIN_SEARCHED"]) if "VTWIN_SEARCHED" in os.environ else None
    found = dict[int, Searched]()
    if kept is not None and kept.exists():
        rows = [json.loads(line) for line in kept.read_text().splitlines()]
        found = {each["number"]: Searched(**each["searched"]) for each in rows if each["case"] == name}
    for i in range(1, 1 + number):
        if i not in found:
            found[i] = search(case, folder, number=i)
            if kept is not None:
                with kept.open("a") as file:
                    file.write(json.dumps({"case": name, "number": i, "searched": asdict(found[i])}) + "\n")
    return [found[i] for i in range(1, 1 + number)]


def truths(case: Case, folder: Path, *, near: float) -> list[Truth]:
    """Return a case's truth, found with each of ``TRUTH_SEEDS``."""
    twin, limits = case.twin(folder), parse_run_slo(case.slo)
    return [
        truth_of(
            loads_of(
                [case.drawn(folder, seed=seed + i, num_requests=LONG) for i in range(NUM_LONG)],
                twin,
            ),
            limits,
            near=near,
        )
        for seed in TRUTH_SEEDS
    ]


def row(name: str, case: Case, folder: Path, *, number: int) -> str:
    """Return a row of the table: so many searches of a case."""
    search(case, folder, number=0)  # what is compiled or read once is no search's
    cpu_s = [search(case, folder, number=1 + i, is_complete=True).cpu_s for i in range(COMPLETE)]
    found = all_searches(name, case, folder, number=number)
    twice = truths(case, folder, near=float(np.median([each.rate_per_s for each in found])))
    truth = together(twice)
    held = sum(each.low <= truth.rate_per_s <= each.high for each in found)
    least, most = binomial_interval(held, number)
    off = np.array([each.rate_per_s for each in found]) / truth.rate_per_s - 1
    width = [(each.high - each.low) / each.rate_per_s for each in found]
    cells = (
        name,
        f"{truth.rate_per_s:.2f} ± {truth.standard_error:.2f}",
        f"{abs(twice[0].rate_per_s / twice[-1].rate_per_s - 1):.2%}",
        str(number),
        f"{held / number:.0%} ({least:.0%} to {most:.0%})",
        f"{off.mean():+.2%} ± {off.std(ddof=1) / math.sqrt(number):.2%}",
        f"{off.std(ddof=1):.2%}",
        f"{np.median(width):.1%}",
        f"{np.mean([each.cpu_s for each in found]):.1f}",
        f"{np.mean(cpu_s):.1f}",
    )
    return f"| {' | '.join(cells)} |"


def binomial_interval(held: int, number: int) -> tuple[float, float]:
    """Return the exact 90 % interval of a share (Clopper and Pearson)."""
    low = float(beta.ppf(0.05, held, number - held + 1)) if held else 0.0
    high = float(beta.ppf(0.95, held + 1, number - held)) if held < number else 1.0
    return low, high


def table(folder: Path) -> str:
    """Return the Markdown table; a row is told as soon as it is there."""
    number = int(os.environ.get("VTWIN_SEARCHES", SEARCHES))
    lines = [
        "| case | truth, requests/s | two truths differ by | searches | coverage | bias | spread | median width | "
        "CPU s a search | with curve and binding |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, case in CASES.items():
        lines.append(row(name, case, folder, number=number))
        print(lines[-1], file=sys.stderr, flush=True)
    return "\n".join(lines)
