"""One step of a search on a live server: its requests, the observation, and what it cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from lazy_dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from observe.capacity.rate_search import SeenStep
from observe.judged.judged_step import judge
from observe.judged.step_watch import answers_of
from traces import ConfigError, prompt_tokens, read_trace, request_metrics
from traces.workload import as_sent, seed_of, trace_from_options

if TYPE_CHECKING:
    from observe.judged.criteria import Criterion
    from traces import Trace
    from traces.workload import WorkloadOptions

MOST_S: Final = 600.0
"""Without --num-requests or --duration, a step lasts at most so long,"""
MOST_REQUESTS: Final = 30_000
FEWEST_REQUESTS: Final = 2_000
"""and has at most, and at least, so many requests before it is given up as not known."""
SHORT: Final = 0.03
"""A client that sends so much less than is due is the limit itself."""
FEWEST_ASKED: Final = 100
"""Fewer in a step say nothing of a percentile, whoever asks for them."""
NUM_PROBED: Final = 100
"""Requests that are sent at once where nothing says where to begin."""
OF_PROBE: Final = 0.8
"""The first rate is this share of what the probe answered per s; its first answers and its last are not counted."""
PROBED: Final = (0.1, 0.8)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveStep:
    """A step that was observed: why, its trace's name, and what it cost. Times in s.

    ``client_limited``: how far the client, not the server, was the limit, None: it was not.
    """

    seen: SeenStep
    purpose: str
    name: str
    num_sent: int
    duration_s: float
    input_tokens: int
    output_tokens: int
    latencies_us: dict[str, dict[str, float | None]]
    client_limited: str | None


def requests_of(workload: WorkloadOptions, rate_per_s: float, *, number: int, effort: float = 1.0) -> Trace:
    """Return the requests of a step, its number among all from 1; each step draws anew. Raises ConfigError.

    ``effort``: which share of the longest step it may take; of one whose end the user has said, the whole.
    """
    most = workload.num_requests
    if most is None and workload.duration is None:
        most = max(math.ceil(effort * min(rate_per_s * MOST_S, MOST_REQUESTS)), FEWEST_REQUESTS)
    drawn = replace(workload, rate=rate_per_s, num_requests=most, seed=seed_of(workload) + number)
    return as_sent(trace_from_options(drawn))


def probe_of(workload: WorkloadOptions) -> Trace:
    """Return the requests of the probe, which are all sent at once."""
    number = min(workload.num_requests or NUM_PROBED, NUM_PROBED)
    drawn = replace(workload, rate=math.inf, duration=None, num_requests=number)
    return as_sent(trace_from_options(drawn))


def rate_of_probe(trace: Trace) -> float | None:
    """Return the rate to begin at, requests per s; None where fewer than two were answered."""
    sent = trace.cells("send_time_us").floats()
    ends = np.sort(sent + request_metrics(trace)["e2e_us"].to_numpy(dtype=np.float64))
    ends = ends[np.isfinite(ends)]
    if len(ends) < 2:
        return None
    first, last = (int(share * (len(ends) - 1)) for share in PROBED)
    gained_us = float(ends[last] - ends[first])
    whole_us = float(ends[-1] - np.nanmin(sent))
    per_s = (last - first) / gained_us * 1e6 if gained_us > 0 else math.inf
    return OF_PROBE * min(per_s, len(ends) / max(whole_us, 1.0) * 1e6 * 2)


def step_of(stem: Path, rate_per_s: float, criteria: Sequence[Criterion], *, purpose: str) -> LiveStep:
    """Return what the trace at ``stem`` says. Raises TraceError."""
    trace = read_trace(stem)
    verdict = judge(answers_of(trace, criteria), criteria)
    seen = SeenStep(rate_per_s=rate_per_s, verdict=verdict, is_met=verdict.best_guess(criteria))
    metrics = request_metrics(trace)
    ends = trace.cells("send_time_us").floats() + metrics["e2e_us"].to_numpy(dtype=np.float64)
    outputs = trace.cells("output_tokens").floats()
    return LiveStep(
        seen=seen,
        purpose=purpose,
        name=stem.name,
        num_sent=len(trace),
        duration_s=float(np.nanmax(ends, initial=0.0)) / 1e6,
        input_tokens=int(prompt_tokens(trace).sum()),
        output_tokens=int(np.nansum(outputs)),
        latencies_us={
            name: {f"p{q}": _quantile(metrics[f"{name}_us"].to_numpy(dtype=np.float64), q) for q in (50, 99)}
            for name in ("ttft", "tpot", "e2e")
        },
        client_limited=_shortfall(trace),
    )


def _shortfall(trace: Trace) -> str | None:
    """Return by how much the client sent less than was due, None: by no more than ``SHORT``."""
    client = trace.header.client
    asked = None if client is None else client.rate_asked_per_s
    sent = None if client is None else client.rate_achieved_per_s
    if not asked or not sent or sent >= (1 - SHORT) * asked:
        return None
    return f"{sent:.4g}/s were sent of {asked:.4g}/s that were due"


def _quantile(values: np.ndarray[tuple[int], np.dtype[np.float64]], percent: int) -> float | None:
    known = values[np.isfinite(values)]
    return float(np.percentile(known, percent)) if len(known) else None


def check_workload(workload: WorkloadOptions) -> None:
    """Raise ConfigError for a load whose rate cannot be searched."""
    for name in ("concurrency", "stages", "trace", "batch", "waves"):
        if getattr(workload, name) is not None:
            hint = ": --like draws requests like a trace's" if name == "trace" else ""
            raise ConfigError(
                f"--find-capacity: cannot be combined with --{name}; it sets the rate itself{hint}"
            )
    if workload.num_requests is not None and workload.num_requests < FEWEST_ASKED:
        raise ConfigError(
            f"--num-requests: got {workload.num_requests}, expected at least {FEWEST_ASKED} (of a step)"
        )
    if workload.rate is not None and not math.isfinite(workload.rate):
        raise ConfigError(f"--rate: got {workload.rate}, expected the rate at which the search begins")
