"""Stretches of queues that can be counted by hand: even arrivals, an even service, clients that give up."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from replay.verdict.queued import Queued
from replay.verdict.stretches import OverloadedStretch, overloaded_stretches

SERVICE_US = 100_000
S = 1_000_000
Int64s = NDArray[np.int64]


def even(*parts: tuple[float, float]) -> Int64s:
    """Return arrivals, µs, of (seconds, requests per second) in turn."""
    start, found = 0.0, []
    for seconds, per_s in parts:
        found.append(start + np.arange(round(seconds * per_s)) / per_s)
        start += seconds
    return np.round(np.concatenate(found) * S).astype(np.int64)


def served(came: Int64s, *, patience_s: float = np.inf) -> Queued:
    """Return a queue at one seat, ten requests per second; who waits for so long gives up."""
    free, began, left, lost = 0, [], [], []
    for at in came.tolist():
        begin = max(at, free)
        gives_up = begin - at > patience_s * S
        lost.append(gives_up)
        began.append(at + int(patience_s * S) if gives_up else begin)
        left.append(began[-1] if gives_up else begin + SERVICE_US)
        free = free if gives_up else left[-1]
    return Queued(
        came_us=came,
        began_us=np.array(began),
        left_us=np.array(left),
        is_lost=np.array(lost),
        step_us=np.full(len(came), 1000.0),
        num_steps=np.full(len(came), 100.0),
    )


def stretches(queued: Queued) -> list[OverloadedStretch]:
    return overloaded_stretches(queued, step_us=1000.0, served_us=float(SERVICE_US))


def waiting_most(queued: Queued, from_us: float, until_us: float) -> int:
    """Count those that wait at each time at which one comes."""
    came, began = queued.came_us, queued.began_us
    waits = began - came > 2000
    came, began = came[waits], began[waits]
    times = came[(came >= from_us) & (came <= until_us)]
    return max(int(((came <= at) & (began > at)).sum()) for at in times)


@pytest.mark.parametrize("waiting", [0, 1, 2])
def test_a_stage_of_twice_the_capacity(waiting: int) -> None:
    """At 10/s: the queue grows by 10/s for 100 s, and falls by 5/s for 200; some wait all the time."""
    before = np.zeros(waiting, np.int64)
    queued = served(np.sort(np.concatenate([before, even((100, 5), (100, 20), (300, 5))])))
    (found,) = stretches(queued)
    assert found["from_us"] == pytest.approx(100 * S, abs=0.2 * S)
    assert found["until_us"] == pytest.approx(200 * S, abs=0.2 * S)
    assert found["sent_per_s"] == pytest.approx(20, rel=0.01)
    assert found["answered_per_s"] == pytest.approx(10, rel=0.01)
    assert found["waiting_most"] == waiting_most(queued, 100 * S, 400 * S) == pytest.approx(1000, abs=3)
    assert found["recovered_us"] == pytest.approx(
        (400 - 16 / 5) * S, abs=0.3 * S
    )  # so many may wait by chance
    assert found["wait_p90_us"] == pytest.approx(90 * S, rel=0.01)  # as many for each wait from 0 to 100 s
    assert (found["num_lost"], found["served_most"]) == (0, None)


def test_an_overload_until_the_end_is_not_recovered_from() -> None:
    queued = served(even((100, 5), (100, 20)))
    (found,) = stretches(queued)
    assert (found["recovered_us"], found["num_lost"]) == (None, 0)
    assert found["until_us"] == queued.came_us[-1]
    assert found["waiting_most"] == pytest.approx(1000, abs=3)


@pytest.mark.parametrize("patience_s", [1.0, 5.0, 20.0])
def test_clients_that_give_up_are_lost_until_the_queue_is_empty(patience_s: float) -> None:
    queued = served(even((100, 5), (100, 20), (300, 5)), patience_s=patience_s)
    (found,) = stretches(queued)
    assert found["from_us"] == pytest.approx(100 * S, abs=0.2 * S)
    assert found["until_us"] == pytest.approx(200 * S, abs=(patience_s + 1) * S)
    assert found["num_lost"] == queued.is_lost.sum() > 400
    assert found["recovered_us"] == pytest.approx((200 + 2 * patience_s) * S, abs=4 * S)
    assert found["waiting_most"] == waiting_most(queued, 100 * S, 300 * S)


def test_a_burst_of_whom_most_give_up_at_once() -> None:
    """400 come together, 50 are answered within five seconds, and the others are lost."""
    burst = np.full(400, 50 * S)
    queued = served(np.sort(np.concatenate([even((200, 1)), burst])), patience_s=5.0)
    (found,) = stretches(queued)
    assert found["from_us"] == pytest.approx(50 * S, abs=1 * S)
    assert found["num_lost"] == queued.is_lost.sum() == pytest.approx(349, abs=6)
    assert found["recovered_us"] == pytest.approx(55 * S, abs=2 * S)


@pytest.mark.parametrize(
    ("parts", "edges"),
    [
        (((100, 5), (60, 20), (200, 5), (60, 20), (200, 5)), [(100, 160, 277.6), (360, 420, 537.6)]),
        (((100, 5), (60, 20), (200, 5), (60, 40), (500, 5)), [(100, 160, 277.6), (360, 420, 776.8)]),
        (((100, 5), (60, 40), (500, 5), (60, 20), (200, 5)), [(100, 160, 516.8), (660, 720, 837.6)]),
        (((100, 5), (60, 20), (60, 5), (60, 20), (400, 5)), [(100, 160, None), (220, 280, 456.8)]),
    ],
)
def test_stages_one_after_the_other(
    parts: Sequence[tuple[float, float]], edges: list[tuple[float, float, float | None]]
) -> None:
    """The last two overlap: the queue of the first has fallen by half when the second comes."""
    found = stretches(served(even(*parts)))
    assert len(found) == len(edges)
    for each, (from_s, until_s, recovered_s) in zip(found, edges, strict=True):
        assert each["from_us"] == pytest.approx(from_s * S, abs=0.5 * S)
        assert each["until_us"] == pytest.approx(until_s * S, abs=0.5 * S)
        assert (each["recovered_us"] is None) == (recovered_s is None)
        if recovered_s is not None:
            assert each["recovered_us"] == pytest.approx(recovered_s * S, abs=0.5 * S)
        assert each["answered_per_s"] == pytest.approx(10, rel=0.02)


def test_less_than_can_be_answered_is_no_stretch() -> None:
    assert stretches(served(even((300, 9.9)))) == []
    assert stretches(served(np.zeros(100, np.int64))) == []
    assert stretches(served(np.array([0]))) == []
