"""The ways in which requests leave a cluster."""

from __future__ import annotations

from enum import IntEnum

from sim.requests import Status

NEVER = -1


class Exit(IntEnum):
    """How a request left the cluster; every request has exactly one way out."""

    UNDER_WAY = 0
    COMPLETED = 1
    REJECTED = 2
    QUEUE_FULL = 3
    SHED = 4
    EXPIRED = 5
    EVICTED = 6
    REFUSED = 7
    DROPPED = 8
    TIMED_OUT = 9
    NOT_SENT = 10
    LOST = 11


EXIT_MEANINGS = {
    Exit.UNDER_WAY: "not finished: its instance could not run it, it never got to one, or a horizon cut the run",
    Exit.COMPLETED: "has all its tokens",
    Exit.REJECTED: "not admitted",
    Exit.QUEUE_FULL: "found no place in the gateway's queue",
    Exit.SHED: "gave its place in the gateway's queue to a more important one",
    Exit.EXPIRED: "waited in the gateway's queue until its time ran out",
    Exit.EVICTED: "was taken off its instance for a more important one",
    Exit.REFUSED: "the instance's front end refused it: too long, or empty",
    Exit.DROPPED: "there was no instance to send it to",
    Exit.TIMED_OUT: "passed its deadline",
    Exit.NOT_SENT: "waited for an answer that never came, or was to be sent after the horizon",
    Exit.LOST: "was on an instance that failed, or that was stopped before it had finished",
}

STATUS_OF_EXIT = {
    Exit.REJECTED: Status.REJECTED,
    Exit.QUEUE_FULL: Status.REJECTED,
    Exit.SHED: Status.REJECTED,
    Exit.EXPIRED: Status.REJECTED,
    Exit.DROPPED: Status.REJECTED,
    Exit.REFUSED: Status.REJECTED,
    Exit.EVICTED: Status.ABORTED,
    Exit.LOST: Status.ABORTED,
    Exit.TIMED_OUT: Status.TIMEOUT,
}
