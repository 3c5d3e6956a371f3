"""A run over time as CSV: a row for each stretch of time and instance."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from replay.cluster.lives import queued_at
from traces import ConfigError, prompt_tokens, write_text
from traces.strict.escape import spreadsheet

if TYPE_CHECKING:
    from replay.cluster.over_time import OverTime
    from replay.cluster.simulate import FleetRun

COLUMNS = (
    "from_us",
    "until_us",
    "instance",
    "num_running",
    "num_waiting",
    "kv_usage_frac",
    "busy_frac",
    "num_routed",
    "num_completed",
    "prompt_tokens",
    "cached_tokens",
)
"""``num_running``, ``num_waiting`` and ``kv_usage_frac`` are at the end of a stretch, the others of all of it."""

Floats = NDArray[np.float64]


def write_series(path: Path, found: OverTime | None, run: FleetRun) -> None:
    """Write the series; of a fleet of more than 64 instances a row per pool. What is not known is empty.

    Raises ConfigError where the file cannot be written, or the run took no time.
    """
    write_text(path, series_text(found, run), option="--series")


def series_text(found: OverTime | None, run: FleetRun) -> str:
    """Return the series as CSV with a header. ``prompt_tokens``, ``cached_tokens``: of prompts first scheduled then."""
    if found is None:
        raise ConfigError("--series: got a run that took no time, expected one with requests")
    ends = np.array(found["time_us"], np.float64)
    by_instance = found["instances"] is not None
    named = found["instances"] if found["instances"] is not None else found["pools"]
    prompts, cached = _tokens(run, ends, num=len(run.result.instances))
    if not by_instance:
        pool_of = np.array([each.pool for each in run.result.instances])
        prompts, cached = (_by_pool(each, pool_of, len(named)) for each in (prompts, cached))
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(COLUMNS)
    for place, until_us in enumerate(found["time_us"]):
        from_us = found["time_us"][place - 1] if place else 0
        for number, each in enumerate(named):
            in_use = each["kv_usage_frac"]
            rows.writerow(
                [
                    from_us,
                    until_us,
                    spreadsheet(each["name"]),
                    each["num_running"][place],
                    each["num_waiting"][place],
                    "" if in_use is None else in_use[place],
                    each["busy_frac"][place],
                    each["num_routed"][place],
                    each["num_completed"][place],
                    int(prompts[place, number]),
                    int(cached[place, number]),
                ]
            )
    return text.getvalue()


def _tokens(run: FleetRun, ends: Floats, *, num: int) -> tuple[Floats, Floats]:
    """Return the prompt tokens scheduled in each stretch on each instance, and those found cached; float64 [T, num]."""
    outcomes, prompts = run.simulation.outcomes, prompt_tokens(run.trace)
    where = queued_at(run.result)
    known = np.flatnonzero((outcomes.scheduled_us >= 0) & (where >= 0))
    place = np.minimum(np.searchsorted(ends, outcomes.scheduled_us[known], side="left"), len(ends) - 1)
    flat = place * num + where[known]
    return tuple(  # type: ignore[return-value] # two of them
        np.bincount(flat, weights=each[known], minlength=len(ends) * num).reshape(len(ends), num)
        for each in (prompts.astype(np.float64), outcomes.num_cached_tokens.astype(np.float64))
    )


def _by_pool(values: Floats, pool_of: NDArray[np.int64], num_pools: int) -> Floats:
    return np.stack([values[:, pool_of == pool].sum(axis=1) for pool in range(num_pools)], axis=1)
