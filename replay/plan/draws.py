"""The requests that a search for a rate simulates: a workload without a rate of its own, drawn several times."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from traces.errors import ConfigError
from traces.workload import clipping_notes, trace_from_options
from traces.workload.options import WorkloadOptions, flag

if TYPE_CHECKING:
    from traces import Trace

DEFAULT_NUM_REQUESTS = 5000
_SEARCHED = ("rate", "stages", "concurrency", "batch", "duration")
"""What a search for a rate leaves no room for."""


def searchable(workload: WorkloadOptions, like: Path | None) -> WorkloadOptions:
    """Return the workload at a rate of 1, with the number of requests of a search. Raises ConfigError."""
    for name in _SEARCHED:
        if getattr(workload, name) is not None:
            raise ConfigError(f"{flag(name)}: got it with a search for a rate, expected none")
    if like is not None:
        if workload.lengths_from is not None:
            raise ConfigError("--like: got it together with --lengths-from, expected one of them")
        workload = replace(workload, lengths_from=like)
    if workload.trace is not None:
        return workload
    if workload.workload is None:
        workload = replace(workload, rate=1.0)
    number = DEFAULT_NUM_REQUESTS if workload.num_requests is None else workload.num_requests
    return replace(workload, num_requests=number)


def draws(options: WorkloadOptions, seeds: int) -> list[Trace]:
    """Return the workload drawn with as many seeds, from the given one upwards; a recorded one as it is."""
    for note in clipping_notes(options):
        typer.echo(f"warning: {note}", err=True)
    first = trace_from_options(options)
    if options.trace is not None or seeds == 1:
        return [first]
    start = first.header.seed if first.header.seed is not None else 0
    return [first, *(trace_from_options(replace(options, seed=start + i)) for i in range(1, seeds))]


def draws_at(
    workload: WorkloadOptions, like: Path | None, seeds: int, *, rate: float, num_requests: int
) -> list[Trace]:
    """Return a workload at a rate, drawn as often; ``num_requests``: unless it says itself. Raises ConfigError."""
    plain = searchable(replace(workload, rate=None), like)
    if workload.trace is None and workload.num_requests is None:
        plain = replace(plain, num_requests=num_requests)
    if plain.rate is not None:
        plain = replace(plain, rate=rate)
    return draws(plain, seeds)
