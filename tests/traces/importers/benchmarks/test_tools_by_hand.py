"""What the readers of single tools make of one record, by hand: each edge on both of its sides."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.traces.importers.benchmarks.results_of_requests import genai_perf
from tests.traces.importers.benchmarks.test_rows_by_hand import record
from traces import Trace, TraceError
from traces.conversion import convert
from traces.importers.benchmarks import (
    aiperf,
    genaibench,
    genaiperf,
    guidellm,
    inferenceperf,
    llmperf,
    vllmbench,
)
from traces.importers.benchmarks.genaiperf import _Request
from traces.importers.conversation_turns import conversations_of
from traces.strict.limits import MOST_US


def bench(**changed: object) -> dict[str, Any]:
    usual = {"num_input_tokens": 5, "num_output_tokens": 3, "ttft": 0.25, "e2e_latency": 1.0}
    return {**usual, "error_code": None, "error_message": None, **changed}


def bench_row(per_s: float = 1.0, **changed: object) -> Any:  # noqa: ANN401
    return genaibench._row(bench(**changed), per_s, where="w")


def test_genai_benchs_rows() -> None:
    row = bench_row()
    assert (row.send_us, row.prompt, row.output) == (0, 5, 3)
    assert (row.first_us, row.last_us, row.error, row.streamed) == (250_000, 1_000_000, None, True)
    assert bench_row(1000.0, ttft=250, e2e_latency=1000).first_us == 250_000
    assert bench_row(num_input_tokens=0) is None
    assert bench_row(ttft=1.0, num_output_tokens=1).streamed
    assert not bench_row(ttft=1.0).streamed
    assert not bench_row(ttft=0.0, num_output_tokens=1).streamed
    assert not bench_row(ttft=None).streamed
    for changed, error in (
        ({"error_code": 500, "error_message": "no"}, "500: no"),
        ({"num_output_tokens": 0}, "an answer without tokens"),
        ({"e2e_latency": None}, "an answer without tokens"),
    ):
        row = bench_row(**changed)
        assert row.output is None
        assert row.error == error
    with pytest.raises(TraceError, match="ttft: got more than e2e_latency"):
        bench_row(ttft=1.001)
    assert bench_row(ttft=1.001, error_code=500).error is not None


@pytest.mark.parametrize(
    ("said", "users"),
    [
        ({"num_concurrency": 8}, 8),
        ({"num_concurrency": 1}, 1),
        ({"num_concurrency": 10**6}, 10**6),
        ({"num_concurrency": 8.0}, 8),
        ({"num_concurrency": 8, "iteration_type": "num_concurrency"}, 8),
        ({"num_concurrency": 8, "iteration_type": "batch_size"}, None),
        ({"num_concurrency": 8, "total_arrivals": 5}, None),
        ({"num_concurrency": 0}, None),
        ({"num_concurrency": 10**6 + 1}, None),
        ({"num_concurrency": True}, None),
        ({"num_concurrency": "8"}, None),
    ],
)
def test_genai_benchs_users(said: object, users: int | None) -> None:
    assert genaibench._users({"aggregated_metrics": said}) == users


def test_genai_benchs_notes() -> None:
    def notes(rate: object, users: int | None = None) -> Sequence[str]:
        return genaibench._notes({"aggregated_metrics": {"requests_per_second": rate}}, users=users, unit="s")

    assert notes(None) == ("latencies taken in s",)
    assert notes(None, 1)[1:] == ("1 user: each sent when the answer before was there",)
    assert notes(None, 2)[1:] == ("2 users: each sent when the answer before was there",)
    for rate, shown in ((2.5, "2.5"), (3, "3"), (999_999_999, "1e+09")):
        assert notes(rate)[1:] == (f"its own figure of the whole run: {shown} answered requests/s",)
    for none in (0, -1, 10**9, True, "3"):
        assert len(notes(none)) == 1


def test_llmperfs_rows() -> None:
    usual = {"number_input_tokens": 5, "number_output_tokens": 3, "ttft_s": 0.25, "end_to_end_latency_s": 1.0}

    def row(**changed: object) -> Any:  # noqa: ANN401
        return llmperf._row({**usual, **changed}, where="w")

    assert (row().first_us, row().last_us, row().output, row().error) == (250_000, 1_000_000, 3, None)
    assert row(ttft_s=1.0).last_us == 1_000_000
    assert row(number_input_tokens=0) is None
    absent = row(end_to_end_latency_s=None)
    assert (absent.last_us, absent.output, absent.error) == (None, None, "an answer without tokens")
    assert row(ttft_s=None).first_us is None
    for changed in ({"ttft_s": 0}, {"end_to_end_latency_s": 0}, {"number_output_tokens": 0}):
        assert row(**changed).error == "an answer without tokens"
    assert row(error_code=500).error == "500"
    assert row(error_msg="no").error == "no"
    assert row(error_msg="").error is None
    assert row(error_code=500).output is None
    with pytest.raises(TraceError, match="ttft_s: got more"):
        row(ttft_s=1.001)
    assert row(ttft_s=1.001, error_code=500).output is None


def perf(*times: int, outputs: list[Any] | None = None, **changed: Any) -> _Request:  # noqa: ANN401
    said = {
        "timestamp": 10_000,
        "request_inputs": {"text_input": "x" * 10},
        "response_timestamps": list(times),
        **({} if outputs is None else {"response_outputs": outputs}),
        **changed,
    }
    return _Request(said, where="w")


def event(text: str = "a", **more: object) -> dict[str, str]:
    return {"response": "data: " + json.dumps({"choices": [{"delta": {"content": text}}], **more})}


def test_genai_perfs_rows() -> None:
    row = perf(12_000, 15_999).row(9_000)
    assert (row.send_us, row.first_us, row.last_us) == (1, 3, 6)
    assert (row.prompt, row.output, row.streamed, row.events_us) == (2, 2, True, (3, 6))
    one = perf(12_000).row(9_000)
    assert (one.output, one.streamed, one.events_us) == (1, False, ())
    assert perf(10_000, 10_000).row(0).first_us == 10
    with pytest.raises(TraceError, match="a time before the one before it"):
        perf(9_999)
    assert perf(12_000, request_inputs={"text_input": "x"}).row(0).prompt == 1
    assert perf(12_000, request_inputs={"input_ids": [7] * 9}).row(0).prompt == 9
    none = perf().row(0)
    assert (none.error, none.output, none.first_us, none.last_us) == (
        "an answer without text",
        None,
        None,
        None,
    )


def test_genai_perfs_events() -> None:
    usage = {"prompt_tokens": 7, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 7}}
    counted = perf(12_000, 13_000, outputs=[event(), event("", usage=usage)]).row(0)
    assert (counted.prompt, counted.output, counted.cached, counted.streamed) == (7, 1, 7, True)
    assert (counted.first_us, counted.last_us, counted.events_us) == (12, 12, ())
    usage = {"prompt_tokens": 7, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 8}}
    more = perf(12_000, outputs=[event(usage=usage)]).row(0)
    assert (more.output, more.cached, more.streamed) == (4, None, False)
    failed = perf(12_000, 13_000, outputs=[event(), event(error={"message": "no"})]).row(0)
    assert (failed.error, failed.output, failed.events_us) == ("no", None, ())
    plain = perf(12_000, 13_000, 14_000, outputs=[{"text": "a"}, {"text": ""}, {"ids": [1]}])
    assert plain.times_ns == [12_000, 14_000]
    assert perf(12_000, 13_000, outputs=[event("")]).times_ns == [12_000, 13_000]


def read(folder: Path, value: object) -> Trace:
    (folder / "r.json").write_text(json.dumps(value))
    return convert("genai-perf", folder / "r.json")


def test_genai_perfs_answers_without_usage_are_noted(tmp_path: Path) -> None:
    def notes(**options: bool) -> str:
        source = read(tmp_path, genai_perf(**options)).header.source
        assert source is not None
        return " ".join(source.notes)

    assert "answers have no usage" in notes(usage=False)
    assert "answers have no usage" not in notes(usage=True)


def test_aiperfs_runs_of_a_conversation_are_told_where_several_records_have_one() -> None:
    once = [record(run="r1", conversation="c"), record(run="r2", conversation="c")]
    assert aiperf._conversations(once) == ["c", "c"]
    twice = [*once, record(run="r1", conversation="d"), record(conversation="e")]
    assert aiperf._conversations(twice) == ["r1", "r2", "r1", "e"]


def test_aiperfs_numbers() -> None:
    assert [aiperf._turn(each) for each in (0, 3, -1, True, "1", 1.0, None)] == [0, 3, *[None] * 5]
    metrics = {
        "a": {"value": 2.0, "unit": "ms"},
        "b": {"value": 0},
        "c": {"value": 2.6},
        "d": {"value": None},
    }
    assert [aiperf._number(metrics, name) for name in "abcde"] == [2000.0, 0.0, 2.6, None, None]
    assert aiperf._tokens(metrics, "b", "c") == 3
    assert aiperf._tokens(metrics, "d", "b") is None
    for cached, expected in ((0, 0), (4, 4), (5, None), (None, None)):
        said = {"usage_prompt_cache_read_tokens": {"value": cached}, "usage_prompt_tokens": {"value": 4}}
        assert aiperf._cached(said) == expected
    assert aiperf._unix_ns(0) == 0
    assert aiperf._unix_ns(5.9) == 5
    assert aiperf._unix_ns(MOST_US * 1000) == MOST_US * 1000
    with pytest.raises(ValueError, match="expected 0 to"):
        aiperf._unix_ns(-1)
    assert aiperf._message(None, cancelled=True) == "cancelled by the client"
    assert aiperf._message(None, cancelled=False) is None
    assert aiperf._message({"message": "no"}, cancelled=False) == "error: no"
    assert aiperf._plus(np.int64(5), 1.6) == 7
    assert aiperf._plus(np.int64(5), None) is None


def test_aiperfs_notes_on_failed_requests_and_whose_counts_are_shown() -> None:
    fine, failed = record(status="ok", output=5), record(status="error", output=None)
    said = " ".join(aiperf._notes([fine, failed]))
    assert "aiperf's tokenizer's, not the server's" in said
    assert len(aiperf._notes([fine, failed])) == len(aiperf._notes([fine])) + 1
    for served in ({"served_output": 6}, {"served_prompt": 9}):
        assert "aiperf's tokenizer's" not in " ".join(aiperf._notes([record(status="ok", **served)]))


def test_aiperfs_events_begin_with_the_first_token_and_failed_requests_have_none() -> None:
    events = aiperf._events([record(gaps_us=(3.0, 4.4))], [10])
    assert events is not None
    assert events["timestamp_us"].tolist() == [10, 13, 17]
    assert events["chunk_index"].tolist() == [0, 1, 2]
    for changed, first in (({"error": "no"}, 10), ({}, None), ({"gaps_us": ()}, 10)):
        assert aiperf._events([record(**{"gaps_us": (3.0,), **changed})], [first]) is None


def aiperf_line(start_ns: int, **metrics: object) -> str:
    values = {name: {"value": value, "unit": ""} for name, value in metrics.items()}
    return json.dumps({"metadata": {"request_start_ns": start_ns, "turn_index": 0}, "metrics": values})


def test_aiperfs_gaps_are_in_the_unit_that_they_name_and_else_in_ms() -> None:
    def gaps(**unit: str) -> tuple[float, ...]:
        line = {
            "metadata": {"request_start_ns": 0},
            "metrics": {"inter_chunk_latency": {"value": [2.0], **unit}},
        }
        return aiperf._record(json.dumps(line).encode(), where="w").gaps_us

    assert [gaps(), gaps(unit="ms"), gaps(unit="odd"), gaps(unit="us")] == [(2000,), (2000,), (2000,), (2,)]


def test_aiperfs_times_count_from_the_first_request_in_whole_us(tmp_path: Path) -> None:
    lines = [aiperf_line(5_000_000_000 + 3_000 * at, input_sequence_length=4) for at in (1, 0)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    trace = aiperf.read_aiperf(tmp_path / "a.jsonl")
    assert trace.header.start_unix_us == 5_000_000
    assert sorted(trace.column("send_time_us").tolist()) == [0, 3]


@pytest.mark.parametrize("text", ['[{"a": 1}, 2]', "[]", "3", '{"a": 1}\n3', "{", "{\n{"])
def test_vllms_results_are_objects_all_of_them(tmp_path: Path, text: str) -> None:
    tool = next(each for each in vars(vllmbench).values() if isinstance(each, vllmbench._Tool))
    (tmp_path / "r.json").write_text(text)
    with pytest.raises(TraceError, match="got no JSON"):
        vllmbench._results(tmp_path / "r.json", tool)
    for fine, number in (
        ('{"a": 1}', 1),
        ('[{"a": 1}, {}]', 2),
        ('{"a": 1}\n{"b": 2}', 2),
        ('{"a": 1}{"b": 2}', 2),
    ):
        (tmp_path / "r.json").write_text(fine)
        assert len(vllmbench._results(tmp_path / "r.json", tool)) == number


def test_what_a_result_of_vllms_states_of_itself() -> None:
    said = {"request_throughput": 2.0, "request_rate": 3.0, "duration": 60.0}
    assert vllmbench._stated(said) == " (it states 2 requests/s served, 3/s asked for, 60 s long)"
    assert (
        vllmbench._stated(said | {"request_rate": float("inf")})
        == " (it states 2 requests/s served, 60 s long)"
    )
    assert vllmbench._stated(dict.fromkeys(said, True)) == vllmbench._stated({}) == ""


def test_vllms_line_that_is_no_json_is_told_by_its_number(tmp_path: Path) -> None:
    tool = next(each for each in vars(vllmbench).values() if isinstance(each, vllmbench._Tool))
    (tmp_path / "r.json").write_text('{"a": 1}\n{"a": \n{"b": 2}')
    with pytest.raises(TraceError, match=r"r\.json:2: got no JSON"):
        vllmbench._results(tmp_path / "r.json", tool)


def test_inference_perfs_last_time_of_an_answer_that_was_not_streamed_is_its_end() -> None:
    row = inferenceperf._row({"end_time": 107.5}, 5.0, 100.0, (4, 3), (None, None), where="w")
    assert row is not None
    assert (row.send_us, row.first_us, row.last_us, row.streamed) == (5_000_000, None, 7_500_000, False)
    early = inferenceperf._row({"end_time": 104.0}, 5.0, 100.0, (4, 3), (None, None), where="w")
    assert early is not None
    assert early.last_us == 5_000_000


def a_guidellm_row(**changed: object) -> guidellm._Row:
    usual: dict[str, Any] = dict.fromkeys(each.name for each in fields(guidellm._Row))
    usual |= {
        "start_s": 1.0,
        "first_token_s": 2.0,
        "last_token_s": 3.0,
        "prompt": 4,
        "output": 5,
        "status": "ok",
    }
    return guidellm._Row(**{**usual, **changed})


def test_guidellms_answer_in_one_event_was_streamed_only_if_it_is_one_token() -> None:
    events = [(None, 5), (2, 5), (1, 5), (1, 2), (1, 1), (1, None)]
    rows = [a_guidellm_row(num_token_events=number, output=output) for number, output in events]
    rows.append(a_guidellm_row(status="error"))
    found = guidellm._columns(rows, 0.0, conversations_of([]), scheduled=False, asked=None)
    assert found["streaming"] == [True, True, False, False, True, True, None]


def a_vllm_result(**changed: object) -> dict[str, Any]:
    lists = {name: [1, 1, 1] for name in vllmbench._LISTS}
    return {**lists, "errors": ["", "no", ""], "start_times": [5.0, 0.0, 6.0], **changed}


def test_vllms_requests_that_were_never_sent_are_left_out() -> None:
    tool = next(each for each in vars(vllmbench).values() if isinstance(each, vllmbench._Tool))
    rows = vllmbench._rows(a_vllm_result(), tool, file="f")
    assert rows.starts_s is not None
    assert (rows.starts_s.tolist(), rows.failed.tolist(), rows.num_untimed) == ([5, 6], [False, False], 1)
    assert {len(each) for each in rows.lists.values()} == {2}
    sent = vllmbench._rows(a_vllm_result(errors=["", "no", "no"]), tool, file="f")
    assert (sent.failed.tolist(), sent.num_untimed) == ([False, True], 1)
    without = vllmbench._rows(a_vllm_result(start_times=None), tool, file="f")
    assert (without.starts_s, without.failed.tolist(), without.num_untimed) == (None, [False, True, False], 0)
    with pytest.raises(TraceError, match="errors: got 2 entries, expected 3"):
        vllmbench._rows(a_vllm_result(errors=["", ""]), tool, file="f")


def test_names_and_first_values_of_other_tools() -> None:
    assert genaiperf._first({"b": 3, "a": None}, "a", "b") == 3
    assert genaiperf._first({"a": 0, "b": 3}, "a", "b") == 0
    assert genaiperf._first({}, "a") is None
    assert guidellm._unfinished("aborted") == "not finished when the benchmark ended"
    assert guidellm._unfinished("ok") is None
    assert [guidellm._text(each) for each in (None, 3, "a")] == [None, "3", "a"]
    with pytest.raises(TypeError, match="list, expected text"):
        guidellm._text([])

    def session(name: object) -> str | None:
        return inferenceperf._session({"info": {"extra_info": {"user_session": name}}})

    assert [session(each) for each in ("u", 0, 7, True, None, 1.5)] == ["u", "0", "7", None, None, None]
    for budget, expected in ((5, 5), (1, 1), (0, None), (True, None), ("5", None)):
        assert inferenceperf._asked({"request": json.dumps({"max_tokens": budget})}) == expected
    assert inferenceperf._asked({"request": "{"}) is None
    for cached, expected in ((0, 0), (4, 4), (5, None), (None, None)):
        usage = {"prompt_tokens_details": {"cached_tokens": cached}}
        said = {"info": {"response_metrics": {"server_usage": usage}}}
        assert inferenceperf._cached(said, 4, where="w") == expected
