"""The measured part of a run, after the fleet has filled: its figures with intervals, and how long the run must be."""

from __future__ import annotations

import math
from collections.abc import Callable
from lazy_dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from replay.fleet.check.drawn_requests import Arrivals, Stream
from replay.fleet.inputs.whole_requests import WholeRequests
from replay.numbers.t_interval import half_width
from sim.fleet import Lengths
from traces import ConfigError

Floats = NDArray[np.float64]

FILLING = 1.5
"""A fleet that begins empty counts as filled after this many 95th percentiles of the service time."""
STAYS_A_BATCH = 5.0
"""A batch of the batch means lasts this many stays: neighbours that are closer share their load."""
LEAST_BATCHES, RUN_BATCHES, MOST_BATCHES = 3, 6, 10
"""Batches: the fewest for an interval, as many as a run is planned for, and the most of a longer run."""
LEAST_OF_BATCH = 10
"""Requests that a batch must have on average, or its percentile is that of one or two of them."""
PRECISION = 0.05
"""A run is long enough for an interval of this share of the figure to either side."""
MOST_REQUESTS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchedMean:
    """A figure in seconds with its 90 % batch-means interval, from 0 on; NaN where too little was measured."""

    value: float
    low: float
    high: float

    @property
    def is_precise(self) -> bool:
        """Whether the interval is known and within ``PRECISION`` of the figure."""
        return self.half <= PRECISION * self.value

    @property
    def half(self) -> float:
        """How far the interval reaches upwards; as far downwards, where that is not below 0."""
        return self.high - self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class SteadyWindow:
    """The measured part of a run, in seconds: requests count that arrive in it.

    ``filling_s``: what formulas say of the time until the fleet is filled. ``stay_s``: how long a request stays, 95th
    percentile, and so how long the fleet drains. ``last_s``: the last arrival.
    """

    begins_s: float
    ends_s: float
    filling_s: float
    stay_s: float
    last_s: float

    @property
    def num_batches(self) -> int:
        """How many batches intervals are made of: as many of ``STAYS_A_BATCH`` as there are, within bounds."""
        if self.stay_s <= 0:
            return MOST_BATCHES
        whole = math.floor((self.ends_s - self.begins_s) / (STAYS_A_BATCH * self.stay_s) + 1e-9)
        return min(max(whole, LEAST_BATCHES), MOST_BATCHES)

    @property
    def batch_s(self) -> float:
        """How long a batch of the batch means is."""
        return (self.ends_s - self.begins_s) / self.num_batches

    @property
    def has_long_batches(self) -> bool:
        """Whether a batch is long enough to be independent of the next."""
        return self.batch_s >= STAYS_A_BATCH * self.stay_s * (1 - 1e-9)

    def is_enough_for(self, figure: BatchedMean) -> bool:
        """Whether the run is long enough for a figure: filled, in long batches, and known to ``PRECISION``."""
        return self.is_steady and self.has_long_batches and figure.is_precise

    @property
    def is_steady(self) -> bool:
        """Whether it begins after the filling, and the run goes on for a stay after its end."""
        return self.begins_s >= self.filling_s and self.ends_s <= self.last_s - self.stay_s + 1e-9

    def holds(self, arrival_s: Floats) -> NDArray[np.bool_]:
        """Return which requests count."""
        return (arrival_s >= self.begins_s) & (arrival_s <= self.ends_s)

    def needed_s(self, figure: BatchedMean) -> float:
        """Return how long a run must be for a figure's interval to be within ``PRECISION`` of it; NaN: not known.

        The interval narrows with the root of the measured time.
        """
        share = figure.half / (PRECISION * figure.value)
        return self.filling_s + (self.ends_s - self.begins_s) * share**2 + self.stay_s


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLength:
    """Requirements on a run: its least number of requests; ``begins_s``, ``ends_s``: the measured part, None: found.

    ``arrivals``: when they come. ``times``: a run is this many times as long as it would be. ``requests``: those of
    the workload, sent whole; None: its lengths are all that is known.
    """

    num_requests: int
    begins_s: float | None = None
    ends_s: float | None = None
    arrivals: Arrivals = field(default_factory=Arrivals)
    times: float = 1.0
    requests: WholeRequests | None = None

    def whole(self, lengths: Lengths) -> WholeRequests | None:
        """Return the requests that have these lengths; None where lengths are all that is known."""
        return None if self.requests is None else self.requests.of(lengths)

    def stream(self, lengths: Lengths, rate_per_s: float, *, share: float = 1.0, part: float = 1.0) -> Stream:
        """Return requests of these lengths as they come to some engines; ``share``, ``part``: as a stream has them."""
        return Stream(
            lengths=lengths,
            rate_per_s=rate_per_s,
            arrivals=self.arrivals,
            share=share,
            part=part,
            requests=self.whole(lengths),
        )

    def stay_s(self, lengths: Lengths, service_s: float) -> float:
        """Return how long a request, or a session, stays, 95th percentile, where a mean request takes ``service_s``."""
        tokens = lengths.output_tokens
        stay = service_s * float(np.percentile(tokens, 95) / tokens.mean())
        requests = self.whole(lengths)
        return stay if requests is None else stay + requests.span_s(service_s)

    def least_s(self, stay_s: float) -> float:
        """Return how long a run must be: filled, measured for ``RUN_BATCHES`` batches or as asked for, and drained."""
        if self.ends_s is not None:
            return self.ends_s + stay_s
        begins = FILLING * stay_s if self.begins_s is None else self.begins_s
        return max(2 * begins, begins + RUN_BATCHES * STAYS_A_BATCH * stay_s) + stay_s

    def number(self, rate_per_s: float, stay_s: float, *, once: int = 0) -> int:
        """Return how many requests to simulate. Raises ConfigError where the measured part ends too late.

        ``once``: this many come while a recording lasts, all of which is to be seen.
        """
        asked = self.begins_s if self.ends_s is None else self.ends_s
        most = MOST_REQUESTS / rate_per_s - stay_s
        if asked is not None and asked > most:
            raise ConfigError(
                f"--measure: got a time of {asked:,.0f} s, expected at most {most:,.0f} s: at {rate_per_s:g} "
                "requests/s that is a million requests"
            )
        if self.ends_s is not None:
            return max(math.ceil(self.least_s(stay_s) * rate_per_s), 2)
        begins = FILLING * stay_s if self.begins_s is None else self.begins_s
        whole = once + (math.ceil((begins + stay_s) * rate_per_s) if once else 0)
        number = max(self.num_requests, math.ceil(self.least_s(stay_s) * rate_per_s), whole)
        return min(math.ceil(number * self.times), MOST_REQUESTS)

    def window(self, last_s: float, stay_s: float) -> SteadyWindow:
        """Return the measured part of a run whose last request arrives at ``last_s``. Raises ConfigError."""
        filling = FILLING * stay_s
        ends = max(last_s - stay_s, 0.75 * last_s) if self.ends_s is None else self.ends_s
        begins = min(filling, 0.5 * last_s) if self.begins_s is None else self.begins_s
        if begins >= ends:
            raise ConfigError(
                f"--measure: got a beginning at {begins:,.0f} s, expected one before {ends:,.0f} s, where the measured "
                "part of the run ends"
            )
        return SteadyWindow(begins_s=begins, ends_s=ends, filling_s=filling, stay_s=stay_s, last_s=last_s)


def batch_means(values: Floats, statistic: Callable[[Floats], float], *, num_batches: int) -> BatchedMean:
    """Return a statistic of values in the order of their time, with a 90 % interval from this many batches of them.

    The batches' own values scatter around the whole's by chance and by correlation between neighbours; their t interval
    covers both, if a batch is longer than the correlation lasts (Law and Kelton, method of batch means).
    """
    known = values[~np.isnan(values)]
    if len(known) < LEAST_OF_BATCH * num_batches:
        return BatchedMean(value=statistic(known) if len(known) else math.nan, low=math.nan, high=math.nan)
    parts = np.array([statistic(part) for part in np.array_split(known, num_batches)])
    reach = half_width(parts)
    value = statistic(known)
    return BatchedMean(value=value, low=max(value - reach, 0.0), high=value + reach)
