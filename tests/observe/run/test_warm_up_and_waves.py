"""Warm-up by count and by time, forgotten or marked; a fixed batch in waves; what a server does not say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import vtwin
from observe.result.json_document import summarize_observed, wave_us
from observe.result.summary_table import table
from observe.settings import WarmUp
from tests.observe.servers import Behaviour, observed, serving, serving_in_thread
from tests.observe.workloads import every, machine_lag_us, statuses, workload
from traces import ClosedLoop, check_trace, read_trace, request_metrics, summarize_trace


async def test_a_warm_up_by_time_lasts_that_long_and_repeats_no_prompt() -> None:
    async with serving(Behaviour(ttft_s=0.01)) as server:
        seen = await observed(server, workload([0, 0, 0]), warmup=WarmUp(seconds=0.3))
        at = [request.at_ns for request in server.requests]
        bodies = {tuple(request.body["prompt"]) for request in server.requests}
    assert len(seen.trace) == 3
    assert len(bodies) == len(at) > 6  # more laps than one of the three requests
    assert (at[-4] - at[0]) / 1e9 > 0.1  # how much more, the machine decides
    client = seen.trace.header.client
    assert client is not None
    assert (client.warmup_s, client.num_warmup_requests) == (0.3, None)


@pytest.mark.parametrize(
    "warmup", [WarmUp(num_requests=4, is_recorded=True), WarmUp(seconds=0.04, is_recorded=True)]
)
async def test_a_warm_up_that_is_kept_is_marked_and_in_no_latency(warmup: WarmUp, tmp_path: Path) -> None:
    async with serving(Behaviour(ttft_s=0.002)) as server:
        seen = await observed(server, workload(every(10_000, 12)), warmup=warmup, output=tmp_path / "run")
        assert len(server.requests) == 12
    assert list(seen.trace.column("phase")) == ["warmup"] * 4 + ["main"] * 8
    summary = summarize_observed(seen.trace)
    of_main = request_metrics(seen.trace)["ttft_us"].iloc[4:]
    assert summary["ttft_us"]["mean"] == pytest.approx(of_main.mean())
    shown = summarize_trace(seen.trace)
    assert shown.ttft_us is not None
    assert (shown.ttft_us.n, shown.num_warmup) == (8, 4)
    assert (summary["num_by_status"], summary["num_warmup"]) == ({"ok": 8}, 4)
    assert "8 ok, 4 warm-up" in table(summary)
    main = seen.trace.requests.iloc[4:]
    assert summary["duration_us"] == main["last_chunk_time_us"].max() - main["send_time_us"].min()
    assert check_trace(tmp_path / "run") == []


async def test_the_warm_up_that_a_header_counts_is_in_no_latency_of_the_summary() -> None:
    async with serving() as server:
        seen = await observed(server, workload(every(5_000, 6), header={"warm_up_requests": 2}))
    assert len(seen.trace) == 6
    summary = summarize_observed(seen.trace)
    assert (summary["num_by_status"], summary["num_warmup"]) == ({"ok": 4}, 2)
    of_main = request_metrics(seen.trace)["ttft_us"].iloc[2:]
    assert summary["ttft_us"]["mean"] == pytest.approx(of_main.mean())


async def test_sessions_warm_up_as_single_requests() -> None:
    trace = workload([0, None], session_id=["a", "a"], round_index=[0, 1], new_input_tokens=[8, 8])
    async with serving() as server:
        seen = await observed(server, trace, warmup=WarmUp(num_requests=2))
        assert len(server.requests) == 1 + 2 + 2
    assert statuses(seen.trace) == ["ok", "ok"]


async def test_a_wave_goes_at_once_and_the_next_when_all_of_it_is_answered() -> None:
    loop = ClosedLoop(concurrency=3, in_waves=True)
    requests = workload([0] * 3 + [None] * 5, header={"closed_loop": loop}).with_columns(
        output_tokens=[1, 9, 3, 2, 6, 1, 4, 4]
    )
    async with serving(Behaviour(itl_s=0.01)) as server:
        seen = await observed(server, requests)
    assert statuses(seen.trace) == ["ok"] * 8
    assert seen.trace.header.closed_loop == loop
    send = seen.trace.column("send_time_us").to_numpy(dtype=np.int64)
    last = seen.trace.column("last_token_time_us").to_numpy(dtype=np.int64)
    for begin, end in ((0, 3), (3, 6)):
        assert send[end] >= last[begin:end].max()
        assert np.ptp(send[begin:end]) < 30_000 + machine_lag_us(seen.trace)
    waves = wave_us(seen.trace)
    assert list(waves) == [
        last[:3].max() - send[:3].min(),
        last[3:6].max() - send[3:6].min(),
        np.ptp([send[6:].min(), last[6:].max()]),
    ]
    summary = summarize_observed(seen.trace)
    assert summary["wave_us"]["mean"] == pytest.approx(waves.mean())
    assert "wave, ms" in table(summary)
    assert summary["client"]["peak_in_flight"] == 3


def test_a_wave_with_a_failure_has_no_duration() -> None:
    trace = workload(
        [0, 0, None, None],
        header={"closed_loop": ClosedLoop(concurrency=2, in_waves=True)},
        status=["ok", "error", "ok", "ok"],
        send_time_us=[0, 0, 10, 11],
        last_token_time_us=[5, None, 30, 25],
    )
    assert np.isnan(wave_us(trace)[0])
    assert wave_us(trace)[1] == 20


def test_the_command_takes_waves_sessions_retries_and_warm_ups(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    short = ["--prompt-tokens", "9", "--output-tokens", "4", "--output-tokens-stdev", "0"]
    with serving_in_thread(Behaviour()) as server:
        command = ["observe", "--url", server.url, *short]
        waves = ["--batch", "2", "--waves", "3", "--warmup", "2", "--output", str(tmp_path / "w")]
        assert vtwin.main([*command, *waves]) == 0
        assert len(server.requests) == 8
        talk = ["--rate", "50", "--rounds", "3", "--num-requests", "6", "--output", str(tmp_path / "t")]
        assert (
            vtwin.main([*command, *talk, "--think-time", "10ms", "--retries", "1", "--warmup", "100ms"]) == 0
        )
        assert vtwin.main([*command, *talk, "--keep-warmup"]) == 2
        assert "--keep-warmup: needs --warmup" in capsys.readouterr().err
        assert vtwin.main([*command, *talk, "--warmup", "soon"]) == 2
    assert len(read_trace(tmp_path / "w")) == 6
    trace = read_trace(tmp_path / "t")
    assert list(trace.column("round_index")) == [0, 1, 2] * 2
    assert trace.header.client is not None
    assert trace.header.client.warmup_s == 0.1


async def test_what_the_answers_do_not_tell_is_said_once_with_the_flag_that_lets_them() -> None:
    async with serving(Behaviour(extras=False)) as server:
        silent = await observed(server, workload([0, 0]))
    assert [note for note in silent.notes if "(vllm: --enable" in note or "fingerprint" in note] == [
        "no cached_tokens in usage: prefix-cache hits per request unknown (vllm: --enable-prompt-tokens-details)",
        "no queue times in the answers (vllm: --enable-per-request-metrics)",
        "no system_fingerprint: a server replaced during the run would go unnoticed",
    ]
    async with serving() as server:
        assert (await observed(server, workload([0, 0]))).notes == ()
