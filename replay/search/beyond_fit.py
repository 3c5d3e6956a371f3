"""Whether a rate, of an answer or of a fit itself, lies beyond what its twin was fitted on: as `run` tells it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from replay.search.load import load_of
from replay.twin.fitted.fitted_range import range_of

if TYPE_CHECKING:
    from replay.simulation.simulated_run import Run
    from replay.twin.fitted.fitted_range import Range
    from replay.twin.twin_config import TwinConfig
    from traces import Trace

LONG: Final = 3000
"""Requests of a run that is long enough to fill up, as one of ten seconds is not."""
PARTS: Final = 3
"""The fullest of these parts of it counts: a shorter run may be like that one."""
LOWEST, HALVINGS = 16.0, 6
"""A rate is searched down to this part of the highest fitted one, to within 5 %."""


def beyond_fit(trace: Trace, twin: TwinConfig, rate_per_s: float | None) -> str | None:
    """Return how far a workload at a rate goes beyond what a twin was fitted on: in load, lengths and concurrency.

    And in its flags, where it has others than its file, whose notes tell of those. ``rate_per_s``: None where no rate
    was found. None where it goes not beyond, or that is unknown. Simulates the workload once.
    """
    other = twin.outside_server
    told = [] if other is None or other in twin.notes else [other]
    load = None if rate_per_s is None or twin.fitted is None else _load_beyond(trace, twin, rate_per_s)
    return "; ".join([*told, *([] if load is None else [load])]) or None


def _load_beyond(trace: Trace, twin: TwinConfig, rate_per_s: float) -> str | None:
    return _run_at(trace, twin, rate_per_s).outside


def _run_at(trace: Trace, twin: TwinConfig, rate_per_s: float) -> Run:
    from replay.simulation.run_plan import RunSettings
    from replay.simulation.simulated_run import run

    load = load_of(trace, twin)
    sent = load.at(rate_per_s)
    columns = {"arrival_time_us": replace(trace.cells("arrival_time_us"), values=sent.arrival_us)}
    if sent.deadline_us is not None and "deadline_us" in trace.table:
        columns["deadline_us"] = replace(trace.cells("deadline_us"), values=sent.deadline_us)
    return run(trace.with_columns(**columns), replace(twin, pace=None), RunSettings(at="arrival"))


def lasting_rates(trace: Trace, twin: TwinConfig, rates: Range | None) -> Range | None:
    """Return the part of these rates, requests/s, that a long run keeps within what a twin was fitted on; None: none.

    A short run at a rate shows fewer requests at once than a long one: the rate alone would be trusted too far.
    ``trace``: whose requests are drawn again. Without a fitted concurrency, or rates, there is nothing to tell.
    """
    from traces.workload import Client, OpenLoop, Workload, requests_to_draw, synth

    if rates is None or twin.fitted is None or twin.fitted.concurrency is None:
        return None
    top, most = rates[1], twin.fitted.concurrency[1]
    client = Client(id="fitted", lengths=requests_to_draw(trace, "the fitted trace"))
    drawn = synth(Workload(clients=(client,), load=OpenLoop(rate_per_s=top), num_requests=LONG), seed=1)

    def stays(rate_per_s: float) -> bool:
        done = _run_at(drawn, twin, rate_per_s)
        part = np.arange(len(drawn)) * PARTS // len(drawn)
        spans = [range_of([done.trace], [part == number]).concurrency for number in range(PARTS)]
        is_behind = done.judged is not None and done.judged.verdict == "overloaded"
        return not is_behind and all(span is not None and span[1] <= most for span in spans)

    highest = top if stays(top) else _highest(stays, top)
    return None if highest is None else (min(rates[0], highest), highest)


def _highest(stays: Callable[[float], bool], beyond: float) -> float | None:
    """Return the highest rate below one ``beyond`` that stays within the fit; None where none does."""
    within = beyond / LOWEST
    if not stays(within):
        return None
    for _ in range(HALVINGS):
        middle = float(f"{math.sqrt(within * beyond):.3g}")
        within, beyond = (middle, beyond) if stays(middle) else (within, middle)
    return within
