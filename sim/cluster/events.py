"""The order of events, also of those at one time: one total order, ``(time_us, rank, sequence)``.

``sequence`` is the row of the request or the number of the instance where an event has one, else the order in which
events were planned: nothing depends on how a heap breaks ties, nor on how many threads advance engines.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from sim.cluster.arrays import Records, grown, records
from sim.jit.compile import engine_entry, part, phase


class EventRank(IntEnum):
    """The kinds of events, in the order in which they happen at one time; ``REASONS`` says why."""

    STEP_ENDED = 0
    TRANSFER_ENDED = 1
    INSTANCE_FAILED = 2
    DRAIN_ENDED = 3
    INSTANCE_READY = 4
    CLIENT_GAVE_UP = 5
    SNAPSHOT = 6
    ARRIVAL = 7
    ADMISSION = 8
    DISPATCH = 9
    ROUTING = 10
    EXPIRY = 11
    JOINING = 12
    SCALING = 13
    STEP_STARTED = 14


REASONS: Mapping[EventRank, str] = MappingProxyType(
    {
        EventRank.STEP_ENDED: (
            "What is done at this time is done: completions free seats and counts before any decision, and an "
            "answer that comes as its deadline passes has come in time."
        ),
        EventRank.TRANSFER_ENDED: (
            "KV that has arrived is there for the step that starts now; after steps' ends, since a prefill step "
            "that ends now starts its transfer no earlier than now."
        ),
        EventRank.INSTANCE_FAILED: (
            "What an instance had finished by now was delivered; nothing is sent to it any more."
        ),
        EventRank.DRAIN_ENDED: (
            "What an instance that is to stop had finished by now was delivered; the rest is lost, and may be tried "
            "again elsewhere before another request arrives."
        ),
        EventRank.INSTANCE_READY: (
            "An instance that is ready now is a candidate now; after failures, so that one that comes back stays."
        ),
        EventRank.CLIENT_GAVE_UP: (
            "A client that leaves takes its place with it before the next is admitted; after completions, which win."
        ),
        EventRank.SNAPSHOT: (
            "A snapshot shows what has happened by its time, and decisions of that time see it."
        ),
        EventRank.ARRIVAL: (
            "After all that may cause one: a session's next request with no think time arrives as its answer ends."
        ),
        EventRank.ADMISSION: (
            "All that arrive at one time are there before the first is judged; they are judged in their order."
        ),
        EventRank.DISPATCH: (
            "The gateway's queue hands over once all admitted at this time stand in it, so that the most urgent goes."
        ),
        EventRank.ROUTING: "Decided one by one, each seeing what the one before it put in flight.",
        EventRank.EXPIRY: "A request that can be handed over in its last moment is; only then is its time up.",
        EventRank.JOINING: "A request is in its instance's queue before the step that starts at this time.",
        EventRank.SCALING: "An autoscaler judges the state that this time leaves, not one in the middle of it.",
        EventRank.STEP_STARTED: (
            "Last: an engine takes into its step everything that has come by its start, as the single engine does; "
            "instances in the order of their numbers."
        ),
    }
)

EVENT = np.dtype([("time_us", np.int64), ("rank", np.int64), ("sequence", np.int64), ("subject", np.int64)])
"""``subject``: the request or the instance that it happens to."""

EVENT_COUNTS = np.dtype([("num_planned", np.int64)])


class EventQueue(NamedTuple):
    """Planned events in a binary heap; compiled functions take it whole."""

    heap: Records  # EVENT[capacity]
    counts: Records  # EVENT_COUNTS[1]


def new_event_queue(capacity: int) -> EventQueue:
    """Return an empty queue with room for ``capacity`` events."""
    return EventQueue(heap=records(capacity, EVENT), counts=records(1, EVENT_COUNTS))


def with_room_for_events(queue: EventQueue, capacity: int) -> EventQueue:
    """Return the same queue with room for at least ``capacity`` events."""
    return queue._replace(heap=grown(queue.heap, max(capacity, len(queue.heap))))


@part
def comes_before(heap: Records, left: int, right: int) -> bool:
    """Return whether the event at one place comes before the one at another."""
    a, b = heap[left], heap[right]
    if a.time_us != b.time_us:
        return a.time_us < b.time_us
    if a.rank != b.rank:
        return a.rank < b.rank
    return a.sequence < b.sequence


@part
def swap_events(heap: Records, left: int, right: int) -> None:
    """Swap two events."""
    a, b = heap[left], heap[right]
    a.time_us, b.time_us = b.time_us, a.time_us
    a.rank, b.rank = b.rank, a.rank
    a.sequence, b.sequence = b.sequence, a.sequence
    a.subject, b.subject = b.subject, a.subject


@phase
def plan(events: EventQueue, time_us: int, rank: int, sequence: int, subject: int) -> None:
    """Add an event; there must be room."""
    place = events.counts[0].num_planned
    events.counts[0].num_planned += 1
    event = events.heap[place]
    event.time_us, event.rank, event.sequence, event.subject = time_us, rank, sequence, subject
    while place > 0 and comes_before(events.heap, place, (place - 1) // 2):
        swap_events(events.heap, place, (place - 1) // 2)
        place = (place - 1) // 2


@phase
def drop_next(events: EventQueue) -> None:
    """Take away the event that comes next, the one at ``heap[0]``; there must be one."""
    events.counts[0].num_planned -= 1
    num = events.counts[0].num_planned
    swap_events(events.heap, 0, num)
    place = 0
    while True:
        least = place
        for child in range(2 * place + 1, min(2 * place + 3, num)):
            if comes_before(events.heap, child, least):
                least = child
        if least == place:
            return
        swap_events(events.heap, place, least)
        place = least


@engine_entry
def plan_event(events: EventQueue, time_us: int, rank: int, sequence: int, subject: int) -> None:
    """Call ``plan``."""
    plan(events, time_us, rank, sequence, subject)
