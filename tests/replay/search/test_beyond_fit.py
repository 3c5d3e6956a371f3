"""How far a load that is only asked about goes beyond the loads that a twin was fitted on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from replay.search.beyond_fit import beyond_fit
from replay.twin.fitted.fitted_range import FittedRange
from tests.calibrate.known_servers import SERVER, workload
from traces import Trace

FITTED = replace(SERVER, fitted=FittedRange(rate_per_s=(2.0, 6.0)))


@pytest.fixture(scope="module")
def load() -> Trace:
    return workload(60, rate=4.0, seed=1)


def test_a_rate_beyond_the_fitted_ones_is_told_with_both(load: Trace) -> None:
    told = beyond_fit(load, FITTED, 12.0)
    assert told is not None
    assert "6" in told
    assert beyond_fit(load, FITTED, 4.0) is None


def test_without_a_fit_or_a_rate_there_is_nothing_to_tell(load: Trace) -> None:
    assert beyond_fit(load, SERVER, 12.0) is None
    assert beyond_fit(load, FITTED, None) is None


def test_clients_that_give_up_do_so_as_soon_after_they_come(load: Trace) -> None:
    """At four times the rate every deadline is as long after its request: all are answered, as without deadlines."""
    came = load.cells("arrival_time_us").values
    patient = load.with_columns(deadline_us=came + 60_000_000)
    assert beyond_fit(patient, FITTED, 16.0) == beyond_fit(load, FITTED, 16.0)
