import numpy as np
import pandas as pd
import pytest

from calibrate.judge import (
    Options,
    calibrate,
    check_options,
    compare_with_simulated,
    compare_with_twin,
    first_half,
)
from tests.calibrate.worlds import GUESS, SERVER, observed, source, with_latency, workload
from traces.errors import ConfigError, TraceError

QUICK = Options(replicates=60)


def test_a_twin_with_the_servers_own_coefficients_has_no_error() -> None:
    trace = observed(workload(60, rate=6, seed=1))
    found = compare_with_twin([source("a", trace)], SERVER, QUICK)
    assert all(each.mape.value == pytest.approx(0, abs=1e-6) for each in found.holdout.values())
    assert found.in_sample == found.holdout
    assert found.excluded == {}


def test_a_slower_twin_is_slower_by_as_much() -> None:
    trace = observed(workload(40, rate=0.02, seed=2))
    found = compare_with_twin([source("a", trace)], with_latency(SERVER, beta0=13200, beta2=550), QUICK)
    assert found.holdout["tpot_us"].bias.value == pytest.approx(0.1, abs=1e-3)


def test_without_a_held_out_trace_the_second_half_judges_and_the_first_is_fitted() -> None:
    trace = observed(workload(81, rate=6, seed=3))
    found = calibrate([source("a", trace)], GUESS, QUICK)
    assert found.fit is not None
    assert found.fit.num_requests == 41
    assert (found.in_sample["e2e_us"].n, found.holdout["e2e_us"].n) == (41, 40)
    last_fitted = found.in_sample_pairs.requests["arrival_us"].max()
    assert (found.pairs.requests["arrival_us"] >= last_fitted).all()


def test_held_out_traces_judge_and_are_not_fitted() -> None:
    sources = [source(name, observed(workload(60, rate=6, seed=seed))) for name, seed in (("a", 4), ("b", 5))]
    found = calibrate(sources[:1], GUESS, QUICK, holdout=sources[1:])
    assert found.fit is not None
    assert found.fit.num_requests == 60
    assert [each.role for each in found.traces] == ["fitted", "judged"]
    assert found.holdout["e2e_us"].mape.value < 0.05


def test_the_first_half_is_by_arrival_whatever_the_rows_order() -> None:
    trace = workload(5, rate=1, seed=6)
    shuffled = trace.with_columns(arrival_time_us=np.array([50, 10, 40, 20, 30]))
    assert list(first_half(shuffled)) == [False, True, False, True, True]


def test_queue_times_are_compared_where_the_server_told_them() -> None:
    trace = observed(workload(40, rate=20, seed=7))
    waited = trace.requests["scheduled_time_us"] - trace.requests["send_time_us"] - 4000
    told = trace.with_columns(
        server_queue_us=pd.array(waited - 5 * trace.requests["input_tokens"], dtype="Int64")
    )
    found = compare_with_twin([source("a", told)], SERVER, QUICK).holdout["queue_us"]
    assert found.error["mean"].value == pytest.approx(0, abs=1)


def test_two_traces_can_be_compared_without_a_twin() -> None:
    trace = workload(50, rate=6, seed=8)
    found = compare_with_simulated(source("a", observed(trace)), source("b", observed(trace, GUESS)), QUICK)
    assert found.config is None
    assert found.holdout["e2e_us"].bias.value < -0.3
    assert found.holdout_throughput.request_per_s[0] is not None


def test_strata_hold_every_request_once_per_kind() -> None:
    trace = observed(workload(120, rate=6, seed=9))
    strata = compare_with_twin([source("a", trace)], GUESS, QUICK).strata
    for by in ("prompt_tokens", "output_tokens", "in_flight"):
        assert sum(each.n for each in strata if each.by == by) == 120


def test_a_half_without_a_finished_request_is_named() -> None:
    trace = observed(workload(60, rate=6, seed=10))
    status = np.where(np.arange(60) < 30, "ok", "error")
    with pytest.raises(TraceError, match="a: got no finished request in the second half"):
        calibrate([source("a", trace.with_columns(status=status))], GUESS, QUICK)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"simulated": True, "config": True}, "got both, expected one"),
        ({"simulated": False, "config": False}, "got neither, expected one"),
        ({"simulated": True, "config": False, "fitting": True}, "--fit: got it with --simulated"),
        ({"simulated": True, "config": False, "num_holdout": 1}, "--holdout: got it with --simulated"),
        ({"simulated": True, "config": False, "num_observed": 2}, "got 2 traces with --simulated"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_options(**{"fitting": False, "num_observed": 1, "num_holdout": 0} | options)  # type: ignore[arg-type]
