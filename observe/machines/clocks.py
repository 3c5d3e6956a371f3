"""How far another machine's clock is from ours, from round trips alone."""

from __future__ import annotations

from collections.abc import Sequence
from lazy_dataclasses import dataclass
from typing import NamedTuple


class RoundTrip(NamedTuple):
    """One question to another machine: our clock before it and after the answer, theirs in between; ns."""

    sent_ns: int
    there_ns: int
    received_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockOffset:
    """Another machine's CLOCK_MONOTONIC less ours, ns: right to ``error_ns``, whatever the network does."""

    offset_ns: int
    error_ns: int


def offset_of(trips: Sequence[RoundTrip]) -> ClockOffset:
    """Return the offset that all round trips allow; of one trip NTP's, with half the round trip as its error.

    A message cannot arrive before it was sent: ``there - received <= offset <= there - sent`` (F. Cristian,
    Probabilistic clock synchronization, 1989). The tightest of each side is taken, which is never wider than the trip
    of least delay. Clocks that drift apart by more than that between two trips leave no offset: the error is then by
    how much the sides miss each other.
    """
    least = max(trip.there_ns - trip.received_ns for trip in trips)
    most = min(trip.there_ns - trip.sent_ns for trip in trips)
    return ClockOffset(offset_ns=(least + most) // 2, error_ns=(abs(most - least) + 1) // 2)
