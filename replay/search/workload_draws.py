"""The requests that a search for a rate simulates: a workload without a rate of its own, drawn several times."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from lazy_dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from replay.search.searched_rate import SEARCHED
from traces import ConfigError
from traces.strict.tell import tell
from traces.workload import (
    LENGTH_NAMES,
    WorkloadOptions,
    as_sent,
    can_scale,
    check_options,
    clipping_notes,
    flag,
    served_note,
    trace_from_options,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from replay.twin.twin_config import TwinConfig
    from sim import EngineConfig
    from traces import Trace

DEFAULT_NUM_REQUESTS = 5000
"""A search begins with this many."""
MOST_KEPT = 2
"""Draws of this many lengths of one workload are kept for the next search of it."""


def searchable(workload: WorkloadOptions) -> WorkloadOptions:
    """Return the workload at a rate of 1, with the number of requests of a search. Raises ConfigError."""
    for name in SEARCHED:
        if getattr(workload, name) is not None:
            raise ConfigError(f"{flag(name)}: cannot be combined with a search for a rate")
    if workload.trace is not None:
        return workload
    if workload.workload is None:
        workload = replace(workload, rate=1.0)
        if can_scale(workload) and workload.arrival_scaling is None:
            # A rate that every run has exactly makes queues shorter than those of the same rate in the long run:
            # capacities of 18,750 requests came out 0.4 % too high (docs/validation.md).
            workload = replace(workload, arrival_scaling="none")
    number = DEFAULT_NUM_REQUESTS if workload.num_requests is None else workload.num_requests
    return replace(workload, num_requests=number)


def draws(options: WorkloadOptions, seeds: int) -> list[Trace]:
    """Return the workload drawn with ``seeds`` seeds, from the given one upwards; a recorded one as it is.

    Raises ConfigError.
    """
    check_options(options)
    for note in clipping_notes(options):
        tell(f"warning: {note}")
    if (default := default_lengths_note(options)) is not None:
        tell(f"note: {default}")
    drawn = _drawn(options, seeds)
    if (served := served_note(drawn[0])) is not None:
        tell(f"note: {served}")
    return drawn


def _drawn(options: WorkloadOptions, seeds: int) -> list[Trace]:
    first = trace_from_options(options)
    if options.trace is not None or seeds == 1:
        return [first]
    return [first, *_others(options, first, 1, seeds)]


def _others(options: WorkloadOptions, first: Trace, start: int, end: int) -> list[Trace]:
    """Return the draws from one number to another; the first one's seed is the lowest."""
    seed = first.header.seed if first.header.seed is not None else 0
    return [trace_from_options(replace(options, seed=seed + i)) for i in range(start, end)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """Draws a workload again. ``seeds``: a search begins with this many, and may take ``most_seeds``."""

    draw: Callable[[int, int], Sequence[Trace]]
    seeds: int
    most_seeds: int

    def __call__(self, num_requests: int, seeds: int) -> Sequence[Trace]:
        """Return the workload with this many requests, for each of the first this many seeds."""
        return self.draw(num_requests, seeds)


def drawing_of(options: WorkloadOptions, *, seeds: int, most_seeds: int | None = None) -> Drawing:
    """Return what draws a workload as ``draws`` does, without a note; ``most_seeds``: None, as many as ``seeds``."""
    kept: dict[int, list[Trace]] = {}

    def drawn(num_requests: int, seeds: int) -> list[Trace]:
        asked = replace(options, num_requests=num_requests)
        if num_requests not in kept:
            if len(kept) == MOST_KEPT:
                kept.pop(next(iter(kept)))
            kept[num_requests] = [trace_from_options(asked)]
        known = kept[num_requests]
        known += _others(asked, known[0], len(known), seeds)
        return known[:seeds]

    return Drawing(draw=drawn, seeds=seeds, most_seeds=seeds if most_seeds is None else most_seeds)


def options_at(workload: WorkloadOptions, *, rate: float, num_requests: int) -> WorkloadOptions:
    """Return a workload at a rate; ``num_requests``: unless it says itself. Raises ConfigError."""
    plain = searchable(replace(workload, rate=None))
    if workload.trace is None and workload.num_requests is None:
        plain = replace(plain, num_requests=num_requests)
    return plain if plain.rate is None else replace(plain, rate=rate)


def tell_too_long(trace: Trace, twins: Iterable[TwinConfig]) -> None:
    """Print on stderr if every request is too long for every engine, so that no rate can meet any limit.

    A prompt must leave room for a token of output; a vLLM server also refuses a ``max_tokens`` beyond its length.
    """
    from traces import prompt_tokens

    engines = [engine for twin in twins for engine in _engines(twin)]
    longest = max(engine.max_model_len for engine in engines)
    prompts, budgets = prompt_tokens(trace), as_sent(trace).cells("output_tokens").values
    shortest, asked = (int(each.min()) if len(each) else 0 for each in (prompts, budgets))
    if shortest >= longest:
        got = f"prompts of at least {shortest:,} tokens, expected fewer than"
    elif asked > longest and all(engine.frontend == "openai" for engine in engines):
        got = f"max_tokens of at least {asked:,}, expected at most"
    else:
        return
    tell(f"no request finishes at any rate: got {got} engine.max_model_len, {longest:,}")


def _engines(twin: TwinConfig) -> list[EngineConfig]:
    return [pool.engine for pool in twin.cluster.pools]


def lengths_text(trace: Trace) -> str:
    """Return the lengths of a workload in a line: ``prompts of 512 tokens (13 to 1,050), outputs of 120``."""
    from traces import prompt_tokens

    outputs = trace.column("output_tokens").to_numpy(dtype=np.float64, na_value=np.nan)
    said = [
        _length_text(name, values)
        for name, values in (("prompts", prompt_tokens(trace).astype(np.float64)), ("outputs", outputs))
    ]
    return ", ".join(said)


def _length_text(name: str, values: NDArray[np.float64]) -> str:
    low, mean, high = (
        round(float(each)) for each in (np.nanmin(values), np.nanmean(values), np.nanmax(values))
    )
    spread = "" if low == high else f" ({low:,} to {high:,})"
    return f"{name} of {mean:,} tokens{spread}"


def default_lengths_note(options: WorkloadOptions) -> str | None:
    """Return the note that no lengths were given; None where some were."""
    said = (options.workload, options.preset, options.trace, options.like)
    if any(each is not None for each in (*said, *(getattr(options, name) for name in LENGTH_NAMES))):
        return None
    return (
        "lengths are the defaults, since none are given: --like STEM takes those of a trace, --prompt-tokens and "
        "--output-tokens draw others"
    )
