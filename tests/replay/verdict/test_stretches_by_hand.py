"""Stretches of queues that can be counted by hand: even arrivals, an even service, clients that give up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from replay.verdict.queued import Queued
from replay.verdict.stretches import (
    Curve,
    OverloadedStretch,
    _at,
    _at_once,
    _Found,
    _Grown,
    _most,
    _num_in,
    _of_service,
    _overlap,
    _parted,
    _quiet_level,
    _unevenness,
    _without_neighbours,
    overloaded_stretches,
)

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


def test_a_curve_counts_who_has_come_and_not_gone() -> None:
    curve = Curve.of(np.array([0, 10, 10]), np.array([5, 20, 30]), until_us=20)
    assert (curve.times_us.tolist(), curve.counts.tolist()) == ([0, 5, 10, 20], [1, 0, 2, 1])
    assert [_at(curve, time) for time in (-1, 0, 9, 10, 25)] == [0, 1, 0, 2, 1]
    assert [_at(curve, time, before=True) for time in (0, 5, 10)] == [0, 1, 0]
    assert [_most(curve, *window) for window in ((0, 9), (0, 10), (10, 20), (11, 19), (20, 30))] == [
        1,
        2,
        2,
        0,
        1,
    ]
    assert [_num_in(np.array([1, 2, 2, 5]), *window) for window in ((1, 2), (2, 5), (3, 4))] == [3, 3, 0]


def test_a_request_begins_with_as_many_as_begin_at_its_time() -> None:
    assert _at_once(np.array([1, 1, 1, 2])) == (9 + 1) / 4
    assert _at_once(np.array([], np.int64)) == 0.0


def test_the_quiet_level_is_not_exceeded_in_a_tenth_of_the_time() -> None:
    """Of 100 µs 5 with none, 10 with one, the rest with more."""
    curve = Curve(times_us=np.array([0.0, 50, 60, 65]), counts=np.array([3.0, 1, 0, 4]))
    assert _quiet_level(curve, (0, 100)) == 1.0
    assert _quiet_level(curve, (0, 50)) == 3.0
    assert _quiet_level(curve, (-20, 100)) == 0.0  # before its first time it is none
    assert _quiet_level(Curve(times_us=np.array([]), counts=np.array([])), (0, 100)) == 0.0


def test_unevenness_is_of_neighbouring_gaps() -> None:
    """Gaps of 1 and 3 in turn: (2/4)^2 = 1/4, so Lv is 3/4 and 2 Lv / (3 - Lv) is 2/3; of 1 and 19 it is 81/100."""
    assert _unevenness(np.cumsum([1, 3] * 20)) == 1.0
    assert _unevenness(np.cumsum([1, 19] * 20)) == pytest.approx(2 * 2.43 / (3 - 2.43))
    assert _unevenness(np.cumsum([1, 19] * 6)[:12]) == pytest.approx(2 * 2.43 / (3 - 2.43))  # ten pairs
    assert _unevenness(np.cumsum([1, 19] * 6)[:11]) == 1.0
    assert _unevenness(np.zeros(50, np.int64)) == 1.0
    assert _unevenness(np.cumsum([0, 5] * 20)) == 100.0


def test_answers_that_were_lost_or_had_no_steps_say_nothing_of_the_service() -> None:
    queued = served(np.arange(4) * S)
    steps = np.array([1.0, 3.0, 0.0, 50.0])
    lost = np.array([False, False, False, True])
    assert _of_service(replace(queued, num_steps=steps, is_lost=lost)) == 1 / 4
    assert _of_service(replace(queued, num_steps=steps * 0)) == 0.0


def test_stretches_overlap_where_they_have_a_time_in_common() -> None:
    def found(from_us: float, until_us: float) -> _Found:
        return _Found(
            grown=_Grown(from_us=from_us, queue_us=from_us, to_us=until_us), until_us=until_us, is_gone=True
        )

    assert [_overlap(found(10, 20), found(*other)) for other in ((0, 10), (0, 11), (19, 30), (20, 30))] == [
        *(False, True, True, False)
    ]


def test_a_rise_is_parted_where_it_has_fallen_and_rises_by_as_much_again() -> None:
    counts = np.array([0.0, 5, 9, 4, 8, 12, 6, 10, 0])
    assert _parted(counts, (0, 9), least=5) == [(0, 3), (3, 9)]
    assert _parted(counts, (0, 9), least=4) == [(0, 3), (3, 6), (6, 9)]
    assert _parted(counts, (0, 9), least=6) == [(0, 9)]


@pytest.mark.parametrize(
    ("counts", "part", "peak", "narrower"),
    [
        ([0, 9, 6, 4, 8, 0], (2, 6), 4, None),  # it has fallen to half before its peak
        ([0, 9, 6, 5, 8, 3, 0], (2, 7), 4, (5, 7)),  # the slope of the rise before
        ([0, 9, 8, 7, 6, 5], (2, 6), 2, (6, 6)),
        ([9, 6, 5, 8, 3, 0], (1, 6), 3, (4, 6)),
        ([0, 2, 8, 6, 5, 9, 0], (0, 5), 2, (0, 2)),  # the slope of the one behind
        ([5, 6, 8, 6, 5, 9, 0], (0, 5), 2, (0, 0)),
        ([0, 2, 8, 4, 5, 9, 0], (0, 5), 2, None),
        ([0, 2, 8, 6, 5, 5, 5], (0, 7), 2, None),  # nothing is behind it
        ([8, 8, 8], (0, 3), 0, None),
    ],
)
def test_the_slope_of_a_larger_rise_is_no_rise(
    counts: list[float], part: tuple[int, int], peak: int, narrower: tuple[int, int] | None
) -> None:
    assert _without_neighbours(np.array(counts, float), part, peak, end=len(counts)) == narrower
