"""How the events of each answer came, and which of its latencies were therefore measured.

A proxy that buffers, or a server that does not stream, hands over many events in one read. Their times are then those
of the proxy: an answer that came in one read has a time of its end and no other. The rules, for answers of at least
``LEAST_EVENTS`` events with text:

* held back: all of them came in one read, or faster than any server makes tokens. TTFT, TPOT and ITL were not measured.
* in clumps: ``CLUMP`` events a read, or more, on average. ITL was not measured; TTFT was where the first read held one
  event; TPOT, from the first read to the last, is off by one clump at most, and counts from ``LEAST_CLUMPS`` clumps on.

* crowded: ``CROWDED`` events a read, or more, on average. ITL was not measured.

An answer that is one single event of many tokens is held back, too. Events that now and then share a read (a burst)
change nothing.
"""

from __future__ import annotations

from lazy_dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from traces.trace import Trace

Bools = NDArray[np.bool_]
Int64s = NDArray[np.int64]
Float64s = NDArray[np.float64]

SAME_READ_US: Final = 200
"""Events that follow each other faster came together, in whatever pieces they were read: no step is as short."""
FASTEST_US_PER_TOKEN: Final = 100.0
"""10,000 tokens per second of one answer, several times what the fastest servers make."""
LEAST_EVENTS: Final = 6
"""Fewer may come together by chance."""
CLUMP: Final = 2.0
"""From here on most events came with the one before, and the median gap is 0."""
LEAST_CLUMPS: Final = 10
CROWDED: Final = 1.25
"""From here on a fifth of the gaps are 0: not those of the server, but of a client that was late."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextEvents:
    """Events with text of a trace's requests, by request, then in order; ``num_tokens`` NaN where not counted.

    ``request``: the row number.
    """

    request: Int64s
    time_us: Int64s
    num_tokens: Float64s

    def __len__(self) -> int:
        """Return the number of events."""
        return len(self.request)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamShape:
    """One entry per request. ``first_tokens``: tokens of the first event with text and of those in the same read.

    ``per_event``: the tokens of each of its events that were not counted, 1 where that is not known either.
    ``hidden_tokens``: tokens that were generated and never streamed. ``held_back``, ``in_clumps``: see the module.
    ``is_estimated``: ``first_tokens`` follows from the numbers of tokens and events; ``is_assumed``: it is taken as 1,
    although events hold several tokens. ``num_events``, ``num_reads``: NaN where not known.
    """

    first_tokens: Float64s
    per_event: Float64s
    hidden_tokens: Float64s
    num_events: Float64s
    num_reads: Float64s
    can_be_judged: Bools
    held_back: Bools
    in_clumps: Bools
    has_ttft: Bools
    has_tpot: Bools
    has_itl: Bools
    is_estimated: Bools
    is_assumed: Bools

    @property
    def tokens_behind(self) -> Float64s:
        """What is taken from an answer's output tokens to have those behind its first event."""
        return self.first_tokens + self.hidden_tokens


NO_EVENTS: Final = TextEvents(
    request=np.empty(0, np.int64), time_us=np.empty(0, np.int64), num_tokens=np.empty(0)
)


def text_events(trace: Trace) -> TextEvents:
    """Return the events with text of all requests of a trace; none where it has no events."""
    events = trace.events
    if events is None or len(events) == 0:
        return NO_EVENTS
    from traces.tables.event_rules import int_values, request_codes

    request = request_codes(events, trace.requests)
    num_tokens = events["num_tokens"].to_numpy(dtype=np.float64, na_value=np.nan)
    kept = np.flatnonzero((request >= 0) & ~(num_tokens <= 0))
    index, time = int_values(events["chunk_index"])[kept], int_values(events["timestamp_us"])[kept]
    request, num_tokens = request[kept], num_tokens[kept]
    order = np.lexsort((index, request))
    return TextEvents(request=request[order], time_us=time[order], num_tokens=num_tokens[order])


def tokens_of_choice(trace: Trace) -> Float64s:
    """Return each answer's tokens; where a prompt has several answers (``n``), those of one: their mean."""
    client = trace.header.client if trace.header.mode == "real" else None
    number = 1 if client is None else client.num_choices or 1
    return trace.cells("output_tokens").floats() / number


def stream_shape(trace: Trace, events: TextEvents | None = None) -> StreamShape:
    """Return the shape of each answer; of a simulated trace, or a workload, all is as it should be.

    ``events``: its ``text_events``, where the caller has them.
    """
    num = len(trace)
    output, hidden = tokens_of_choice(trace), trace.cells("hidden_tokens").floats()
    hidden = np.where(np.isnan(hidden), 0.0, hidden)
    if trace.header.mode != "real":
        return _as_it_should_be(num, hidden)
    reads = _reads(text_events(trace) if events is None else events, num)
    num_events = _or(trace.cells("num_token_chunks").floats(), reads.num_events)
    num_events = _or(num_events, _all_events(trace))
    visible = output - hidden
    estimate, is_estimated, is_assumed = _tokens_of_first_event(visible, num_events)
    known = _or(trace.cells("first_chunk_tokens").floats(), reads.first_tokens)
    first = np.where(np.isnan(known), estimate * reads.first_events, known)
    num_reads = _or(trace.cells("num_token_reads").floats(), reads.num_reads)
    span = _last(trace) - _first(trace)
    return _judged(
        first=np.minimum(first, np.where(np.isnan(visible), np.inf, np.maximum(visible, 1.0))),
        hidden=hidden,
        visible=visible,
        num_events=num_events,
        num_reads=np.where(np.isnan(num_reads) & (span <= SAME_READ_US), 1.0, _or(num_reads, num_events)),
        span=span,
        per_event=estimate,
        guessed=(is_estimated & np.isnan(known), is_assumed & np.isnan(known)),
    )


def _as_it_should_be(num: int, hidden: Float64s) -> StreamShape:
    yes, no, one = np.ones(num, np.bool_), np.zeros(num, np.bool_), np.ones(num)
    unknown = np.full(num, np.nan)
    return StreamShape(
        first_tokens=one,
        per_event=one,
        hidden_tokens=hidden,
        num_events=unknown,
        num_reads=unknown,
        can_be_judged=no,
        held_back=no,
        in_clumps=no,
        has_ttft=yes,
        has_tpot=yes,
        has_itl=yes,
        is_estimated=no,
        is_assumed=no,
    )


def _judged(
    *,
    first: Float64s,
    hidden: Float64s,
    visible: Float64s,
    num_events: Float64s,
    num_reads: Float64s,
    span: Float64s,
    per_event: Float64s,
    guessed: tuple[Bools, Bools],
) -> StreamShape:
    many = (num_events >= LEAST_EVENTS) & np.isfinite(span)
    at_once = (num_events == 1) & (visible >= LEAST_EVENTS) & np.isfinite(span)
    held = at_once | (many & ((num_reads <= 1) | (span < FASTEST_US_PER_TOKEN * (visible - first))))
    clumps = many & ~held & (num_events >= CLUMP * num_reads)
    has_first = first <= np.maximum(1.0, 1.5 * visible / np.maximum(num_events, 1.0))
    return StreamShape(
        first_tokens=first,
        per_event=per_event,
        hidden_tokens=hidden,
        num_events=num_events,
        num_reads=num_reads,
        can_be_judged=many | at_once,
        held_back=held,
        in_clumps=clumps,
        has_ttft=~held & (~clumps | has_first),
        has_tpot=~held & (~clumps | (num_reads > LEAST_CLUMPS)),
        has_itl=~held & ~(many & (num_events > CROWDED * num_reads)),
        is_estimated=guessed[0],
        is_assumed=guessed[1],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reads:
    """What the table of events says of each request, NaN where it has none of it."""

    num_events: Float64s
    num_reads: Float64s
    first_events: Float64s
    first_tokens: Float64s


def _reads(events: TextEvents, num: int) -> _Reads:
    if len(events) == 0:
        unknown = np.full(num, np.nan)
        return _Reads(num_events=unknown, num_reads=unknown, first_events=np.ones(num), first_tokens=unknown)
    begins = np.append(True, np.diff(events.request) != 0)
    apart = begins | np.append(True, np.diff(events.time_us) > SAME_READ_US)
    number = np.cumsum(apart)  # of the read, over all requests
    in_first = number == number[np.flatnonzero(begins)][np.cumsum(begins) - 1]

    def total(weights: NDArray[np.generic]) -> Float64s:
        return np.bincount(events.request, weights=weights.astype(np.float64), minlength=num).astype(
            np.float64
        )

    count = total(np.ones(len(events)))
    seen = count > 0
    first_tokens = total(np.where(in_first, events.num_tokens, 0.0))
    return _Reads(
        num_events=np.where(seen, count, np.nan),
        num_reads=np.where(seen, total(apart), np.nan),
        first_events=np.where(seen, total(in_first), 1.0),
        first_tokens=np.where(seen, first_tokens, np.nan),
    )


def _tokens_of_first_event(tokens: Float64s, num_events: Float64s) -> tuple[Float64s, Bools, Bools]:
    """Return the tokens of an answer's first event by its numbers of tokens and events, and what that rests on.

    Two ways are usual: every event but the last holds as many (40 tokens in 10 events: 4 each), or the first holds one
    and every further one as many (vLLM's ``--stream-interval``). Where only the first way gives these numbers, it is
    taken (estimated); where the events hold several tokens otherwise, as with speculative decoding, the first is taken
    as one token (assumed): that is what a prefill yields.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        bundles = np.isfinite(tokens) & (num_events >= 1) & (num_events < tokens)
        each = np.ceil(tokens / num_events)
        rest, others = tokens - 1.0, num_events - 1.0
        alone = (others >= 1) & ((others - 1.0) * np.ceil(rest / others) < rest)
        even = bundles & ((num_events - 1.0) * each < tokens) & ~alone
    return np.where(even, each, 1.0), even, bundles & ~even


def _all_events(trace: Trace) -> Float64s:
    """Return the number of all events where only that is known and no event with text is told apart."""
    told = trace.cells("content_first_time_us").is_known
    streamed = trace.cells("streaming")
    unstreamed = streamed.is_known & ~streamed.values
    return np.where(told | unstreamed, np.nan, trace.cells("num_chunks").floats())


def _first(trace: Trace) -> Float64s:
    return trace.cells("content_first_time_us").or_else(trace.cells("first_chunk_time_us")).floats()


def _last(trace: Trace) -> Float64s:
    return trace.cells("last_token_time_us").or_else(trace.cells("last_chunk_time_us")).floats()


def _or(one: Float64s, other: Float64s) -> Float64s:
    return np.where(np.isnan(one), other, one)
