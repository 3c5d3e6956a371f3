"""A report of guidellm as an observed trace, its fields as guidellm 0.8's own schemas name them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import vtwin
from traces import ClosedLoop, ConfigError, TraceError, check_trace, read_trace, request_metrics, write_trace
from traces.conversion import convert
from traces.importers.reading_options import ReadingOptions

START = 1_750_000_000.0


def request(
    start: float, *, due: float | None = None, tokens: int = 3, error: str | None = None
) -> dict[str, Any]:
    """One entry, ``start`` s into the run: first token after 0.1 s, then one every 0.02 s."""
    first, last = START + start + 0.1, START + start + 0.1 + 0.02 * (tokens - 1)
    return {
        "type_": "generative_request_stats",
        "request_id": f"r{start:g}",
        "request_args": json.dumps({"body": {"max_completion_tokens": tokens, "stream": True}}),
        "info": {
            "conversation_id": f"c{start:g}",
            "turn_index": 0,
            "status": "errored" if error else "completed",
            "error": error,
            "timings": {
                "targeted_start": START + (start if due is None else due),
                "request_start": START + start,
                "first_request_iteration": first - 0.05,
                "first_token_iteration": None if error else first,
                "last_token_iteration": None if error else last,
                "last_request_iteration": last + 0.001,
                "request_iterations": tokens + 2,
                "token_iterations": 0 if error else tokens,
                "request_end": last + 0.002,
            },
        },
        "prompt_tokens": 100,
        "cached_tokens": 16,
        "output_tokens": None if error else tokens,
        "inter_token_latency_ms": None if error else 20.0,
    }


def report(*benchmarks: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"guidellm_version": "0.8.1"}, "args": {"model": "m"}, "benchmarks": list(benchmarks)}


def benchmark(strategy: dict[str, Any], **requests: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    return {
        "config": {"strategy": strategy},
        "requests": {"successful": [], "incomplete": [], "errored": None, **requests},
    }


POISSON = benchmark(
    {"type_": "poisson", "rate": 5.0},
    successful=[request(0.5, due=0.4), request(0.0)],
    errored=[request(0.2, error="HTTPError:\n boom")],
    incomplete=[request(0.7)],
)


def written(tmp_path: Path, said: object, name: str = "benchmarks.json") -> Path:
    path = tmp_path / name
    path.write_text(yaml.safe_dump(said) if name.endswith("yaml") else json.dumps(said))
    return path


@pytest.mark.parametrize("name", ["benchmarks.json", "benchmarks.yaml"])
def test_a_report_is_an_observed_trace_with_its_due_times(tmp_path: Path, name: str) -> None:
    trace = convert("guidellm", written(tmp_path, report(POISSON), name))
    assert list(trace.column("status")) == ["ok", "error", "ok", "aborted"]
    assert list(trace.column("arrival_time_us")) == [0, 200_000, 400_000, 700_000]
    assert list(trace.column("send_time_us")) == [0, 200_000, 500_000, 700_000]
    assert list(trace.column("dispatch_lag_us")) == [0, 0, 100_000, 0]
    metrics = request_metrics(trace)
    assert list(metrics["ttft_us"].dropna()) == [100_000] * 2
    assert list(metrics["e2e_us"].dropna()) == [140_000] * 2
    assert list(metrics["itl_mean_us"].dropna()) == [20_000] * 2
    assert list(trace.column("cached_input_tokens")) == [16] * 4
    assert list(trace.column("max_tokens")) == [3] * 4
    assert trace.column("error_message")[1] == "HTTPError: boom"
    assert trace.column("output_tokens").isna()[1]
    assert (trace.header.tool, trace.header.tool_version, trace.header.server.model) == (
        "guidellm",
        "0.8.1",
        "m",
    )
    assert trace.header.closed_loop is None
    write_trace(trace, tmp_path / "t")
    assert check_trace(tmp_path / "t") == []


def test_a_closed_loop_has_no_due_times_of_its_own(tmp_path: Path) -> None:
    users = benchmark({"type_": "concurrent", "streams": 2}, successful=[request(0.5, due=0.1), request(0.0)])
    trace = convert("guidellm", written(tmp_path, report(users)))
    assert trace.header.closed_loop == ClosedLoop(concurrency=2)
    assert list(trace.column("arrival_time_us")) == [0, 500_000]
    assert trace.column("dispatch_lag_us").isna().all()


def test_of_several_benchmarks_one_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    users = benchmark({"type_": "concurrent", "streams": 2}, successful=[request(0.0)])
    path = written(tmp_path, report(POISSON, users))
    with pytest.raises(
        ConfigError,
        match=r"got 2 benchmarks, expected the name of one: benchmarks.json#1 \(poisson 5\), benchmarks.json#2",
    ):
        convert("guidellm", path)
    with pytest.raises(ConfigError, match="part: got 3, expected 1 to 2"):
        convert("guidellm", path, options=ReadingOptions(part=3))
    out = tmp_path / "t"
    asked = ["trace", "convert", str(path), "--from", "guidellm", "--part", "2", "--output", str(out)]
    assert vtwin.main(asked) == 0
    assert len(read_trace(out)) == 1
    assert (
        vtwin.main(["trace", "convert", str(out), "--from", "tracev2", "--part", "2", "--output", str(out)])
        == 2
    )
    assert (
        "--part 2: got a file of the format tracev2, expected one of vllm-bench, sglang-bench, guidellm"
        in capsys.readouterr().err
    )


def test_an_answer_in_one_piece_has_no_first_token(tmp_path: Path) -> None:
    one = request(0.0, tokens=5)
    one["info"]["timings"]["token_iterations"] = 1
    trace = convert("guidellm", written(tmp_path, report(benchmark({}, successful=[one]))))
    assert list(trace.column("streaming")) == [False]
    assert trace.column("content_first_time_us").isna().all()


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ([], "benchmarks: got no list"),
        ({"benchmarks": []}, "benchmarks: got no list"),
        ({"benchmarks": [{}]}, "requests: got none"),
        ({"benchmarks": [benchmark({})]}, "requests: got none"),
        (
            {"benchmarks": [benchmark({}, successful=[{"output": "a"}])]},
            "requests: got none with a prompt's length",
        ),
    ],
)
def test_what_is_no_report_is_refused_by_its_key(tmp_path: Path, said: object, expected: str) -> None:
    with pytest.raises(TraceError, match=expected):
        convert("guidellm", written(tmp_path, said))
    with pytest.raises(TraceError, match=r"no\.json"):
        convert("guidellm", tmp_path / "no.json")
