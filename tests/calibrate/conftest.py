"""Fewer resamples, fits of fewer points: what a report says of them is tested here, how good they are is not."""

from __future__ import annotations

import pytest

from tests.calibrate.few_resamples import draw_few_resamples, fit_with_few_points

STUDIED = ("tests/calibrate/compare/", "tests/calibrate/run_to_run/test_run_to_run.py")
"""Here the intervals themselves are studied."""
FITS = "tests/calibrate/fit/"
"""Here the fit itself is studied."""


@pytest.fixture(autouse=True)
def few_resamples(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw few of them."""
    if not request.node.nodeid.startswith(STUDIED):
        draw_few_resamples(monkeypatch)
    if not request.node.nodeid.startswith((*STUDIED, FITS)):
        fit_with_few_points(monkeypatch)
