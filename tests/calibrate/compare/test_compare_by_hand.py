"""Rates, gaps, strata, pairs and think times against a pencil."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from calibrate.compare import metric_errors
from calibrate.compare.gaps import Gaps, gaps_of
from calibrate.compare.metric_errors import Bootstrap, compare
from calibrate.compare.network import NetworkFigures, client_view, server_view
from calibrate.compare.pair import concat, pair_sides
from calibrate.compare.rates import Counters, rates_of
from calibrate.compare.samples import BIN_EDGES, WeightedSample, spread_of
from calibrate.compare.strata import strata_of
from tests.calibrate import sides
from tests.calibrate.compare.test_errors_by_other_means import autoregressive
from tests.calibrate.known_servers import observed, workload
from tests.calibrate.sides import no_gaps, side
from tests.traces.made import small_trace
from traces import ClosedLoop
from traces.metrics import pooled_itl_us
from traces.statistics import bootstrap

# -- rates ------------------------------------------------------------------------------------------------------


def test_a_throughput_of_two_runs_is_over_both_spans_each_from_its_own_first_arrival() -> None:
    """Runs of 30 and 50 s in which requests end in another order than they come, and the twin's arrive otherwise."""
    first = pair_sides(
        side(["a", "b"], arrival_us=[0.0, 5e6], e2e_us=[30e6, 5e6]),
        side(["a", "b"], arrival_us=[4e6, 0.0], e2e_us=[6e6, 20e6]),
    )
    second = pair_sides(
        side(["c", "d"], arrival_us=[1000e6, 1010e6], e2e_us=[10e6, 40e6]),
        side(["c", "d"], arrival_us=[0.0, 10e6], e2e_us=[10e6, 20e6]),
    )
    found = rates_of(concat([first, second]))["request_throughput"]
    assert found.observed == pytest.approx(4 / (30 + 50))
    assert found.simulated == pytest.approx(4 / (20 + 30))
    assert found.error.value == pytest.approx(4 / 50 - 4 / 80)


def test_completions_that_come_in_bursts_are_drawn_together() -> None:
    """Stretches of fast and of slow answers: their throughput is less sure than of the same gaps, shuffled."""
    n = 1200
    gaps = 1000 * np.exp(0.5 * autoregressive(n, 0.9, 3))
    ids = [str(row) for row in range(n)]

    def width(ends: np.ndarray) -> float:
        one = side(ids, ttft=ends - 100, arrival_us=np.zeros(n))
        even = side(ids, ttft=1000.0 * np.arange(1, n + 1) - 100, arrival_us=np.zeros(n))
        found = rates_of(pair_sides(one, even), bootstrap=Bootstrap(replicates=300))["request_throughput"]
        assert found.rel_error.low is not None
        assert found.rel_error.high is not None
        return found.rel_error.high - found.rel_error.low

    shuffled = np.random.default_rng(4).permutation(gaps)
    assert width(np.cumsum(gaps)) > 2 * width(np.cumsum(shuffled))


def test_counters_stand_in_only_where_every_run_has_them_and_weigh_as_much_as_they_counted() -> None:
    pairs = pair_sides(side(["a", "b"]), side(["a", "b"]))
    known = [
        Counters(hit_frac=(0.2, 0.4), preemptions=(3, 5), num_requests=100),
        Counters(hit_frac=(0.8, 0.4), preemptions=(1, 5), num_requests=300),
    ]
    found = rates_of(pairs, counters=known)
    assert found["prefix_hit_frac"].observed == pytest.approx(0.65)
    assert found["prefix_hit_frac"].simulated == pytest.approx(0.4)
    assert (found["num_preemptions"].observed, found["num_preemptions"].simulated) == (4, 10)
    for side_unknown in ((None, 0.4), (0.2, None)):
        silent = [known[0], replace(known[1], hit_frac=side_unknown)]
        assert "prefix_hit_frac" not in rates_of(pairs, counters=silent)


# -- pairs and strata -------------------------------------------------------------------------------------------


def test_pairs_are_in_the_order_in_which_the_observed_requests_arrived() -> None:
    left = side(["a", "b", "c"], arrival_us=[20.0, 0.0, 10.0])
    found = pair_sides(left, side(["c", "a", "b"]))
    assert list(found.requests["request_id"]) == ["b", "c", "a"]
    assert list(found.requests["row"]) == [1, 2, 0]


def test_a_request_without_a_latency_on_either_side_is_left_out_and_counted() -> None:
    left, right = side(list("abcd")), side(list("abcd"))
    left.table.loc[1, "e2e_us"] = np.nan
    right.table.loc[2, "e2e_us"] = np.nan
    found = pair_sides(left, right)
    assert list(found.requests["request_id"]) == ["a", "d"]
    assert found.excluded == {"no_latency": 2}


@pytest.mark.parametrize(
    ("longer", "labels"), [(8, ["100 to 100", "200 to 200"]), (7, ["100 to 100"]), (0, [])]
)
def test_a_third_needs_eight_requests_and_another_beside_it(longer: int, labels: list[str]) -> None:
    n = 30
    prompts = np.r_[np.full(n - longer, 100.0), np.full(longer, 200.0)]
    ids = [str(row) for row in range(n)]
    pairs = pair_sides(side(ids, prompt_tokens=prompts), side(ids, prompt_tokens=prompts))
    found = strata_of(pairs, bootstrap=Bootstrap(replicates=20))
    assert [each.label for each in found if each.by == "prompt_tokens"] == labels


# -- gaps between tokens ----------------------------------------------------------------------------------------


def test_single_gaps_joined_with_means_become_means_weighted_by_their_number() -> None:
    single = sides.gaps_of([10.0, 30.0], [40.0])
    means = Gaps(request=np.array([0]), gap_us=np.array([7.0]), weight=np.array([5.0]), basis="request means")
    found = Gaps.join([single, means], offsets=np.array([0, 2, 3]))
    assert found.basis == "request means"
    assert list(found.request) == [0, 1, 2]
    assert list(found.gap_us) == [20.0, 40.0, 7.0]
    assert list(found.weight) == [2.0, 1.0, 5.0]
    both = Gaps.join([single, single], offsets=np.array([0, 2, 4]))
    assert (both.basis, list(both.request)) == ("events", [0, 0, 1, 2, 2, 3])


def test_a_request_of_one_token_has_no_gap_and_one_that_failed_has_none_either() -> None:
    """Five tokens are four gaps; one token is none; who failed after three has none that count."""
    trace = small_trace(output_tokens=[5, 1, 3], itl_mean_us=[20.0, 99.0, 30.0], status=["ok", "ok", "error"])
    found = gaps_of(trace)
    assert (list(found.request), list(found.weight)) == ([0], [4.0])
    assert list(pooled_itl_us(trace)) == [20.0] * 4


def test_gaps_are_binned_by_the_middle_of_their_share() -> None:
    n = 24_000
    gaps = Gaps(request=np.arange(n) % 50, gap_us=np.arange(1.0, n + 1), weight=np.ones(n), basis="events")
    binned = WeightedSample.of_gaps(gaps, num_requests=50).binned
    assert binned is not None
    masses = np.asarray(binned.sum(axis=0)).ravel()
    place = np.interp((np.arange(n) + 0.5) / n, *BIN_EDGES).astype(int)
    assert list(masses) == list(np.bincount(place))
    assert len(masses) == BIN_EDGES[1][-1]


def test_the_last_requests_may_have_no_gaps_on_one_side_or_on_both() -> None:
    """Answers of one token at the end: resampling counts them, and they weigh nothing."""
    ids = [str(row) for row in range(20)]
    for left, right in ((19, 20), (20, 19), (18, 19)):
        one = side(ids, gaps=sides.regular_gaps(left, [10.0, 20.0]))
        two = side(ids, gaps=sides.regular_gaps(right, [11.0, 21.0]))
        found = compare(pair_sides(one, two), bootstrap=Bootstrap(replicates=50))["itl_us"]
        assert found.error["mean"].value == pytest.approx(1.0)
        assert found.ks.low is not None


def test_of_a_resample_that_is_the_sample_no_distribution_strays() -> None:
    one, two = WeightedSample.of_requests(np.arange(9.0)), WeightedSample.of_requests(np.arange(9.0) ** 1.1)
    reach, area = spread_of((one, two), num_requests=9).reach(
        [each.drawn(np.ones((2, 9), dtype=np.float32)) for each in (one, two)]
    )
    assert reach == pytest.approx([0, 0])
    assert area == pytest.approx([0, 0])


# -- intervals --------------------------------------------------------------------------------------------------


def test_every_chunk_of_replicates_is_drawn_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of ten: were each the first again, a hundred replicates would be ten."""
    monkeypatch.setattr(bootstrap, "CHUNK_CELLS", 400)
    values = np.random.default_rng(5).lognormal(size=40)
    sample = WeightedSample.of_requests(values)
    found = metric_errors._replicates(
        (values, values * 1.1),
        samples=(sample, WeightedSample.of_requests(values * 1.1)),
        settings=Bootstrap(replicates=100),
        block=1,
        stream=3,
    )
    assert len(np.unique(found["error mean"])) == 100


def test_a_distance_s_interval_ends_at_zero_and_at_the_most_there_is() -> None:
    reach = np.linspace(0, 0.2, 101)
    band = metric_errors._band(0.1, reach, level=0.9)
    assert (band.low, band.high) == (0.0, pytest.approx(0.28))
    assert metric_errors._band(0.95, reach, level=0.9, most=1.0).high == 1.0
    assert metric_errors._band(0.95, reach, level=0.9, most=1.0).low == pytest.approx(0.77)
    assert metric_errors._band(0.95, None, level=0.9).low is None


# -- the network ------------------------------------------------------------------------------------------------


def test_to_the_server_a_user_thinks_a_round_trip_longer() -> None:
    trace = observed(workload(5, rate=1, seed=1))
    looped = trace.with_header(closed_loop=ClosedLoop(concurrency=2, think_time_us=1000))
    far = NetworkFigures(rtt_us=30_000)
    near = server_view(looped, far).header.closed_loop
    assert near == ClosedLoop(concurrency=2, think_time_us=31_000)
    assert client_view(looped, far).header.closed_loop == looped.header.closed_loop
    assert server_view(trace, far).header.closed_loop is None


def test_sides_without_gaps_have_none() -> None:
    pairs = pair_sides(side(["a"], gaps=no_gaps()), side(["a"]))
    assert len(pairs.observed_gaps.gap_us) == 0
