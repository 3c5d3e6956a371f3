import numpy as np
import pytest

from calibrate.calibration_run import calibrate, compare_with_simulated, compare_with_twin
from calibrate.compare.network import NetworkFigures, client_view, parse_network, server_view
from calibrate.findings import Options
from tests.calibrate.known_servers import GUESS, SERVER, observed, source, workload
from traces import request_metrics
from traces.errors import ConfigError

FAR = NetworkFigures(rtt_us=30_000, bandwidth_mbit_per_s=1.0)


def test_a_far_client_sees_a_round_trip_and_the_transfers() -> None:
    near = observed(workload(20, rate=6, seed=1))
    seen, before = request_metrics(client_view(near, FAR)), request_metrics(near)
    upload = 4 * 8 * near.requests["input_tokens"].to_numpy(float)  # bits at one bit per µs
    download = 4 * 8 * near.requests["output_tokens"].to_numpy(float)
    assert (seen["ttft_us"] - before["ttft_us"]).to_numpy() == pytest.approx(30_000 + upload, abs=1)
    assert (seen["e2e_us"] - before["e2e_us"]).to_numpy() == pytest.approx(30_000 + upload + download, abs=2)


def test_there_and_back_is_the_same_trace() -> None:
    near = observed(workload(20, rate=6, seed=1))
    back = server_view(client_view(near, FAR), FAR)
    names = ["send_time_us", "content_first_time_us", "last_token_time_us"]
    assert back.requests[names].equals(near.requests[names])


def test_a_twin_with_the_clients_network_has_no_error_and_without_it_the_round_trip() -> None:
    seen = client_view(observed(workload(40, rate=6, seed=2)), FAR)
    with_network = compare_with_twin([source("a", seen)], SERVER, Options(replicates=60, network=FAR))
    without = compare_with_twin([source("a", seen)], SERVER, Options(replicates=60))
    assert with_network.holdout["ttft_us"].mape.value == pytest.approx(0, abs=1e-3)
    assert without.holdout["ttft_us"].error["mean"].value < -30_000


def test_a_fit_over_a_network_finds_the_servers_own_way_in() -> None:
    network = NetworkFigures(rtt_us=30_000)
    loads = {3: "a", 9: "b"}  # of one load alone alpha0 and alpha3 are told apart by little
    seen = [
        source(name, client_view(observed(workload(120, rate=rate, seed=rate)), network))
        for rate, name in loads.items()
    ]
    found = calibrate(seen, GUESS, Options(replicates=60, network=network))
    assert found.fit is not None
    assert found.holdout["ttft_us"].mape.value < 0.03
    assert found.fit.config.latency.alpha0 == pytest.approx(4000, abs=1500)  # 34,000 without the network


def test_another_trace_in_the_simulations_place_is_given_the_network_too() -> None:
    trace = observed(workload(20, rate=6, seed=4))
    options = Options(replicates=60, network=NetworkFigures(rtt_us=1000))
    found = compare_with_simulated(source("a", trace), source("b", trace), options)
    assert found.holdout["ttft_us"].error["mean"].value == pytest.approx(1000)


def test_a_network_is_read_as_written() -> None:
    assert parse_network("rtt=2ms,bandwidth=100", measured_rtt_ms=None) == NetworkFigures(
        rtt_us=2000, bandwidth_mbit_per_s=100
    )
    assert parse_network("rtt=measured", measured_rtt_ms=1.5).rtt_us == 1500
    assert np.all(NetworkFigures(rtt_us=5).transfer_us(np.array([1.0, 9.0])) == 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rtt=fast", "--network rtt: got 'fast'"),
        ("rtt=-1", "expected a time >= 0"),
        ("bandwidth=0", "--network bandwidth: got '0', expected a number > 0, in Mbit/s"),
        ("loss=1", "--network: got 'loss', expected rtt, bandwidth"),
        ("rtt=measured", "has no network.measured_rtt_ms"),
    ],
)
def test_a_network_that_cannot_be_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_network(text, measured_rtt_ms=None)
