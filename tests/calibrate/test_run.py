from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from calibrate.calibration_run import (
    calibrate,
    check_options,
    compare_with_simulated,
    compare_with_twin,
    first_half,
)
from calibrate.findings import Options
from replay import simulate_trace
from tests.calibrate.known_servers import GUESS, SERVER, observed, source, with_latency, workload
from traces.errors import ConfigError, TraceError
from traces.header import ClientInfo

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
    last_fitted = found.fitted_on.pairs.requests["arrival_us"].max()
    assert (found.pairs.requests["arrival_us"] >= last_fitted).all()


@pytest.mark.parametrize(
    ("client", "said"),
    [
        (ClientInfo(num_choices=2), "2 answers a prompt"),
        (ClientInfo(num_inputs=4), "4 inputs a request"),
    ],
)
def test_a_fit_refuses_traces_that_all_have_several_of_what_is_simulated_as_one(
    client: ClientInfo, said: str
) -> None:
    plain = observed(workload(60, rate=6, seed=3))
    several = source("a", plain.with_header(client=client))
    with pytest.raises(TraceError, match=rf"^a: got {said}, which are simulated as one, expected"):
        calibrate([several], GUESS, QUICK)
    assert calibrate([several, source("b", plain)], GUESS, QUICK).fit is not None  # told, and not refused
    single = source("a", plain.with_header(client=ClientInfo(num_inputs=1)))
    assert calibrate([single], GUESS, QUICK).fit is not None


def test_held_out_traces_judge_and_are_not_fitted() -> None:
    sources = [source(name, observed(workload(60, rate=6, seed=seed))) for name, seed in (("a", 4), ("b", 5))]
    found = calibrate(sources[:1], GUESS, QUICK, holdout=sources[1:])
    assert found.fit is not None
    assert found.fit.num_requests == 60
    assert [each.role for each in found.traces] == ["fitted", "held out"]
    assert found.holdout["e2e_us"].mape.value < 0.05


def test_the_first_half_is_by_arrival_whatever_the_rows_order() -> None:
    trace = workload(5, rate=1, seed=6)
    shuffled = trace.with_columns(arrival_time_us=np.array([50, 10, 40, 20, 30]))
    assert list(first_half(shuffled)) == [False, True, False, True, True]


def test_queue_times_are_compared_by_the_servers_clock_which_starts_between_two_steps() -> None:
    drawn = workload(40, rate=20, seed=7)
    trace = observed(drawn)
    steps = simulate_trace(drawn, SERVER, record="steps")[1].steps()
    joined = trace.requests["send_time_us"] + 4000 + 5 * trace.requests["input_tokens"]
    taken_in = [min(step.t for step in steps if step.t >= time) for time in joined]
    told = trace.with_columns(
        server_queue_us=pd.array(trace.requests["scheduled_time_us"] - taken_in, dtype="Int64")
    ).with_header(mode="real")
    found = compare_with_twin([source("a", told)], SERVER, QUICK).holdout["queue_us"]
    assert found.error["mean"].value == pytest.approx(0, abs=1)
    assert found.observed["p50"] == 0  # a request that finds a seat waits for nothing but the step under way


def test_queue_times_of_a_simulated_trace_are_by_the_servers_clock_too() -> None:
    few_seats = replace(SERVER, engine=replace(SERVER.engine, max_num_seqs=2))
    simulated, _ = simulate_trace(workload(40, rate=20, seed=7), few_seats, record="spans")
    for mode in ("replayed", "real"):
        told = simulated.with_header(mode=mode)
        found = compare_with_twin([source("a", told)], few_seats, QUICK).holdout["queue_us"]
        assert found.observed["mean"] > 0
        assert found.error["mean"].value == pytest.approx(0, abs=1e-9)


def test_two_traces_can_be_compared_without_a_twin() -> None:
    trace = workload(50, rate=6, seed=8)
    found = compare_with_simulated(source("a", observed(trace)), source("b", observed(trace, GUESS)), QUICK)
    assert found.config is None
    assert found.holdout["e2e_us"].bias.value < -0.3
    assert found.held_out.rates["request_throughput"].observed is not None


def test_strata_hold_every_request_once_per_kind() -> None:
    trace = observed(workload(120, rate=6, seed=9))
    strata = compare_with_twin([source("a", trace)], GUESS, QUICK).strata
    for by in ("prompt_tokens", "output_tokens", "in_flight", "window_s"):
        assert sum(each.n for each in strata if each.by == by) == 120


def test_strata_are_also_by_what_requests_say_of_themselves() -> None:
    trace = observed(workload(120, rate=6, seed=9))
    words = np.where(np.arange(120) % 3 == 0, "batch", "interactive")
    said = trace.with_columns(
        slo_class=words, tenant_id=[None, "x"] * 60, model=["m"] * 120, cached_input_tokens=[0, 0, 0, 16] * 30
    )
    strata = compare_with_twin([source("a", said)], GUESS, QUICK).strata
    found = {(each.by, each.value): each.n for each in strata if each.value is not None}
    assert found == {
        ("slo_class", "batch"): 40,
        ("slo_class", "interactive"): 80,
        ("tenant_id", "not stated"): 60,
        ("tenant_id", "x"): 60,
        ("cached", "cached in part"): 30,
        ("cached", "nothing cached"): 90,
    }


def test_a_saturated_trace_is_judged_by_its_capacity_and_leaves_the_latencies_to_the_others() -> None:
    slow = with_latency(SERVER, beta0=24000, beta2=1500)
    low, high = (
        observed(workload(n, rate=rate, seed=seed), slow) for n, rate, seed in ((60, 2, 1), (300, 60, 2))
    )
    both = compare_with_twin([source("low", low), source("high", high)], SERVER, QUICK)
    assert [each.is_saturated for each in both.traces] == [False, True]
    assert both.holdout["e2e_us"].n == 60
    capacity = both.held_out.capacity["request_throughput"]
    assert capacity.n == 300
    assert capacity.rel_error.value > 0.3
    assert not both.held_out.of_saturated
    alone = compare_with_twin([source("high", high)], SERVER, QUICK)
    assert alone.held_out.of_saturated
    assert alone.holdout["e2e_us"].n == 300


def test_a_half_without_a_finished_request_is_named() -> None:
    trace = observed(workload(60, rate=6, seed=10))
    status = np.where(np.arange(60) < 30, "ok", "error")
    with pytest.raises(TraceError, match="a: got no finished request in the second half"):
        calibrate([source("a", trace.with_columns(status=status))], GUESS, QUICK)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"simulated": True, "config": True}, "--simulated: cannot be combined with --config"),
        ({"simulated": False, "config": False}, "got neither, expected one"),
        ({"simulated": True, "config": False, "fitting": True}, "--fit: cannot be combined with --simulated"),
        (
            {"simulated": True, "config": False, "num_holdout": 1},
            "--holdout: cannot be combined with --simulated",
        ),
        ({"simulated": True, "config": False, "num_observed": 2}, "got 2 traces with --simulated"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_options(**{"fitting": False, "num_observed": 1, "num_holdout": 0} | options)  # type: ignore[arg-type]


def test_a_fit_asks_for_its_memory_before_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = (source("a", workload(num, rate=6, seed=3)) for num in (80, 800))
    monkeypatch.setattr("traces.strict.free_memory.free_memory", lambda: 4_000_000)
    monkeypatch.setattr("calibrate.calibration_run.fit_trace", lambda *_, **__: pytest.fail("it began"))
    with pytest.raises(ConfigError, match=r"--fit: got 800 requests with .* of output, which take"):
        calibrate([many], GUESS, replace(QUICK, replicates=1000))
    with pytest.raises(ConfigError, match="--fit: got 880 requests"):
        calibrate([few], GUESS, replace(QUICK, replicates=1000), holdout=[many])
    with pytest.raises(pytest.fail.Exception, match="it began"):
        calibrate([few], GUESS, QUICK)
