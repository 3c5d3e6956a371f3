"""Answers in one piece."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.observe.servers import Behaviour, observed, serving
from tests.observe.workloads import statuses, workload
from traces import check_trace, request_metrics


@pytest.mark.parametrize("api", ["completions", "chat"])
async def test_an_answer_in_one_piece_has_no_first_token_but_an_end(api: str, tmp_path: Path) -> None:
    async with serving(Behaviour(ttft_s=0.05, tokenize=True)) as server:
        seen = await observed(server, workload([0, 0]), streaming=False, api=api, output=tmp_path / "run")
        assert "stream_options" not in server.requests[0].body
    trace = seen.trace
    assert statuses(trace) == ["ok", "ok"]
    assert list(trace.column("output_tokens")) == [5, 5]
    assert list(trace.column("streaming")) == [False, False]
    metrics = request_metrics(trace)
    assert metrics["ttft_us"].isna().all()
    assert metrics["tpot_us"].isna().all()
    assert (metrics["e2e_us"] > 49_000).all()
    assert check_trace(tmp_path / "run") == []


@pytest.mark.parametrize(("fault", "message"), [("html", "body: got '<html>"), ("status 500", "HTTP 500")])
async def test_a_fault_in_one_piece_is_an_error(fault: str, message: str) -> None:
    async with serving(Behaviour(fault=fault)) as server:  # type: ignore[arg-type]
        seen = await observed(server, workload([0]), streaming=False)
    assert statuses(seen.trace) == ["error"]
    assert message in str(seen.trace.column("error_message").iloc[0])
