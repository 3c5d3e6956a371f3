"""The pieces that readers of benchmarks' results are made of, at the ends of what they take."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.traces.importers.benchmarks.results_of_requests import genai_perf
from traces import ClosedLoop, TraceError
from traces.conversion import convert
from traces.header import USERS, loop_of
from traces.importers.benchmarks import guidellm, result_rows, vllmbench
from traces.importers.benchmarks.aiperf import _Record
from traces.importers.benchmarks.failed_requests import only_length
from traces.importers.benchmarks.result_rows import Measured, columns_of, events_of, message, seconds, tokens
from traces.strict.limits import MOST_S, MOST_TOKENS


def test_seconds_and_tokens_end_where_numbers_do() -> None:
    assert seconds(None, what="w") is None
    assert tokens(None, what="w") is None
    assert [seconds(each, what="w") for each in (0, 0.5, MOST_S)] == [0, 0.5, MOST_S]
    assert [tokens(each, what="w") for each in (0, 7.0, MOST_TOKENS)] == [0, 7, MOST_TOKENS]
    for wrong in (-1e-9, MOST_S * 1.001, True, "1", float("nan"), []):
        with pytest.raises(TraceError, match="w: got"):
            seconds(wrong, what="w")
    for wrong in (-1, MOST_TOKENS + 1, 1.5, True, "1", float("inf"), []):
        with pytest.raises(TraceError, match="w: got"):
            tokens(wrong, what="w")
    assert message(None, "", " a\n b", 500) == "a b: 500"
    assert message() == "error"
    assert len(message("x" * 9999)) == result_rows.MOST_CHARACTERS


def test_rows_that_failed_have_no_times_of_answers() -> None:
    rows = [
        Measured(
            send_us=5, prompt=3, output=2, first_us=7, last_us=9, events_us=(7, 9), due_us=4, itl_us=2.0
        ),
        Measured(
            send_us=6, prompt=3, output=2, first_us=7, last_us=9, events_us=(7,), error="no", itl_us=2.0
        ),
        Measured(send_us=8, prompt=3, output=2, first_us=9, last_us=9, events_us=(9,), streamed=False),
    ]
    found = columns_of(rows)
    assert found["arrival_time_us"] == [4, 6, 8]
    assert found["send_time_us"] == [5, 6, 8]
    assert found["content_first_time_us"] == [7, None, None]
    assert found["last_token_time_us"] == [9, None, 9]
    assert found["streaming"] == [True, None, False]
    assert found["itl_mean_us"] == [2.0, None, None]
    assert found["num_token_chunks"] == [2, 1, 1]
    assert found["status"] == ["ok", "error", "ok"]
    events: Any = events_of(rows)
    assert events[["request_id", "chunk_index", "timestamp_us"]].to_numpy().tolist() == [
        ["0", 0, 7],
        ["0", 1, 9],
    ]
    assert events_of(rows[1:]) is None


def test_the_length_that_all_answers_have_is_the_one_asked() -> None:
    assert only_length([5, 9, 5], [True, False, True]) == 5
    assert only_length([1], [True]) == 1
    hostile: list[Any] = [[[1]], 5]
    for outputs in ([5, 6], [0], [True], [None], hostile, hostile[::-1]):
        assert only_length(outputs, [True] * len(outputs)) is None
    assert only_length([5], [False]) is None


def test_users_of_another_tools_file_are_a_closed_loop_where_they_are_a_number() -> None:
    assert loop_of(1) == ClosedLoop(concurrency=1)
    assert loop_of(USERS.most) == ClosedLoop(concurrency=USERS.most)
    for wrong in (0, USERS.most + 1, True, 2.0, "2", None):
        assert loop_of(wrong) is None


def record(**changed: Any) -> _Record:  # noqa: ANN401
    usual: dict[str, Any] = dict.fromkeys(_Record.__dataclass_fields__)
    return _Record(**{**usual, "gaps_us": (), "ttft_us": 10.0, "latency_us": 50.0, "output": 5, **changed})


def test_aiperfs_gaps_are_known_of_two_tokens_and_more() -> None:
    assert record().itl_us == 10
    assert record(output=2).itl_us == 40
    assert record(served_output=3).itl_us == 20
    assert record(latency_us=5.0).itl_us == 0
    for unknown in ({"output": 1}, {"output": None}, {"ttft_us": None}, {"latency_us": None}):
        assert record(**unknown).itl_us is None
    assert record(prompt=7).whole_prompt == 7
    assert record(prompt=7, served_prompt=0).whole_prompt == 0


def test_genai_perfs_ids_of_tokens_count_where_there_are_any(tmp_path: Path) -> None:
    for ids, length in (([1, 2, 3], 3), ([], None), ("abc", None)):
        value = genai_perf(usage=False)
        requests = value["experiments"][0]["requests"]
        for each in requests:
            each["request_inputs"]["input_ids"] = ids
        (tmp_path / "r.json").write_text(json.dumps(value))
        trace = convert("genai-perf", tmp_path / "r.json")
        found = set(trace.column("input_tokens").tolist())
        assert (found == {3}) == (length == 3), ids


def test_vllms_requests_failed_with_an_error_or_without_any_token() -> None:
    lists = {"errors": ["", "no", "", ""], "output_lens": [3, 3, 0, 0], "ttfts": [0.1, 0.1, 0.0, 0.1]}
    assert vllmbench._failed(lists).tolist() == [False, True, True, False]


@pytest.mark.parametrize(
    ("said", "times"),
    [
        (None, None),
        ([], None),
        ([1.0, None], None),
        ([5.0, 5.0], None),
        ([0.0, 0.0], None),
        ([5.0, 5.5], [5.0, 5.5]),
    ],
)
def test_vllms_start_times_are_known_where_they_differ(said: object, times: list[float] | None) -> None:
    tool: Any = vllmbench._VLLM if hasattr(vllmbench, "_VLLM") else None
    found = vllmbench._starts({"start_times": said}, 2, tool=tool, file="f")
    assert (None if found is None else found.tolist()) == times
    alone = vllmbench._starts({"start_times": [5.0]}, 1, tool=tool, file="f")
    assert alone is not None
    assert alone.tolist() == [5.0]


def test_vllms_times_are_seconds_up_to_the_most() -> None:
    assert vllmbench._us([0.0, 1.5, MOST_S], file="f", name="n").tolist() == [
        0,
        1_500_000,
        round(MOST_S * 1e6),
    ]
    for wrong in ([-1e-9], [MOST_S * 1.001], [np.nan], [[1.0]], ["x"]):
        with pytest.raises(TraceError, match="n: got"):
            vllmbench._us(wrong, file="f", name="n")
    first = np.array([10, 20, 30])
    events = vllmbench._events(first, [np.array([1, 2]), np.array([]), np.array([5])], failed=first == 30)
    assert events["timestamp_us"].tolist() == [10, 11, 13, 20]
    assert events["chunk_index"].tolist() == [0, 1, 2, 0]
    assert events["request_id"].tolist() == ["0", "0", "0", "1"]
    assert vllmbench._describe({"request_rate": 2.5}) == "2.5 requests/s"
    assert vllmbench._describe({"request_rate": float("inf"), "max_concurrency": 8}) == "8 at a time"
    assert vllmbench._describe({"request_rate": "inf", "num_prompts": 9}) == "9 requests"


def test_guidellms_report_says_where_it_has_only_a_sample() -> None:
    report = {
        "requests": {"successful": [1, 2], "errored": None},
        "metrics": {"request_totals": {"successful": 2}},
    }
    assert guidellm._sampled(report) is None
    assert guidellm._sampled({"requests": {}}) is None
    report["metrics"] = {"request_totals": {"successful": 3, "errored": 0}}
    assert "has 2 of the 3 requests" in str(guidellm._sampled(report))
    report["metrics"]["requests_per_second"] = {"successful": {"mean": 12.3456}}
    assert "states 12.35 requests/s of all" in str(guidellm._sampled(report))


def test_guidellms_times_and_counts() -> None:
    assert guidellm._moment(MOST_S) == MOST_S
    with pytest.raises(ValueError, match="expected a Unix time"):
        guidellm._moment(MOST_S * 1.001)
    assert guidellm._seconds({"a": None, "b": 0.0, "c": 2.0}, "a", "b", "c") == 0
    assert guidellm._seconds({}, "a") is None
    assert [guidellm._count(each) for each in (None, "5", 4.6, 0)] == [None, None, 5, 0]
    assert guidellm._asked('{"body": {"max_tokens": 5}}') == 5
    assert guidellm._asked({"max_completion_tokens": 6, "max_tokens": 5}) == 6
    for none in ("{", [], {"body": 3}, {}):
        assert guidellm._asked(none) is None
    strategy = {"type_": "constant", "rate": 2.5}
    assert guidellm._describe({"config": {"strategy": strategy}}) == "constant 2.5"
    assert guidellm._describe({"args": {"strategy": {"streams": 4}}}) == "benchmark 4"
    assert guidellm._describe({"args": {"strategy": {"rate": True}}}) == "benchmark"
