"""Counters of a run in progress: plain numbers that the loop writes and the panel's thread reads."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from lazy_dataclasses import dataclass, field

import numpy as np

from observe.response.reading import Reading
from observe.run.sent_request import SentRequest
from observe.senders.exchange import Exchange

_BUCKETS_PER_E = 50
"""Buckets per factor e: neighbours differ by 2 %."""


class LogHistogram:
    """Positive values in buckets 2 % wide: memory does not grow, quantiles are right to 1 %."""

    __slots__ = ("_counts", "total")

    def __init__(self) -> None:
        self._counts: list[int] = []
        self.total = 0

    def add(self, value: float, count: int = 1) -> None:
        """Count ``value`` (µs; below 1 is counted as 1) ``count`` times."""
        bucket = int(math.log(value) * _BUCKETS_PER_E) if value > 1 else 0
        if bucket >= len(self._counts):
            self._counts.extend([0] * (bucket + 1 - len(self._counts)))
        self._counts[bucket] += count
        self.total += count

    @property
    def counts(self) -> Sequence[int]:
        """How often each bucket was hit."""
        return self._counts

    def replace_by_sum(self, counts: Iterable[Sequence[int]]) -> None:
        """Make this the histogram of all that was counted in ``counts``, each those of one histogram."""
        sums = [sum(column) for column in zip_longest(*counts, fillvalue=0)]
        self._counts, self.total = sums, sum(sums)

    def quantile(self, q: float) -> float | None:
        """Return the value below which a share ``q`` lies, or None of nothing."""
        rank = q * (self.total - 1)
        seen = 0
        for bucket, count in enumerate(self._counts):
            seen += count
            if seen > rank:
                return math.exp((bucket + 0.5) / _BUCKETS_PER_E)
        return None


@dataclass(slots=True, kw_only=True, eq=False)
class Progress:
    """A run so far. Times in ns of the run's clock, lags and histograms in µs.

    ``num_held_back``: requests that waited for the cap on concurrency. ``num_connections``: those that had to open a
    connection. ``num_waits_cut``: Retry-After headers beyond the longest wait. ``num_client_failures``: requests that
    this machine could not send. ``num_not_continued``: those whose session ended before them. ``paced_ns``: when
    requests were sent whose time the plan says. ``ended_ns``: when what was sent at ``dispatched_ns`` ended.
    ``num_at_once``: requests of a closed loop's first round, all due together; their lateness does not show whether the
    client keeps up, so they are not in ``own_lag_us``. ``num_streaming``, ``tokens_under_way``, ``first_event``: of
    answers that have begun and not ended, what they have brought, and when each began.
    """

    num_planned: int
    num_at_once: int = 0
    start_ns: int | None = None
    end_ns: int | None = None
    num_launched: int = 0
    num_held_back: int = 0
    in_flight: int = 0
    peak_in_flight: int = 0
    num_connections: int = 0
    output_tokens: int = 0
    num_streaming: int = 0
    tokens_under_way: int = 0
    status: Counter[str] = field(default_factory=Counter)
    first_event: LogHistogram = field(default_factory=LogHistogram)
    ttft: LogHistogram = field(default_factory=LogHistogram)
    itl: LogHistogram = field(default_factory=LogHistogram)
    loop_lag: LogHistogram = field(default_factory=LogHistogram)
    num_retried: int = 0
    num_waits_cut: int = 0
    num_client_failures: int = 0
    num_not_continued: int = 0
    dispatched_ns: array[int] = field(default_factory=lambda: array("q"))
    paced_ns: array[int] = field(default_factory=lambda: array("q"))
    ended_ns: array[int] = field(default_factory=lambda: array("q"))
    dispatch_lag_us: array[int] = field(default_factory=lambda: array("q"))
    own_lag_us: array[int] = field(default_factory=lambda: array("q"))

    @property
    def num_done(self) -> int:
        """Requests that have ended, well or not."""
        return sum(self.status.values())

    def note_launch(self, *, held_back: bool) -> None:
        """Count a released request."""
        self.num_launched += 1
        self.num_held_back += held_back
        self.in_flight += 1
        self.peak_in_flight = max(self.peak_in_flight, self.in_flight)

    def note_end(self, request: SentRequest) -> None:
        """Count a request's end and how late it was sent."""
        exchange = request.exchange
        self.in_flight -= 1
        self.num_connections += exchange.connection_wait_ns > 0
        self.num_retried += request.num_attempts > 1
        self.num_client_failures += exchange.failure is not None and exchange.failure.is_clients
        if exchange.dispatched_ns is None:
            return
        self.dispatched_ns.append(exchange.dispatched_ns)
        self.ended_ns.append(request.end_ns or exchange.last_activity_ns())
        if request.is_paced:
            self.paced_ns.append(exchange.dispatched_ns)
        self.dispatch_lag_us.append((exchange.dispatched_ns - request.due_ns) // 1000)
        if request.number >= self.num_at_once:
            own = exchange.dispatched_ns - exchange.ready_ns - exchange.connection_wait_ns
            self.own_lag_us.append(max(own, 0) // 1000)

    @property
    def mean_in_flight(self) -> float | None:
        """Requests in flight on average, from the first dispatch to the last; None of fewer than two moments."""
        begins, ends = np.array(self.dispatched_ns), np.array(self.ended_ns)
        if len(begins) == 0 or np.ptp(begins) == 0:
            return None
        return float((np.minimum(ends, begins.max()) - begins).sum() / np.ptp(begins))

    def note_answer(self, exchange: Exchange, reading: Reading, *, status: str) -> None:
        """Count an answer's contents, once it has been read."""
        self.status[status] += 1
        self.output_tokens += reading.output_tokens or 0
        if status != "ok" or reading.content_first is None or exchange.dispatched_ns is None:
            return
        self.ttft.add((reading.content_first - exchange.dispatched_ns) / 1000)
        before: int | None = None
        for stamp, tokens in zip(reading.event_stamps, reading.event_tokens, strict=True):
            if tokens == 0:
                continue
            if before is not None:
                self.itl.add((stamp - before) / 1000 / (tokens or 1), tokens or 1)
            before = stamp
