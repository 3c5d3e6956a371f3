"""Intervals of fewer resamples: what a report says of them is tested here, how wide they are is not."""

from __future__ import annotations

import pytest

from tests.calibrate.few_resamples import draw_few_resamples

STUDIED = ("tests/calibrate/compare/", "tests/calibrate/run_to_run/", "tests/calibrate/runs/")
"""Here the intervals themselves are studied."""


@pytest.fixture(autouse=True)
def few_resamples(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw few of them."""
    if not request.node.nodeid.startswith(STUDIED):
        draw_few_resamples(monkeypatch)
