"""The first sentence of a page of measured runs: what a reader takes away who reads no further."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from observe.measured.served_load import ServedLoad
from observe.repeats.mean_of_runs import MeanOfRuns
from observe.repeats.repeated_load import RepeatedLoad
from observe.repeats.run_figures import GOOD_SHARE, name_of
from traces import OVERLOADED, in_unit, unit_of
from traces.pages.request_figures import number_text

GOOD: Final = 0.99
"""A load with a smaller share of requests within the SLO is outside it."""
TOLD: Final = ("ttft_us.mean", "e2e_us.mean")
"""The figure that stands for repeated runs: the first that they have."""


def first_sentence(runs: Sequence[ServedLoad], loads: Sequence[RepeatedLoad]) -> str:
    """Return it of runs, in ascending order of their loads, and of the same grouped into loads."""
    first = runs[0]
    if len(runs) == 1:
        overloaded = "Overloaded: " if any(each.kind == OVERLOADED for each in first.summary.findings) else ""
        answered = number_text(first.summary.request_throughput)
        return f"{overloaded}{first.summary.num_requests:,} requests, {answered} answered per second"
    by = " users" if first.summary.concurrency else "/s"
    if len(loads) == 1:
        figures = loads[0].figures()
        told = next(name for name in TOLD if name in figures)
        return f"{name_of(told).split()[1].capitalize()} {name_of(told).split()[0]} {interval_text(figures[told])}"
    places = {each.name: number_text(each.place) for each in runs}
    place = {load.name: places[next(iter(load.runs))] for load in loads}
    shares = {load.name: load.figures().get(GOOD_SHARE) for load in loads}
    if any(each is None for each in shares.values()):
        span = "users" if first.summary.concurrency else "requests per second"
        return f"{len(loads)} loads, from {place[loads[0].name]} to {place[loads[-1].name]} {span}"
    within = [name for name, share in shares.items() if share is not None and share.mean >= GOOD]
    upto = next((i for i, load in enumerate(loads) if load.name not in within), len(loads))
    if upto == 0:
        return f"Not within the SLO: at {place[loads[0].name]}{by} {_frac(shares[loads[0].name])} of the requests were"
    highest = f"up to {place[loads[upto - 1].name]}{by}"
    return f"Within the SLO {highest}" + (", the highest load" if upto == len(loads) else "")


def interval_text(figure: MeanOfRuns) -> str:
    """Return a time over runs: 82.1 ms ± 3.0 over 5 runs."""
    unit = unit_of(figure.mean)
    mean = in_unit(figure.mean, unit)
    if figure.half_width is None:
        return f"{mean} {unit}"
    decimals = len(mean.partition(".")[2])
    half = figure.half_width * float(mean.replace(",", "")) / figure.mean  # in the same unit
    return f"{mean} {unit} ± {half:,.{decimals}f} over {figure.num_runs} runs"


def _frac(share: MeanOfRuns | None) -> str:
    return "-" if share is None else f"{share.mean:.1%}"
