"""The parts of a stretch beside plain second versions, drawn over small whole times; and the words for each figure."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from replay.verdict.queued import FOREVER, Queued
from replay.verdict.sentences import (
    BRIEF_US,
    FEW_FRAC,
    MINUTES_US,
    OFTEN_LATE,
    SHORT_FRAC,
    WHOLE,
    apart,
    bursts_told,
    instances_told,
    is_material,
    is_whole,
    long_waits,
    longest,
    moment,
    num_sent_in,
    stretches_told,
)
from replay.verdict.stretches import (
    CERTAIN,
    CERTAIN_DOWN,
    FEWEST_LEFT,
    LULL,
    MOST_UNEVEN,
    MOSTLY_DOWN,
    QUIET,
    UNNOTICED,
    Curve,
    Down,
    OverloadedStretch,
    _by_chance,
    _Found,
    _Grown,
    _growths,
    _has_lull,
    _joined,
    _merged,
    _most,
    _of_service,
    _parted,
    _quiet_level,
    _Rise,
    _Seen,
    _stretch,
    _unevenness,
    _until_empty,
    _whole,
    overloaded_stretches,
)
from tests.examples import few_or_all

S = 1_000_000


def drawn_queue(rng: random.Random) -> Queued:
    """Return requests that come within 60 µs, wait, and are answered or lost; some are never answered."""
    num = rng.randint(1, 30)
    came = sorted(rng.randint(0, 60) for _ in range(num))
    lost = [rng.random() < 0.3 for _ in came]
    began = [at + rng.choice([0, 1, rng.randint(0, 30)]) for at in came]
    left = [
        at if is_lost else rng.choice([at + rng.randint(0, 20)] * 5 + [FOREVER])
        for at, is_lost in zip(began, lost, strict=True)
    ]
    return Queued(
        came_us=np.array(came),
        began_us=np.array(began),
        left_us=np.array(left),
        is_lost=np.array(lost),
        step_us=np.full(num, 1.0),
        num_steps=np.full(num, 2.0),
    )


def count_at(curve: Curve, time_us: float) -> float:
    """Return the count from the last of the curve's times up to a time on, 0 before the first."""
    before = [count for at, count in zip(curve.times_us, curve.counts, strict=True) if at <= time_us]
    return float(before[-1]) if before else 0.0


def waiting_of(queued: Queued) -> Curve:
    return Curve.of(queued.came_us, queued.began_us, until_us=90)


def test_a_curve_counts_at_every_time() -> None:
    for seed in range(few_or_all(60, 1000)):
        queued = drawn_queue(random.Random(seed))
        curve = Curve.of(queued.came_us, queued.left_us, until_us=70)
        gone = [at for at in queued.left_us.tolist() if at <= 70]
        assert curve.times_us.tolist() == sorted({*queued.came_us.tolist(), *gone})
        for at, count in zip(curve.times_us.tolist(), curve.counts.tolist(), strict=True):
            assert count == (queued.came_us <= at).sum() - (queued.left_us <= at).sum()
        for from_us, until_us in ((0, 30), (20, 20), (31, 70)):
            inside = [
                count
                for at, count in zip(curve.times_us, curve.counts, strict=True)
                if from_us <= at <= until_us
            ]
            assert _most(curve, from_us, until_us) == max(inside, default=0)


def test_the_quietest_tenth_of_the_time_is_counted_one_by_one() -> None:
    for seed in range(few_or_all(60, 1000)):
        rng = random.Random(seed)
        curve = waiting_of(drawn_queue(rng))
        first, last = rng.choice([(0, 60), (-10, 50), (5, 80)])
        if len(curve.times_us):
            each = sorted(count_at(curve, at) for at in range(first, last))
            assert _quiet_level(curve, (first, last)) == each[math.ceil(QUIET * len(each)) - 1], seed


def test_who_is_lost_counts_until_the_queue_is_next_at_its_level() -> None:
    for seed in range(few_or_all(60, 1000)):
        rng = random.Random(seed)
        queued, level = drawn_queue(rng), float(rng.choice([0, 1, 2]))
        waits = queued.began_us > queued.came_us
        waiting = Curve.of(queued.came_us[waits], queued.began_us[waits], until_us=90)
        found = _until_empty(queued, waiting, level=level)
        for row in np.flatnonzero(queued.is_lost).tolist():
            left = int(queued.left_us[row])
            expected = left
            if len(waiting.times_us) and count_at(waiting, left) > level:
                later = [
                    at
                    for at, count in zip(waiting.times_us, waiting.counts, strict=True)
                    if at >= left and count <= level
                ]
                expected = int(min(later, default=FOREVER))
            assert found[row] == expected, seed


def seen_of(queued: Queued, *, unevenness: float = 1.0, downs: list[Down] | None = None) -> _Seen:
    curve = waiting_of(queued)
    return _Seen(
        queued=queued,
        backlog=curve,
        present=curve,
        waiting=curve,
        level=0.0,
        few=0.0,
        unevenness=unevenness,
        downs=downs or [],
    )


def test_what_chance_may_do_grows_with_the_root_of_the_arrivals_and_is_less_while_an_instance_is_down() -> (
    None
):
    for seed in range(few_or_all(80, 1000)):
        rng = random.Random(seed)
        queued, unevenness = drawn_queue(rng), rng.choice([1.0, 2.5])
        downs = [Down("a", a, a + rng.randint(1, 40)) for a in rng.sample(range(60), rng.randint(0, 3))]
        from_us = rng.randint(0, 50)
        to_us = from_us + rng.choice([0, 1, 5, 20])
        seen = seen_of(queued, unevenness=unevenness, downs=downs)
        mostly = [
            each
            for each in downs
            if min(each.to_us, to_us) - max(each.from_us, from_us) >= MOSTLY_DOWN * max(to_us - from_us, 1)
        ]
        assert seen.down_in(from_us, to_us) == mostly

        def arrivals(first: float, last: float, came: Any = queued.came_us) -> int:  # noqa: ANN401
            return int(((came >= first) & (came <= last)).sum())

        bounds = [CERTAIN * math.sqrt(max(arrivals(from_us, to_us), 1))]
        bounds += [
            CERTAIN_DOWN * math.sqrt(arrivals(min(each.from_us, from_us), max(each.to_us, to_us)))
            for each in mostly
        ]
        assert _by_chance(seen, from_us, to_us) == pytest.approx(min(bounds) * math.sqrt(unevenness)), seed


def found_at(from_us: float, to_us: float, until_us: float, *, queue_us: float | None = None) -> _Found:
    grown = _Grown(from_us=from_us, queue_us=from_us if queue_us is None else queue_us, to_us=to_us)
    return _Found(grown=grown, until_us=until_us, is_gone=True)


def test_a_lull_is_so_many_in_turn_without_a_loss_that_a_quarter_of_the_losses_would_have_shown() -> None:
    """Of 100 in each stretch a half is lost: 128 in turn are 16 / (1/2 · 1/4)."""
    needed = round(CERTAIN**2 / 0.5 / LULL)
    for between, lost_at, is_lull in (
        (needed - 1, None, False),
        (needed, None, True),
        (needed + 20, 10, True),
        (needed + 20, 40, False),
        (2 * needed, needed, True),
        (2 * needed - 1, needed - 1, True),
        (2 * needed - 2, needed - 1, False),
    ):
        num = 200 + between
        lost = np.zeros(num, bool)
        lost[:100:2] = lost[100 + between :: 2] = True
        if lost_at is not None:
            lost[100 + lost_at] = True
        came = np.arange(num) * 10
        queued = Queued(
            came_us=came,
            began_us=came,
            left_us=came + 1,
            is_lost=lost,
            step_us=np.ones(num),
            num_steps=np.ones(num),
        )
        first, second = found_at(0, 995, 995), found_at((100 + between) * 10, num * 10, num * 10)
        assert _has_lull(seen_of(queued), first, second) is is_lull, (between, lost_at)
        nobody = seen_of(Queued(**{**fields_of(queued), "is_lost": np.zeros(num, bool)}))
        assert _has_lull(nobody, first, second)


def fields_of(queued: Queued) -> dict[str, Any]:
    return {
        name: getattr(queued, name) for name in ("came_us", "began_us", "left_us", "step_us", "num_steps")
    }


def plain_parts(counts: list[float], first: int, last: int, least: float) -> list[tuple[int, int]]:
    """Return the parts between the deepest falls, before the peak and else behind it, of at least so much."""
    here = counts[first:last]
    peak = here.index(max(here))
    before = [max(here[: at + 1]) - here[at] for at in range(peak + 1)]
    behind = [max(here[at:]) - here[at] for at in range(peak, len(here))]
    cut = None
    if max(before) >= least:
        cut = first + before.index(max(before))
    if (cut is None or not first < cut < last) and max(behind) >= least:
        cut = last - 1 - behind[::-1].index(max(behind))
    if cut is None or not first < cut < last:
        return [(first, last)]
    return plain_parts(counts, first, cut, least) + plain_parts(counts, cut, last, least)


def test_a_rise_is_parted_at_its_deepest_falls() -> None:
    for seed in range(few_or_all(100, 2000)):
        rng = random.Random(seed)
        counts = [float(rng.randint(0, 9)) for _ in range(rng.randint(1, 12))]
        first = rng.randint(0, len(counts) - 1)
        last, least = rng.randint(first + 1, len(counts)), float(rng.randint(1, 9))
        assert _parted(np.array(counts), (first, last), least=least) == plain_parts(
            counts, first, last, least
        ), seed


def test_the_curves_of_a_run_are_counted_with_and_without_the_lost() -> None:
    for seed in range(few_or_all(40, 1000)):
        rng = random.Random(seed)
        queued = drawn_queue(rng)
        came, began, left = (each.tolist() for each in (queued.came_us, queued.began_us, queued.left_us))
        if came[-1] == came[0]:
            continue
        ordinary, material = rng.choice([0.0, 3.0]), rng.choice([4.0, 40.0])
        seen = _Seen.of(queued, ordinary_us=ordinary, material_us=material, downs=[])
        rows = range(len(came))
        waits = [row for row in rows if began[row] - came[row] > max(ordinary, 2)]
        until = max([came[-1], *(at for at in left if at < FOREVER)])
        waiting = Curve.of(queued.came_us[waits], queued.began_us[waits], until_us=until)
        few = UNNOTICED * material * len(came) / (came[-1] - came[0])
        level = min(_quiet_level(waiting, (came[0], came[-1])), few)
        gone = _until_empty(queued, waiting, level=max(level, FEWEST_LEFT)).tolist()
        lost = queued.is_lost.tolist()
        for curve, members, ends in (
            (seen.waiting, waits, began),
            (seen.backlog, sorted({*waits, *(row for row in rows if lost[row])}),
             [gone[row] if lost[row] else began[row] for row in rows]),
            (seen.present, list(rows), [gone[row] if lost[row] else left[row] for row in rows]),
        ):  # fmt: skip
            for at in range(until + 1):
                assert count_at(curve, at) == sum(came[row] <= at < ends[row] for row in members), seed
        assert (seen.few, seen.level) == pytest.approx((few, level))
        varied = min(_unevenness(queued.came_us) + _of_service(queued), MOST_UNEVEN)
        assert seen.unevenness == pytest.approx(varied)


def test_growths_are_one_where_the_backlog_fell_by_chance_alone_and_gained_more_than_chance() -> None:
    num_merged = 0
    for seed in range(few_or_all(150, 3000)):
        rng = random.Random(seed)
        times = np.arange(0, 100, 10.0)
        counts = np.array([float(rng.choice([0, 5, 20, 40, 60])) for _ in times])
        queued = drawn_queue(rng)
        seen = replace(seen_of(queued), backlog=Curve(times_us=times, counts=counts))
        edges = sorted(rng.sample(range(-5, 105), 6))
        grown = [
            _Grown(from_us=a, queue_us=rng.choice([a, b]), to_us=b)
            for a, b in zip(edges[::2], edges[1::2], strict=True)
        ]
        expected: list[_Grown] = []
        for each in grown:
            if expected:
                last = expected[-1]
                fell = count_at(seen.backlog, last.to_us) - count_at(seen.backlog, each.from_us)
                gained = count_at(seen.backlog, each.to_us) - count_at(seen.backlog, last.queue_us - 1e-6)
                if fell < _by_chance(seen, last.to_us, each.from_us) and gained >= _by_chance(
                    seen, last.queue_us, each.to_us
                ):
                    expected[-1] = _Grown(from_us=last.from_us, queue_us=last.queue_us, to_us=each.to_us)
                    num_merged += 1
                    continue
            expected.append(each)
        assert _merged(seen, grown) == expected, seed
    assert num_merged > 20


def test_all_rises_of_a_backlog_are_one_growth_up_to_the_highest_and_to_where_the_last_is_gone() -> None:
    """Three rises of 30, 60 and 45 within 100 s, of requests that come once a second."""
    times = np.arange(0, 101.0) * S
    counts = np.concatenate([np.linspace(0, 30, 20), np.linspace(30, 10, 15), np.linspace(10, 60, 30),
                             np.linspace(60, 20, 15), np.linspace(20, 45, 10), np.linspace(45, 0, 11)])  # fmt: skip
    curve = Curve(times_us=times, counts=np.round(counts))
    came = np.arange(101) * S
    queued = Queued(came_us=came, began_us=came, left_us=came + 1, is_lost=np.zeros(101, bool),
                    step_us=np.ones(101), num_steps=np.ones(101))  # fmt: skip
    seen = replace(seen_of(queued), backlog=curve, present=curve)
    rises = [
        _Rise(before=first - 1, peak=peak, after=after, after_us=0.0, is_gone=False)
        for first, peak, after in ((1, 19, 34), (35, 64, 79), (80, 89, 100))
    ]
    whole = _whole(seen, rises)
    assert whole is not None
    assert whole == _growths(seen, replace(rises[0], peak=64, after=100), is_queue=False)[0]
    assert (whole.from_us, whole.to_us) == (1 * S, 64 * S)
    later = replace(seen, present=Curve(times_us=times, counts=np.where(times > 90 * S, 0, times)))
    longer = _whole(later, rises)
    assert longer is not None
    assert (longer.from_us, longer.to_us) == (1 * S, 90 * S)
    (to_the_end,) = _growths(seen, replace(rises[0], peak=64, after=None), is_queue=False)
    assert _whole(seen, [*rises[:2], replace(rises[2], after=None)]) == to_the_end


def test_what_was_sent_while_seats_filled_for_long_is_no_overload() -> None:
    """Ten in 100 s while seats fill, then 40 in 10 s, of which one a second is answered: 4 a second are too many."""
    came = np.concatenate([np.arange(10) * 10 * S, 100 * S + np.arange(40) * S // 4])
    began = np.concatenate([came[:10], 100 * S + (np.arange(40) + 1) * S])
    queued = Queued(
        came_us=came,
        began_us=began,
        left_us=began + 1000 * S,
        is_lost=np.zeros(50, bool),
        step_us=np.full(50, 1.0),
        num_steps=np.full(50, 2.0),
    )
    found = _stretch(seen_of(queued), found_at(0, 110 * S, 140 * S, queue_us=100 * S))
    assert (found["from_us"], found["until_us"]) == (100 * S, 110 * S)
    assert (found["sent_per_s"], found["answered_per_s"]) == (4, 1)
    queue = _stretch(seen_of(queued), found_at(50 * S, 60 * S, 140 * S, queue_us=55 * S))
    assert queue["sent_per_s"] == pytest.approx(0.2)
    nothing = Queued(
        **{**{name: value[:0] for name, value in fields_of(queued).items()}, "is_lost": np.zeros(0, bool)}
    )
    assert overloaded_stretches(nothing, step_us=1.0, served_us=1.0) == []


def test_where_a_queue_forms_while_the_number_in_the_server_grows_they_are_one() -> None:
    waited, decoded = found_at(50, 80, 90), found_at(20, 60, 70)
    (one,) = _joined([waited], [decoded])
    assert (one.grown.from_us, one.grown.to_us, one.until_us) == (20, 80, 90)
    assert _joined([waited], [found_at(90, 95, 99)]) == [waited, found_at(90, 95, 99)]
    assert _joined([waited], [found_at(10, 30, 50)]) == [found_at(10, 30, 50), waited]
    assert _joined([], [decoded]) == [decoded]
    (both,) = _joined([found_at(0, 20, 21), waited], [decoded])
    assert (both.grown.from_us, both.grown.to_us) == (0, 80)
    assert len(_joined([found_at(0, 19, 20), waited], [decoded])) == 2


def stretch(**changed: Any) -> OverloadedStretch:  # noqa: ANN401
    usual: dict[str, Any] = {
        "from_us": 100 * S,
        "until_us": 160 * S,
        "sent_per_s": 20.0,
        "answered_per_s": 10.0,
        "waiting_most": 600,
        "wait_p90_us": 55.0 * S,
        "num_lost": 0,
        "recovered_us": 280 * S,
        "served_most": None,
        "down": [],
    }
    return {**usual, **changed}  # type: ignore[typeddict-item] # the same keys


FIGURES = "20 requests/s sent, 10 answered, 600 waited at most"


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({}, f" for 60 s from second 100: {FIGURES}, recovered 2 min later"),
        (
            {"recovered_us": None},
            f" for 60 s from second 100: {FIGURES}, not recovered when the last one was sent",
        ),
        (
            {"down": ["1"]},
            f" for 60 s from second 100 while instance 1 was down: {FIGURES}, recovered 2 min later",
        ),
        (
            {"num_lost": 1200, "waiting_most": 1},
            " for 60 s from second 100: 20 requests/s sent, 10 answered, 1 waited at most, 1,200 were never "
            "answered, recovered 2 min later",
        ),
        (
            {"served_most": 2000},
            " for 60 s from second 100: 20 requests/s sent, 10 answered, no queue: up to 2,000 were served at once, "
            "ever more slowly, recovered 2 min later",
        ),
        (
            {"until_us": 100 * S + int(BRIEF_US) - 1, "recovered_us": None},
            " at second 100: a burst of 20 requests, 600 waited at most, not recovered when the last one was sent",
        ),
        (
            {"until_us": 100 * S + int(BRIEF_US)},
            f" for 1 s from second 100: {FIGURES}, recovered 2.98 min later",
        ),
    ],
)
def test_a_stretch_is_told_in_these_words(changed: dict[str, Any], told: str) -> None:
    assert stretches_told([stretch(**changed)]) == told


def test_of_several_stretches_the_one_is_told_in_which_most_waited_longest() -> None:
    small, large = stretch(waiting_most=599), stretch()
    later = stretch(from_us=300 * S, until_us=330 * S, recovered_us=None, waiting_most=10)
    assert longest([small, large, later]) is large
    assert longest([large, stretch(served_most=601)])["served_most"] == 601
    assert longest([stretch(recovered_us=281 * S), large])["recovered_us"] == 281 * S
    told = stretches_told([small, large, later])
    assert (
        told
        == f" in 3 stretches, 2.5 min in all; the longest for 60 s from second 100: {FIGURES}, recovered 2 min later"
    )
    cut = stretches_told([stretch(recovered_us=None, waiting_most=9000), later])
    assert cut.endswith("9,000 waited at most, not recovered before the next one")
    assert bursts_told([small]) == "a burst of 1,200 requests at second 100 waited up to 55 s (p90)"
    assert bursts_told([small, large]).startswith(
        "2 bursts, the longest: a burst of 1,200 requests at second 100"
    )
    assert num_sent_in(stretch(until_us=100 * S, sent_per_s=3e6)) == 3


def test_a_stretch_is_the_run_where_it_lasts_for_most_of_it_and_has_not_recovered() -> None:
    """It begins at second 100: until second 500 that is four fifths."""
    last = stretch(recovered_us=None)
    assert [is_whole([last], each * S) for each in (499.9, 100 / (1 - WHOLE), 500.1)] == [False, False, True]
    assert not is_whole([], 600.0 * S)
    assert not is_whole([last], None)
    assert not is_whole([stretch()], 900.0 * S)
    before = stretch(from_us=0, until_us=10 * S, recovered_us=50 * S)
    assert [is_whole([before, last], each * S) for each in (249.9, 250.1)] == [False, True]
    grew_again = stretch(from_us=0, until_us=30 * S, recovered_us=None)
    assert [is_whole([grew_again, last], each * S) for each in (349.9, 350.1)] == [False, True]


def test_stretches_matter_by_their_share_of_the_time_or_of_the_requests() -> None:
    one = [stretch()]
    assert is_material(one, sending_us=60 * S / SHORT_FRAC, num_sent=10**9)
    assert not is_material(one, sending_us=60 * S / SHORT_FRAC + 100, num_sent=10**9)
    assert is_material(one, sending_us=1e15, num_sent=round(1200 / FEW_FRAC))
    assert not is_material(one, sending_us=1e15, num_sent=round(1200 / FEW_FRAC) + 1)
    assert is_material(one * 2, sending_us=120 * S / SHORT_FRAC, num_sent=10**9)


def test_words_for_instances_rates_times_and_waits() -> None:
    assert [instances_told(list("abcd")[:number]) for number in (1, 2, 3, 4)] == [
        "instance a was",
        "instances a and b were",
        "instances a, b and c were",
        "4 instances were",
    ]
    assert apart(20, 10) == ("20", "10")
    assert apart(10.01, 10.02) == ("10.01", "10.02")
    assert apart(1.0, 1.00001) == ("1", "1.00001")
    assert apart(5.0, 5.0) == ("5", "5")
    assert [moment(MINUTES_US - 1e6), moment(MINUTES_US), moment(6e8, is_start=True)] == [
        "at second 299",
        "at minute 5",
        "minute 10",
    ]
    assert long_waits(late_frac=0.0, waits_most=True) == "requests wait longer than they are served"
    assert long_waits(late_frac=OFTEN_LATE, waits_most=False) == (
        "10% of the requests wait 1 s or more until they are served"
    )
    assert long_waits(late_frac=OFTEN_LATE - 1e-9, waits_most=False) is None
