"""The offset of another machine's clock: within its stated error, whatever the network does."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from observe.machines.clocks import ClockOffset, RoundTrip, offset_of
from tests.examples import examples

DELAY_NS = st.integers(0, 50_000_000)


def trip(at_ns: int, *, offset_ns: int, there_ns: int, back_ns: int) -> RoundTrip:
    """Return a round trip that takes ``there_ns`` and ``back_ns`` to a clock that is ahead by ``offset_ns``."""
    return RoundTrip(at_ns, at_ns + there_ns + offset_ns, at_ns + there_ns + back_ns)


@examples(200)
@given(
    offset_ns=st.integers(-(10**15), 10**15),
    delays=st.lists(st.tuples(DELAY_NS, DELAY_NS), min_size=1, max_size=20),
)
def test_the_true_offset_lies_within_the_error_and_the_error_is_at_most_half_the_fastest_trip(
    offset_ns: int, delays: list[tuple[int, int]]
) -> None:
    trips = [
        trip(place * 10**9, offset_ns=offset_ns, there_ns=there, back_ns=back)
        for place, (there, back) in enumerate(delays)
    ]
    found = offset_of(trips)
    assert abs(found.offset_ns - offset_ns) <= found.error_ns
    assert found.error_ns <= min(there + back for there, back in delays) / 2 + 1


def test_of_one_trip_it_is_ntps() -> None:
    assert offset_of([RoundTrip(100, 1130, 140)]) == ClockOffset(offset_ns=1010, error_ns=20)


def test_a_slow_way_there_and_a_slow_way_back_tell_more_than_either() -> None:
    slow_back = trip(0, offset_ns=5000, there_ns=10, back_ns=900)
    slow_there = trip(10_000, offset_ns=5000, there_ns=900, back_ns=10)
    assert offset_of([slow_back, slow_there]) == ClockOffset(offset_ns=5000, error_ns=10)
