"""Whether a run comes so close to the simulated server's capacity that its TTFT cannot be trusted.

Near capacity a queue amplifies: a server one per cent slower than the twin may make first tokens several times later.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from sim import Outcomes, Requests, Simulation, Status, simulate
from traces import mean_rate_per_s
from traces.errors import TraceError

if TYPE_CHECKING:
    from replay.trace.pacing import Pacing
    from replay.twin.config import TwinConfig
    from traces import Trace

MARGIN = 0.05
"""How close to capacity a run has to come, and how far off a twin's capacity may well be."""
HARDLY = 0.05
"""A TTFT that moves by no more than the capacity is not amplified by a queue."""
LEAST = 20
"""Fewer requests have no capacity to speak of."""
QUEUEING = 2.0
"""Where nine of ten requests wait less than so many steps for their seat, and some seats always stay free, the server
is not near its capacity, and nothing more is simulated."""
MIDDLE = (0.1, 0.9)
"""Shares of the answers between which the capacity is taken: the run's beginning and end are not full."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NearCapacity:
    """How near a run is, and its mean TTFT (µs) with 5 % less and 5 % more load.

    ``rate_per_s``: of the arrivals. ``utilization``: that over the simulated capacity; None where it is the seats that
    are taken.
    """

    rate_per_s: float
    utilization: float | None
    capacity_per_s: float
    seats: int
    num_seats: int
    ttft_us: float
    low_us: float
    high_us: float

    @property
    def is_overloaded(self) -> bool:
        """Whether more arrives than is served, by more than a twin's capacity may be off."""
        return self.utilization is not None and self.utilization > 1 + MARGIN

    def text(self) -> str:
        """Return what a reader must know, as a line."""
        if self.is_overloaded:
            return (
                f"overloaded: {self.rate_per_s:.3g} requests/s are sent, the server answers at most "
                f"{self.capacity_per_s:.3g}. Do not trust TTFT and E2E: the queue grows as long as the run lasts"
            )
        where = (
            f"{self.seats} of {self.num_seats} seats taken"
            if self.utilization is None
            else f"{self.utilization:.0%} of the simulated capacity of {self.capacity_per_s:.3g} requests/s"
        )
        own, low, high = (_milliseconds(value) for value in (self.ttft_us, self.low_us, self.high_us))
        if max(self.high_us - self.ttft_us, self.ttft_us - self.low_us) <= HARDLY * self.ttft_us:
            return (
                f"near saturation ({where}), yet TTFT hardly depends on it: a capacity {MARGIN:.0%} off moves its mean "
                f"of {own} ms to between {low} and {high} ms"
            )
        return (
            f"near saturation ({where}): do not trust TTFT here. A capacity {MARGIN:.0%} off moves its mean of {own} "
            f"ms to between {low} and {high} ms"
        )


def _milliseconds(value_us: float) -> str:
    """Return a time in ms with four digits, and all of those before the point."""
    milliseconds = value_us / 1e3
    return f"{milliseconds:,.0f}" if milliseconds >= 1000 else f"{milliseconds:.4g}"


def near_capacity(
    trace: Trace,
    config: TwinConfig,
    simulation: Simulation,
    pacing: Pacing,
    *,
    run: Callable[[Requests], Outcomes] | None = None,
    run_at_once: Callable[[Requests], Outcomes] | None = None,
    requests: Requests | None = None,
) -> NearCapacity | None:
    """Return how near a simulated run came to saturation; None where it did not, or where answers set its pace.

    ``requests``: those of the trace, as paced, where they are at hand.
    ``run``: what serves requests, where that is not one such engine; ``run_at_once``: what does so when all come at
    once, and nobody may be turned away.
    """
    from replay.trace.pacing import paced_requests

    if pacing.is_by_answers or len(trace) < LEAST:
        return None
    seats = _most_running(simulation)
    num_seats = config.num_seats
    is_full = seats >= (1 - MARGIN) * num_seats
    if not is_full and not _is_queueing(simulation):
        return None
    if requests is None:
        try:
            requests = paced_requests(trace, pacing, block_size=config.engine.block_size)
        except TraceError:
            return None
    rate = mean_rate_per_s(requests.arrival_us, trace.header.rate_per_s)
    if rate is None:
        return None
    if run is None:
        run = _one_engine(config)
    capacity = _capacity(requests, run_at_once or run)
    if capacity <= 0 or not (is_full or rate >= (1 - MARGIN) * capacity):
        return None
    fewer, more = (_mean_ttft(run(_faster(requests, 1 + by))) for by in (-MARGIN, MARGIN))
    own = _mean_ttft(simulation.outcomes)
    return NearCapacity(
        rate_per_s=rate,
        utilization=rate / capacity if rate >= (1 - MARGIN) * capacity else None,
        capacity_per_s=capacity,
        seats=seats,
        num_seats=num_seats,
        ttft_us=own,
        low_us=min(fewer, own),
        high_us=max(more, own),
    )


def _most_running(simulation: Simulation) -> int:
    """Return the largest number of requests that ran at once."""
    outcomes = simulation.outcomes
    ran = (outcomes.scheduled_us >= 0) & (outcomes.status == Status.OK)
    begin, end = np.sort(outcomes.scheduled_us[ran]), np.sort(outcomes.last_token_us[ran])
    if len(begin) == 0:
        return 0
    return int((np.arange(1, len(begin) + 1) - np.searchsorted(end, begin, side="right")).max())


def _is_queueing(simulation: Simulation) -> bool:
    """Return whether a good part of the requests waits for longer than for the step in progress."""
    outcomes = simulation.outcomes
    ok = outcomes.status == Status.OK
    if not ok.any():
        return False
    waited = (outcomes.scheduled_us - outcomes.queued_us)[ok]
    gaps = np.maximum(outcomes.num_output_tokens[ok] - 1, 1)
    step = float(((outcomes.last_token_us - outcomes.first_token_us)[ok] / gaps).mean())
    return bool(np.quantile(waited, 0.9) > QUEUEING * max(step, 1.0))


def _capacity(requests: Requests, run: Callable[[Requests], Outcomes]) -> float:
    """Return how many of such requests the server answers per second when all are there from the beginning."""
    outcomes = run(replace(requests, arrival_us=np.zeros_like(requests.arrival_us), deadline_us=None))
    done = np.sort(outcomes.last_token_us[outcomes.status == Status.OK])
    if len(done) < LEAST:
        return 0.0
    first, last = (int(share * (len(done) - 1)) for share in MIDDLE)
    return float((last - first) / max(done[last] - done[first], 1) * 1e6)


def _faster(requests: Requests, factor: float) -> Requests:
    arrival = requests.arrival_us
    start = int(arrival.min())
    return replace(requests, arrival_us=start + np.rint((arrival - start) / factor).astype(np.int64))


def _one_engine(config: TwinConfig) -> Callable[[Requests], Outcomes]:
    return lambda requests: simulate(requests, config.engine, config.latency).outcomes


def _mean_ttft(outcomes: Outcomes) -> float:
    ok = outcomes.status == Status.OK
    return float((outcomes.first_token_us - outcomes.arrival_us)[ok].mean()) if ok.any() else 0.0
