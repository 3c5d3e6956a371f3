"""Reads finished exchanges outside the measured times, in slices, and records them."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Container, Sequence
from concurrent.futures import ThreadPoolExecutor
from lazy_dataclasses import dataclass, field

from observe.record.live_trace import LiveTrace
from observe.record.trace_row import failure_of, is_cancelled
from observe.response.reading import Reading, Reply
from observe.response.stream_reader import StreamReader
from observe.response.unstreamed import read_unstreamed
from observe.run.run_counts import Progress
from observe.run.sent_request import SentRequest
from observe.senders.exchange import Exchange
from observe.senders.request_kinds import AsCompletion
from traces import TraceError

_EVENTS_PER_SLICE = 64
"""Events parsed before the loop gets its turn: about 0.2 ms, by which a stamp may be delayed."""

_BACKLOG_STEP = 4
"""For each group of this many waiting answers, a slice is longer by one: otherwise a client at its limit would read
fewer answers per turn of the loop than arrive, and keep the rest in memory until the end of the run."""


_WRITE_EVERY_S = 0.02
SYNC_EVERY_S = 0.5
"""How often the rows are flushed to the disk. A machine that stops loses those of the last second at most."""

_LINES_AFTER_ABORT = 200_000
"""Lines of aborted answers that are still read, about half a second's worth: the user wants the run to end."""


@dataclass(slots=True, kw_only=True, eq=False)
class AnswerCounts:
    """Counts of the answers' quality: they qualify the numbers derived from them."""

    counted_by_event: int = 0
    counted_at_end: int = 0
    without_usage: int = 0
    counted_by_length: int = 0
    counted_as_events: int = 0
    first_by_text: int = 0
    other_length: int = 0
    num_whole: int = 0
    with_cached_tokens: int = 0
    with_timings: int = 0
    fingerprints: Counter[str] = field(default_factory=Counter)
    unusable: Counter[str] = field(default_factory=Counter)
    unread_keys: Counter[str] = field(default_factory=Counter)

    def note_unusable(self, reading: Reading) -> None:
        """Count the fields of any answer, whole or not, that had impossible values."""
        self.unusable.update(reading.unusable)

    def note(self, reading: Reading, *, asked: int) -> None:
        """Count one whole answer for which ``asked`` tokens had been requested."""
        self.num_whole += 1
        self.with_cached_tokens += reading.cached_input_tokens is not None
        self.with_timings += reading.timings.queue_ms is not None
        self.first_by_text += reading.first_by_text
        self.unread_keys.update(reading.unread_keys)
        if reading.output_tokens is None:
            self.without_usage += 1
        elif reading.counted_from == "max_tokens":
            self.counted_by_length += 1
        elif reading.counted_from == "events":
            self.counted_as_events += 1
        elif reading.counted_by_event:
            self.counted_by_event += 1
        else:
            self.counted_at_end += 1
        self.other_length += reading.output_tokens is not None and reading.output_tokens != asked
        if reading.system_fingerprint is not None:
            self.fingerprints[reading.system_fingerprint] += 1


class Recorder:
    """Takes exchanges from the run in any order; ``work`` runs beside it. A full disk ends both.

    ``on_outcome`` is told of each whether it was answered whole, ``on_reply`` gets the answers to the ``awaited`` rows.
    ``hide`` removes secrets from quoted parts of an answer.
    """

    def __init__(
        self,
        live: LiveTrace,
        progress: Progress,
        *,
        max_tokens: Sequence[int],
        streaming: bool = True,
        awaited: Container[int] = (),
        as_completion: AsCompletion | None = None,
        num_choices: int = 1,
        hide: Callable[[str], str] = str,
    ) -> None:
        self._hide = hide
        self._as_completion = as_completion
        self._num_choices = num_choices
        self._live = live
        self._streaming = streaming
        self._awaited = awaited
        self.on_reply: Callable[[int, Reply | None], None] = lambda *_: None
        self.on_outcome: Callable[[bool], None] = lambda _: None
        self._progress = progress
        self._max_tokens = max_tokens
        self._waiting: deque[SentRequest] = deque()
        self._lines: deque[tuple[bytes, bytes]] = deque()
        self._wake = asyncio.Event()
        self._closing = False
        self._lines_left = _LINES_AFTER_ABORT
        self.answer_counts = AnswerCounts()
        self.fault: TraceError | None = None

    def put(self, request: SentRequest) -> None:
        """Hand over a request that has ended; one whose answer a session waits for is read first."""
        if request.row in self._awaited:
            self._waiting.appendleft(request)
        else:
            self._waiting.append(request)
        self._wake.set()

    def close(self) -> None:
        """Note that no more exchanges will come."""
        self._closing = True
        self._wake.set()

    async def work(self) -> None:
        """Record until closed and empty. Raises TraceError, also kept in ``fault``, if writing fails."""
        writing = asyncio.create_task(self._write())
        writing.add_done_callback(lambda _: self._wake.set())
        try:
            while not writing.done():
                while self._waiting and not writing.done():
                    await self._record(self._waiting.popleft())
                if self._closing and not self._waiting:
                    return
                self._wake.clear()
                await self._wake.wait()
        finally:
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
            if writing.cancelled():
                self._write_out()
            else:
                writing.result()

    async def _write(self) -> None:
        """Write the rows repeatedly, and flush them to the disk, on a thread: the loop waits for no disk."""
        count = 0
        with ThreadPoolExecutor(1, "observe-write") as thread:
            while True:
                await asyncio.sleep(_WRITE_EVERY_S)
                count += 1
                is_due = count * _WRITE_EVERY_S >= SYNC_EVERY_S
                count = 0 if is_due else count
                writing = asyncio.get_running_loop().run_in_executor(thread, self._write_out, is_due)
                try:
                    await asyncio.shield(writing)
                except asyncio.CancelledError:
                    await writing  # the file must not be closed under it
                    raise

    def _write_out(self, is_flushed: bool = False) -> None:
        """Write what has been recorded since the last call."""
        try:
            if lines := [self._lines.popleft() for _ in range(len(self._lines))]:
                self._live.append(*lines)
            if is_flushed:
                self._live.sync()
        except TraceError as fault:
            self.fault = fault
            raise

    async def _record(self, request: SentRequest) -> None:
        awaited_rows = request.row in self._awaited
        self._drop_if_too_long(request.exchange)
        slices = 1 + len(self._waiting) // _BACKLOG_STEP
        reading = await read_exchange(
            request.exchange,
            streaming=self._streaming,
            with_reply=awaited_rows,
            asked=self._max_tokens[request.row],
            as_completion=self._as_completion,
            num_choices=self._num_choices,
            hide=self._hide,
            events_per_slice=_EVENTS_PER_SLICE * slices,
        )
        failure = failure_of(request.exchange, reading)
        if awaited_rows:
            has_reply = failure is None or is_cancelled(failure)  # of a cut answer, what came of it
            self.on_reply(request.row, reading.reply if has_reply else None)
        start_ns = self._progress.start_ns
        assert start_ns is not None  # noqa: S101  the run began before its first request ended
        self._progress.note_answer(
            request.exchange, reading, status="ok" if failure is None else failure.status
        )
        self.on_outcome(failure is None or is_cancelled(failure))
        self.answer_counts.note_unusable(reading)
        if failure is None:
            self.answer_counts.note(reading, asked=self._max_tokens[request.row] * self._num_choices)
        self._lines.append(self._live.lines_of(request, reading, start_ns=start_ns))

    def _drop_if_too_long(self, exchange: Exchange) -> None:
        """Leave an aborted answer unread if earlier ones have used up the lines that may still be read."""
        if exchange.failure is None or exchange.failure.status != "aborted":
            return
        cost = exchange.num_lines + exchange.num_bytes // 1000
        if cost > self._lines_left:
            exchange.let_go()
            exchange.stamps = []
        else:
            self._lines_left -= cost


async def read_exchange(
    exchange: Exchange,
    *,
    streaming: bool = True,
    with_reply: bool = False,
    asked: int | None = None,
    as_completion: AsCompletion | None = None,
    num_choices: int = 1,
    hide: Callable[[str], str] = str,
    events_per_slice: int = _EVENTS_PER_SLICE,
) -> Reading:
    """Return the reading of an exchange's blobs, yielding to the loop every few events; free the blobs."""
    last = exchange.stamps[-1] if exchange.stamps else None
    reader = StreamReader(
        streamed=streaming,
        with_reply=with_reply,
        asked=asked,
        as_completion=as_completion,
        num_choices=num_choices,
        hide=hide,
    )
    if not streaming:
        blobs = exchange.blobs
        exchange.let_go()
        return read_unstreamed(reader, blobs, last, whole=exchange.failure is None)
    count = 0
    before = exchange.dispatched_ns
    for place, (blob, stamp) in enumerate(zip(exchange.blobs, exchange.stamps, strict=True)):
        polled = exchange.polled.get(place)
        since = None if polled is None or before is None else max(before, polled)
        count += reader.take(blob, stamp, since=since)
        before = stamp
        if count >= events_per_slice:
            count = 0
            await asyncio.sleep(0)
    exchange.let_go()
    return reader.finish(last, whole=exchange.failure is None)
