"""Counts of the answers in flight so far, for the display: estimated cheaply, read exactly when they end."""

from __future__ import annotations

from collections.abc import Iterable

from observe.run.run_counts import Progress
from observe.senders.exchange import Exchange

_EVENT = b"data:"


class InFlightCounter:
    """Counts the events of the exchanges in flight; remembers how far it has counted each."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._counted: dict[Exchange, tuple[int, int]] = {}

    def count(self, exchanges: Iterable[Exchange]) -> None:
        """Set ``num_streaming`` and ``tokens_under_way`` of the progress, one token per event; note first events.

        Each blob is scanned once, at a small part of the cost of reading it. Exchanges that are no longer given are
        forgotten.
        """
        counted: dict[Exchange, tuple[int, int]] = {}
        num_streaming = num_tokens = 0
        for exchange in exchanges:
            num_blobs, before = self._counted.get(exchange, (0, 0))
            new = exchange.blobs[num_blobs:]
            num_events = before + sum(blob.count(_EVENT) for blob in new)
            counted[exchange] = (num_blobs + len(new), num_events)
            if not num_events:
                continue
            num_streaming += 1
            num_tokens += num_events
            if not before and exchange.dispatched_ns is not None:
                self._progress.first_event.add((exchange.stamps[num_blobs] - exchange.dispatched_ns) / 1000)
        self._counted = counted
        self._progress.num_streaming, self._progress.tokens_under_way = num_streaming, num_tokens
