"""Sessions that branch, sent: order, pauses, failures, users, processes, and what a run that is cut short leaves."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import numpy as np
import pytest

import vtwin
from observe import Limits, Settings, observe_trace, observe_with, parse_endpoint
from observe.settings import WarmUp
from tests.observe.servers import Behaviour, serving
from tests.observe.trees import THINK_US, tree, trees
from tests.observe.workloads import machine_lag_us, statuses
from tests.replay.serve.test_serve import served
from traces import Trace, check_trace, read_trace, session_tree
from traces.workload import SessionStarts, started


def times(trace: Trace, name: str) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return trace.column(name).to_numpy(dtype=np.int64)


def holds_its_pauses(trace: Trace, *, within_us: int = 20_000) -> bool:
    """Say whether each request was due its pause after the last of the answers that it waits for."""
    send, last = times(trace, "send_time_us"), times(trace, "last_chunk_time_us")
    due = send - times(trace, "dispatch_lag_us")
    waiting, awaited = session_tree(trace.table).edges()
    answered = np.zeros(len(trace), np.int64)
    np.maximum.at(answered, waiting, last[awaited])
    rows = np.unique(waiting)
    pause = due[rows] - answered[rows] - trace.cells("think_time_us").values[rows]
    return bool(((pause >= 0) & (pause < within_us + machine_lag_us(trace))).all())


async def test_each_is_sent_its_pause_after_the_last_answer_it_waits_for(tmp_path: Path) -> None:
    async with serving(Behaviour(ttft_s=0.02, itl_s=0.005)) as server:
        trace = await observe_trace(trees(2, every_us=30_000), url=server.url, output=tmp_path / "run")
    assert statuses(trace) == ["ok"] * 12
    assert holds_its_pauses(trace)
    send = times(trace, "send_time_us")
    assert (send[3] < send[2] < send[1] < send[4] < send[5]) and send[6] < send[1]
    assert trace.header.client is not None
    assert (trace.header.client.peak_in_flight or 0) >= 2
    assert check_trace(tmp_path / "run") == []
    kept = read_trace(tmp_path / "run")
    for name in ("parent_request_id", "awaited_request_ids", "num_parent_hashes", "prefix_hashes"):
        assert kept.cells(name).values.tolist() == trees(2).cells(name).values.tolist()
    assert kept.header.hash_block_size == 16


async def test_a_failed_answer_is_an_answer() -> None:
    async with serving(Behaviour(fault="status 500", fault_on=frozenset({0, 2}))) as server:
        trace = await observe_trace(tree(), url=server.url)
    assert sorted(statuses(trace)) == ["error"] * 2 + ["ok"] * 4
    assert len(trace) == 6
    assert trace.header.client is not None


async def test_users_take_the_next_session_when_all_of_one_is_answered() -> None:
    workload = started(trees(4), SessionStarts(at_once=2, think_scale=0.1))
    async with serving(Behaviour(ttft_s=0.02)) as server:
        trace = await observe_trace(workload, url=server.url)
    assert statuses(trace) == ["ok"] * 24
    assert trace.header.closed_loop is not None and trace.header.closed_loop.concurrency == 2
    send = times(trace, "send_time_us").reshape(4, 6)
    last = times(trace, "last_chunk_time_us").reshape(4, 6)
    assert send[:2, 0].max() < last[:2].max(axis=1).min()
    assert send[2:, 0].min() >= last[:2].max(axis=1).min()
    arrival = trace.cells("arrival_time_us").is_known.reshape(4, 6)
    assert arrival[:, 0].tolist() == [True, True, False, False] and not arrival[:, 1:].any()


async def test_a_cap_holds_branches_back() -> None:
    async with serving(Behaviour(ttft_s=0.03)) as server:
        trace = await observe_trace(trees(2), url=server.url, limits=Limits(max_concurrency=1))
    client = trace.header.client
    assert client is not None
    assert (client.peak_in_flight, statuses(trace)) == (1, ["ok"] * 12)


async def test_a_warm_up_sends_whole_prompts_that_wait_for_nothing() -> None:
    async with serving() as server:
        settings = Settings(endpoint=parse_endpoint(server.url), warmup=WarmUp(num_requests=4))
        seen = await observe_with(tree(), settings)
        lengths = [len(request.body["prompt"]) for request in server.requests]
    assert sorted(lengths[:4]) == sorted([70, 84, 100, 40])
    assert len(seen.trace) == 6 and len(lengths) == 10


@pytest.mark.parametrize("twice", [False, True])
async def test_a_run_that_is_cut_short_leaves_a_trace_that_can_be_read(tmp_path: Path, twice: bool) -> None:
    async with serving(Behaviour(ttft_s=0.08)) as server:
        settings = Settings(endpoint=parse_endpoint(server.url), max_error_frac=None)
        run = asyncio.create_task(
            observe_with(trees(3), settings, output=tmp_path / "run", handle_signals=True)
        )
        await server.received(5)
        os.kill(os.getpid(), signal.SIGINT)
        if twice:
            await asyncio.sleep(0.01)
            os.kill(os.getpid(), signal.SIGINT)
        seen = await run
    assert seen.interrupted
    kept = read_trace(tmp_path / "run")
    assert 5 <= len(kept) < 18
    assert set(statuses(kept)) == ({"ok", "aborted"} if twice else {"ok"})
    assert check_trace(tmp_path / "run") == []


async def test_several_processes_keep_sessions_whole(tmp_path: Path) -> None:
    async with serving(Behaviour(ttft_s=0.01)) as server:
        settings = Settings(endpoint=parse_endpoint(server.url), processes=2, salt=3)
        seen = await observe_with(trees(4), settings, output=tmp_path / "run")
        sent = {
            request.headers["x-request-id"].rsplit("-", 1)[1]: request.body["prompt"]
            for request in server.requests
        }
    trace = seen.trace
    assert statuses(trace) == ["ok"] * 24
    assert holds_its_pauses(trace, within_us=100_000)
    assert trace.header.client is not None and len(trace.header.client.processes) == 2
    assert sent["0"][:32] == sent["6"][:32] == sent["12"][:32] == sent["18"][:32]


async def test_the_twin_finds_in_its_cache_what_the_server_found(tmp_path: Path) -> None:
    """Served by the simulator in real time, and replayed as a tree at simulated answers: equal hits, round by round."""
    async with served(model="tiny", engine={"enable_prefix_caching": True}) as (listening, _):
        trace = await observe_trace(
            trees(3, every_us=40_000, scale=3), url=listening.url, output=tmp_path / "run"
        )
    assert statuses(trace) == ["ok"] * 18
    assert holds_its_pauses(trace, within_us=50_000)
    config = tmp_path / "server.yaml"
    config.write_text(
        "engine: {num_gpu_blocks: 500, max_model_len: 1024, async_scheduling: false}\n"
        "latency: {model: blackbox, coefficients: {alpha0: 0, alpha1: 0, alpha2: 0, beta0: 5000, beta1: 0, beta2: 0}}\n"
    )
    replayed = ["replay", str(tmp_path / "run"), "--config", str(config), "--output", str(tmp_path / "twin")]
    assert await asyncio.to_thread(vtwin.main, replayed) == 0
    twin = read_trace(tmp_path / "twin")
    found = trace.column("cached_input_tokens").tolist()
    assert found == twin.column("num_cached_tokens").tolist()
    assert found[:6] == [0, 64, 48, 32, 80, 128]
    assert THINK_US[1] == 100_000
    due = times(twin, "send_time_us")
    assert (np.diff(due[[0, 3, 2, 1, 4, 5]]) > 0).all()  # as a tree: its own order, too
