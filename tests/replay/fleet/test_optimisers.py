"""What the optimisers of fleets find, beside brute force: a few of the cases of ``tests.studies.validation``."""

from __future__ import annotations

import pytest

from tests.studies.validation.optimisers_fleet import OPTIMISERS


@pytest.mark.parametrize("name", ["size, by formula", "pools", "split", "disagg, by formula", "reserve"])
@pytest.mark.parametrize("number", [0, 1])
def test_nothing_that_brute_force_tries_is_better(name: str, number: int) -> None:
    found = OPTIMISERS[name](number)
    assert found.tried >= 1
    assert found.found == pytest.approx(found.best)


def test_no_other_number_of_simulated_engines_is_the_smallest() -> None:
    found = OPTIMISERS["size, simulated"](0)
    assert found.found == found.best
