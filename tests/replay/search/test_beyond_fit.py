"""An answer of a search says how far it lies beyond what its twin was fitted on: in load, and in flags of its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from replay import TwinConfig
from replay.search.beyond_fit import LONG, _highest, _run_at, beyond_fit, lasting_rates
from replay.search.load import load_of
from replay.twin.config_read import load_config
from replay.twin.fitted.fitted_range import FittedRange
from tests.calibrate.known_servers import SERVER, workload
from traces import Trace
from traces.workload import trace_from_options
from traces.workload.options import WorkloadOptions

TWIN = """\
engine: {max_num_seqs: 64, max_num_batched_tokens: 2048, num_gpu_blocks: 8000, max_model_len: 8192}
latency:
  model: blackbox
  coefficients: {alpha0: 9000, alpha1: 1, alpha2: 0, beta0: 6000, beta1: 20, beta2: 30}
  fitted_range: {rate_per_s: [1, 4]}
  fitted_on: {flags: {max_num_batched_tokens: 2048, async_scheduling: false}}
"""
LOAD = WorkloadOptions(rate=2, num_requests=60, prompt_tokens=100, output_tokens=20, seed=1)


def test_flags_that_a_search_has_changed_are_told_beside_the_load(tmp_path: Path) -> None:
    path = tmp_path / "twin.yaml"
    path.write_text(TWIN)
    trace, twin = trace_from_options(LOAD), load_config(path, settings=["engine.async_scheduling=false"])
    assert beyond_fit(trace, twin, 2.0) is None
    more = replace(twin, engine=replace(twin.engine, max_num_batched_tokens=8192))
    flags = "outside what the twin was fitted on: steps of up to 8192 tokens (max_num_batched_tokens), fitted with 2048"
    assert beyond_fit(trace, more, 2.0) == flags
    assert beyond_fit(trace, more, None) == flags
    both = beyond_fit(trace, more, 12.0)
    assert both is not None
    assert both.startswith(f"{flags}; extrapolated beyond the fit: load by a factor ")


def test_what_the_file_s_own_notes_tell_is_not_told_again(tmp_path: Path) -> None:
    path = tmp_path / "twin.yaml"
    path.write_text(TWIN.replace("async_scheduling: false", "async_scheduling: true"))
    twin = load_config(path, settings=["engine.async_scheduling=false"])
    assert twin.notes[0] == "outside what the twin was fitted on: async_scheduling false, fitted with true"
    assert beyond_fit(trace_from_options(LOAD), twin, 2.0) is None


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


def test_a_rate_that_lasts_is_one_at_which_no_answer_says_beyond(load: Trace) -> None:
    """A short run at 14 requests/s had 14 at once, a long one has more; at a rate that lasts other draws have not."""
    fitted = FittedRange(rate_per_s=(2.0, 14.0), concurrency=(1.0, 14.0))
    twin = replace(SERVER, fitted=fitted)
    lasting = lasting_rates(load, twin, fitted.rate_per_s)
    assert lasting is not None
    lowest, highest = lasting
    assert (lowest, 4 < highest < 14) == (2.0, True)
    longer = workload(3000, rate=4.0, seed=7)
    assert beyond_fit(longer, twin, highest) is None
    told = beyond_fit(longer, twin, 14.0)
    assert told is not None
    assert told.startswith("extrapolated beyond the fit: concurrency by a factor ")


def test_all_rates_last_where_the_fit_saw_a_full_server_and_none_of_an_overloaded_one(load: Trace) -> None:
    seats = (1.0, float(SERVER.engine.max_num_seqs))
    twin = replace(SERVER, fitted=FittedRange(rate_per_s=(2.0, 6.0), concurrency=seats))
    assert lasting_rates(load, twin, (2.0, 6.0)) == (2.0, 6.0)
    most = lasting_rates(load, twin, (2.0, 60.0))
    assert most is not None
    assert most[1] < 40, "a twin that does not keep up, with all seats taken as in the fit"
    assert lasting_rates(load, twin, None) is None
    assert lasting_rates(load, replace(twin, fitted=FittedRange(rate_per_s=(2.0, 6.0))), (2.0, 6.0)) is None


@pytest.mark.parametrize("limit", [0.9, 1.0, 1.7, 3.3, 9.0, 15.9])
def test_the_highest_rate_that_stays_is_found_to_within_5_percent(limit: float) -> None:
    tried: list[float] = []

    def stays(rate_per_s: float) -> bool:
        tried.append(rate_per_s)
        return rate_per_s <= limit

    found = _highest(stays, 16.0)
    assert (found is None) == (limit < 1)
    if found is not None:
        assert found <= limit < 1.05 * found
        assert len(tried) == 7
        assert all(each == float(f"{each:.3g}") for each in tried)


@pytest.mark.parametrize(
    ("running", "verdict", "stays"),
    [
        ((9.0, 9.0, 9.0), "stable", True),
        ((9.0, 9.0, 10.0), "stable", False),
        ((10.0, 9.0, 9.0), "stable", False),
        ((None, 9.0, 9.0), "stable", False),
        ((9.0, 9.0, 9.0), "overloaded", False),
        ((9.0, 9.0, 9.0), None, True),
    ],
)
def test_a_rate_lasts_if_each_third_of_a_long_run_is_within_the_fit(
    running: tuple[float | None, ...],
    verdict: str | None,
    stays: bool,
    load: Trace,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rates: list[float] = []

    def run_at(drawn: Trace, _twin: TwinConfig, rate_per_s: float) -> Any:  # noqa: ANN401
        assert len(drawn) == LONG
        rates.append(rate_per_s)
        return SimpleNamespace(trace=drawn, judged=verdict and SimpleNamespace(verdict=verdict))

    def range_of(_traces: list[Trace], rows: list[NDArray[np.bool_]]) -> FittedRange:
        third = int(np.flatnonzero(rows[0])[0]) * 3 // LONG
        assert np.flatnonzero(rows[0]).tolist() == list(range(third * 1000, (third + 1) * 1000))
        most = running[third]
        return FittedRange(concurrency=None if most is None else (1.0, most))

    monkeypatch.setattr("replay.search.beyond_fit._run_at", run_at)
    monkeypatch.setattr("replay.search.beyond_fit.range_of", range_of)
    twin = replace(SERVER, fitted=FittedRange(rate_per_s=(2.0, 6.0), concurrency=(1.0, 9.0)))
    assert lasting_rates(load, twin, (2.0, 6.0)) == ((2.0, 6.0) if stays else None)
    assert rates == ([6.0] if stays else [6.0, 6 / 16])


def test_a_trace_at_another_rate_keeps_its_requests_and_how_long_each_waits(
    load: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Any] = []
    monkeypatch.setattr("replay.simulation.simulated_run.run", lambda *each: given.append(each) or each)
    came = load.cells("arrival_time_us").values
    patient = load.with_columns(deadline_us=came + 5000)
    _run_at(patient, FITTED, 16.0)
    trace, twin, settings = given[0]
    expected = load_of(patient, FITTED).at(16.0)
    assert trace.cells("arrival_time_us").values.tolist() == expected.arrival_us.tolist()
    waits = trace.cells("deadline_us").values - trace.cells("arrival_time_us").values
    assert waits.tolist() == [5000] * len(load)
    assert (settings.at, twin.pace) == ("arrival", None)
    _run_at(load, FITTED, 16.0)
    assert "deadline_us" not in given[1][0].table
