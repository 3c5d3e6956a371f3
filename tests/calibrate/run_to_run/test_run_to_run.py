"""What differs from run to run: the pace by hand, arrivals that move, and a server whose only error is its pace."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from calibrate.calibration_run import compare_with_twin
from calibrate.compare.metric_errors import Bootstrap, compare
from calibrate.compare.pair import LATENCIES, Pairs, concat, pair_sides, take
from calibrate.findings import Options
from calibrate.run_to_run.bands import bands_of
from calibrate.run_to_run.server_pace import STATED, RunToRun, recorded_spreads, run_to_run
from calibrate.run_to_run.twin_runs import runs_again
from replay import TwinConfig, paced_requests, pacing_of
from replay.simulation.pace_band import paced
from sim import Blackbox, EngineConfig
from tests.calibrate.known_servers import SERVER, observed, source, workload
from tests.calibrate.sides import side
from traces import RunSpread, make_trace

N = 30
IDS = [str(row) for row in range(N)]


def pairs_of(**metric: tuple[object, object]) -> Pairs:
    """Return pairs with one metric given on both sides, the others as there."""
    ((name, (one, two)),) = metric.items()
    return pair_sides(side(IDS, **{name: one}), side(IDS, **{name: two}))


def test_the_pace_from_run_to_run_is_as_stated_until_a_run_is_repeated() -> None:
    assert run_to_run([], stated=RunToRun()) == RunToRun(bound=0.005, num_repeats=0)
    assert run_to_run([], stated=RunToRun()).deviation == pytest.approx(0.005 / norm.ppf(0.95))
    assert "stated, not measured" in run_to_run([], stated=RunToRun()).text()


def test_repeated_runs_count_beside_the_stated_pace() -> None:
    """Two runs 2 % apart: a log difference of 0.0198, half of whose square is one run's variance."""
    couple = pairs_of(tpot_us=(np.full(N, 10.0), np.full(N, 10.2)))
    stated, seen = (0.005 / norm.ppf(0.95)) ** 2, np.log(1.02) ** 2 / 2
    one, two = run_to_run([couple], stated=RunToRun()), run_to_run([couple, couple], stated=RunToRun())
    assert (one.num_repeats, two.num_repeats) == (1, 2)
    assert one.bound == pytest.approx(norm.ppf(0.95) * np.sqrt((4 * stated + seen) / 5))
    assert two.bound == pytest.approx(norm.ppf(0.95) * np.sqrt((4 * stated + 2 * seen) / 6))
    assert "2 repeated runs" in two.text()


def test_what_repeats_measured_counts_in_place_of_the_runs_themselves() -> None:
    """Five runs with a spread of 2 %, in both headers: four counts, once, and their couple none beside them."""
    floor = RunSpread(num_runs=5, spread={"tpot_us.mean": 0.02, "ttft_us.mean": 0.5})
    stated = (0.005 / norm.ppf(0.95)) ** 2
    due = norm.ppf(0.95) * np.sqrt((4 * stated + 4 * 0.02**2) / 8)
    found = run_to_run([], stated=RunToRun(), recorded=[floor])
    assert (found.bound, found.num_repeats) == (pytest.approx(due), 4)
    assert run_to_run([], stated=RunToRun(), recorded=[RunSpread(num_runs=5)]) == RunToRun()
    trace = observed(workload(40, rate=5, seed=1))
    again = observed(workload(40, rate=5, seed=1), noise=0.05, seed=2)
    runs = [each.with_header(noise_floor=floor) for each in (trace, again)]
    assert recorded_spreads([*runs, trace]) == [floor]
    named = [source(name, each) for name, each in zip("ab", runs, strict=True)]
    calibration = compare_with_twin(named, SERVER, Options(replicates=20))
    assert calibration.options.run_to_run == found
    assert calibration.noise is not None  # of each request: that takes the runs themselves
    bare = compare_with_twin([source("a", trace), source("b", again)], SERVER, Options(replicates=20))
    assert bare.options.run_to_run.num_repeats == 1


def test_answers_of_one_token_have_no_pace() -> None:
    couple = pairs_of(tpot_us=(np.full(N, np.nan), np.full(N, 10.2)))
    assert run_to_run([couple], stated=RunToRun()) == RunToRun(bound=STATED, num_repeats=0)


LONE = TwinConfig(
    engine=EngineConfig(max_num_seqs=8, async_scheduling=False),
    latency=Blackbox(alpha0=0, alpha1=0, beta0=10_000, beta1=0, beta2=0),
)


def lone_requests(n: int = N):  # type: ignore[no-untyped-def]  # noqa: ANN201 - a trace
    """Return requests that never meet: each step takes 10 ms."""
    trace = workload(n, rate=1, seed=1)
    columns = {
        "request_id": trace.requests["request_id"],
        "arrival_time_us": np.arange(n) * 2_000_000 + 5_000,
        "input_tokens": np.full(n, 20),
        "output_tokens": np.full(n, 50),
    }
    return make_trace(trace.header, columns)


def runs_of(trace, config: TwinConfig, *, deviation: float, seed: int = 0):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Return the first run's latencies, those of further runs, and the arrivals of these."""
    from replay import simulate_trace
    from traces import request_metrics

    arrivals = []

    def simulate(twin: TwinConfig, requests: object):  # type: ignore[no-untyped-def]  # noqa: ANN202
        arrivals.append(requests.arrival_us)  # type: ignore[attr-defined]
        return simulate_trace(trace, twin, record="none", requests=requests)[0]  # type: ignore[arg-type]

    first = request_metrics(simulate_trace(trace, config)[0])
    base = np.stack([first[name].to_numpy(float) for name in LATENCIES], axis=1)
    requests = paced_requests(trace, pacing_of(trace), block_size=config.engine.block_size)
    again = runs_again(base, config, requests, deviation=deviation, seed=seed, simulate=simulate)
    return base, again, np.array(arrivals), requests.arrival_us


def test_lone_requests_take_as_long_as_the_pace_of_the_run() -> None:
    base, again, _, _ = runs_of(lone_requests(), LONE, deviation=0.1)
    paces = np.sort(again[:, 0, LATENCIES.index("tpot_us")] / base[0, LATENCIES.index("tpot_us")])
    assert len(again) == 20
    assert paces == pytest.approx(np.exp(0.1 * norm.ppf((np.arange(20) + 0.5) / 20)), rel=2e-4)
    e2e = LATENCIES.index("e2e_us")
    assert (again[:, :, e2e] > 0.8 * base[:, e2e]).all()


def test_requests_move_by_up_to_half_a_step_together_with_those_that_come_along() -> None:
    trace = lone_requests()
    times = np.arange(N) // 2 * 2_000_000  # in twos, the first two from the start
    _, _, moved, given = runs_of(trace.with_columns(arrival_time_us=times), LONE, deviation=0.0)
    shift = moved - given
    assert (shift[:, :2] == 0).all()
    assert (shift[:, ::2] == shift[:, 1::2]).all()
    assert 4_000 < np.abs(shift).max() <= 5_000
    assert abs(shift[:, 2:].mean()) < 500


def test_a_run_of_many_requests_is_made_less_often() -> None:
    base = np.ones((12_000, len(LATENCIES)))
    trace = lone_requests(3)

    class Enough(Exception):  # noqa: N818 - no error: the number of runs is known by then
        """Raised instead of simulating."""

    from calibrate.run_to_run import twin_runs

    counted = []
    found = pytest.MonkeyPatch()
    try:
        found.setattr(twin_runs, "_factors", lambda number, *_: counted.append(number) or [])
        requests = paced_requests(trace, pacing_of(trace), block_size=16)
        runs_again(base, LONE, requests, deviation=0.0, seed=0, simulate=lambda *_: trace)
        runs_again(np.ones((50_000, 6)), LONE, requests, deviation=0.0, seed=0, simulate=lambda *_: trace)
    finally:
        found.undo()
    assert counted == [8, 5]


def test_the_interval_of_a_server_whose_only_error_is_its_pace_is_that_of_its_paces() -> None:
    """Requests that never meet differ in nothing: all that is left is the pace, lognormal in twenty equal shares."""
    trace = observed(lone_requests(), LONE)
    options = Options(replicates=400, run_to_run=RunToRun(bound=0.05))
    found = compare_with_twin([source("a", trace)], LONE, options).holdout["tpot_us"]
    paces = np.exp(0.05 / norm.ppf(0.95) * norm.ppf((np.arange(20) + 0.5) / 20))
    low, high = np.quantile(np.tile(paces, 20), [0.05, 0.95]) - 1
    mean = found.rel_error["mean"]
    assert mean.value == 0
    assert (mean.low, mean.high) == pytest.approx((low, high), abs=2e-3)
    assert found.mape.value == 0
    assert found.mape.high == pytest.approx(0.05, rel=0.25)


def test_a_comparison_s_repeats_set_the_pace_of_its_intervals() -> None:
    one = observed(workload(60, rate=6, seed=1))
    slower = observed(workload(60, rate=6, seed=1), paced(SERVER, 1.06))
    found = compare_with_twin([source("a", one), source("b", slower)], SERVER, Options(replicates=60))
    assert found.options.run_to_run.num_repeats == 1
    assert found.options.run_to_run.bound > 3 * STATED


def test_what_is_expected_of_a_request_is_nearer_than_one_run() -> None:
    """The server's requests came a few ms apart from where the trace has them: each met another step."""
    asked = workload(150, rate=8, seed=4)
    times = asked.requests["arrival_time_us"].to_numpy(np.int64)
    moved = times + np.random.default_rng(5).integers(-8_000, 8_000, len(times))
    trace = observed(asked.with_columns(arrival_time_us=np.sort(np.maximum(moved, 0))))
    trace = trace.with_columns(arrival_time_us=times, send_time_us=times)
    sent = trace.requests["send_time_us"].to_numpy(np.int64) - np.sort(np.maximum(moved, 0))
    for name in ("first_chunk_time_us", "content_first_time_us", "last_chunk_time_us", "last_token_time_us"):
        trace = trace.with_columns(**{name: trace.requests[name].to_numpy(np.int64) + sent})
    found = compare_with_twin([source("a", trace)], SERVER, Options(replicates=60)).holdout["ttft_us"]
    assert found.mape_expected is not None
    assert found.mape_expected.value < 0.97 * found.mape.value


def with_runs(observed_us: np.ndarray, runs: np.ndarray) -> Pairs:
    """Return pairs of E2E with the twin's further runs of it."""
    pairs = pairs_of(e2e_us=(observed_us, runs[0]))
    again = np.full((len(runs), len(pairs), len(LATENCIES)), 1.0)
    again[:, :, LATENCIES.index("e2e_us")] = runs
    return replace(pairs, again=again)


def test_a_band_is_widened_until_nine_of_ten_fitted_requests_are_within() -> None:
    """All runs say 100. Thirty fitted requests are 1 to 30 % longer: the bound is the 28th of them."""
    runs = np.full((20, N), 100.0)
    fitted = with_runs(100.0 * (1 + np.arange(1, N + 1) / 100), runs)
    held_out = with_runs(np.r_[np.full(20, 127.9), np.full(10, 128.1)], runs)
    band = bands_of(fitted, held_out)["e2e_us"]
    assert band.high == pytest.approx(1.28)
    assert band.low == pytest.approx(1 / 1.28)
    assert (band.holds_frac, band.n) == (pytest.approx(2 / 3), N)


def test_a_band_is_never_narrower_than_the_runs() -> None:
    """Each request takes ten values from 55 to 145 in turn, so that the runs' means are all 100."""
    runs = 55.0 + 10.0 * (np.add.outer(np.arange(20), np.arange(N)) % 10)
    exact = with_runs(np.full(N, 100.0), runs)
    band = bands_of(exact, exact)["e2e_us"]
    assert band.widened_log == 0
    assert (band.low, band.high) == pytest.approx((0.55, 1.45), rel=2e-3)
    assert band.holds_frac == 1.0


def test_a_band_has_the_difference_of_two_runs_paces_in_it() -> None:
    """All requests are as expected; whole runs differ by up to 10 % either way, evenly in their logs."""
    paces = np.exp(np.linspace(-0.1, 0.1, 20))
    runs = np.repeat(100.0 * paces[:, None], N, axis=1)
    exact = with_runs(np.full(N, 100.0), runs)
    band = bands_of(exact, exact)["e2e_us"]
    inside = np.quantile(np.log(paces), 0.95)
    strays = np.sort(np.abs(np.sqrt(2) * np.log(paces)) - inside)
    assert band.widened_log == pytest.approx(strays[int(0.95 * 20)], abs=0.02)
    assert band.widened_log > 0.02


def test_there_is_no_band_of_few_requests_nor_without_runs() -> None:
    runs = np.full((20, N), 100.0)
    pairs = with_runs(np.full(N, 100.0), runs)
    few = take(pairs, np.arange(N) < 19)
    assert bands_of(few, pairs) == {}
    assert bands_of(replace(pairs, again=None), pairs) == {}


def test_runs_go_along_when_pairs_are_joined_and_taken() -> None:
    runs = np.arange(20 * N, dtype=float).reshape(20, N)
    pairs = with_runs(np.full(N, 100.0), runs)
    fewer = replace(pairs, again=pairs.again[:5])  # type: ignore[index]
    column = LATENCIES.index("e2e_us")
    joined = concat([pairs, fewer])
    assert joined.again is not None
    assert joined.again.shape == (5, 2 * N, len(LATENCIES))
    assert joined.again[-1, 0, column] == runs[-1, 0]
    assert joined.again[-1, N, column] == runs[4, 0]
    assert concat([pairs, replace(pairs, again=None)]).again is None
    chosen = take(pairs, np.arange(N) >= 25)
    assert chosen.again is not None
    assert chosen.again[3, 0, column] == runs[3, 25]


def test_replicates_take_the_runs_in_turn_and_requests_as_drawn() -> None:
    """Observed all 100, runs 80 and 120: half of all replicates are 20 % off either way."""
    runs = np.r_[np.full((10, N), 80.0), np.full((10, N), 120.0)]
    found = compare(with_runs(np.full(N, 100.0), runs), bootstrap=Bootstrap(replicates=40))["e2e_us"]
    for name in ("mean", "p50", "p99"):
        assert (found.rel_error[name].low, found.rel_error[name].high) == pytest.approx((-0.2, 0.2))
    assert found.mape_expected is not None
    assert found.mape_expected.value == 0  # the median of both
