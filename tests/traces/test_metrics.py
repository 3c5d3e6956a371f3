"""The metrics are what their definitions say, against rows worked out by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.traces.made import BLIS, events_of, small_trace
from traces import (
    METRIC_COLUMNS,
    Trace,
    TraceError,
    make_trace,
    metric_notes,
    pooled_itl_us,
    prompt_tokens,
    read_trace,
    request_metrics,
    send_or_arrival_us,
)

NAN = float("nan")


def metric(trace: Trace, name: str) -> list[float]:
    values: list[float] = request_metrics(trace)[name].tolist()
    return values


def same(found: list[float], wanted: list[float]) -> bool:
    return bool(np.array_equal(np.array(found), np.array(wanted), equal_nan=True))


def with_events(rows: list[tuple[str, int, int, int]], **columns: object) -> Trace:
    trace = small_trace(**columns)
    return make_trace(trace.header, trace.requests, events=events_of(rows))


def test_latencies_run_from_the_send_to_the_text() -> None:
    trace = small_trace(content_first_time_us=[450, 1510, 2700], last_token_time_us=[890, 1510, 2900])
    assert metric(trace, "ttft_us") == [450, 500, 700]
    assert metric(trace, "e2e_us") == [890, 500, 900]
    assert same(metric(trace, "tpot_us"), [440 / 4, NAN, 200 / 3])
    assert metric(trace, "dispatch_lag_us") == [0, 10, 0]
    assert metric(trace, "ttft_from_due_us") == [450, 510, 700]
    assert metric_notes(trace).lines() == ()


def test_without_text_times_the_chunks_stand_in_and_the_notes_say_so() -> None:
    trace = small_trace(content_first_time_us=[450, None, None])
    assert metric(trace, "ttft_us") == [450, 490, 600]
    assert metric(trace, "e2e_us") == [900, 490, 1000]
    notes = metric_notes(trace)
    assert (notes.num_ttft_from_first_chunk, notes.num_e2e_from_last_chunk) == (2, 3)
    assert len(notes.lines()) == 2


def test_without_a_send_the_arrival_stands_in() -> None:
    trace = small_trace(send_time_us=[None, 1010, None])
    assert send_or_arrival_us(trace).tolist() == [0, 1010, 2000]
    assert metric(trace, "ttft_us") == [400, 490, 600]
    assert same(metric(trace, "dispatch_lag_us"), [NAN, 10, NAN])
    assert metric(trace, "ttft_from_due_us") == [400, 500, 600]


def test_a_recorded_lag_is_believed() -> None:
    trace = small_trace(dispatch_lag_us=[5, 6, 7])
    assert metric(trace, "dispatch_lag_us") == [5, 6, 7]
    assert metric(trace, "ttft_from_due_us") == [405, 496, 607]


def test_a_request_without_any_time_is_refused_by_its_row() -> None:
    with pytest.raises(TraceError, match="row 2, arrival_time_us: got neither a send nor an arrival time"):
        send_or_arrival_us(small_trace(arrival_time_us=[0, None, 5], send_time_us=None))


@pytest.mark.parametrize("status", ["error", "timeout", "aborted", "rejected", "stuck", "incomplete", None])
def test_a_request_that_is_not_ok_has_no_latency_at_all(status: str | None) -> None:
    rows = [("a", 0, 400, 1), ("a", 1, 900, 1), ("c", 0, 2600, 1), ("c", 1, 2700, 1)]
    trace = with_events(rows, status=[status, "ok", "ok"], server_queue_us=3)
    metrics = request_metrics(trace)
    assert metrics.loc["a"].isna().all()
    assert metrics.loc["c"].notna().all()
    assert pooled_itl_us(trace).tolist() == [100]


def test_every_metric_is_a_float_by_request_id() -> None:
    metrics = request_metrics(small_trace())
    assert tuple(metrics.columns) == METRIC_COLUMNS
    assert set(metrics.dtypes) == {np.dtype(np.float64)}
    assert metrics.index.name == "request_id"
    assert metrics.index.tolist() == ["a", "b", "c"]


def test_the_queue_is_the_servers_word_else_scheduled_minus_send() -> None:
    trace = small_trace(server_queue_us=[7, None, None], scheduled_time_us=[1, 1100, None])
    assert same(metric(trace, "queue_us"), [7, 90, NAN])


def test_the_gap_before_an_event_of_n_tokens_counts_as_n_gaps_of_one_nth() -> None:
    trace = with_events([("a", 0, 400, 2), ("a", 1, 500, 1), ("a", 2, 800, 3), ("c", 0, 2600, 1)])
    assert pooled_itl_us(trace).tolist() == [100, 100, 100, 100]
    trace = with_events([("a", 0, 400, 1), ("a", 1, 500, 1), ("a", 2, 900, 2)])
    assert pooled_itl_us(trace).tolist() == [100, 200, 200]
    assert same(metric(trace, "itl_mean_us"), [500 / 3, NAN, NAN])
    assert metric_notes(trace).num_events_divided == 1


def test_an_event_without_text_makes_no_gap() -> None:
    trace = with_events([("a", 0, 300, 0), ("a", 1, 400, 1), ("a", 2, 500, 1), ("a", 3, 999, 0)])
    assert pooled_itl_us(trace).tolist() == [100]


def test_events_may_come_in_any_order_and_of_unknown_size() -> None:
    events = events_of([("c", 1, 2700, 1), ("a", 1, 500, 1), ("c", 0, 2600, 1), ("a", 0, 400, 1)])
    trace = small_trace()
    trace = make_trace(trace.header, trace.requests, events=events.drop(columns="num_tokens"))
    assert pooled_itl_us(trace).tolist() == [100, 100]
    assert metric_notes(trace).num_events_uncounted == 4


def test_without_events_the_stated_means_count_as_often_as_there_are_gaps() -> None:
    trace = small_trace(itl_mean_us=[50.0, 60.0, None], itl_p99_us=[70.0, 80.0, None])
    assert pooled_itl_us(trace).tolist() == [50.0] * 4
    assert same(metric(trace, "itl_mean_us"), [50, 60, NAN])
    assert same(metric(trace, "itl_p99_us"), [70, 80, NAN])


def test_what_blis_recorded_of_a_chat_is_flagged() -> None:
    notes = metric_notes(read_trace(BLIS / "p"))
    assert notes.num_ttft_from_first_chunk == notes.num_e2e_from_last_chunk == 20
    assert notes.num_events_uncounted == 186


def test_prompt_tokens_are_the_servers_count_else_prefix_and_input() -> None:
    trace = small_trace(prefix_length=[100, 0, 7], server_input_tokens=[None, 33, None])
    assert prompt_tokens(trace).tolist() == [110, 33, 37]


@examples(60)
@given(
    st.lists(
        st.lists(st.tuples(st.integers(201, 10**6), st.integers(1, 5)), min_size=1, max_size=8),
        min_size=3,
        max_size=3,
    )
)
def test_itl_of_a_request_is_numpys_mean_and_p99_of_its_gaps(drawn: list[list[tuple[int, int]]]) -> None:
    rows, wanted = [], []
    for name, steps in zip("abc", drawn, strict=True):
        time, gaps = 0, []
        for index, (gap, tokens) in enumerate(steps):
            time += gap
            rows.append((name, index, time, tokens))
            gaps += [gap / tokens] * tokens if index else []
        wanted.append((np.mean(gaps), np.quantile(gaps, 0.99)) if gaps else (NAN, NAN))
    found = request_metrics(with_events(rows))[["itl_mean_us", "itl_p99_us"]]
    expected = pd.DataFrame(wanted, index=found.index, columns=found.columns, dtype=float)
    pd.testing.assert_frame_equal(found, expected, rtol=1e-12)


def test_reading_metrics_leaves_the_trace_as_it_is() -> None:
    stated = [7.0, 8.0, 9.0]
    trace = small_trace(itl_mean_us=stated, itl_p99_us=stated)
    trace = trace.with_events(events_of([(name, i, 400 + 100 * i, 1) for name in "abc" for i in range(3)]))
    assert request_metrics(trace)["itl_mean_us"].tolist() == [100, 100, 100]
    assert trace.requests["itl_mean_us"].tolist() == stated
