"""Whether an answer, found by a search for a rate, lies beyond what its twin was fitted on: told as `run` tells it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from replay.search.load import load_of

if TYPE_CHECKING:
    from replay.twin.twin_config import TwinConfig
    from traces import Trace


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
    from replay.simulated_run import RunSettings, run

    load = load_of(trace, twin)
    sent = load.at(rate_per_s)
    columns = {"arrival_time_us": replace(trace.cells("arrival_time_us"), values=sent.arrival_us)}
    if sent.deadline_us is not None and "deadline_us" in trace.table:
        columns["deadline_us"] = replace(trace.cells("deadline_us"), values=sent.deadline_us)
    return run(trace.with_columns(**columns), replace(twin, pace=None), RunSettings(at="arrival")).outside
