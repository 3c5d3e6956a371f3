"""The phases of HTTP from a trace's columns, and which of them are shown."""

from __future__ import annotations

from typing import Any

import numpy as np

import vtwin
from observe.result.json_document import summarize_observed
from observe.result.summary_table import table
from traces import Header, Trace, make_trace, phase_quantities, slow_phases, write_trace
from traces.header import ClientInfo
from traces.measured.http_phases import http_phases_us


def run(**more: Any) -> Trace:  # noqa: ANN401 - any column
    """Three requests, the first over a new connection, the last without an answer."""
    columns: dict[str, Any] = {
        "request_id": ["0", "1", "2"],
        "arrival_time_us": [0, 10_000, 20_000],
        "send_time_us": [7_000, 10_000, 20_000],
        "input_tokens": [8, 8, 8],
        "output_tokens": [2, 2, 0],
        "status": ["ok", "ok", "error"],
        "http_connect_us": [4_000, None, 9_000],
        "http_tls_us": [2_500, None, 9_000],
        "http_send_us": [20, 5_000, 1],
        "first_byte_time_us": [8_000, 14_000, None],
        "content_first_time_us": [9_000, 15_000, None],
        "last_token_time_us": [9_500, 15_500, None],
        "last_chunk_time_us": [9_600, 15_600, None],
        **more,
    }
    client = ClientInfo(num_planned=3, dispatch_lag_us={}, own_lag_us={}, loop_lag_us={})
    return make_trace(Header(mode="real", tool="vtwin", client=client), columns)


def test_only_phases_that_answered_requests_had() -> None:
    found = {name: values.tolist() for name, values in http_phases_us(run()).items()}
    np.testing.assert_equal(
        found,
        {
            "connect": [4_000, np.nan, np.nan],
            "tls": [2_500, np.nan, np.nan],
            "send": [20, 5_000, np.nan],
            "wait": [980, 0, np.nan],  # the second's answer began while it was still being sent
            "receive": [1_600, 1_600, np.nan],
        },
    )


def test_a_trace_of_another_tool_has_none() -> None:
    assert http_phases_us(run(http_send_us=None, http_connect_us=None, http_tls_us=None)) == {}


def test_slow_phases_are_shown_with_how_many_requests_had_them(capsys: Any, tmp_path: Any) -> None:  # noqa: ANN401
    trace = run(http_tls_us=[1_000, None, None])
    assert [(name, each.n) for name, each in slow_phases(phase_quantities(trace))] == [
        ("TCP connect", 1),
        ("sending a request", 2),
    ]
    summary = summarize_observed(trace)
    assert list(summary["http_phases_us"]) == ["connect", "tls", "send", "wait", "receive"]
    shown = [line.split("  ")[0] for line in table(summary).split("\n")]
    assert [line for line in shown if "connect" in line or "sending" in line] == [
        "TCP connect of 1, ms",
        "sending a request of 2, ms",
    ]
    write_trace(trace, tmp_path / "run")
    assert vtwin.main(["trace", "info", str(tmp_path / "run")]) == 0
    lines = [line for line in capsys.readouterr().out.split("\n") if "connect" in line]
    assert [line.split()[:4] for line in lines] == [["TCP", "connect,", "ms", "1"]]
