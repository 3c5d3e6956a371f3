"""A run whose requests are too long for the server has no verdict, and says why."""

from __future__ import annotations

import pytest

from replay.verdict.judged import UNANSWERED, why_undecided


@pytest.mark.parametrize(("refused", "is_told"), [(0, False), (50, False), (51, True), (1000, True)])
def test_more_than_a_twentieth_is_told(refused: int, *, is_told: bool) -> None:
    assert UNANSWERED == 0.05
    said = why_undecided(num_refused=refused, num_sent=1000)
    assert (said is not None) is is_told
    if said is not None:
        assert said.startswith(f"none: {refused:,} of 1,000 requests are too long for the server")
