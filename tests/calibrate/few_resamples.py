"""Fewer resamples, and fewer runs of the twin again, than a user gets: where what is said of intervals is tested."""

from __future__ import annotations

import pytest

from calibrate.compare import strata
from calibrate.findings import Options
from calibrate.run_to_run import twin_runs
from tests.examples import THOROUGH


def draw_few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw a fifth of the resamples, and a quarter of the runs; in `make nightly` all."""
    if THOROUGH:
        return
    monkeypatch.setitem(Options.__init__.__kwdefaults__, "replicates", 200)
    monkeypatch.setattr(strata, "REPLICATES", 60)
    monkeypatch.setattr(twin_runs, "MOST_RUNS", twin_runs.LEAST_RUNS)
