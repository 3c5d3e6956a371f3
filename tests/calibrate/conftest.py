"""Intervals of fewer resamples, of fewer runs: what a report says of them is tested here, how wide they are is not."""

from __future__ import annotations

import pytest

from calibrate.compare import strata
from calibrate.findings import Options
from calibrate.run_to_run import twin_runs
from tests.examples import THOROUGH

STUDIED = ("tests/calibrate/compare/", "tests/calibrate/run_to_run/", "tests/calibrate/runs/")
"""Here the intervals themselves are studied."""


@pytest.fixture(autouse=True)
def few_resamples(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw a fifth of the resamples, and a quarter of the runs, that a user gets; nightly all."""
    if THOROUGH or request.node.nodeid.startswith(STUDIED):
        return
    monkeypatch.setitem(Options.__init__.__kwdefaults__, "replicates", 200)
    monkeypatch.setattr(strata, "REPLICATES", 60)
    monkeypatch.setattr(twin_runs, "MOST_RUNS", twin_runs.LEAST_RUNS)
