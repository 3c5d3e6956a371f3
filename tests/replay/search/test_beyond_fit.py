"""An answer of a search says how far it lies beyond what its twin was fitted on: in load, and in flags of its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from replay.search.beyond_fit import beyond_fit, lasting_rates
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
