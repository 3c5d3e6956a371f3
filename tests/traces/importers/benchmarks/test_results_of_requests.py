"""Results per request of genai-perf, inference-perf, genai-bench and llmperf as observed traces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.traces.importers.benchmarks.results_of_requests import (
    S,
    genai_bench,
    genai_perf,
    genai_request,
    inference_perf,
    lifecycle,
    llmperf,
)
from traces import (
    Trace,
    TraceError,
    check_trace,
    format_of,
    pooled_itl_us,
    read_trace,
    request_metrics,
    write_trace,
)
from traces.conversion import SourceFormat, convert
from traces.errors import ConfigError
from traces.header import Source
from traces.importers.reading_options import ReadingOptions


def read(tmp_path: Path, source: SourceFormat, value: object, *, part: int | None = None) -> Trace:
    """Return the trace of a file, after a way through the disk; its format is recognised."""
    path = tmp_path / "result.json"
    path.write_text(json.dumps(value, indent=1))
    assert format_of(path) == source
    trace = convert(source, path, options=ReadingOptions(part=part))
    write_trace(trace, tmp_path / "kept")
    assert check_trace(tmp_path / "kept") == []
    return read_trace(tmp_path / "kept", events=True)


def source_of(trace: Trace) -> Source:
    assert trace.header.source is not None
    return trace.header.source


# ── genai-perf


def test_genai_perfs_counts_are_the_servers_usage(tmp_path: Path) -> None:
    trace = read(tmp_path, "genai-perf", genai_perf())
    assert trace.column("input_tokens").tolist() == [50] * 5
    assert trace.column("output_tokens").tolist() == [4] * 5
    assert trace.column("send_time_us").tolist() == [0, 100_000, 200_000, 300_000, 400_000]
    assert request_metrics(trace)["ttft_us"].tolist() == [60_000] * 5
    assert request_metrics(trace)["e2e_us"].tolist() == [90_000] * 5
    assert set(pooled_itl_us(trace)) == {10_000}
    source = source_of(trace)
    assert source.load_unknown is None
    assert source.left_out == {"of unknown length": 1}
    assert trace.header.closed_loop is not None
    assert trace.header.closed_loop.concurrency == 1


def test_genai_perf_without_counts_says_that_lengths_are_guessed(tmp_path: Path) -> None:
    trace = read(tmp_path, "genai-perf", genai_perf(usage=False))
    assert request_metrics(trace)["ttft_us"].dropna().tolist() == [60_000] * 5
    assert trace.column("output_tokens").dropna().tolist() == [4] * 5
    assert trace.column("status").tolist() == ["ok"] * 5 + ["error"]
    said = source_of(trace).load_unknown
    assert said is not None
    assert "no counts of prompt tokens" in said
    assert any("5 answers have no usage" in note for note in source_of(trace).notes)


def test_of_several_experiments_one_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"got 2 experiments, .*result\.json#2 \(concurrency 2\)"):
        read(tmp_path, "genai-perf", genai_perf(rates=2))
    trace = read(tmp_path, "genai-perf", genai_perf(rates=2), part=2)
    assert "experiment: concurrency 2" in source_of(trace).notes
    assert source_of(trace).part == 2


def test_genai_perfs_sessions_stay_sessions(tmp_path: Path) -> None:
    document = genai_perf()
    document["experiments"][0]["requests"] = [
        genai_request(S + 300_000_000, session="a"),
        genai_request(S, session="a"),
        genai_request(S, session="b"),
    ]
    trace = read(tmp_path, "genai-perf", document)
    assert trace.column("session_id").fillna("").tolist() == ["a", "a", ""]
    assert trace.column("round_index").fillna(-1).tolist() == [1, 0, -1]
    assert any("what rounds share is not known" in note for note in source_of(trace).notes)


def test_an_error_in_an_event_is_a_failed_request_and_texts_are_not_kept(tmp_path: Path) -> None:
    document = genai_perf()
    request = document["experiments"][0]["requests"][0]
    request["response_outputs"][1] = {"response": 'data: {"error": {"message": "too long"}}'}
    trace = read(tmp_path, "genai-perf", document)
    assert trace.column("status").tolist() == ["error"] + ["ok"] * 4
    assert trace.column("error_message").iloc[0] == "too long"
    kept = "".join(path.read_text() for path in tmp_path.glob("kept*"))
    assert "hello" not in kept


# ── inference-perf


def test_inference_perf_has_the_servers_counts_before_its_own(tmp_path: Path) -> None:
    trace = read(tmp_path, "inference-perf", inference_perf())
    assert trace.column("input_tokens").tolist() == [43, 43, 30]
    assert trace.column("output_tokens").dropna().tolist() == [11, 11]
    assert trace.column("status").tolist() == ["ok", "ok", "error"]
    assert trace.column("error_message").iloc[2] == "ClientError: gone"
    assert trace.column("max_tokens").fillna(-1).tolist() == [-1, -1, 16]
    metrics = request_metrics(trace)
    assert metrics["ttft_us"].dropna().tolist() == [100_000] * 2
    assert metrics["tpot_us"].dropna().tolist() == [20_000] * 2
    source = source_of(trace)
    assert source.left_out == {"of unknown length": 1}
    assert any(
        "output tokens are the server's counts" in note and "mean 9.0" in note for note in source.notes
    )
    kept = "".join(path.read_text() for path in tmp_path.glob("kept*"))
    assert "words" not in kept


def test_inference_perfs_older_records_have_their_counts_in_info(tmp_path: Path) -> None:
    info = {"input_tokens": 12, "output_tokens": 3, "output_token_times": [7.1, 7.2, 7.4]}
    trace = read(tmp_path, "inference-perf", [lifecycle(7.0, info=info)])
    assert trace.column("input_tokens").tolist() == [12]
    assert request_metrics(trace)["e2e_us"].tolist() == [400_000]


def test_inference_perfs_sessions_share_what_their_prompts_hold(tmp_path: Path) -> None:
    def turn(start_s: float, prompt: int) -> dict[str, Any]:
        info = {"input_tokens": prompt, "output_tokens": 5, "output_token_times": [start_s + 0.1]}
        return lifecycle(start_s, info=info | {"extra_info": {"user_session": "u1", "chat_round": 1}})

    trace = read(tmp_path, "inference-perf", [turn(1.0, 100), turn(2.0, 130), turn(3.0, 150)])
    assert trace.column("session_id").tolist() == ["u1"] * 3
    assert trace.column("round_index").tolist() == [0, 1, 2]
    assert trace.column("new_input_tokens").tolist() == [100, 25, 15]
    short = read(tmp_path / "..", "inference-perf", [turn(1.0, 100), turn(2.0, 50)])
    assert short.column("new_input_tokens").isna().all()
    assert any("what rounds share is not known" in note for note in source_of(short).notes)


def test_inference_perfs_answers_without_a_count_have_as_many_tokens_as_times(tmp_path: Path) -> None:
    info = {"request_metrics": {"text": {"input_tokens": 9}}, "input_tokens": 9}
    info |= {"response_metrics": {"output_token_times": [6.0, 6.5]}}  # type: ignore[dict-item]  # JSON
    trace = read(tmp_path, "inference-perf", [lifecycle(5.0, info=info)])
    assert trace.column("output_tokens").tolist() == [2]
    bare = tmp_path / "bare.json"
    bare.write_text(json.dumps([lifecycle(5.0, info={"response_metrics": {"output_tokens": 3}})]))
    assert format_of(bare) == "inference-perf"
    with pytest.raises(TraceError, match="got no request of known length"):
        convert("inference-perf", bare)


# ── genai-bench, llmperf: no times


@pytest.mark.parametrize("unit", ["s", "ms"])
def test_genai_benchs_latencies_hold_and_its_load_is_not_known(tmp_path: Path, unit: str) -> None:
    trace = read(tmp_path, "genai-bench", genai_bench(unit))
    assert trace.column("status").tolist() == ["ok", "ok", "ok", "error"]
    assert request_metrics(trace)["ttft_us"].dropna().tolist() == [100_000, 101_000, 102_000]
    assert request_metrics(trace)["tpot_us"].dropna().tolist() == [10_000] * 3
    source = source_of(trace)
    assert source.load_unknown == "the file has no start times of requests"
    assert source.left_out == {"of unknown length": 1}
    assert f"latencies taken in {unit}" in source.notes
    assert trace.header.closed_loop is not None
    assert trace.header.closed_loop.concurrency == 8


def test_llmperfs_latencies_hold_and_its_summary_names_model_and_users(tmp_path: Path) -> None:
    path = tmp_path / "m_550_150_individual_responses.json"
    path.write_text(json.dumps(llmperf()))
    (tmp_path / "m_550_150_summary.json").write_text(
        json.dumps({"model": "m", "num_concurrent_requests": 4, "results_ttft_s_mean": 1})
    )
    trace = convert("llmperf", path)
    assert format_of(path) == "llmperf"
    assert trace.column("status").tolist() == ["ok", "ok", "error"]
    assert trace.column("input_tokens").tolist() == [550] * 3
    assert request_metrics(trace)["ttft_us"].dropna().tolist() == [600_000, 500_000]
    assert trace.header.server.model == "m"
    assert trace.header.closed_loop is not None
    assert source_of(trace).load_unknown is not None


@pytest.mark.parametrize(
    ("source", "value", "said"),
    [
        ("genai-perf", {"experiments": []}, "experiments: got no list"),
        ("genai-perf", {"experiments": [{"requests": [{"timestamp": 1.5}]}]}, "timestamp: got '1.5'"),
        ("genai-bench", {"individual_request_metrics": []}, "got none, expected at least one request"),
        ("genai-bench", genai_bench() | {"_time_unit": "h"}, "_time_unit: got 'h', expected s or ms"),
        ("inference-perf", [1], "request 0: got int"),
        ("inference-perf", [lifecycle(1.0, start_time=None)], "start_time: got nothing"),
        ("inference-perf", [lifecycle(5.0, info={"input_tokens": 3.5})], "input_tokens: got '3.5'"),
        ("llmperf", [], "got no list of requests"),
        ("llmperf", [llmperf()[0] | {"ttft_s": -1}], "ttft_s: got '-1', expected a number of seconds >= 0"),
        ("llmperf", [llmperf()[0] | {"ttft_s": 9}], "got more than end_to_end_latency_s"),
        ("llmperf", [llmperf()[0] | {"number_input_tokens": None}], "got no request of known length"),
    ],
)
def test_what_is_no_such_result_is_refused(
    tmp_path: Path, source: SourceFormat, value: object, said: str
) -> None:
    path = tmp_path / "result.json"
    path.write_text(json.dumps(value))
    with pytest.raises(TraceError, match=said):
        convert(source, path)
