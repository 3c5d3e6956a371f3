"""What the answers under way have brought so far, for the display: counted cheaply, read in earnest when they end."""

from __future__ import annotations

from collections.abc import Iterable

from observe.run.progress import Progress
from observe.senders.exchange import Exchange

_EVENT = b"data:"


def note_streams(exchanges: Iterable[Exchange], progress: Progress) -> None:
    """Set ``num_streaming`` and ``tokens_under_way`` of ``progress``, an event taken for a token; note first events.

    Every blob is looked at once, at a small part of the cost of reading it.
    """
    num_streaming = num_events = 0
    for exchange in exchanges:
        seen, before = exchange.num_blobs_seen, exchange.num_events_seen
        new = exchange.blobs[seen:]
        exchange.num_blobs_seen = seen + len(new)
        exchange.num_events_seen = before + sum(blob.count(_EVENT) for blob in new)
        if not exchange.num_events_seen:
            continue
        num_streaming += 1
        num_events += exchange.num_events_seen
        if not before and exchange.dispatched_ns is not None:
            progress.first_event.add((exchange.stamps[seen] - exchange.dispatched_ns) / 1000)
    progress.num_streaming, progress.tokens_under_way = num_streaming, num_events
