import numpy as np
import pytest

from observe.result.json_document import summarize_observed
from observe.result.summary_table import table
from tests.calibrate.known_servers import observed, workload
from traces import ClientInfo, Trace, findings_of, marked
from traces.findings.run_findings import OVERLOADED
from traces.findings.saturation import saturation, saturation_of
from traces.header import ClosedLoop


def server(n: int, *, load: float, seats: int = 8, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return arrivals and E2E of a queue with ``seats`` servers that is offered ``load`` times what it can do."""
    generator = np.random.default_rng(seed)
    arrival = np.cumsum(generator.exponential(1e6 / (load * seats), size=n))
    work = 1e6 * generator.lognormal(-0.125, 0.5, size=n)
    free, e2e = np.zeros(seats), np.empty(n)
    for i in range(n):
        seat = int(free.argmin())
        free[seat] = max(arrival[i], free[seat]) + work[i]
        e2e[i] = free[seat] - arrival[i]
    return arrival, e2e


@pytest.mark.parametrize(("load", "least"), [(0.5, 40), (0.8, 36)])
def test_a_server_that_keeps_up_is_stable(load: float, least: int) -> None:
    states = [saturation(*server(200, load=load, seed=seed)).state for seed in range(40)]
    assert states.count("stable") >= least
    assert states.count("saturated") <= 1


def test_an_overloaded_server_is_named_and_its_slope_is_the_excess_of_arrivals() -> None:
    found = [saturation(*server(300, load=1.6, seed=seed)) for seed in range(20)]
    assert [each.state for each in found].count("saturated") >= 19
    excess = 8 * 0.6
    assert np.mean([each.slope_per_s.value for each in found]) == pytest.approx(excess, rel=0.15)
    assert all(each.slope_per_s.low < each.slope_per_s.value < each.slope_per_s.high for each in found)
    assert all(each.index > each.floor and each.backlog > 0 for each in found)


def test_no_server_with_a_tenth_to_spare_is_called_overloaded_and_every_one_far_beyond_is() -> None:
    assert all(saturation(*server(200, load=0.9, seed=seed)).state != "saturated" for seed in range(40))
    assert all(saturation(*server(600, load=1.3, seed=seed)).state == "saturated" for seed in range(20))


def test_requests_that_all_come_at_once_are_a_backlog_by_design() -> None:
    found = saturation(np.zeros(100), 1e6 + 5e4 * np.arange(100))
    assert (found.state, found.backlog) == ("saturated", 100)


def test_a_closed_loop_and_a_handful_of_requests_are_not_called_saturated() -> None:
    assert saturation(*server(15, load=3.0, seed=1)).state == "stable"
    trace = observed(workload(60, rate=500, seed=1))
    assert saturation_of(trace).state == "saturated"
    assert saturation_of(trace.with_header(closed_loop=ClosedLoop(concurrency=8))).state == "stable"


def measured(*, rate: float) -> Trace:
    return observed(workload(200, rate=rate, seed=1)).with_header(mode="real", client=ClientInfo())


def test_an_overloaded_run_says_so_and_a_backlog_by_design_does_not() -> None:
    trace = measured(rate=40)
    (found,) = (each for each in findings_of(trace) if each.kind == OVERLOADED)
    assert found.num == saturation_of(trace).backlog
    assert found.text.startswith("the server was overloaded: 44 % of what arrived was not served in time")
    closed = trace.with_header(closed_loop=ClosedLoop(concurrency=8))
    for other in (closed, measured(rate=500), measured(rate=1), trace.with_header(mode="replayed")):
        assert all(each.kind != OVERLOADED for each in findings_of(other))


def test_the_table_of_an_observation_gives_the_verdict_before_the_latencies() -> None:
    lines = table(summarize_observed(marked(measured(rate=40)))).split("\n")
    assert "verdict     OVERLOADED: more is sent than is answered" in lines[:3]
    assert not [
        line
        for line in table(summarize_observed(marked(measured(rate=1)))).split("\n")
        if "OVERLOADED" in line
    ]
