import numpy as np
import pandas as pd
import pytest

from calibrate.calibration_run import compare_with_twin
from calibrate.findings import Calibration, Options
from replay import simulate_trace
from tests.calibrate.known_servers import SERVER, observed, source, with_latency, workload
from traces import Trace

QUICK = Options(replicates=60)


def told(trace: Trace) -> Trace:
    """Return a trace whose server timed its queue, prefill and decode: 4 ms and more are the client's."""
    send, scheduled, first, last = (
        trace.requests[name].astype("int64")
        for name in ("send_time_us", "scheduled_time_us", "content_first_time_us", "last_token_time_us")
    )
    return trace.with_columns(
        server_queue_us=pd.array(np.maximum(scheduled - send - 60_000, 0), dtype="Int64"),
        server_prefill_us=first - scheduled,
        server_decode_us=last - first,
    )


def total(found: Calibration) -> float:
    assert found.origin is not None
    return sum(phase.error.value or 0.0 for phase in found.origin.phases.values())


def test_the_phases_errors_add_up_to_that_of_e2e() -> None:
    trace = observed(workload(60, rate=6, seed=1), noise=0.1)
    for each in (trace, told(trace)):
        found = compare_with_twin([source("a", each)], with_latency(SERVER, beta0=15000), QUICK)
        assert total(found) == pytest.approx(found.holdout["e2e_us"].error["mean"].value)


def test_a_server_that_decodes_slowly_is_found_out_in_the_decode() -> None:
    drawn = workload(60, rate=0.05, seed=2)
    slow = told(observed(drawn, with_latency(SERVER, beta2=1500)))
    found = compare_with_twin([source("a", slow)], SERVER, QUICK).origin
    assert found is not None
    assert found.basis == "server"
    shares = {name: phase.share.value for name, phase in found.phases.items()}
    assert shares["decode_phase_us"] < -0.05
    assert all(
        abs(shares[name]) < 0.002 for name in ("client_phase_us", "queue_phase_us", "prefill_phase_us")
    )


def test_without_the_servers_times_the_simulator_divides_what_comes_before_the_first_token() -> None:
    trace = observed(workload(60, rate=6, seed=3), noise=0.1)
    found = compare_with_twin([source("a", trace)], SERVER, QUICK).origin
    assert found is not None
    assert found.basis == "simulator"
    before = [found.phases[name] for name in ("client_phase_us", "queue_phase_us", "prefill_phase_us")]
    ratios = [phase.observed / phase.simulated for phase in before if phase.simulated]
    assert min(ratios) == pytest.approx(max(ratios), rel=0.1)


def test_the_worst_requests_come_first_with_phases_that_add_up() -> None:
    trace = observed(workload(60, rate=6, seed=4))
    last = trace.requests["last_token_time_us"].copy()
    last[7] += 9_000_000
    worst = compare_with_twin(
        [source("a", told(trace.with_columns(last_token_time_us=last)))], SERVER, QUICK
    ).worst
    assert (worst[0].request_id, worst[0].trace) == ("7", "a")
    assert worst[0].rel_error < -0.5
    for each in worst:
        assert sum(each.observed_phases) == pytest.approx(each.observed_e2e_us)
        assert sum(each.simulated_phases) == pytest.approx(each.simulated_e2e_us)


def test_phases_of_a_simulation_are_those_of_its_outcomes() -> None:
    drawn = workload(40, rate=20, seed=5)
    simulated, simulation = simulate_trace(drawn, SERVER)
    found = compare_with_twin([source("a", observed(drawn))], SERVER, QUICK)
    outcomes = simulation.outcomes
    queue = found.pairs.simulated["queue_phase_us"].to_numpy()
    assert queue.mean() == pytest.approx((outcomes.scheduled_us - outcomes.queued_us).mean())
    client = found.pairs.simulated["client_phase_us"].to_numpy()
    assert client.mean() == pytest.approx((outcomes.queued_us - outcomes.arrival_us).mean())
    assert len(simulated) == 40
