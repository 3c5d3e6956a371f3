"""BLIS's SimResult and metrics, written as BLIS writes them."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tests.traces.made import BLIS, small_trace
from traces import Header, TraceError, make_trace, write_trace
from traces.cli import trace_app
from traces.exporters import export


def simulated() -> object:
    """The simulation whose SimResult BLIS wrote to p.json, as a trace of vtwin."""
    wrote = json.loads((BLIS / "p.json").read_text())
    send = np.arange(len(wrote)) * 25_000
    ttft, e2e = (np.array([each[name] for each in wrote]) for name in ("ttft_us", "e2e_us"))
    return make_trace(
        Header(mode="replayed"),
        {
            "request_id": [str(each["request_id"]) for each in wrote],
            "input_tokens": [each["input_tokens"] for each in wrote],
            "output_tokens": [each["output_tokens"] for each in wrote],
            "arrival_time_us": send,
            "send_time_us": send,
            "content_first_time_us": send + ttft,
            "last_token_time_us": send + e2e,
            "itl_mean_us": [each.get("itl_mean_us") for each in wrote],
            "status": "ok",
        },
    )


def test_a_simresult_is_what_blis_wrote_byte_for_byte(tmp_path: Path) -> None:
    export(simulated(), "blis-simresult", tmp_path / "p.json")  # type: ignore[arg-type]
    assert (tmp_path / "p.json").read_bytes() == (BLIS / "p.json").read_bytes()


def test_only_completed_requests_are_results_by_their_number(tmp_path: Path) -> None:
    trace = small_trace(
        request_id=["10", "9", "2"], status=["ok", "timeout", "ok"], slo_class=["batch", None, None],
        prefix_group=["g", None, None], prefix_length=[7, 0, 0],
    )  # fmt: skip
    results = json.loads(export(trace, "blis-simresult", tmp_path / "r.json").read_text())
    assert [each["request_id"] for each in results] == [2, 10]
    assert results[1] == {
        "request_id": 10, "ttft_us": 400, "e2e_us": 900, "input_tokens": 17, "output_tokens": 5,
        "slo_class": "batch", "itl_mean_us": 125,
    }  # fmt: skip


def test_names_that_are_no_numbers_are_numbered_as_in_the_dialect(tmp_path: Path) -> None:
    results = json.loads(export(small_trace(), "blis-simresult", tmp_path / "r.json").read_text())
    assert [each["request_id"] for each in results] == [0, 1, 2]


def test_metrics_have_blis_names_counts_and_percentiles(tmp_path: Path) -> None:
    trace = small_trace(
        status=["ok", "rejected", "ok"],
        num_preemptions=[2, 0, 1],
        scheduled_time_us=[100, None, 2050],
        num_cached_tokens=[5, None, 0],
    )
    document = json.loads(export(trace, "blis-metrics", tmp_path / "m.json").read_text())
    assert list(document)[:11] == [
        *("instance_id", "completed_requests", "still_queued", "still_running", "injected_requests"),
        *("total_input_tokens", "total_output_tokens", "vllm_estimated_duration_s", "responses_per_sec"),
        *("tokens_per_sec", "e2e_mean_ms"),
    ]
    assert (document["completed_requests"], document["dropped_unservable"]) == (2, 1)
    assert document["injected_requests"] == 3
    assert (document["total_input_tokens"], document["total_output_tokens"]) == (40, 9)
    assert document["vllm_estimated_duration_s"] == 0.003
    assert document["tokens_per_sec"] == 3000
    assert (document["e2e_mean_ms"], document["ttft_p90_ms"]) == (0.95, pytest.approx(0.58))
    assert document["itl_p99_ms"] == pytest.approx(0.1333, abs=1e-3)
    assert document["scheduling_delay_p99_ms"] == pytest.approx(0.0995)
    assert (document["preemption_count"], document["cache_hit_rate"]) == (3, 0.125)
    first = document["requests"][0]
    assert first == {
        "arrived_at": 0, "requestID": "request_0", "num_prefill_tokens": 10, "num_decode_tokens": 5,
        "ttft_ms": 0.4, "itl_ms": 0.125, "e2e_ms": 0.9, "scheduling_delay_ms": 0.1, "round_index": 0,
    }  # fmt: skip


def test_a_workload_has_no_results(tmp_path: Path) -> None:
    workload = make_trace(
        Header(), {"request_id": ["0"], "input_tokens": 1, "output_tokens": 1, "arrival_time_us": 0}
    )
    with pytest.raises(TraceError, match="status: got a workload, expected a run with outcomes"):
        export(workload, "blis-metrics", tmp_path / "m.json")


def test_the_command_writes_them(tmp_path: Path) -> None:
    write_trace(small_trace(), tmp_path / "run")
    out = tmp_path / "results.json"
    arguments = ["convert", str(tmp_path / "run"), "--from", "tracev2", "--to", "blis-simresult"]
    result = CliRunner().invoke(trace_app, [*arguments, "--output", str(out)])
    assert result.exit_code == 0, result.output
    assert len(json.loads(out.read_text())) == 3
