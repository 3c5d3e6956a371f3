"""Nodes that are up, and spare ones: against the binomial distribution in fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from sim.config import InvalidConfig
from sim.fleet.availability import availability, availability_of, provisioned, provisioned_for, share_enough


def enough(have: int, needed: int, share_up: Fraction) -> Fraction:
    """Return the chance that at least ``needed`` of ``have`` are up."""
    return sum(
        (
            math.comb(have, up) * share_up**up * (1 - share_up) ** (have - up)
            for up in range(needed, have + 1)
        ),
        Fraction(0),
    )


@pytest.mark.parametrize(
    ("classes", "share"),
    [
        ([(0.5, 12.0)], 1 / 1.25),
        ([(0.5, 12.0), (0.25, 72.0)], 1 / 2),
        ([(0.0, 12.0)], 1.0),
        ([(0.5, 0.0)], 1.0),
        ([], 1.0),
    ],
)
def test_downtimes_of_classes_add_up(classes: list[tuple[float, float]], share: float) -> None:
    """Half a failure a day that takes half a day costs a quarter of a day; a quarter of three days three quarters."""
    assert availability_of(classes) == pytest.approx(share)
    if len(classes) == 1:
        assert availability(*classes[0]) == pytest.approx(share)


@pytest.mark.parametrize(
    "each", [(-0.1, 4.0), (0.1, -4.0), (math.inf, 4.0), (0.1, math.inf), (0.0, math.inf), (math.nan, 4.0)]
)
def test_failures_and_repairs_are_numbers_from_nothing_on(each: tuple[float, float]) -> None:
    with pytest.raises(InvalidConfig, match="expected numbers >= 0"):
        availability_of([(0.1, 1.0), each])


def test_engines_that_are_up_on_average_are_rounded_up() -> None:
    assert [provisioned(7, share) for share in (1.0, 0.7, 0.6999, 0.875)] == [7, 10, 11, 8]
    for share in (0.0, 1.0001):
        with pytest.raises(InvalidConfig, match=r"expected a share in \(0, 1\]"):
            provisioned(7, share)


@pytest.mark.parametrize("share_up", [Fraction(1, 2), Fraction(7, 8), Fraction(99, 100)])
@pytest.mark.parametrize(("have", "needed"), [(1, 1), (2, 2), (3, 2), (5, 1), (9, 4), (40, 37)])
def test_the_share_of_the_time_is_of_the_binomial_distribution(
    have: int, needed: int, share_up: Fraction
) -> None:
    expected = float(enough(have, needed, share_up))
    assert share_enough(have, needed, float(share_up)) == pytest.approx(expected, rel=1e-9)
    assert share_enough(needed - 1, needed, float(share_up)) == 0.0
    assert share_enough(have, needed, 1.0) == 1.0


@pytest.mark.parametrize("share_up", [Fraction(1, 2), Fraction(9, 10), Fraction(199, 200)])
@pytest.mark.parametrize("assurance", [Fraction(1, 5), Fraction(3, 5), Fraction(9, 10), Fraction(999, 1000)])
def test_no_fewer_nodes_are_up_so_often(share_up: Fraction, assurance: Fraction) -> None:
    """Found one by one. Below one half fewer do than are up on average."""
    for needed in (1, 2, 3, 5, 8, 13, 30):
        have = needed
        while enough(have, needed, share_up) < assurance:
            have += 1
        assert provisioned_for(needed, float(share_up), assurance=float(assurance)) == have


@pytest.mark.parametrize("spare", [1e-3, 1e-6, 1e-9])
def test_of_many_nodes_that_are_seldom_up_one_is_needed(spare: float) -> None:
    """(1 - A)^n of them are all down: 20 times the average number is searched, too."""
    have = provisioned_for(1, 0.01, assurance=1 - spare)
    assert have == math.ceil(math.log(spare) / math.log(0.99))
    assert provisioned_for(1, 0.01, assurance=math.nextafter(1.0, 0.0)) <= 3656


@pytest.mark.parametrize("assurance", [0.0, 1.0, -0.5, math.nan])
def test_an_assurance_is_a_share_that_can_be_had(assurance: float) -> None:
    with pytest.raises(InvalidConfig, match=r"assurance: got .*, expected a share in \(0, 1\)"):
        provisioned_for(3, 0.9, assurance=assurance)
