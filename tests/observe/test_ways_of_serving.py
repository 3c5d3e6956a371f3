"""Servers, and what stands before them, that answer in another way than a plain vLLM: read right, or told."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from observe.observation import Observation
from observe.result.json_document import summarize_observed
from observe.result.summary_table import table
from tests.observe.servers import Behaviour, FakeServer, Received, observed, serving
from tests.observe.workloads import every, statuses, workload
from traces import Trace, read_trace, request_metrics

STEP_S = 0.004


def kinds(trace: Trace) -> list[str]:
    return [each.kind for each in trace.header.findings]


async def run(
    behaviour: Behaviour, *, number: int = 4, output_tokens: int = 16, **how: object
) -> Observation:
    async with serving(behaviour) as server:
        return await observed(server, workload(every(5_000, number), output_tokens=output_tokens), **how)


async def test_a_plain_server_gives_rise_to_no_finding(tmp_path: Path) -> None:
    async with serving(Behaviour(ttft_s=0.02, itl_s=STEP_S)) as server:
        seen = await observed(server, workload(every(5_000, 12), output_tokens=16), output=tmp_path / "run")
    assert kinds(seen.trace) == []
    assert "findings" not in (tmp_path / "run.yaml").read_text()
    for name in ("reasoning_tokens", "hidden_tokens"):
        assert name not in read_trace(tmp_path / "run").table


@pytest.mark.parametrize("events", [True, False], ids=["with events", "without"])
async def test_an_answer_that_a_proxy_held_back_has_an_e2e_and_no_other_latency(
    events: bool, tmp_path: Path
) -> None:
    async with serving(Behaviour(ttft_s=0.02, itl_s=STEP_S, held_s=math.inf)) as server:
        seen = await observed(
            server, workload(every(5_000, 4), output_tokens=16), output=tmp_path / "run", events=events
        )
    trace = read_trace(tmp_path / "run")
    latencies = request_metrics(trace)
    for name in ("ttft_us", "tpot_us", "itl_mean_us", "itl_p99_us"):
        assert latencies[name].isna().all(), name
    assert (latencies["e2e_us"] > 75_000).all()
    assert kinds(trace) == ["stream_held_back"]
    summary = summarize_observed(seen.trace, slo_us={"ttft": 1e6, "tpot": 1e3})
    assert (summary["tpot_us"]["mean"], summary["itl_us"]["p50"]) == (None, None)
    assert any("a proxy on the way holds the stream back" in note for note in summary["notes"])
    assert summary["goodput"] is not None
    assert (summary["goodput"]["num_requests"], summary["goodput"]["num_not_measured"]) == (0, 4)
    assert "100.0%" not in table(summary)


async def test_an_answer_that_comes_in_clumps_has_no_itl() -> None:
    trace = (await run(Behaviour(ttft_s=0.02, itl_s=STEP_S, held_s=0.03), output_tokens=24)).trace
    latencies = request_metrics(trace)
    assert kinds(trace) == ["stream_in_clumps"]
    assert latencies["itl_mean_us"].isna().all()
    assert latencies["ttft_us"].isna().all()  # the first clump held several events
    assert (trace.column("num_token_reads") < 8).all()


async def test_hidden_reasoning_is_counted_apart_and_no_tpot_is_divided_by_it() -> None:
    behaviour = Behaviour(ttft_s=0.02, itl_s=STEP_S, hidden=10, usage="last", is_vllm=False)
    trace = (await run(behaviour, output_tokens=20, api="chat")).trace
    assert set(trace.column("output_tokens")) == {20}
    assert set(trace.column("reasoning_tokens")) == set(trace.column("hidden_tokens")) == {10}
    span = trace.cells("last_token_time_us").floats() - trace.cells("content_first_time_us").floats()
    behind = 10 - trace.column("first_chunk_tokens").fillna(1).to_numpy(float)
    assert request_metrics(trace)["tpot_us"].tolist() == pytest.approx((span / behind).tolist())
    assert (request_metrics(trace)["ttft_us"] > 55_000).all()
    assert "hidden_reasoning" in kinds(trace)


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning", "reasoning_details", "thinking_blocks"])
async def test_reasoning_that_streams_is_output_whatever_its_key(key: str) -> None:
    behaviour = Behaviour(reasoning=True, reasoning_key=key)
    trace = (await run(behaviour, output_tokens=5, api="chat", number=1)).trace
    assert list(trace.column("num_token_chunks")) == [5]
    assert list(trace.column("reasoning_tokens")) == [1]
    assert trace.column("hidden_tokens").isna().all()


async def test_a_key_of_a_delta_that_nobody_reads_is_named() -> None:
    seen = await run(
        Behaviour(reasoning=True, reasoning_key="thoughts", usage="last"), output_tokens=5, api="chat"
    )
    assert any("not read, and count as no text: thoughts (4 answers)" in note for note in seen.notes)


@pytest.mark.parametrize(
    ("behaviour", "first"),
    [(Behaviour(tokens_per_event=4, itl_s=4 * STEP_S), 4), (Behaviour(first_event=8, itl_s=STEP_S), 8)],
    ids=["fours", "first of eight"],
)
async def test_tpot_is_of_the_tokens_behind_the_first_event(behaviour: Behaviour, first: int) -> None:
    trace = (await run(behaviour, output_tokens=24, events=False)).trace
    assert set(trace.column("first_chunk_tokens")) == {first}
    span = trace.cells("last_token_time_us").floats() - trace.cells("content_first_time_us").floats()
    assert request_metrics(trace)["tpot_us"].tolist() == pytest.approx((span / (24 - first)).tolist())


@pytest.mark.parametrize(
    ("reason", "status"), [("abort", "aborted"), ("error", "error"), ("content_filter", "error")]
)
async def test_an_answer_that_the_server_gave_up_is_not_ok(reason: str, status: str) -> None:
    behaviour = Behaviour(itl_s=0.001, ends_with={1: reason, 3: reason})
    trace = (await run(behaviour, output_tokens=8)).trace
    assert statuses(trace) == ["ok", status, "ok", status]
    assert request_metrics(trace)["e2e_us"].isna().tolist() == [False, True, False, True]
    assert kinds(trace) == ["finish_reason"]
    assert f"finish_reason {reason}" in str(trace.column("error_message").iloc[1])


@pytest.mark.parametrize("usage", ["never", "zeros"])
async def test_unknown_tokens_are_not_0(usage: str) -> None:
    behaviour = Behaviour(itl_s=0.001, usage=usage)  # type: ignore[arg-type]
    seen = await run(behaviour, output_tokens=8)
    summary = summarize_observed(seen.trace)
    assert set(seen.trace.column("output_tokens")) == {8}
    assert summary["output_token_throughput"] is not None
    assert summary["output_token_throughput"] > 0
    assert summary["num_length_capped"] == 0
    assert kinds(seen.trace) == ["no_usage"]
    assert seen.trace.column("server_input_tokens").isna().all()


async def test_prompts_that_were_to_be_new_and_were_cached_are_told() -> None:
    trace = (await run(Behaviour(itl_s=0.001, all_but_cached=1))).trace
    (found,) = trace.header.findings
    assert found.kind == "warm_prefix_cache"
    assert found.text.startswith("88% of the prompts' tokens were found in the server's prefix cache (usage)")


async def test_a_cold_start_is_told_with_the_warm_up_that_takes_it_out() -> None:
    trace = (await run(Behaviour(ttft_s=0.03, itl_s=0.001, num_cold=6), number=40, output_tokens=3)).trace
    (found,) = trace.header.findings
    assert (found.kind, found.num) == ("cold_start", 6)
    assert "--warmup 6" in found.text


async def test_answers_shorter_than_ignore_eos_allows_are_told() -> None:
    trace = (await run(Behaviour(itl_s=0.001, fewer_tokens=2), output_tokens=8)).trace
    assert kinds(trace) == ["fewer_tokens"]  # finish_reason length, with room in the context
    behaviour = Behaviour(itl_s=0.001, ends_with=dict.fromkeys(range(4), "stop"))
    trace = (await run(behaviour, output_tokens=8)).trace
    (found,) = trace.header.findings
    assert (found.kind, found.num, found.of) == ("fewer_tokens", 4, 4)


def _router(*names: str, label: str = "server") -> str:
    return "".join(f'vllm:num_requests_running{{{label}="{name}"}} 1.0\n' for name in names)


@pytest.mark.parametrize("label", ["server", "pod", "instance"])
async def test_several_servers_behind_one_address_are_counted_and_told(label: str) -> None:
    async with serving(Behaviour(itl_s=0.001)) as server:
        server.more_metrics = lambda: _router("10.0.0.1", "10.0.0.2", "10.0.0.3", label=label)
        seen = await observed(server, workload([0]))
    assert seen.trace.header.server.num_instances == 3
    assert seen.trace.header.server.instance_names == ("10.0.0.1", "10.0.0.2", "10.0.0.3")
    assert any("3 servers stand behind this address" in note for note in seen.notes)
    assert kinds(seen.trace) == ["several_engines"]


async def test_a_server_that_wants_max_completion_tokens_gets_it() -> None:
    behaviour = Behaviour(wants_completion_limit=True, is_vllm=False, usage="last")
    async with serving(behaviour) as server:
        seen = await observed(server, workload([0, 0]), api="chat")
    assert statuses(seen.trace) == ["ok", "ok"]
    assert all("max_tokens" not in each.body for each in _answered(server))
    assert any("max_completion_tokens in place of max_tokens" in note for note in seen.notes)


def _answered(server: FakeServer) -> list[Received]:
    return server.requests[-2:]


async def test_a_prompt_beyond_max_model_len_is_told_before_the_load() -> None:
    told: list[str] = []
    async with serving(Behaviour()) as server:
        await observed(server, workload([0, 0], input_tokens=5_000), tell=told.append)
        await observed(server, workload([0], input_tokens=4_093), tell=told.append)
    assert any("2 of 2 prompts are longer than the server's max_model_len 4,096" in line for line in told)
    assert any("1 of 1 requests ask for more tokens than max_model_len 4,096 leaves" in line for line in told)


async def test_no_usage_and_an_end_of_its_own_count_a_token_an_event() -> None:
    behaviour = Behaviour(itl_s=0.001, usage="never", ends_with={0: "stop"})
    seen = await run(behaviour, number=1, output_tokens=8)
    assert list(seen.trace.column("output_tokens")) == [4]
    assert any("output tokens are taken as one an event" in note for note in seen.notes)
    assert np.isfinite(request_metrics(seen.trace)["tpot_us"]).all()
