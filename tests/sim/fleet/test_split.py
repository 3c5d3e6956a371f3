"""Lengths that are parted and cut, two pools for them, and which of several fleets nothing beats."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sim.config import InvalidConfig
from sim.fleet import GpuProfile, Lengths
from sim.fleet.sizing import Objective, size_pool
from sim.fleet.split import LengthSplit, Splits, marked, size_split, sweep_thresholds, unbeaten

LENGTHS = Lengths(
    input_tokens=np.array([90.0, 140.0, 290.0, 490.0]),
    output_tokens=np.array([10.0, 10.0, 10.0, 10.0]),
    arrival_s=np.array([0.0, 1.0, 1.0, 4.0]),
    arrival_cv2=3.0,
)
"""100, 150, 300 and 500 tokens."""


def of(*rows: tuple[float, float], **more: Any) -> Lengths:  # noqa: ANN401 - any field
    """Return requests of (prompt, output) tokens."""
    return Lengths(
        input_tokens=np.array([row[0] for row in rows]),
        output_tokens=np.array([row[1] for row in rows]),
        **more,
    )


def test_requests_of_a_part_come_more_evenly_than_all_of_them() -> None:
    """Of gaps of cv² 3, where a part p is kept: 1 + 2p."""
    short, long, share = LENGTHS.up_to(150)
    assert short is not None
    assert long is not None
    assert share == 0.5
    assert (short.input_tokens.tolist(), long.input_tokens.tolist()) == ([90, 140], [290, 490])
    assert short.arrival_s is not None
    assert short.arrival_s.tolist() == [0, 1]
    assert (short.arrival_cv2, long.arrival_cv2) == (2.0, 2.0)
    one, others, share = LENGTHS.up_to(149.0)
    assert one is not None
    assert others is not None
    assert (share, one.arrival_cv2, others.arrival_cv2) == (0.25, 1.5, 2.5)
    nobody, everybody, share = LENGTHS.up_to(99.0)
    assert (nobody, share) == (None, 0.0)
    assert everybody is not None
    assert (len(everybody), everybody.arrival_cv2) == (4, 3.0)
    everybody, nobody, share = LENGTHS.up_to(500.0)
    assert (nobody, share) == (None, 1.0)
    assert everybody is not None
    assert len(everybody) == 4


def test_rows_may_come_several_times_and_have_no_arrivals() -> None:
    found = LENGTHS.at(np.array([3, 0, 3]))
    assert found.input_tokens.tolist() == [490, 90, 490]
    assert (found.arrival_s, found.arrival_cv2) == (None, 3.0)


def test_a_prompt_is_cut_that_is_too_long_by_no_more_than_the_factor_and_keeps_a_token() -> None:
    """To 200 tokens, up to 300: the answers of 199 leave one token, those of 200 none."""
    rows = [(190, 10), (191, 10), (290, 10), (291, 10), (50, 199), (50, 200), (50, 199.5)]
    cut = of(*rows).compressed(200, factor=1.5)
    assert cut.input_tokens.tolist() == [190, 190, 190, 291, 1, 50, 50]
    assert cut.output_tokens.tolist() == [row[1] for row in rows]
    kept = LENGTHS.compressed(200, factor=1.5)
    assert kept.arrival_s is LENGTHS.arrival_s
    assert kept.arrival_cv2 == 3.0


@pytest.mark.parametrize(
    ("rows", "more", "complaint"),
    [
        ([], {}, "columns of different or no length"),
        ([(1, 0.5)], {}, "a request without output"),
        ([(-1, 1)], {}, "a request without output"),
        ([(1, 2), (1, 0.5)], {}, "a request without output"),
        ([(1, 1), (-1, 1)], {}, "a request without output"),
        ([(1, 1), (1, 1)], {"arrival_s": np.array([0.0])}, "arrivals that do not fit"),
        ([(1, 1), (1, 1)], {"arrival_s": np.array([1.0, 0.5])}, "arrivals that do not fit"),
        ([(1, 1)], {"arrival_cv2": -0.1}, "an arrival cv2 of -0.1"),
        ([(1, 1)], {"arrival_cv2": np.inf}, "an arrival cv2 of inf"),
        ([(1, 1)], {"arrival_cv2": np.nan}, "an arrival cv2 of nan"),
    ],
)
def test_what_are_no_lengths_is_refused(
    rows: list[tuple[float, float]], more: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(InvalidConfig, match=complaint):
        of(*rows, **more)


def test_the_least_lengths_that_can_be() -> None:
    """No prompt token, one of output, two arrivals at once, gaps that are all alike."""
    of((0, 1), (0.5, 1), arrival_s=np.array([1.0, 1.0]), arrival_cv2=0.0)
    with pytest.raises(InvalidConfig, match="columns of different or no length"):
        Lengths(input_tokens=np.ones(2), output_tokens=np.ones(3))


# -- two pools -------------------------------------------------------------------------------------------------

SHORT = GpuProfile(
    w_s=0.01, h_s=0.01, calibration_context=1000, num_blocks=1000, max_slots=4, cost_per_hour=2
)
LONG = replace(SHORT, w_s=0.02, cost_per_hour=5.0)
ANY = Objective(ttft_p99_s=10.0)


def test_each_pool_has_its_profile_its_context_and_its_part_of_the_rate() -> None:
    split = size_split((SHORT, LONG), LENGTHS, 80.0, ANY, threshold=149, context=500)
    short, long, _ = LENGTHS.up_to(149)
    assert short is not None
    assert long is not None
    assert (split.share, split.threshold, split.factor) == (0.25, 149, 1.0)
    assert split.short == size_pool(SHORT, short, 20.0, ANY, context=149)
    assert split.long == size_pool(LONG, long, 60.0, ANY, context=500)
    assert split.short.engines != split.long.engines
    assert split.cost_per_hour == 2 * split.short.provisioned + 5 * split.long.provisioned
    assert split.engines == split.short.provisioned + split.long.provisioned
    assert split.ttft_p99_s == max(split.short.ttft_p99_s, split.long.ttft_p99_s)
    assert split.short.ttft_p99_s != split.long.ttft_p99_s


def test_where_nobody_is_so_long_there_is_one_pool() -> None:
    split = size_split((SHORT, LONG), LENGTHS, 80.0, ANY, threshold=500, context=500)
    assert split.long is None
    assert split.short is not None
    assert split.cost_per_hour == 2 * split.short.provisioned
    assert (split.engines, split.ttft_p99_s) == (split.short.provisioned, split.short.ttft_p99_s)


def test_a_factor_above_one_moves_requests_to_the_short_pool() -> None:
    """Up to 200 tokens: two of four; with up to 300 cut to 200, three."""
    shares = [
        size_split((SHORT, LONG), LENGTHS, 9.0, ANY, threshold=200, context=500, factor=factor).share
        for factor in (1.0, 1.5, 2.5)
    ]
    assert shares == [0.5, 0.75, 1.0]


def test_thresholds_that_no_pool_keeps_are_left_out() -> None:
    """Iterations of 20 ms of the long pool's."""
    found = sweep_thresholds(
        (SHORT, LONG),
        LENGTHS,
        9.0,
        Objective(ttft_p99_s=0.02),
        thresholds=[149, 200, 500],
        context=500,
    )
    assert [each.threshold for each in found] == [500]


POINTS = [(1.0, 5.0), (2.0, 5.0), (1.0, 4.0), (3.0, 3.0), (3.0, 3.0), (2.0, 4.01), (4.0, 3.05), (0.5, 9.0)]


@pytest.mark.parametrize("same", [0.0, 0.01, 0.02])
def test_nothing_takes_less_and_is_no_slower_or_as_much_and_is_faster(same: float) -> None:
    amounts, times = np.array([each[0] for each in POINTS]), np.array([each[1] for each in POINTS])
    beaten = [
        any((a < b and s <= t * (1 + same)) or (a == b and s < t) for a, s in POINTS) for b, t in POINTS
    ]
    assert unbeaten(amounts, times, same=same).tolist() == [not each for each in beaten]


def test_points_that_nothing_beats_by_hand() -> None:
    """4 and 3.05 s is beaten by 3 and 3 s; of times within 2 % only the one that takes less is left."""
    amounts, times = np.array([each[0] for each in POINTS]), np.array([each[1] for each in POINTS])
    assert np.flatnonzero(unbeaten(amounts, times)).tolist() == [2, 3, 4, 7]
    assert unbeaten(np.array([1.0, 2.0]), np.array([5.0, 5.0])).tolist() == [True, False]
    assert unbeaten(np.array([2.0, 2.0]), np.array([5.0, 5.0])).tolist() == [True, True]
    close = unbeaten(np.array([1.0, 2.0, 3.0]), np.array([1.015, 1.0, 0.98]), same=0.02)
    assert close.tolist() == [True, False, True]


def test_one_pool_for_all_is_among_those_that_may_be_beaten() -> None:
    """Costs of 4 and 6 against 5 an hour, each at 1 s and one at 0.5 s; times within a hundredth are the same."""

    def fleet(cost: float, ttft: float) -> LengthSplit:
        pool: Any = SimpleNamespace(provisioned=1, ttft_p99_s=ttft)
        return LengthSplit(threshold=1, factor=1.0, share=1.0, short=pool, long=None, cost_per_hour=cost)

    def best(*fleets: LengthSplit, ttft: float = 1.0) -> tuple[list[bool], bool]:
        one: Any = SimpleNamespace(provisioned=1, ttft_p99_s=ttft)
        found = marked(Splits(one=one, profiles=(SHORT, LONG), splits=fleets, is_one_best=False))
        return [each.is_best for each in found.splits], found.is_one_best

    assert best(fleet(4, 1.0), fleet(6, 0.5)) == ([True, True], False)
    assert best(fleet(6, 1.0)) == ([False], True)
    assert best(fleet(4, 1.0099)) == ([True], False)
    assert best(fleet(4, 1.0101)) == ([True], True)
    assert best(fleet(5, 1.0)) == ([True], True)
    assert best() == ([], True)
