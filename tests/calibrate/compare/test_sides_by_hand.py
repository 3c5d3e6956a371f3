"""What is compared, by hand: pairs and their reasons, gaps, the way between client and server, steps, judged errors."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibrate.compare.engine_steps import (
    ACCOUNTED,
    NEAREST,
    EngineSteps,
    _like_simulated,
    _time_in_flight_us,
    as_step_times,
    read_steps,
    step_errors,
)
from calibrate.compare.gaps import Gaps, gaps_of, one_basis
from calibrate.compare.judged_errors import JudgedError, judged_errors
from calibrate.compare.metric_errors import MetricErrors, compare, correlation, relative_errors
from calibrate.compare.network import NetworkFigures, client_view, parse_network, server_view
from calibrate.compare.pair import (
    concat,
    in_flight_at_arrival,
    pair,
    pair_sides,
    phases_of,
    side_of,
    take,
)
from calibrate.compare.strata import MOST_KINDS, REPLICATES, strata_of
from replay import TwinConfig
from sim import Blackbox, EngineConfig, Step
from tests.calibrate import sides
from tests.calibrate.compare.test_resampling_by_hand import plain_counts
from tests.calibrate.compare.test_statistics_by_hand import plain_block_length
from tests.calibrate.sides import side
from tests.traces.made import events_of, small_trace
from traces import ClosedLoop, ConfigError
from traces.errors import TraceError
from traces.findings.saturation import _bins, _burst, _growth, _state, saturation, saturation_of
from traces.statistics.bootstrap import Estimate
from traces.strict.limits import MOST_US

NAN = math.nan

# -- pairs ---------------------------------------------------------------------------------------------------


def test_the_first_row_of_the_other_side_is_a_partner_like_any() -> None:
    found = pair_sides(side(["b", "a"]), side(["a", "b"], status=["incomplete", "ok"]))
    assert list(found.requests["request_id"]) == ["b"]
    assert found.excluded == {"not_finished_in_simulation": 1}
    found = pair_sides(side(["b", "a"]), side(["a", "b"], e2e_us=[NAN, 5.0]))
    assert list(found.requests["request_id"]) == ["b"]
    assert found.excluded == {"no_latency": 1}


def test_tokens_that_differ_are_counted_and_those_that_are_not_known_do_not_differ() -> None:
    ids = list("abcd")
    observed = side(ids, prompt_tokens=[50.0, 51.0, NAN, 50.0])
    simulated = side(ids, output_tokens=11)
    simulated.table.loc[3, "output_tokens"] = 12.0
    found = pair_sides(observed, simulated)
    assert found.requests["token_mismatch"].tolist() == [False, True, False, True]
    assert found.num_token_mismatch == 2
    assert take(found, np.array([True, True, False, False])).num_token_mismatch == 1
    assert found.requests["trace"].tolist() == [0, 0, 0, 0]
    assert found.requests["simulated_output_tokens"].tolist() == [11, 11, 11, 12]
    both = concat([found, found])
    assert both.num_token_mismatch == 4
    assert both.requests["trace"].tolist() == [0] * 4 + [1] * 4


def test_who_is_under_way_when_a_request_comes() -> None:
    """From 0 to 10, 0 to 5, 5 to 8, 9 without an end, 10 on: who ends as one comes is gone."""
    table = side(list("abcde"), arrival_us=[0.0, 0, 5, 9, 10], e2e_us=[10.0, 5, 3, NAN, 1]).table
    assert in_flight_at_arrival(table).tolist() == [0, 1, 1, 1, 0]
    at_once = side(list("ab"), arrival_us=[7.0, 7.0], e2e_us=[0.0, 0.0]).table
    assert in_flight_at_arrival(at_once).tolist() == [0, 0]


def test_phases_are_known_where_all_three_are() -> None:
    trace = small_trace(
        server_queue_us=[100, None, 0], server_prefill_us=[200, 1, 300], server_decode_us=[500, 1, None]
    )
    found = np.array(list(phases_of(trace).values())).T
    assert found[0].tolist() == [100, 100, 200, 500]
    assert np.isnan(found[1:]).all()
    table = side_of(small_trace(cached_input_tokens=[1, None, None], num_cached_tokens=[5, 6, None])).table
    assert table["cached_tokens"].tolist()[:2] == [1, 6]
    assert math.isnan(table["cached_tokens"][2])
    assert table["slo_class"].tolist() == [None] * 3


def test_of_nothing_in_common_the_way_out_is_named_unless_it_was_taken() -> None:
    with pytest.raises(TraceError) as raised:
        pair_sides(side(["a"], e2e_us=[NAN]), side(["a"]), by="order")
    assert "--pair-by" not in str(raised.value)
    assert "(1 no_latency)" in str(raised.value)
    assert len(pair(small_trace(), small_trace())) == 3


# -- metrics -------------------------------------------------------------------------------------------------


def test_a_metric_is_of_the_requests_that_have_it_on_both_sides() -> None:
    ids = list("abc")
    found = compare(pair_sides(side(ids, queue_us=[NAN, 10.0, 20.0]), side(ids, queue_us=[5.0, 11.0, NAN])))[
        "queue_us"
    ]
    assert (found.n, found.observed["mean"], found.simulated["mean"]) == (1, 10, 11)
    assert found.mape.value == pytest.approx(0.1)


def test_small_values_correlate_as_large_ones_do() -> None:
    x, y = np.array([1.0, 2.0, 4.0, 7.0]), np.array([3.0, 1.0, 5.0, 6.0])
    once = np.ones((1, 4), np.float32)
    for unit in (1e-6, 1.0, 1e6):
        assert correlation((unit * x, unit * y), once)[0] == pytest.approx(np.corrcoef(x, y)[0, 1])


def test_two_distributions_are_no_further_apart_than_all_of_both() -> None:
    """Nine of ten apart: a resample strays by more than what is left to 1."""
    ids = [str(i) for i in range(10)]
    found = compare(
        pair_sides(side(ids, e2e_us=np.arange(1.0, 11)), side(ids, e2e_us=np.r_[1.0, 100 + np.arange(9.0)]))
    )["e2e_us"].ks
    assert (found.value, found.high) == (pytest.approx(0.9), 1.0)
    assert found.low is not None
    assert found.low < 0.9


# -- gaps ----------------------------------------------------------------------------------------------------


def means_of(*gap_us: float) -> Gaps:
    values = np.array(gap_us)
    return Gaps(
        request=np.arange(len(values)), gap_us=values, weight=np.ones(len(values)), basis="request means"
    )


def test_two_sides_are_put_on_the_basis_that_both_have() -> None:
    """Three requests on the one side, of which the last has gaps, five on the other."""
    single = Gaps(
        request=np.array([0, 0, 2]), gap_us=np.array([10.0, 30.0, 7.0]), weight=np.ones(3), basis="events"
    )
    for left, right in ((single, means_of(1, 2, 3, 4, 5)), (means_of(1, 2, 3, 4, 5), single)):
        found = one_basis(left, right)
        assert [each.basis for each in found] == ["request means"] * 2
        one, five = found if left is single else found[::-1]
        assert (one.request.tolist(), one.gap_us.tolist(), one.weight.tolist()) == ([0, 2], [20, 7], [2, 1])
        assert five.gap_us.tolist() == [1, 2, 3, 4, 5]
    assert one_basis(single, single) == (single, single)
    nothing = sides.no_gaps()
    assert [len(each.gap_us) for each in one_basis(nothing, means_of())] == [0, 0]
    assert [len(each.gap_us) for each in one_basis(means_of(9), nothing)] == [1, 0]


def test_chosen_requests_keep_their_gaps_in_the_order_they_are_chosen() -> None:
    gaps = sides.gaps_of([1.0, 2.0], [3.0], [4.0, 5.0])
    found = gaps.take(np.array([2, 0]), num_requests=3)
    assert found.request.tolist() == [1, 1, 0, 0]
    assert found.gap_us.tolist() == [1, 2, 4, 5]
    assert found.basis == "events"


def test_gaps_are_those_of_events_where_a_trace_has_some() -> None:
    """Chunks of one, one and two tokens: the last two share their gap. Without a row, there are no events."""
    trace = small_trace(output_tokens=[4, 1, 4], itl_mean_us=[150.0, None, 100.0])
    found = gaps_of(replace(trace, events=events_of([("a", 0, 400, 1), ("a", 1, 500, 1), ("a", 2, 900, 2)])))
    assert found.basis == "events"
    assert sum(found.gap_us * found.weight) == pytest.approx(500)
    without = gaps_of(trace)
    assert without.basis == "request means"
    assert (without.request.tolist(), without.weight.tolist()) == ([0, 2], [3, 3])
    one = replace(trace, events=events_of([("a", 0, 400, 1)]))
    assert gaps_of(one).basis == "events"
    none = replace(trace, events=events_of([]))
    assert gaps_of(none).basis == "request means"


# -- judged errors -------------------------------------------------------------------------------------------


def test_an_error_exceeds_a_limit_that_it_is_above_and_the_server_s_own() -> None:
    def exceeds(error: float, floor: float | None, limit: float = 0.1) -> bool:
        return JudgedError(metric="e2e_us", kind="mean", error=error, floor=floor).exceeds(limit)

    assert exceeds(0.11, None)
    assert not exceeds(0.1, None)
    assert exceeds(0.11, 0.1)
    assert not exceeds(0.11, 0.11)
    assert not exceeds(0.11, 0.2)
    assert not exceeds(0.05, 0.01)


def metric(mape: float | None, mean: float | None) -> MetricErrors:
    ids = [str(i) for i in range(3)]
    found = compare(pair_sides(side(ids), side(ids)))["e2e_us"]
    return replace(
        found,
        mape=replace(found.mape, value=mape),
        rel_error={**found.rel_error, "mean": replace(found.rel_error["mean"], value=mean)},
    )


def test_the_errors_that_count_are_the_largest_first_and_of_equal_ones_e2e_before_ttft() -> None:
    errors = {"tpot_us": metric(0.1, -0.4), "ttft_us": metric(0.2, None), "e2e_us": metric(0.2, 0.05)}
    noise = {"ttft_us": metric(0.15, 0.3), "tpot_us": metric(None, -0.01)}
    found = judged_errors(errors, noise)
    assert [(each.metric, each.kind, each.error, each.floor) for each in found] == [
        ("tpot_us", "mean", 0.4, 0.01),
        ("e2e_us", "per request", 0.2, None),
        ("ttft_us", "per request", 0.2, 0.15),
        ("tpot_us", "per request", 0.1, None),
        ("e2e_us", "mean", 0.05, None),
    ]
    by_gap = judged_errors({"itl_us": metric(0.3, 0.1), "e2e_us": metric(0.2, None)}, {})
    assert [(each.metric, each.kind) for each in by_gap] == [
        ("itl_us", "per request"),
        ("e2e_us", "per request"),
        ("itl_us", "mean"),
    ]
    both = judged_errors({"itl_us": metric(0.3, 0.1), "tpot_us": metric(0.2, None)}, {})
    assert [each.metric for each in both] == ["tpot_us"]


# -- the network ---------------------------------------------------------------------------------------------


def test_each_time_is_moved_by_its_own_way() -> None:
    """30 us there and back, 2 bits/us and one byte a token: 40, 80 and 120 us up for 10, 20 and 30; 20, 4, 16 down."""
    network = NetworkFigures(rtt_us=30.0, bandwidth_mbit_per_s=2.0, bytes_per_token=1.0)
    assert network.transfer_us(np.array([10.0, 0.0])).tolist() == [40, 0]
    trace = small_trace(last_token_time_us=[800, 1500, 2900])
    there = client_view(trace, network).requests
    assert there["send_time_us"].tolist() == [-55, 915, 1865]
    assert there["first_chunk_time_us"].tolist() == [415, 1515, 2615]
    assert there["last_chunk_time_us"].tolist() == [935, 1519, 3031]
    assert there["last_token_time_us"].tolist() == [835, 1519, 2931]
    assert there["arrival_time_us"].tolist() == [0, 1000, 2000]
    assert "content_first_time_us" not in there or there["content_first_time_us"].isna().all()
    back = server_view(trace, network).requests
    assert back["send_time_us"].tolist() == [55, 1105, 2135]
    assert back["first_chunk_time_us"].tolist() == [385, 1485, 2585]
    assert back["last_chunk_time_us"].tolist() == [865, 1481, 2969]
    unknown = small_trace(output_tokens=[None, 1, 4])
    assert client_view(unknown, network).requests["last_chunk_time_us"].tolist()[0] == 915
    loop = trace.with_header(closed_loop=ClosedLoop(concurrency=1, think_time_us=5))
    assert client_view(loop, network).requests["arrival_time_us"].tolist() == [-55, 915, 1865]
    assert server_view(loop, network).requests["arrival_time_us"].tolist() == [0, 1000, 2000]


def test_the_ends_of_what_a_network_may_be() -> None:
    assert parse_network("rtt=0", measured_rtt_ms=None).rtt_us == 0
    assert parse_network("rtt=2s", measured_rtt_ms=None).rtt_us == 2e6
    tiny = parse_network("bandwidth=0.5, bytes_per_token=0.25", measured_rtt_ms=None)
    assert (tiny.bandwidth_mbit_per_s, tiny.bytes_per_token, tiny.rtt_us) == (0.5, 0.25, 0)
    for text in (
        "bandwidth=inf",
        "bandwidth=nan",
        "bytes_per_token=0",
        "bandwidth=-1",
        "bandwidth=x",
        "rtt=inf",
    ):
        with pytest.raises(ConfigError):
            parse_network(text, measured_rtt_ms=None)


# -- steps ---------------------------------------------------------------------------------------------------


def steps_of(**columns: list[float]) -> EngineSteps:
    usual = {"prefill_tokens": [0.0, 0.0], "decode_tokens": [1.0, 1.0], "duration_us": [40.0, 45.0]}
    return EngineSteps(**{name: np.array(values, float) for name, values in (usual | columns).items()})


def test_the_time_in_flight_is_that_of_any_request() -> None:
    """0 to 400, 1010 to 1500, and from 1200 to 1300 another beside it; the fourth was never answered."""
    trace = small_trace(
        send_time_us=[1200, 0, 1010],
        first_chunk_time_us=[1250, 100, 1100],
        last_chunk_time_us=[1300, 400, 1500],
    )
    assert _time_in_flight_us(trace) == 890
    nobody = small_trace(first_chunk_time_us=[None] * 3, last_chunk_time_us=[None] * 3)
    assert _time_in_flight_us(nobody) == 0
    one = small_trace(first_chunk_time_us=[5, None, None], last_chunk_time_us=[9, None, None])
    assert _time_in_flight_us(one) == 9


def test_logged_times_are_those_of_steps_from_seventeen_twentieths_of_the_time_on() -> None:
    """One request in flight for 100 us, or for 1."""
    assert ACCOUNTED == 0.85

    def kept(end: int | None, *duration_us: float) -> bool:
        ends = [end, None, None]
        trace = small_trace(first_chunk_time_us=ends, last_chunk_time_us=ends)
        found, remark = as_step_times(steps_of(duration_us=list(duration_us)), trace)
        assert (found is None) == (remark is not None)
        return found is not None

    assert kept(100, 40.0, 45.0)
    assert not kept(100, 40.0, 44.0)
    assert not kept(1, 0.4, 0.4)
    assert kept(None, 1.0, 1.0)
    empty = steps_of(prefill_tokens=[], decode_tokens=[], duration_us=[])
    assert as_step_times(empty, small_trace()) == (empty, None)
    lone = steps_of(prefill_tokens=[0], decode_tokens=[1], duration_us=[1])
    assert as_step_times(lone, small_trace())[0] is None


def test_a_step_takes_from_the_end_of_the_one_before_of_its_engine(tmp_path: Path) -> None:
    """The first of each engine is not known, nor one in which nothing decodes."""
    path = tmp_path / "a.steps.csv"
    path.write_text(
        "num_prefill_tokens,num_decode_tokens,duration_us,end_unix_us,engine\n"
        f"5,2,9,1000,0\n0,3,9,1100,0\n0,1,9,1105,1\n7,0,9,1300,0\n0,4,{MOST_US},1350,1\n"
    )
    found = read_steps(path)
    assert found is not None
    assert found.is_by_end
    assert found.duration_us.tolist() == [0, 100, 0, 0, 245]
    assert found.prefill_tokens.tolist() == [5, 0, 0, 7, 0]
    path.write_text(f"num_prefill_tokens,num_decode_tokens,duration_us\n5,2,{MOST_US}\n0,0,0\n")
    found = read_steps(path)
    assert found is not None
    assert (found.is_by_end, found.duration_us.tolist()) == (False, [float(MOST_US), 0])
    for value in (-1, MOST_US * 1.01):
        path.write_text(f"num_prefill_tokens,num_decode_tokens,duration_us\n5,2,{value}\n")
        with pytest.raises(TraceError):
            read_steps(path)
    assert read_steps(tmp_path / "b.steps.csv") is None


def test_a_correlation_needs_three_steps_and_both_sides_to_vary() -> None:
    def r(latency: Blackbox, duration_us: list[float]) -> float | None:
        n = len(duration_us)
        logged = steps_of(
            prefill_tokens=[0.0] * n, decode_tokens=[float(i) for i in range(n)], duration_us=duration_us
        )
        found = step_errors(logged, TwinConfig(engine=EngineConfig(), latency=latency), simulated=[])
        assert found is not None
        return found.pearson_r

    assert r(Blackbox(beta0=100, beta2=1), [1.0, 2.0, 4.0]) == pytest.approx(
        np.corrcoef([0, 1, 2], [1, 2, 4])[0, 1]
    )
    assert r(Blackbox(beta0=100, beta2=0.01), [1.0, 1.01, 1.05]) is not None
    assert r(Blackbox(beta0=100), [1.0, 2.0, 4.0]) is None
    assert r(Blackbox(beta0=100, beta2=1), [2.0, 2.0, 2.0]) is None
    assert r(Blackbox(beta0=100, beta2=1), [0.5, 0.7, 0.9]) is not None


def test_a_step_is_asked_of_the_five_that_are_most_like_it() -> None:
    """On a log scale 3 tokens are nearer to 7 than 11 are; of fewer than five steps all are asked."""

    def step(p: int, d: int, dur: int) -> Step:
        return Step(**{**dict.fromkeys(Step.__annotations__, 0), "P": p, "D": d, "dur": dur})  # type: ignore[arg-type]

    assert NEAREST == 5
    logged = steps_of(prefill_tokens=[7.0], decode_tokens=[0.0], duration_us=[1.0])
    made = [step(3, 0, 10), step(7, 0, 20), step(8, 0, 30), step(10, 0, 40), step(7, 1, 50), step(7, 9, 1000)]
    assert _like_simulated(logged, made).tolist() == [30]
    assert _like_simulated(logged, made[:2]).tolist() == [15]
    assert _like_simulated(logged, made[:1]).tolist() == [10]


# -- overload ------------------------------------------------------------------------------------------------


def test_a_closed_loop_is_stable_and_who_never_ended_does_not_count() -> None:
    loop = small_trace(status=["ok", "error", "ok"]).with_header(
        closed_loop=ClosedLoop(concurrency=1, think_time_us=0)
    )
    found = saturation_of(loop)
    assert (found.state, found.n) == ("stable", 2)
    assert "closed loop" in found.reason
    assert saturation_of(small_trace(status=["ok", "error", "ok"])).n == 2


@pytest.mark.parametrize(
    ("low", "index", "state"),
    [
        (0.01, 0.3, "saturated"),
        (0.0, 0.3, "unclear"),
        (None, 0.3, "unclear"),
        (0.01, 0.2, "stable"),
        (-0.1, 0.1, "stable"),
    ],
)
def test_a_growth_is_an_overload_where_it_is_above_chance_by_both(
    low: float | None, index: float, state: str
) -> None:
    found, reason = _state(Estimate(value=0.304, low=low), index=index, trend=0.5, floor=0.2)
    assert found == state
    assert ("30 % of what arrived was not served in time" in reason) is (state != "stable")


def test_a_burst_is_a_queue_where_most_are_under_way_and_the_answers_take_longer_than_the_arrivals() -> None:
    def state(backlog: int, span: float, *ends: float) -> str:
        return _burst(4, backlog, span_us=span, ends=np.array(ends)).state

    assert state(3, 10.0, 5, 20, 30, 40) == "saturated"
    assert state(2, 10.0, 5, 20, 30, 40) == "unclear"  # half of them
    assert state(3, 32.0, 5, 20, 30, 40) == "unclear"  # nine tenths at 37, 32 after the first
    assert state(3, 31.9, 5, 20, 30, 40) == "saturated"
    assert state(3, -1.0, 7, 7, 7, 7) == "unclear"
    assert state(3, 10.0, 0, 20, 30, 40) == "unclear"
    assert state(3, 0.0, 0.5, 1.0, 1.1, 1.2) == "saturated"


def test_one_that_comes_after_the_first_answers_makes_it_no_burst() -> None:
    """Nineteen at once, each answered after 2 s, and one more after 100."""
    arrival = np.r_[np.arange(19) * 0.05, 100.0] * 1e6
    assert saturation(arrival, np.full(20, 2e6)).trend == pytest.approx(0)
    assert saturation(np.r_[arrival[:-1], 1.5e6], np.full(20, 2e6)).trend is None


def test_arrivals_and_completions_are_counted_in_forty_spans_at_most() -> None:
    """Of four arrivals each; two at least. What came before the window, or at its begin, is left out."""
    arrival = np.arange(0.0, 21.0)
    arrived, done = _bins(arrival, arrival + 3, window=(4.0, 20.0))
    assert (arrived.tolist(), done.tolist()) == ([4, 4, 4, 5], [4, 4, 4, 5])
    assert len(_bins(arrival, arrival, window=(18.0, 20.0))[0]) == 2
    assert len(_bins(arrival, arrival, window=(8.0, 20.0))[0]) == 3
    many = np.arange(0.0, 1000.0)
    assert len(_bins(many, many, window=(0.0, 999.0))[0]) == 40


def test_how_fast_a_queue_grows_is_redrawn_in_runs() -> None:
    arrived, done = np.array([4.0, 4, 4, 4, 4, 0, 4, 4]), np.array([0.0, 0, 1, 2, 4, 4, 4, 5])
    share, slope = _growth(arrived, done, window_us=4e6, seed=5, level=0.8)
    gained = arrived - done
    assert share.value == pytest.approx(8 / 28)
    assert slope.value == pytest.approx(2.0)
    drawn = np.array(plain_counts(8, plain_block_length(gained), replicates=1000, seed=5, stream=970))
    shares, slopes = drawn @ gained / (drawn @ arrived), drawn @ gained / 4
    assert (share.low, share.high) == pytest.approx(np.quantile(shares, [0.1, 0.9]))
    assert (slope.low, slope.high) == pytest.approx(np.quantile(slopes, [0.1, 0.9]))
    nobody, still = _growth(np.zeros(8), np.zeros(8), window_us=1e6, seed=5, level=0.8)
    assert (nobody.value, nobody.low, still.value) == (0.0, None, 0.0)


# -- kinds ---------------------------------------------------------------------------------------------------


def test_twelve_kinds_at_most_are_told_and_four_hundred_resamples_drawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    n = 8 * 14 + 1
    words = [f"t{i % 14:02}" for i in range(n)]
    ids = [str(i) for i in range(n)]
    pairs = pair_sides(side(ids, tenant_id=words), side(ids, ttft=[110.0] * n, tenant_id=words))
    asked: list[int] = []
    from calibrate.compare import strata
    from calibrate.compare.metric_errors import Bootstrap

    def noted(chosen: Any, *, bootstrap: Bootstrap, only: Any) -> Any:  # noqa: ANN401
        asked.append(bootstrap.replicates)
        return relative_errors(chosen, bootstrap=replace(bootstrap, replicates=2), only=only)

    monkeypatch.setattr(strata, "relative_errors", noted)
    found = [
        each for each in strata_of(pairs, bootstrap=Bootstrap(replicates=1000)) if each.by == "tenant_id"
    ]
    assert len(found) == MOST_KINDS == 12
    assert found[0].label == "t00"
    assert {each.n for each in found} <= {8, 9}
    assert found[0].mape["ttft_us"].value == pytest.approx(0.1)
    assert found[0].bias["ttft_us"].value == pytest.approx(0.1)
    assert set(asked) == {REPLICATES} == {400}
    asked.clear()
    strata_of(pairs, bootstrap=Bootstrap(replicates=30))
    assert set(asked) == {30}
    by_trace = strata_of(concat([pairs, pairs]), bootstrap=Bootstrap(replicates=30), trace_names=["x", "y"])
    assert [(each.label, each.n) for each in by_trace if each.by == "trace"] == [("x", n), ("y", n)]
    alone = strata_of(pairs, bootstrap=Bootstrap(replicates=30), trace_names=["x"])
    assert not [each for each in alone if each.by == "trace"]
