"""The summary's numbers, against traces small enough to count by hand."""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import pytest

from tests.traces.made import BLIS, small_trace
from traces import (
    ClientInfo,
    ClosedLoop,
    Header,
    Source,
    make_trace,
    mean_rate_per_s,
    prefix_hit_ceiling_frac,
    read_trace,
    summarize_trace,
)
from traces.cli import describe
from traces.units import four_digits


def test_counts_and_rates_are_those_of_the_rows() -> None:
    summary = summarize_trace(
        small_trace(status=["ok", "error", "ok"], phase=["warmup", None, "main"], region="eu")
    )
    assert summary.num_by_status == {"error": 1, "ok": 2}
    assert (summary.num_requests, summary.num_warmup) == (3, 1)
    assert (summary.span_us, summary.rate_per_s, summary.gap_cv) == (1000, 1000.0, 0.0)
    assert summary.duration_us == 1990  # warm-up left out
    assert summary.request_throughput == pytest.approx(1 / 1.99e-3)
    assert summary.output_token_throughput == pytest.approx(4 / 1.99e-3)
    assert summary.prompt_tokens is not None
    assert (summary.prompt_tokens.mean, summary.prompt_tokens.max) == (20, 30)
    assert summary.ttft_us is not None
    assert (summary.ttft_us.n, summary.ttft_us.mean) == (1, 600)  # without the warm-up
    assert summary.foreign_columns == ("region",)


def test_a_workload_has_no_outcome_to_tell_of() -> None:
    columns = {"request_id": ["a", "b"], "input_tokens": [1, 2], "output_tokens": [3, 4]}
    loop = Header(closed_loop=ClosedLoop(concurrency=1))
    summary = summarize_trace(make_trace(loop, columns | {"arrival_time_us": [0, None]}))
    assert summary.num_by_status == {"none": 2}
    assert summary.ttft_us is summary.duration_us is summary.rate_per_s is None
    assert summary.concurrency == 1


def test_a_recorded_workload_is_told_from_a_drawn_one() -> None:
    columns = {"request_id": ["a"], "arrival_time_us": [0], "input_tokens": [1], "output_tokens": [3]}
    source = Source(format="weka", file="sessions.jsonl")
    for header, told in (
        (Header(mode="generated", source=source), "imported from weka"),
        (Header(mode="generated", source=source, workload_seed=1), "generated"),  # of ServeGen's data
        (Header(mode="real", source=source), "real"),
    ):
        (line,) = [
            line
            for line in describe(summarize_trace(make_trace(header, columns)))
            if line.startswith("mode ")
        ]
        assert line.split(maxsplit=1)[1] == told


def test_a_summary_is_plain_json() -> None:
    assert json.loads(json.dumps(asdict(summarize_trace(read_trace(BLIS / "p"))), allow_nan=False))


def test_the_hit_ceiling_counts_leading_blocks_that_an_earlier_arrival_had() -> None:
    trace = small_trace(
        input_tokens=[10, 10, 10],
        arrival_time_us=[5000, 0, 2000],
        send_time_us=None,
        prefix_hashes=["1 2 3", "1 2", "9 2"],
    ).with_header(hash_block_size=4)
    # by arrival: "1 2" finds nothing, "9 2" nothing at its head, "1 2 3" the first two blocks: 8 of 30 tokens
    assert prefix_hit_ceiling_frac(trace) == pytest.approx(8 / 30)


def test_a_partial_last_block_counts_only_its_tokens() -> None:
    trace = small_trace(input_tokens=[10, 10, 10], prefix_hashes=["1 2 3"] * 3).with_header(hash_block_size=4)
    assert prefix_hit_ceiling_frac(trace) == pytest.approx(20 / 30)


def test_a_group_shares_the_shorter_prefix() -> None:
    trace = small_trace(prefix_group=["g", "g", "h"], prefix_length=[100, 40, 50], input_tokens=[10, 10, 10])
    assert prefix_hit_ceiling_frac(trace) == pytest.approx(40 / 220)
    assert summarize_trace(trace).num_prefix_groups == 2


def test_without_prefixes_there_is_no_ceiling() -> None:
    assert prefix_hit_ceiling_frac(small_trace()) is None


def test_a_rate_counts_the_first_gap_where_requests_were_drawn_from_the_run_s_start() -> None:
    times = np.array([100_000, 150_000, 200_000])
    assert mean_rate_per_s(times) == 20
    assert mean_rate_per_s(times, 15) == 15
    assert mean_rate_per_s(times + 100, 15) == pytest.approx(15, rel=1e-3)  # as sends are late
    assert mean_rate_per_s(times, 14) == 20
    assert mean_rate_per_s(times[:1], 10) is None
    assert mean_rate_per_s(np.zeros(3), 10) is None


@pytest.mark.parametrize("width", [None, 60, 80, 100])
def test_a_description_fits_its_width_and_names_the_columns_that_do_not(width: int | None) -> None:
    lines = describe(summarize_trace(small_trace()), width=width)
    head = next(line for line in lines if " mean" in line or " p50" in line)
    left_out = [line for line in lines if line.startswith("not shown, for want of width: ")]
    told = head.split() + (left_out[0].partition(": ")[2].split(", ") if left_out else [])
    assert sorted(told) == sorted(("n", "mean", "stdev", "min", "p50", "p90", "p99", "max"))
    table = lines[lines.index(head) : lines.index(left_out[0]) if left_out else None]
    assert bool(left_out) is (width == 60)
    assert all(len(line) <= (width or 120) for line in table if not line.startswith("note"))


def test_a_run_that_did_not_come_to_its_end_is_told_to_be_one() -> None:
    trace = small_trace()
    for client, words in (
        (ClientInfo(interrupted=True, finished=False, num_planned=9), "the run was interrupted: "),
        (ClientInfo(finished=False, num_planned=9), "the run did not come to its end: "),
        (ClientInfo(finished=True), None),
    ):
        notes = summarize_trace(trace.with_header(mode="real", client=client)).notes
        found = [note for note in notes if " of 9 planned that were sent by then" in note]
        assert [note.startswith(words) for note in found] == [True] if words else found == []


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (0.0, "0"),
        (-0.0002, "0"),
        (0.0126, "0.013"),
        (7.1, "7.100"),
        (9.99951, "10"),
        (33.226, "33.23"),
        (60.0, "60"),
        (999.96, "1,000"),
        (517.76, "517.8"),
        (-4781.2, "-4,781"),
        (1234567.8, "1,234,568"),
    ],
)
def test_a_figure_has_four_digits_and_never_powers_of_ten(value: float | None, text: str) -> None:
    assert four_digits(value) == text
