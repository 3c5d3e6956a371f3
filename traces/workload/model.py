"""A workload's model: which clients send, how often, the lengths of prompts and answers, and when it stops.

Plain frozen data; nothing here draws a number or reads a file. Invalid values raise InvalidWorkload, which names the
field; the readers of options and of specs add its place.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from lazy_dataclasses import dataclass, field
from typing import Final, Literal, get_args

from traces.header import SLOTarget
from traces.workload.basics import ArrivalProcess, require
from traces.workload.lengths import Distribution, Lengths, Shares

SloClass = Literal["critical", "standard", "sheddable", "batch", "background"]

CV_RANGE: Final = (0.01, 10.0)
"""Coefficients of variation of gaps that are drawn: beyond 10 nearly every gap is 0 in float64."""


# ── when


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """Gaps between a client's requests: family and coefficient of variation; the rate sets their mean.

    Poisson's cv is 1 and a constant process's 0, given or not. ``rate_per_s``: the client's own rate if its gaps have a
    scale; its share of the aggregate rate then only affects the others' shares. ``exactly``: (number of arrivals, time
    of the last in µs): Poisson's gaps scaled to fill it.
    """

    process: ArrivalProcess = "poisson"
    cv: float = 1.0
    rate_per_s: float | None = None
    exactly: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        """Check the process and that its cv is possible."""
        processes = get_args(ArrivalProcess)
        require(
            self.process in processes,
            f"process: got {self.process!r}, expected one of {', '.join(processes)}",
        )
        low, high = CV_RANGE
        if self.process in ("gamma", "weibull"):
            require(low <= self.cv <= high, f"cv: got {self.cv:g}, expected a number in [{low:g}, {high:g}]")


def cv_of_shape(process: ArrivalProcess, shape: float) -> float:
    """Return the coefficient of variation of a gamma or Weibull distribution of this shape, which is above 0."""
    if process == "gamma":
        return 1 / math.sqrt(shape)
    log_ratio = math.lgamma(1 + 2 / shape) - 2 * math.lgamma(1 + 1 / shape)
    return math.sqrt(math.expm1(min(log_ratio, 100.0)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveWindow:
    """(start_us, end_us]: a client is active; values given here replace the client's own.

    ``trace_rate_per_s`` weighs the client against the others active then, or is its rate where the workload
    has no aggregate rate. ``rate_multiplier`` scales the result: ramps and days are rows of windows.
    """

    start_us: int
    end_us: int
    trace_rate_per_s: float | None = None
    rate_multiplier: float = 1.0
    arrival: Arrival | None = None
    prompt: Distribution | None = None
    output: Distribution | None = None
    reason_shares: Shares | None = None

    def __post_init__(self) -> None:
        """Check the times and the rate."""
        require(self.start_us >= 0, f"start_us: got {self.start_us}, expected an integer >= 0")
        require(
            self.end_us > self.start_us, f"end_us: got {self.end_us}, expected > start_us ({self.start_us})"
        )
        rate = self.trace_rate_per_s
        if rate is not None:
            require(
                math.isfinite(rate) and rate >= 0, f"trace_rate: got {rate:g}, expected a finite rate >= 0"
            )

    @property
    def overrides(self) -> bool:
        """True if the window draws otherwise than its client."""
        given = (self.arrival, self.prompt, self.output, self.reason_shares)
        return any(each is not None for each in given)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenLoop:
    """``rate_per_s`` requests in all; inf: all at 0; None: the windows' rates are absolute."""

    rate_per_s: float | None

    def __post_init__(self) -> None:
        """Check the rate."""
        rate = self.rate_per_s
        if rate is not None:
            require(rate > 0, f"rate: got {rate:g}, expected requests per second > 0 or inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class UserLoop:
    """``concurrency`` users who each send, wait for the answer, think ``think_time_us``, and send again.

    ``in_waves``: they wait for each other too, and send all at once.
    """

    concurrency: int
    think_time_us: int = 0
    in_waves: bool = False

    def __post_init__(self) -> None:
        """Check both."""
        require(self.concurrency >= 1, f"concurrency: got {self.concurrency}, expected an integer >= 1")
        require(self.think_time_us >= 0, f"think_time_us: got {self.think_time_us}, expected >= 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """Each arrival is a session of ``number`` requests, one after another, ``think_time_us`` after each answer.

    ``accumulate``: a round's prompt is the earlier text, answers included, and its own addition. ``waits``: answers
    decide when later rounds come; else they have times of their own. ``once``: the client has one session in all.
    ``think_time``: the distribution of the pauses, in µs, in place of ``think_time_us``.
    """

    number: int
    think_time_us: int = 0
    accumulate: bool = True
    waits: bool = True
    once: bool = False
    think_time: Distribution | None = None

    def __post_init__(self) -> None:
        """Check the numbers."""
        require(self.number >= 1, f"max_rounds: got {self.number}, expected an integer >= 1")
        require(self.think_time_us >= 0, f"think_time_us: got {self.think_time_us}, expected µs >= 0")


ONE_ROUND: Final = Rounds(number=1)

# ── what


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Images, clips or videos of a request: how many, and the tokens of each."""

    count: Distribution
    tokens: Distribution


@dataclass(frozen=True, slots=True, kw_only=True)
class Modalities:
    """A prompt of several kinds: its length is the sum of its text and of every part's tokens."""

    text: Distribution | None = None
    image: Parts | None = None
    audio: Parts | None = None
    video: Parts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkPath:
    """The network between client and server: a round trip, and a bandwidth (None: unlimited); a token is 4 bytes."""

    rtt_us: int = 0
    bandwidth_mbps: float | None = None


# ── clients


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """One source of requests. Its random streams are named by its ``id``: a change to it affects no other client.

    ``reason_percent``: how much of an answer is reasoning, in per cent; ``reason_shares``: the same as a histogram of
    shares. ``guided_frac``: the share of requests whose
    answers are held to a grammar.
    """

    id: str
    lengths: Lengths
    arrival: Arrival = field(default_factory=Arrival)
    rate_fraction: float = 1.0
    tenant_id: str | None = None
    slo_class: str | None = None
    priority: int | None = None
    model: str | None = None
    adapter: str | None = None
    prefix_group: str | None = None
    prefix_length: int = 0
    streaming: bool = True
    timeout_us: int | None = None
    slo_target_us: int | None = None
    windows: tuple[ActiveWindow, ...] = ()
    rounds: Rounds = ONE_ROUND
    modalities: Modalities | None = None
    reason_percent: Distribution | None = None
    reason_shares: Shares | None = None
    guided_frac: float = 0.0
    network: NetworkPath | None = None

    def __post_init__(self) -> None:
        """Check everything that does not depend on the other clients."""
        fraction = self.rate_fraction
        require(math.isfinite(fraction) and fraction > 0, f"rate_fraction: got {fraction:g}, expected > 0")
        guided = self.guided_frac
        require(0 <= guided <= 1, f"guided_frac: got {guided:g}, expected a fraction in [0, 1]")
        require(self.prefix_length >= 0, f"prefix_length: got {self.prefix_length}, expected an integer >= 0")
        if self.prefix_length > 0:
            require(self.prefix_group is not None, "prefix_length: needs prefix_group")
        if self.slo_class is not None:
            classes = get_args(SloClass)
            require(
                self.slo_class in classes, f"slo_class: got {self.slo_class!r}, expected {', '.join(classes)}"
            )
        ordered = sorted(self.windows, key=lambda window: window.start_us)
        for before, after in pairwise(ordered):
            overlap = f"[{before.start_us}, {before.end_us}] and [{after.start_us}, {after.end_us}]"
            require(before.end_us <= after.start_us, f"windows: got {overlap}, expected none to overlap")


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Everything needed to draw a trace, except the seed's default.

    Drawing ends at ``num_requests`` or ``duration_us``, whichever comes first; None: no such bound.
    ``source`` is what the trace's header names as its origin. ``seed`` None: the caller's.
    ``total_tokens_max``: of prompt and answer together; None: any number.
    """

    clients: tuple[Client, ...]
    load: OpenLoop | UserLoop
    num_requests: int | None = None
    duration_us: int | None = None
    seed: int | None = None
    source: str | None = None
    goodput_slo_targets: Mapping[str, SLOTarget] = field(default_factory=dict)
    total_tokens_max: int | None = None

    def __post_init__(self) -> None:
        """Check that the clients fit together and that drawing ends."""
        require(len(self.clients) > 0, "clients: got none, expected at least one")
        ids = [client.id for client in self.clients]
        twice = sorted({name for name in ids if ids.count(name) > 1}) if len(set(ids)) < len(ids) else []
        require(
            not twice, f"clients: got two with the id {twice[0] if twice else ''!r}, expected each id once"
        )
        for name in ("num_requests", "duration_us"):
            bound = getattr(self, name)
            require(bound is None or bound >= 1, f"{name}: got {bound}, expected an integer >= 1")
        ends = self.num_requests is not None or self.duration_us is not None
        require(ends, "num_requests: got neither it nor a duration, expected one of them")
        if isinstance(self.load, UserLoop):
            self._check_closed_loop()
        else:
            self._check_open_loop(self.load)

    def _check_closed_loop(self) -> None:
        alone = len(self.clients) == 1
        require(alone, "concurrency: got several clients, expected one where the loop is closed")
        require(not self.clients[0].windows, "windows: got some in a closed loop, expected none")
        # the number of requests in a time is not known before they are answered
        counted = self.duration_us is None
        require(counted, "duration: got one in a closed loop, expected num_requests")

    def _check_open_loop(self, load: OpenLoop) -> None:
        windowed = all(client.windows for client in self.clients)
        rated = [w.trace_rate_per_s is not None for client in self.clients for w in client.windows]
        if load.rate_per_s is None:
            expected = "a rate > 0, or lifecycle.windows with a trace_rate for every client"
            require(windowed and all(rated), f"aggregate_rate: got 0, expected {expected}")
        elif load.rate_per_s == math.inf:
            counted = self.num_requests is not None
            require(counted, "rate: got inf with a duration alone, expected num_requests")
        else:
            expected = "it in every window of every client or in none"
            alike = not any(rated) or (windowed and all(rated))
            require(alike, f"trace_rate: got it in some windows only, expected {expected}")
