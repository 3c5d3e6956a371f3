"""Fewer resamples, and fewer runs of the twin again, than a user gets: where what is said of intervals is tested."""

from __future__ import annotations

import pytest

from calibrate.compare import strata
from calibrate.compare.metric_errors import Bootstrap
from calibrate.findings import Options
from calibrate.fit import refinement, uncertainty
from calibrate.run_to_run import twin_runs
from tests.examples import THOROUGH


def draw_few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw a fifth of the resamples, and three runs; in `make nightly` all."""
    if THOROUGH:
        return
    for each in (Options, Bootstrap):
        monkeypatch.setitem(each.__init__.__kwdefaults__, "replicates", 200)
    monkeypatch.setattr(strata, "REPLICATES", 60)
    monkeypatch.setattr(twin_runs, "LEAST_RUNS", 3)
    monkeypatch.setattr(twin_runs, "MOST_RUNS", 3)


def fit_with_few_points(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look around an optimum at a third of the points, once; in `make nightly` at all."""
    if THOROUGH:
        return
    monkeypatch.setattr(refinement, "ROUNDS", 1)
    monkeypatch.setattr(refinement, "NUM_AVERAGED", 2)
    monkeypatch.setattr(refinement, "POINTS_PER_COEFFICIENT", 8)
    monkeypatch.setattr(uncertainty, "FLAT_POINTS", uncertainty.FLAT_POINTS_OF_MANY)
