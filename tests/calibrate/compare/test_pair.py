import numpy as np
import pytest

from calibrate.compare.gaps import one_basis
from calibrate.compare.pair import concat, in_flight_at_arrival, pair_sides, take
from tests.calibrate.sides import gaps_of, regular_gaps, side
from traces.errors import TraceError


def test_pairs_are_found_by_request_id_whatever_the_order() -> None:
    pairs = pair_sides(side(["a", "b", "c"], ttft=[1, 2, 3]), side(["c", "a", "b"], ttft=[30, 10, 20]))
    assert list(pairs.requests["request_id"]) == ["a", "b", "c"]
    assert list(pairs.simulated["ttft_us"]) == [10, 20, 30]
    assert pairs.excluded == {}


def test_every_request_left_out_is_counted_once_by_its_first_reason() -> None:
    observed = side(
        list("abcdefghi"),
        status=["ok", "error", "timeout", "aborted", "ok", "ok", "ok", "ok", "error"],
        warmup=[True] + [False] * 7 + [True],
    )
    simulated = side(
        [*"abcdefg", "y", "z"],
        status=["ok", "ok", "ok", "ok", "ok", "incomplete", "rejected", "ok", "ok"],
    )
    pairs = pair_sides(observed, simulated)
    assert list(pairs.requests["request_id"]) == ["e"]
    assert pairs.excluded == {
        "warmup": 2,
        "failed": 1,
        "timeout": 1,
        "aborted": 1,
        "unmatched_observed": 1,
        "unmatched_simulated": 2,
        "not_finished_in_simulation": 1,
        "rejected_in_simulation": 1,
    }
    unmatched = pairs.excluded["unmatched_simulated"]
    assert len(pairs) + sum(pairs.excluded.values()) - unmatched == len(observed.table)


def test_a_workload_without_outcomes_has_no_latency_to_compare() -> None:
    observed = side(["a", "b"], status=[None, None], e2e_us=[np.nan, 5.0])
    pairs = pair_sides(observed, side(["a", "b"]))
    assert list(pairs.requests["request_id"]) == ["b"]
    assert pairs.excluded == {"no_latency": 1}


def test_traces_with_nothing_in_common_are_refused_with_the_counts() -> None:
    with pytest.raises(TraceError, match=r"1 unmatched_observed, 2 unmatched_simulated.*--pair-by order"):
        pair_sides(side(["a"]), side(["x", "y"]))


def test_by_order_pairs_the_nth_to_arrive_with_the_nth_to_arrive() -> None:
    observed = side(["a", "b", "c"], arrival_us=[30.0, 10.0, 20.0], ttft=[3, 1, 2])
    simulated = side(["x", "y"], ttft=[10, 20])
    pairs = pair_sides(observed, simulated, by="order")
    assert list(pairs.requests["request_id"]) == ["b", "c"]
    assert list(pairs.simulated["ttft_us"]) == [10, 20]
    assert pairs.excluded == {"unmatched_observed": 1}


def test_a_pair_that_disagrees_on_tokens_is_kept_and_counted() -> None:
    simulated = side(["a", "b", "c"], prompt_tokens=[50.0, 51.0, np.nan], output_tokens=11)
    pairs = pair_sides(side(["a", "b", "c"]), simulated)
    assert len(pairs) == 3
    assert pairs.num_token_mismatch == 1
    assert take(pairs, np.array([True, False, True])).num_token_mismatch == 0


def test_in_flight_counts_the_others_under_way_at_arrival() -> None:
    table = side(["a", "b", "c"], arrival_us=[0.0, 5.0, 20.0], e2e_us=[10.0, 100.0, 1.0]).table
    assert list(in_flight_at_arrival(table)) == [0, 1, 1]


def test_a_burst_finds_those_of_the_rows_before_it_under_way() -> None:
    table = side(["a", "b", "c", "d"], arrival_us=[0.0, 0.0, 0.0, 7.0], e2e_us=[5.0, 9.0, 6.0, 1.0]).table
    assert list(in_flight_at_arrival(table)) == [0, 1, 2, 1]


def test_gaps_follow_their_requests_through_pairing_and_joining() -> None:
    observed = side(["a", "b"], gaps=gaps_of([5], [7]))
    simulated = side(["b", "a"], gaps=gaps_of([70], [50]))
    pairs = pair_sides(observed, simulated)
    both = concat([pairs, take(pairs, np.array([False, True]))])
    by_request = dict(zip(both.simulated_gaps.request.tolist(), both.simulated_gaps.gap_us, strict=True))
    assert by_request == {0: 50, 1: 70, 2: 70}
    assert list(both.observed_gaps.gap_us) == [5, 7, 7]
    assert list(both.requests["trace"]) == [0, 0, 1]


def test_single_gaps_are_never_compared_with_means() -> None:
    left, right = one_basis(regular_gaps(2, [1, 3]), regular_gaps(2, [2, 2]).means(2))
    assert left.basis == right.basis == "request means"
    assert list(left.gap_us) == [2, 2]
    assert list(left.weight) == [2, 2]
