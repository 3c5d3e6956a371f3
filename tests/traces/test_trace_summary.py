"""The summary's numbers, against traces small enough to count by hand."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from tests.traces.made import BLIS, small_trace
from traces import (
    ClosedLoop,
    Header,
    make_trace,
    prefix_hit_ceiling_frac,
    read_trace,
    summarize_trace,
)


def test_counts_and_rates_are_those_of_the_rows() -> None:
    summary = summarize_trace(
        small_trace(status=["ok", "error", "ok"], phase=["warmup", None, "main"], region="eu")
    )
    assert summary.num_by_status == {"error": 1, "ok": 2}
    assert (summary.num_requests, summary.num_warmup) == (3, 1)
    assert (summary.span_us, summary.rate_per_s, summary.gap_cv) == (2000, 1000.0, 0.0)
    assert summary.duration_us == 3000
    assert summary.request_throughput == pytest.approx(2 / 3e-3)
    assert summary.output_token_throughput == pytest.approx(9 / 3e-3)
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
