"""Events happen in one total order, and every rank has a reason."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sim.cluster.events import REASONS, EventRank, new_event_queue, plan_event, with_room_for_events
from tests.examples import examples
from tests.sim.cluster.compiled_calls import drop_next_event


def test_every_rank_has_a_reason_and_ranks_have_no_gap() -> None:
    assert list(REASONS) == list(EventRank)
    assert [rank.value for rank in EventRank] == list(range(len(EventRank)))
    assert all(len(reason) > 20 and reason.endswith(".") for reason in REASONS.values())


@given(
    planned=st.lists(
        st.tuples(st.integers(0, 3) | st.integers(0, 2**60), st.sampled_from(EventRank), st.integers(0, 5)),
        unique=True,
    ),
    drops=st.lists(st.booleans(), min_size=50, max_size=50),
)
@examples(200)
def test_events_come_by_time_then_rank_then_sequence(
    planned: list[tuple[int, EventRank, int]], drops: list[bool]
) -> None:
    queue, waiting = new_event_queue(1), []
    for (time_us, rank, sequence), drop in zip(planned, [*drops, *[False] * len(planned)], strict=False):
        if queue.counts.num_planned[0] == len(queue.heap):
            queue = with_room_for_events(queue, 2 * len(queue.heap))
        plan_event(queue, time_us, int(rank), sequence, 7 * sequence)
        waiting.append((time_us, int(rank), sequence, 7 * sequence))
        if drop:
            assert queue.heap[0].item() == min(waiting)
            waiting.remove(min(waiting))
            drop_next_event(queue)
    for expected in sorted(waiting):
        assert queue.heap[0].item() == expected
        drop_next_event(queue)
    assert queue.counts.num_planned[0] == 0
