"""Whether the first requests of a run were slower than the rest: a server that was not warm yet.

Rule. An idle server is at its fastest, so an ordinary run begins with low TTFTs; queues come later. Each request, in
order of sending, is set against the second half of the run: the requests there whose prompts are at least as long (or
nearly), ``LEAST_LATER`` or more of them. It is slow if its TTFT is over ``FACTOR`` times their 90th percentile and over
``LEAST_US`` more. A run begins cold if its first request is slow, over ``FACTOR_OF_ONE`` times where no second one is;
the slow requests up to the first that is not are the cold ones. Users of a closed loop all send at once, so that most
of them wait for each other: there the fastest answer of that first wave is judged, for all.
"""

from __future__ import annotations

from lazy_dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from traces.metrics import prompt_tokens, request_latencies, send_or_arrival_us

if TYPE_CHECKING:
    from traces.trace import Trace

Float64s = NDArray[np.float64]

LEAST_REQUESTS: Final = 20
LEAST_LATER: Final = 5
FACTOR: Final = 2.0
FACTOR_OF_ONE: Final = 4.0
LEAST_US: Final = 5_000.0
NEARLY: Final = 0.9
"""Prompts this much shorter count as long enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdStart:
    """The first ``num`` of ``of`` requests were slow: their median TTFT and that of the others, µs."""

    num: int
    of: int
    ttft_us: float
    later_us: float


def cold_start(trace: Trace) -> ColdStart | None:
    """Return the slow beginning of a run without its warm-up; None where it has none, or too few requests to tell.

    Of requests that were answered whole; the time until a connection was open is not the server's, and is taken out.
    """
    ttft = request_latencies(trace)["ttft_us"]
    wait = trace.cells("connection_wait_us").values
    prompt = prompt_tokens(trace).astype(np.float64)
    rows = np.flatnonzero(np.isfinite(ttft))
    source = trace.header.source
    if len(rows) < LEAST_REQUESTS or (source is not None and source.load_unknown is not None):
        return None
    rows = rows[np.argsort(send_or_arrival_us(trace)[rows], kind="stable")]
    ttft, prompt = np.maximum(ttft[rows] - wait[rows], 0.0), prompt[rows]
    loop = trace.header.closed_loop
    num = _slow_wave(ttft, prompt, loop.concurrency) if loop is not None else _slow_first(ttft, prompt)
    if not num:
        return None
    return ColdStart(
        num=num,
        of=len(rows),
        ttft_us=float(np.median(ttft[:num])),
        later_us=float(np.median(ttft[num:])),
    )


def _slow_first(ttft: Float64s, prompt: Float64s) -> int:
    """Return how many requests from the first on were slow."""
    half = len(ttft) // 2
    factor = [_factor(ttft[i], prompt[i], ttft[half:], prompt[half:]) for i in range(min(2, half))]
    if factor[0] <= FACTOR or (factor[1] <= FACTOR and factor[0] <= FACTOR_OF_ONE):
        return 0
    num = 1
    while num < half and _factor(ttft[num], prompt[num], ttft[half:], prompt[half:]) > FACTOR:
        num += 1
    return num


def _slow_wave(ttft: Float64s, prompt: Float64s, concurrency: int) -> int:
    """Return how many requests the users sent at first, where even the fastest answer was slow; else 0."""
    half = len(ttft) // 2
    if concurrency > half:
        return 0
    first = int(np.argmin(ttft[:concurrency]))
    factor = _factor(ttft[first], prompt[first], ttft[half:], prompt[half:])
    return concurrency if factor > FACTOR else 0


def _factor(ttft_us: float, prompt: float, later_us: Float64s, later_prompt: Float64s) -> float:
    """Return by what factor a request was slower than later ones; 0 where that is little, or not known."""
    alike = later_us[later_prompt >= NEARLY * prompt]
    if len(alike) < LEAST_LATER:
        return 0.0
    usual = float(np.quantile(alike, 0.9))
    return ttft_us / usual if ttft_us > usual + LEAST_US and usual > 0 else 0.0
