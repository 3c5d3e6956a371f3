"""The smallest number that is enough, against every number tried one by one; and what is looked at on the way."""

from __future__ import annotations

import pytest

from sim.fleet.fewest import NoneIsEnough, enough, fewest


class Needs:
    """So many are enough. ``seen``: the numbers that were asked for, in their order."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.seen: list[int] = []

    def __call__(self, number: int) -> bool:
        self.seen.append(number)
        return number >= self.number


@pytest.mark.parametrize("stride", [0.01, 0.1, 1.0])
@pytest.mark.parametrize("near", [(1,), (7,), (40,), (5, 9), (30, 31)])
def test_the_smallest_of_any_number_is_found_from_anywhere(near: tuple[int, ...], stride: float) -> None:
    for number in range(1, 130):
        assert fewest(Needs(number), near=near, most=200, stride=stride) == number


def test_numbers_are_doubled_and_then_halved_between() -> None:
    needs = Needs(23)
    assert fewest(needs, most=100) == 23
    assert needs.seen == [1, 2, 4, 8, 16, 32, 24, 20, 22, 23]


def test_strides_grow_until_a_number_is_doubled_or_halved() -> None:
    up = Needs(3000)
    assert fewest(up, near=(100,), most=10_000, stride=0.1) == 3000
    assert up.seen[:8] == [100, 111, 134, 188, 339, 678, 1356, 2712]
    down = Needs(1)
    assert fewest(down, near=(1000,), most=1000, stride=0.1) == 1
    assert down.seen[:6] == [1000, 900, 720, 432, 216, 108]


def test_between_two_guesses_nothing_but_halves_is_looked_at() -> None:
    needs = Needs(24)
    assert fewest(needs, near=(22, 25), most=400, stride=0.1) == 24
    assert needs.seen == [22, 25, 23, 24]


@pytest.mark.parametrize("least", [1, 8, 25])
def test_nothing_below_the_least_is_looked_at(least: int) -> None:
    needs = Needs(1)
    assert fewest(needs, near=(25,), least=least, most=400, stride=0.1) == least
    assert min(needs.seen) == least


@pytest.mark.parametrize("number", [60, 140, 333, 4999])
def test_a_search_that_need_not_be_exact_looks_at_less_and_is_off_by_its_share_at_most(number: int) -> None:
    exact, near = Needs(number), Needs(number)
    assert fewest(exact, near=(50,), most=10_000) == number
    assert number <= fewest(near, near=(50,), most=10_000, fine=50) <= number * 1.021
    assert len(near.seen) < len(exact.seen) or number < 100


def test_the_most_is_looked_at_and_nothing_beyond() -> None:
    assert fewest(Needs(20), most=20) == 20
    needs = Needs(21)
    with pytest.raises(NoneIsEnough, match="got 20, which is not enough, expected no more than 20"):
        fewest(needs, most=20)
    assert needs.seen == [1, 2, 4, 8, 16, 20]


def test_a_first_number_beyond_the_most_is_looked_at_alone() -> None:
    assert fewest(Needs(30), near=(30,), least=30, most=20) == 30
    with pytest.raises(NoneIsEnough):
        fewest(Needs(31), near=(30,), least=30, most=20)


def test_growing_alone_ends_with_the_first_that_is_enough_and_the_one_before() -> None:
    assert enough(Needs(23), near=(4,), most=100) == (16, 32)
    assert enough(Needs(4), near=(4,), most=100) == (None, 4)
