"""How many instances an autoscaler wants: its rules by hand, load by load, and what it remembers, look by look."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sim.cluster.infrastructure.autoscaling import (
    PoolLoad,
    Sizing,
    next_change_us,
    size_at,
    wanted_by_saturation,
    wanted_by_target,
)
from sim.cluster.infrastructure.infrastructure_config import Autoscaler, Size


def load(
    waiting: tuple[int, ...] = (),
    *,
    kv: tuple[float, ...] | None = None,
    running: tuple[int, ...] | None = None,
    in_flight: tuple[int, ...] | None = None,
    coming: int = 0,
    queued: int = 0,
) -> PoolLoad:
    """Return a load of as many instances as ``waiting`` has entries, idle where nothing is said."""
    none = (0,) * len(waiting)
    return PoolLoad(
        waiting=waiting,
        running=running or none,
        in_flight=in_flight or none,
        kv=kv or (0.0,) * len(waiting),
        num_coming=coming,
        num_queued=queued,
    )


SATURATION = Autoscaler(
    policy="saturation",
    min_instances=0,
    max_instances=9,
    kv_threshold=0.8,
    kv_spare=0.1,
    queue_threshold=5,
    queue_spare=3,
)


@pytest.mark.parametrize(
    ("seen", "wanted"),
    [
        # both instances idle: one would do
        (load((0, 0)), 1),
        # the last one stays here: whether it goes is another rule
        (load((0,)), 1),
        # spare queue 5 - 2 = 3 on each: enough as they are, 5 - 4 = 1 is not enough for one
        (load((2, 2)), 2),
        # spare queue 5 - 1 = 4; over one 5 - 2 = 3: one fewer
        (load((1, 1)), 1),
        # 5 - 2.5 = 2.5 is too little: one more
        (load((2, 3)), 3),
        # spare KV 0.8 - 0.65 = 0.15 is enough for two and not for one
        (load((0, 0), kv=(0.65, 0.65)), 2),
        # 0.8 - 0.35 = 0.45; over one 0.8 - 0.7 = 0.1: just enough
        (load((0, 0), kv=(0.35, 0.35)), 1),
        (load((0, 0), kv=(0.36, 0.36)), 2),
        # 0.8 - 0.75 = 0.05 is too little
        (load((0, 0), kv=(0.75, 0.75)), 3),
        # saturated ones do not count: of those that are free the spare is 5
        (load((9, 0)), 2),
        (load((0, 0), kv=(0.8, 0.1)), 2),
        (load((5, 0)), 2),  # were it free, 2.5 would be left
        (load((0, 0), kv=(0.8, 0.65)), 2),  # were it free, 0.075 would be left
        # all are saturated
        (load((5, 7)), 3),
        # who waits in the gateway counts as spread over them: 1 + 4/2 = 3 each
        (load((1, 1), queued=4), 3),
        (load((1, 1), queued=2), 2),
        # 0 + 4/2 and 4 + 4/2: the second one is saturated, and the first has 5 - 2 = 3 to spare
        (load((0, 4), queued=4), 2),
        # as many free as are there, of three: 5 - 3 = 2 over three is too little; 5 - 2 = 3 is enough, and not over two
        (load((3, 3, 3)), 4),
        (load((2, 2, 2)), 3),
        # one more free than one: two of which one would do, 5 - 2 = 3
        (load((1, 1, 9)), 2),
        # one is on its way: nothing changes meanwhile, nobody goes
        (load((9, 9), coming=1), 3),
        (load((0, 0), coming=1), 3),
        # nobody there: one comes where a request waits
        (load(queued=1), 1),
        (load(), 0),
        (load(coming=2, queued=7), 2),
    ],
)
def test_saturation_wants_by_what_is_left_up_to_the_thresholds(seen: PoolLoad, wanted: int) -> None:
    assert wanted_by_saturation(SATURATION, seen) == wanted


def target(metric: str = "in-flight", **settings: object) -> Autoscaler:
    """Return an autoscaler that wants two of the metric per instance, a tenth more or less being alike."""
    usual: dict[str, object] = {"min_instances": 0, "max_instances": 9, "tolerance": 0.1, "down_window_us": 0}
    return Autoscaler(policy="target", metric=metric, target=2, **usual | settings)  # type: ignore[arg-type] # checked by the class


@pytest.mark.parametrize(
    ("metric", "seen", "wanted"),
    [
        ("in-flight", load((0, 0), in_flight=(2, 2)), 2),
        ("in-flight", load((0, 0), in_flight=(3, 2)), 3),
        # 21 of 20 are within a tenth, 23 are not; 18 are, 17 are not
        ("in-flight", load((0,) * 10, in_flight=(3, *(2,) * 9)), 10),
        ("in-flight", load((0,) * 10, in_flight=(3, 3, 3, *(2,) * 7)), 12),
        ("in-flight", load((0,) * 10, in_flight=(1, 1, *(2,) * 8)), 10),
        ("in-flight", load((0,) * 10, in_flight=(1, 1, 1, *(2,) * 7)), 9),
        # what waits in the gateway is theirs, but does not run
        ("in-flight", load((0, 0), in_flight=(2, 2), queued=4), 4),
        ("waiting", load((1, 2), queued=5), 4),
        ("running", load((9, 9), running=(3, 4), queued=9), 4),
        ("kv", load((0, 0, 0), kv=(0.9, 0.9, 0.9)), 2),
        ("kv", load((0, 0, 0), kv=(0.8, 0.8, 0.7)), 2),
        # the ones that are coming count as there
        ("in-flight", load((0,), in_flight=(4,), coming=1), 2),
        ("in-flight", load((0,) * 9, in_flight=(21, *(0,) * 8), coming=1), 10),
        # nothing to do
        ("in-flight", load((0, 0)), 0),
        ("running", load(queued=1), 1),
        ("running", load(queued=3), 1),
    ],
)
def test_target_wants_the_sum_over_the_target(metric: str, seen: PoolLoad, wanted: int) -> None:
    assert wanted_by_target(target(metric), seen) == wanted


SCHEDULE = (Size(at_us=10_000, instances=3), Size(at_us=50_000, instances=5))


@pytest.mark.parametrize(
    ("repeat_us", "time_us", "size", "change_us"),
    [
        (0, 0, 1, 10_000),
        (0, 10_000, 3, 50_000),
        (0, 49_999, 3, 50_000),
        (0, 50_000, 5, None),
        (0, 900_000, 5, None),
        (100_000, 9_999, 1, 10_000),
        (100_000, 60_000, 5, 110_000),
        # before the first entry of a repetition the last one's size still holds
        (100_000, 100_000, 5, 110_000),
        (100_000, 109_999, 5, 110_000),
        (100_000, 110_000, 3, 150_000),
        (100_000, 1_000_050_000, 5, 1_000_110_000),
    ],
)
def test_a_schedule_says_its_last_entry_and_repeats_from_it(
    repeat_us: int, time_us: int, size: int, change_us: int | None
) -> None:
    scaler = Autoscaler(policy="schedule", schedule=SCHEDULE, repeat_us=repeat_us)
    assert size_at(scaler, time_us, before=1) == size
    assert next_change_us(scaler, time_us) == change_us


def sizes(scaler: Autoscaler, looks: list[tuple[int, int, int]], *, at_first: int = 1) -> list[int]:
    """Return what is chosen at (time in s, instances, requests in flight) looks."""
    sizing = Sizing(scaler=scaler, at_first=at_first)
    found = []
    for time_s, num, in_flight in looks:
        share = (in_flight, *(0,) * (num - 1)) if num else ()
        found.append(
            sizing.size(load((0,) * num, in_flight=share, queued=0 if num else in_flight), time_s * 10**6)
        )
    return found


def test_it_grows_at_once_and_shrinks_when_less_was_wanted_all_through_the_window() -> None:
    scaler = target(down_window_us=30_000_000)
    looks = [(1, 1, 8), (10, 4, 2), (20, 4, 2), (31, 4, 2), (32, 4, 2), (62, 1, 2)]
    assert sizes(scaler, looks) == [4, 4, 4, 4, 1, 1]


def test_it_grows_only_as_far_as_was_wanted_all_through_the_window() -> None:
    scaler = target(up_window_us=20_000_000)
    assert sizes(scaler, [(0, 1, 8), (10, 1, 8), (20, 1, 6), (21, 1, 8), (41, 1, 8)]) == [1, 1, 1, 3, 4]


def test_cool_downs_hold_it_after_each_of_its_own_acts() -> None:
    up = target(up_cooldown_us=20_000_000)
    assert sizes(up, [(101, 1, 4), (111, 2, 8), (120, 2, 8), (121, 2, 8)]) == [2, 2, 2, 4]
    assert sizes(up, [(101, 2, 4), (111, 2, 8)]) == [2, 4]  # to stay is no act
    down = target(down_cooldown_us=20_000_000)
    assert sizes(down, [(101, 4, 6), (111, 3, 2), (120, 3, 2), (121, 3, 2)], at_first=4) == [3, 3, 3, 1]
    assert sizes(down, [(101, 3, 6), (111, 3, 2)], at_first=3) == [3, 1]


def test_it_moves_by_at_most_so_many_and_stays_within_its_ends() -> None:
    assert sizes(target(max_up=2), [(1, 1, 16)]) == [3]
    assert sizes(target(max_down=1), [(1, 6, 2)], at_first=6) == [5]
    assert sizes(target(), [(1, 1, 100)]) == [9]
    assert sizes(target(min_instances=2), [(1, 4, 0)], at_first=4) == [2]
    assert sizes(target(min_instances=1, idle_us=0), [(1, 1, 0), (9, 1, 0)]) == [1, 1]


def test_the_ends_of_what_is_alike_belong_to_it() -> None:
    """Spare KV of 0.75 - 0.5 over one instance, of which 0.25 is enough; three of two, of which half more is alike."""
    exact = replace(SATURATION, kv_threshold=0.75, kv_spare=0.25)
    assert wanted_by_saturation(exact, load((0, 0), kv=(0.25, 0.25))) == 1
    assert wanted_by_target(target(tolerance=0.5), load((0,), in_flight=(3,))) == 1


def test_those_on_their_way_count_as_there() -> None:
    one_more = Sizing(scaler=target(max_up=1), at_first=1)
    assert one_more.size(load((0,), in_flight=(8,), coming=1), 1_000_000) == 3
    idle = Sizing(scaler=target(idle_us=60_000_000), at_first=1)
    assert idle.size(load((0,), coming=1), 0) == 1


def test_the_last_instance_goes_when_nobody_has_had_a_request_for_a_while() -> None:
    scaler = target(idle_us=60_000_000)
    looks = [(0, 1, 2), (10, 1, 0), (69, 1, 0), (70, 1, 0)]
    assert sizes(scaler, looks) == [1, 1, 1, 0]
    again = [(0, 1, 0), (50, 1, 2), (60, 1, 0), (119, 1, 0), (120, 1, 0)]
    assert sizes(scaler, again) == [1, 1, 1, 1, 0]
    assert sizes(scaler, [(1, 0, 0), (10, 0, 1)], at_first=0) == [0, 1]


def test_a_load_is_idle_only_where_nobody_has_a_request() -> None:
    assert load((0, 0)).is_idle
    assert load().is_idle
    assert not load((0, 0), queued=1).is_idle
    assert not load((0, 0), in_flight=(0, 1)).is_idle


def test_one_that_was_wanted_once_within_the_window_stays() -> None:
    """Down: three were wanted once, so three stay. Up: two were wanted once, so no more than two come."""
    down = target(down_window_us=30_000_000)
    assert sizes(down, [(40, 4, 6), (50, 4, 2)], at_first=4) == [3, 3]
    up = target(up_window_us=10_000_000, down_window_us=30_000_000)
    assert sizes(up, [(40, 1, 4), (50, 1, 8), (51, 2, 8)], at_first=1) == [2, 2, 4]


@pytest.mark.parametrize(
    ("settings", "looks"),
    [
        ({"up_window_us": 45_000_000, "up_cooldown_us": 30_000_000, "actuation_us": 0}, 2 + 3),
        ({"up_window_us": 30_000_000, "up_cooldown_us": 45_000_000, "actuation_us": 0}, 2 + 3),
        ({"up_window_us": 0, "up_cooldown_us": 0, "actuation_us": 29_000_000}, 2 + 1),
        ({"up_window_us": 16_000_000, "up_cooldown_us": 0, "actuation_us": 29_000_000}, 2 + 3),
    ],
)
def test_patience_is_two_looks_and_those_of_the_time_it_takes_to_act(
    settings: dict[str, object], looks: int
) -> None:
    assert Sizing(scaler=target(interval_us=15_000_000, **settings), at_first=1).patience == looks
