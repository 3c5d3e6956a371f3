"""Which latencies of an answer were measured, by how its events came."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest

from traces import Header, Trace, make_trace, metric_notes, pooled_itl_us, request_metrics, stream_shape
from traces.measured.stream_shape import text_events


def answers(
    *times_us: Sequence[int],
    tokens: Sequence[int | None] | None = None,
    mode: str = "real",
    **more: Any,  # noqa: ANN401
) -> Trace:
    """A trace whose requests are sent at 0 and have events at these times, one token each if not told."""
    counts = [list(tokens) if tokens is not None else [1] * len(times) for times in times_us]
    output = [sum(count or 0 for count in each) for each in counts]
    columns: dict[str, Any] = {
        "request_id": [str(row) for row in range(len(times_us))],
        "arrival_time_us": 0,
        "send_time_us": 0,
        "input_tokens": 8,
        "output_tokens": output,
        "status": "ok",
        "content_first_time_us": [times[0] for times in times_us],
        "last_token_time_us": [times[-1] for times in times_us],
        "num_token_chunks": [len(times) for times in times_us],
        **more,
    }
    events = pd.DataFrame(
        [
            (str(row), index, time, count)
            for row, times in enumerate(times_us)
            for index, (time, count) in enumerate(zip(times, counts[row], strict=True))
        ],
        columns=["request_id", "chunk_index", "timestamp_us", "num_tokens"],
    )
    return make_trace(Header(mode=mode, tool="vtwin"), columns, events=events)


STEADY = range(100_000, 500_000, 10_000)


def test_a_steady_stream_is_measured_whole() -> None:
    trace = answers(STEADY)
    shape = stream_shape(trace)
    assert (shape.first_tokens[0], shape.num_reads[0]) == (1, 40)
    assert shape.has_ttft.all() and shape.has_tpot.all() and shape.has_itl.all()
    assert request_metrics(trace)["tpot_us"].tolist() == [10_000]


def test_events_that_share_a_read_now_and_then_change_nothing_but_the_first_reads_tokens() -> None:
    times = [time + (10_000 if index % 5 == 0 else 0) for index, time in enumerate(STEADY)]
    shape = stream_shape(answers(times))
    assert not shape.held_back.any()
    assert not shape.in_clumps.any()
    assert (shape.num_reads[0], shape.first_tokens[0]) == (32, 2)


@pytest.mark.parametrize(
    "times", [[490_000] * 40, [490_000 + 80 * index for index in range(40)]], ids=["one read", "a burst"]
)
def test_an_answer_in_one_read_has_only_an_e2e(times: Sequence[int]) -> None:
    latencies = request_metrics(answers(times))
    assert latencies[["ttft_us", "tpot_us", "itl_mean_us"]].isna().all(axis=None)
    assert latencies["e2e_us"].tolist() == [times[-1]]
    assert len(pooled_itl_us(answers(times))) == 0


def test_an_answer_in_one_event_has_only_an_e2e() -> None:
    latencies = request_metrics(answers([490_000], tokens=[40]))
    assert latencies[["ttft_us", "tpot_us"]].isna().all(axis=None)


def test_a_burst_of_a_long_answer_is_no_stream_however_many_reads_it_took() -> None:
    times = [2_000_000 + 20_000 * (index // 300) for index in range(1_500)]
    shape = stream_shape(answers(times))
    assert shape.held_back.all()


def test_clumps_of_200_ms_have_no_itl_and_a_ttft_only_where_the_first_event_came_alone() -> None:
    late = [-(-time // 200_000) * 200_000 for time in range(100_000, 4_100_000, 10_000)]
    alone = [100_000, *late[1:]]
    trace = answers(late, alone)
    shape, latencies = stream_shape(trace), request_metrics(trace)
    assert shape.in_clumps.all()
    assert shape.has_ttft.tolist() == [False, True]
    assert latencies["itl_mean_us"].isna().all()
    assert latencies["tpot_us"].tolist() == pytest.approx([10_000, 10_000], rel=0.04)


def test_few_clumps_have_no_tpot_for_it_may_be_off_by_one_of_them() -> None:
    times = [-(-time // 200_000) * 200_000 for time in STEADY]
    assert request_metrics(answers(times))["tpot_us"].isna().all()


def test_a_short_answer_is_not_judged_by_what_may_be_chance() -> None:
    assert stream_shape(answers([100_000] * 5)).has_ttft.all()


def test_a_simulated_trace_is_what_it_says() -> None:
    shape = stream_shape(answers([490_000] * 40, mode="replayed"))
    assert shape.has_itl.all()
    assert not shape.can_be_judged.any()


@pytest.mark.parametrize(
    ("output", "events", "first"),
    [
        (40, 10, 4),  # four each
        (42, 11, 4),  # and two at the end
        (40, 11, 1),  # --stream-interval 4: the first alone, then four each
        (40, 40, 1),
        (40, 33, 1),  # speculative decoding: a prefill yields one
        (3, 2, 1),  # both would do
    ],
)
def test_the_first_event_of_answers_without_counts_is_estimated_where_one_way_alone_fits(
    output: int, events: int, first: int
) -> None:
    times = [100_000 + 10_000 * index for index in range(events)]
    trace = answers(times, tokens=[None] * events, output_tokens=[output]).with_columns(
        output_tokens=[output]
    )
    shape = stream_shape(trace)
    assert shape.first_tokens.tolist() == [first]
    notes = metric_notes(trace)
    assert notes.num_first_estimated == (first > 1)
    assert notes.num_first_assumed == (first == 1 and events < output)


def test_a_column_goes_before_the_events_and_hidden_tokens_are_not_divided_by() -> None:
    trace = answers(STEADY, first_chunk_tokens=[8]).with_columns(output_tokens=[100], hidden_tokens=[53])
    assert request_metrics(trace)["tpot_us"].tolist() == [390_000 / (100 - 53 - 8)]


def test_an_answer_that_was_not_streamed_is_not_judged() -> None:
    trace = answers(STEADY, streaming=[False], content_first_time_us=None)
    assert not stream_shape(trace).held_back.any()
    assert np.isnan(stream_shape(trace).num_events).sum() == 0


def test_a_finish_reason_that_is_no_success_keeps_an_answer_out_of_every_latency() -> None:
    trace = answers(STEADY, STEADY, finish_reason=["abort", "length"])
    assert request_metrics(trace)["e2e_us"].isna().tolist() == [True, False]


def test_itl_and_tpot_agree_where_all_events_hold_as_many_tokens() -> None:
    times = [100_000 + 40_000 * index for index in range(10)]
    latencies = request_metrics(answers(times, tokens=[None] * 10).with_columns(output_tokens=[40]))
    assert latencies["tpot_us"].tolist() == latencies["itl_mean_us"].tolist() == [10_000]


def test_six_events_are_the_fewest_that_are_judged() -> None:
    shape = stream_shape(answers([100_000] * 5, [100_000] * 6, [100_000]))
    assert shape.can_be_judged.tolist() == [False, True, False]
    assert stream_shape(answers([100_000], tokens=[5])).can_be_judged.tolist() == [False]
    assert stream_shape(answers([100_000], tokens=[6])).held_back.tolist() == [True]


def test_without_a_table_of_events_only_a_stream_that_took_no_time_was_one_read() -> None:
    steady, burst = [100_000, 490_000], [490_000, 490_200]
    trace = answers(steady, burst, num_token_chunks=[40, 40]).with_events(None)
    shape = stream_shape(trace.with_columns(output_tokens=[40, 40]))
    assert shape.num_reads.tolist() == [40, 1]
    assert shape.held_back.tolist() == [False, True]


def test_an_answer_without_events_in_the_table_has_no_number_of_them() -> None:
    trace = answers(STEADY, [7], [0, 100], num_token_chunks=None)
    assert trace.events is not None
    trace = trace.with_events(trace.events[trace.events["request_id"] != "1"])
    shape = stream_shape(trace)
    assert shape.num_events[[0, 2]].tolist() == [40, 2]
    assert np.isnan(shape.num_events[1])
    assert shape.num_reads[2] == 1  # 200 µs apart is together
    assert shape.first_tokens.tolist() == [1, 1, 2]


def test_a_first_read_of_two_tokens_is_no_first_token_of_a_stream_in_clumps() -> None:
    """Events of one token: one and a half would be the most that may come first."""
    late = [-(-time // 200_000) * 200_000 for time in range(100_000, 4_100_000, 10_000)]
    shape = stream_shape(answers([100_000, 100_000, *late[2:]], [100_000, *late[1:]]))
    assert shape.in_clumps.all()
    assert shape.first_tokens.tolist() == [2, 1]
    assert shape.has_ttft.tolist() == [False, True]
    # of two tokens an event, three may come first, and four may not
    events = [time for time in late if time > 100_000]
    for first, is_known in ((3, True), (4, False)):
        times, rest = [100_000, *events], 2 * len(events) + 2 - first
        tokens = [first, *[2] * (len(events) - 1), rest - 2 * (len(events) - 1)]
        shape = stream_shape(answers(times, tokens=tokens))
        assert shape.in_clumps.all()
        assert shape.has_ttft.tolist() == [is_known]


def reads_of(number: int, *, events: int) -> list[int]:
    """So many reads, 50 ms apart, of so many events each."""
    return [100_000 + 50_000 * (index // events) for index in range(number * events)]


def test_two_events_a_read_are_clumps_and_more_than_five_in_four_reads_have_no_itl() -> None:
    shape = stream_shape(
        answers(
            reads_of(20, events=2), reads_of(20, events=1), reads_of(10, events=2), reads_of(11, events=2)
        )
    )
    assert shape.in_clumps.tolist() == [True, False, True, True]
    assert shape.has_tpot.tolist() == [True, True, False, True]
    five_in_four = [
        time for index, time in enumerate(reads_of(20, events=1)) for _ in range(2 if index % 4 == 0 else 1)
    ]
    shape = stream_shape(answers(five_in_four, [*five_in_four, five_in_four[-1]]))
    assert (shape.num_events / shape.num_reads).tolist() == [1.25, 1.3]
    assert shape.has_itl.tolist() == [True, False]


def test_a_stream_of_just_ten_thousand_tokens_a_second_is_one() -> None:
    """100 µs a token behind the first, in reads of 3 events, 300 µs apart."""
    times = [100_000 + 300 * index for index in range(20)]
    for tokens, held in ((3, False), (4, True)):
        trace = answers(times, tokens=[1] + [tokens] * 19)
        assert stream_shape(trace).held_back.tolist() == [held]


def test_a_first_event_has_no_more_tokens_than_the_answer_and_one_at_least() -> None:
    trace = answers(STEADY, STEADY, first_chunk_tokens=[50, 3]).with_columns(
        output_tokens=[40, 9], hidden_tokens=[0, 9]
    )
    assert stream_shape(trace).first_tokens.tolist() == [40, 1]


def test_events_without_tokens_or_of_no_request_are_no_text() -> None:
    times = [100_000, 110_000, 120_000]
    trace = answers(times, tokens=[1, 0, 2], num_token_chunks=None)
    assert trace.events is not None
    strange = trace.events.assign(request_id="strange")
    events = text_events(trace.with_events(pd.concat([trace.events, strange], ignore_index=True)))
    assert events.request.tolist() == [0, 0]
    assert events.time_us.tolist() == [100_000, 120_000]
    assert events.num_tokens.tolist() == [1, 2]


def test_one_event_of_several_tokens_holds_them_all() -> None:
    trace = answers([100_000], tokens=[None]).with_columns(output_tokens=[4])
    assert stream_shape(trace).first_tokens.tolist() == [4]
    assert stream_shape(trace).is_estimated.tolist() == [True]


@pytest.mark.parametrize(("streaming", "known"), [(None, True), (True, True), (False, False)])
def test_the_number_of_all_events_stands_in_where_nothing_tells_those_with_text_apart(
    streaming: bool | None, known: bool
) -> None:
    unknown = dict.fromkeys(("content_first_time_us", "num_token_chunks"))
    trace = answers(STEADY, num_chunks=[7], streaming=[streaming], **unknown).with_events(None)
    assert np.isfinite(stream_shape(trace).num_events).tolist() == [known]
    told = trace.with_columns(content_first_time_us=[100_000])
    assert np.isnan(stream_shape(told).num_events).all()
