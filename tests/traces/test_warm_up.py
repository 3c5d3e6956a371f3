"""Warm-up is one thing: rows marked with ``phase``, and the header's first ``warm_up_requests``."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import vtwin
from tests.traces.made import events_of, small_trace
from traces import Trace, is_warmup, read_trace, summarize_trace, without_warmup, write_trace
from traces.errors import TraceError
from traces.workload import workload_of


def warmed(num: int | None, **columns: object) -> Trace:
    return small_trace(**columns).with_header(warm_up_requests=num)


@pytest.mark.parametrize(
    ("trace", "expected"),
    [
        (warmed(None), [False, False, False]),
        (warmed(0), [False, False, False]),
        (warmed(2), [True, True, False]),
        (warmed(9), [True, True, True]),
        (warmed(None, phase=["main", "warmup", None]), [False, True, False]),
        (warmed(1, phase=["main", None, "warmup"]), [True, False, True]),
    ],
)
def test_a_row_is_warm_up_by_its_phase_or_by_the_headers_count(trace: Trace, expected: list[bool]) -> None:
    assert is_warmup(trace).tolist() == expected


def test_without_warm_up_is_the_same_when_asked_twice() -> None:
    events = events_of([("a", 0, 400, 1), ("b", 0, 1500, 1)])
    once = without_warmup(warmed(1).with_events(events))
    assert list(once.requests["request_id"]) == ["b", "c"]
    assert once.events is not None
    assert list(once.events["request_id"]) == ["b"]
    assert without_warmup(once) is once


def test_trace_info_leaves_the_headers_warm_up_out_of_the_latencies() -> None:
    summary = summarize_trace(warmed(1))
    assert (summary.num_requests, summary.num_warmup) == (3, 1)
    assert summary.ttft_us is not None
    assert (summary.ttft_us.n, summary.ttft_us.mean) == (2, np.mean([490, 600]))


def test_a_workload_of_a_trace_leaves_the_headers_warm_up_out() -> None:
    again = workload_of(warmed(2))
    assert list(again.requests["request_id"]) == ["c"]
    assert again.header.warm_up_requests is None
    with pytest.raises(TraceError, match="got none"):
        workload_of(warmed(3))


def test_replay_simulates_the_headers_warm_up_and_leaves_it_out_of_the_latencies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "twin.yaml").write_text(
        'vllm_version: "0.32.0"\nlatency: {model: blackbox, coefficients: '
        "{alpha0: 0, alpha1: 0, alpha2: 0, beta0: 1000, beta1: 10, beta2: 1}}\n"
    )
    shown = {}
    for name, num in (("all", None), ("warm", 2)):
        write_trace(warmed(num, output_tokens=[9, 5, 4]), tmp_path / name)
        command = ["replay", str(tmp_path / name), "--config", str(tmp_path / "twin.yaml"), "--json"]
        assert vtwin.main([*command, "--output", str(tmp_path / f"{name}-out")]) == 0
        shown[name] = json.loads(capsys.readouterr().out)
    last = read_trace(tmp_path / "all-out")
    assert (shown["all"]["num_warmup"], shown["warm"]["num_warmup"]) == (0, 2)
    assert shown["all"]["duration_us"] == shown["warm"]["duration_us"]
    alone = summarize_trace(without_warmup(last.with_header(warm_up_requests=2)))
    assert alone.itl_us is not None
    assert alone.e2e_us is not None
    assert shown["warm"]["e2e_us"]["p50"] == alone.e2e_us.p50
    assert shown["warm"]["itl_us"]["mean"] == pytest.approx(alone.itl_us.mean, abs=0.001)
    assert shown["warm"]["itl_us"]["mean"] != shown["all"]["itl_us"]["mean"]
    assert read_trace(tmp_path / "warm-out").events is None
