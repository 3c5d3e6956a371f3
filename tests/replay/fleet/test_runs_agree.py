"""The size that the planner recommends, held to a second way: ``vtwin run --instances`` of the same trace and load."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.studies.validation.fleet_traces import CASES, answer

NAMES = ("prefix groups", "adapters", "grammars", "drafts", "images", "sessions")


@pytest.mark.parametrize("name", NAMES)
def test_run_meets_the_slo_with_the_recommended_number_and_one_fewer_does_not_or_it_is_told_why(
    tmp_path: Path, name: str
) -> None:
    (case,) = (each for each in CASES if each.name == name)
    found = answer(case, tmp_path, num_requests=4000, seconds=30)
    assert found.is_enough, found
    assert found.is_smallest or found.fewer, found
