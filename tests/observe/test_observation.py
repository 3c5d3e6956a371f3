"""Observations through real sockets: what the server did is what the trace says."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from observe import Limits, Settings, observe_trace, observe_with, parse_endpoint
from observe.result.json_document import summarize_observed
from observe.result.summary_table import table
from observe.settings import WarmUp
from tests.observe.servers import Behaviour, serving
from tests.observe.workloads import every, machine_lag_us, statuses, workload
from traces import ClosedLoop, read_trace, request_metrics


async def test_a_plain_run_is_recorded_as_the_server_did_it(tmp_path: Path) -> None:
    async with serving(Behaviour(ttft_s=0.02, itl_s=0.01)) as server:
        trace = await observe_trace(workload(every(20_000, 5)), url=server.url, output=tmp_path / "run")
        seen = server.requests
    assert statuses(trace) == ["ok"] * 5
    assert list(trace.column("output_tokens")) == [5] * 5
    assert list(trace.column("server_input_tokens")) == [8] * 5
    assert list(trace.column("finish_reason")) == ["length"] * 5
    assert list(trace.column("server_queue_us")) == [1500] * 5
    metrics = request_metrics(trace)
    for row, request in enumerate(seen):
        assert request.first_token_ns is not None
        truth_us = (request.first_token_ns - request.at_ns) / 1000
        assert abs(metrics["ttft_us"].iloc[row] - truth_us) < 15_000 + machine_lag_us(trace)
    assert trace.events is not None
    assert list(trace.events["num_tokens"][:6]) == [1, 1, 1, 1, 1, 0]
    written = read_trace(tmp_path / "run")
    assert written.header == trace.header
    for name in trace.requests.columns:
        assert written.column(name).equals(trace.column(name)), name


async def test_the_header_says_what_the_server_said_and_from_where(tmp_path: Path) -> None:
    async with serving() as server:
        trace = await observe_trace(workload([0, 0]), url=server.url + "/v1/", output=tmp_path / "run")
    info = trace.header.server
    assert (info.model, info.version, info.type) == ("tiny", "0.32.0", "vllm")
    assert (info.num_gpu_blocks, info.block_size, info.enable_prefix_caching) == (512, 16, True)
    assert info.max_model_len == 4096
    assert info.sources["num_gpu_blocks"] == "/metrics vllm:cache_config_info"
    assert info.system_fingerprint == "fp-1"
    deltas = {name.partition("{")[0]: value for name, value in trace.header.metrics_delta.items()}
    assert deltas["vllm:generation_tokens_total"].after == 10
    assert trace.header.mode == "real"
    client = trace.header.client
    assert client is not None
    assert (client.num_sent, client.finished, client.interrupted) == (2, True, False)
    assert client.prompt_source == "token ids 1000 to 3999"
    assert (client.token_counts,) == ("usage of every event",)


async def test_an_open_loop_keeps_its_times_whatever_the_answers_do() -> None:
    async with serving(Behaviour(ttft_s=1.0)) as server:  # longer than all are sent, on a busy machine too
        trace = await observe_trace(workload(every(10_000, 20), output_tokens=1), url=server.url)
        at = np.array([request.at_ns for request in server.requests])
    assert statuses(trace) == ["ok"] * 20
    assert np.all(trace.column("arrival_time_us") == every(10_000, 20))
    lag = trace.column("dispatch_lag_us").to_numpy(dtype=np.int64)
    send = trace.column("send_time_us").to_numpy(dtype=np.int64)
    assert np.all(lag >= 0)
    assert np.all(np.abs(send - lag - every(10_000, 20)) <= 1)
    client = trace.header.client
    assert client is not None
    own_ms = (client.loop_lag_us["max"] + lag.max()) / 1000  # client and server share a loop
    assert abs((at[-1] - at[0]) / 1e6 - 190) < 19 * 3 + 2 * own_ms
    assert client.peak_in_flight == 20


async def test_a_late_start_is_never_made_up_for_by_moving_the_schedule() -> None:
    """The loop is blocked for 100 ms in mid-run: what was due meanwhile is late, what comes later is not."""
    async with serving() as server:
        server.on_request = lambda request: _block(0.1) if request.number == 2 else None
        trace = await observe_trace(workload(every(20_000, 20), output_tokens=1), url=server.url)
    lag_ms = trace.column("dispatch_lag_us").to_numpy(dtype=np.int64) / 1000
    assert lag_ms.max() > 50
    assert np.median(lag_ms[12:]) < 50
    client = trace.header.client
    assert client is not None
    assert client.limited
    assert "send lag of the client, p99: " in (client.reason or "")


def _block(seconds: float) -> None:
    import time

    time.sleep(seconds)  # the loop itself must not run: an injected clock would not stop it


async def test_a_closed_loop_has_as_many_under_way_as_users_and_thinks_between() -> None:
    loop = ClosedLoop(concurrency=3, think_time_us=30_000)
    requests = workload([0, 0, 0] + [None] * 6, header={"closed_loop": loop}, output_tokens=1)
    async with serving(Behaviour(ttft_s=0.02)) as server:
        trace = await observe_trace(requests, url=server.url)
    client = trace.header.client
    assert client is not None
    assert client.peak_in_flight == 3
    assert trace.header.closed_loop == loop
    assert list(trace.column("arrival_time_us").isna()) == [False] * 3 + [True] * 6
    send = np.sort(trace.column("send_time_us").to_numpy(dtype=np.int64))
    assert send[3] >= send[0] + 50_000
    assert send[6] >= send[3] + 50_000


async def test_a_cap_on_concurrency_holds_back_and_says_so() -> None:
    async with serving(Behaviour(ttft_s=0.05)) as server:
        trace = await observe_trace(
            workload([0] * 6, output_tokens=1), url=server.url, limits=Limits(max_concurrency=2)
        )
    client = trace.header.client
    assert client is not None
    assert (client.max_concurrency, client.peak_in_flight) == (2, 2)
    assert client.num_held_back == 4
    assert trace.column("dispatch_lag_us").max() > 80_000
    assert client.own_lag_us["max"] < 50_000 + machine_lag_us(trace)


async def test_connections_are_used_again_because_the_body_is_read_to_its_end() -> None:
    async with serving() as server:
        trace = await observe_trace(workload(every(200_000, 6)), url=server.url)
        used = {request.connection for request in server.requests}
    assert len(used) == 1
    waits = list(trace.column("connection_wait_us"))
    assert waits[0] > 0
    assert waits[1:] == [0] * 5


async def test_a_server_that_closes_idle_connections_costs_no_request() -> None:
    async with serving(Behaviour(close_after_answer=True)) as server:
        trace = await observe_trace(workload(every(30_000, 4)), url=server.url)
    assert statuses(trace) == ["ok"] * 4


@pytest.mark.parametrize("cut", [1, 2, 7])
async def test_events_cut_anywhere_on_the_wire_read_the_same(cut: int) -> None:
    async with serving(Behaviour(cut=cut)) as server:
        trace = await observe_trace(workload([0], output_tokens=3), url=server.url)
    assert statuses(trace) == ["ok"]
    assert trace.events is not None
    assert list(trace.events["num_tokens"]) == [1, 1, 1, 0]


@pytest.mark.parametrize(("role", "chunks"), [("none", 6), ("early", 7), ("with", 6)])
async def test_on_chat_a_role_of_its_own_moves_the_first_chunk_and_not_ttft(role: str, chunks: int) -> None:
    async with serving(Behaviour(role=role, ttft_s=0.05)) as server:  # type: ignore[arg-type]
        trace = await observe_trace(workload([0], input_tokens=40), url=server.url, api="chat")
        served = server.requests[-1]
    assert statuses(trace) == ["ok"]
    row = trace.requests.iloc[0]
    assert row["num_chunks"] == chunks
    assert row["num_token_chunks"] == 5
    assert served.first_token_ns is not None
    ttft_us = row["content_first_time_us"] - row["send_time_us"]
    assert abs(ttft_us - (served.first_token_ns - served.at_ns) / 1000) < 15_000 + machine_lag_us(trace)
    if role == "early":
        assert row["content_first_time_us"] - row["first_chunk_time_us"] > 30_000


async def test_several_tokens_in_an_event_are_counted_and_divide_the_gap() -> None:
    async with serving(Behaviour(tokens_per_event=4, itl_s=0.02)) as server:
        trace = await observe_trace(workload([0], output_tokens=12), url=server.url)
    assert trace.events is not None
    assert list(trace.events["num_tokens"]) == [4, 4, 4, 0]
    assert trace.column("output_tokens").iloc[0] == 12
    row = trace.requests.iloc[0]
    behind_us = row["last_token_time_us"] - row["content_first_time_us"]  # as long as the machine let it take
    assert behind_us >= 39_000
    assert request_metrics(trace)["itl_mean_us"].iloc[0] == pytest.approx(behind_us / 8, abs=1)


async def test_without_usage_an_answer_that_reached_its_length_has_max_tokens_and_the_header_says_so() -> (
    None
):
    async with serving(Behaviour(usage="never")) as server:
        trace = await observe_trace(workload([0]), url=server.url)
    assert statuses(trace) == ["ok"]
    assert list(trace.column("output_tokens")) == [5]
    assert trace.header.client is not None
    assert (trace.header.client.token_counts,) == ("max_tokens, which finish_reason length says were made",)
    assert trace.header.client.num_without_usage == 1


async def test_answers_shorter_than_asked_are_noted() -> None:
    async with serving(Behaviour(fewer_tokens=2)) as server:
        trace = await observe_trace(workload([0, 0]), url=server.url)
    assert list(trace.column("output_tokens")) == [3, 3]
    assert trace.header.client is not None
    assert "2 answers have more or fewer tokens than requested" in trace.header.client.notes


async def test_warm_up_requests_are_sent_before_and_are_not_in_the_trace() -> None:
    async with serving() as server:
        settings = Settings(endpoint=parse_endpoint(server.url), warmup=WarmUp(num_requests=3))
        trace = (await observe_with(workload(every(1000, 5)), settings)).trace
        bodies = [request.body["prompt"] for request in server.requests]
    assert len(bodies) == 8
    assert len(trace) == 5
    assert trace.header.client is not None
    assert trace.header.client.num_warmup_requests == 3
    assert len({tuple(body) for body in bodies}) == 8


async def test_the_key_is_sent_and_appears_nowhere_in_the_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    behaviour = Behaviour(fault="status 500", fault_on=frozenset({1}))
    async with serving(behaviour) as server:
        server.echo_headers = True
        settings = Settings(endpoint=parse_endpoint(server.url, headers=("X-Api-Key: hush", "X-Team: blue")))
        await observe_with(workload([0, 0]), settings, output=tmp_path / "run")
        sent = server.requests[0].headers
    assert sent["authorization"] == "Bearer sk-secret"
    assert (sent["x-api-key"], sent["x-team"]) == ("hush", "blue")
    text = "".join(path.read_text() for path in tmp_path.iterdir())
    assert "authorization" in text
    assert "sk-secret" not in text
    assert "hush" not in text
    assert "sk-secret" not in repr(settings)


# the trace while it grows


async def test_the_trace_is_readable_at_every_moment_of_the_run(tmp_path: Path) -> None:
    stem = tmp_path / "run"
    sizes: list[int] = []
    async with serving(Behaviour(ttft_s=0.01)) as server:
        server.on_request = lambda _: sizes.append(len(read_trace(stem)))
        one_after_another = workload([0] + [None] * 14, header={"closed_loop": ClosedLoop(concurrency=1)})
        await observe_trace(one_after_another, url=server.url, output=stem)
    assert 0 < sizes[-1] < 15
    assert sizes == sorted(sizes)
    assert read_trace(stem).header.client.finished  # type: ignore[union-attr]


async def test_rows_stand_in_the_order_of_the_plan_whatever_the_answers_order(tmp_path: Path) -> None:
    requests = workload(every(5_000, 4)).with_columns(output_tokens=[40, 1, 20, 1])
    async with serving(Behaviour(itl_s=0.005)) as server:
        trace = await observe_trace(requests, url=server.url, output=tmp_path / "run")
    assert trace.column("last_token_time_us").is_monotonic_increasing is False
    assert list(trace.column("request_id")) == ["0", "1", "2", "3"]
    assert trace.events is not None
    assert list(trace.events["request_id"].drop_duplicates()) == ["0", "1", "2", "3"]


async def test_an_older_trace_of_the_stem_does_not_stand_in_the_way_of_the_new(tmp_path: Path) -> None:
    async with serving(Behaviour(ttft_s=0.3)) as server:
        await observe_trace(workload([0]), url=server.url, output=tmp_path / "run.parquet")
        run = asyncio.create_task(observe_trace(workload([0, 0]), url=server.url, output=tmp_path / "run"))
        await server.received(3)
        assert len(read_trace(tmp_path / "run")) == 0
        await run
    assert len(read_trace(tmp_path / "run")) == 2


async def test_a_disk_that_refuses_a_row_ends_the_run_and_keeps_the_rows_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import errno

    from traces import TraceError

    real, budget = os.write, [1500]

    def write(fd: int, data: bytes) -> int:
        budget[0] -= len(data)
        if budget[0] < 0:
            real(fd, data[:7])
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(fd, data)

    monkeypatch.setattr("observe.record.csv_appender.os.write", write)
    async with serving() as server:
        with pytest.raises(TraceError, match=r"No space left on device after [1-9]"):
            await observe_trace(workload(every(5_000, 20)), url=server.url, output=tmp_path / "run")
    monkeypatch.undo()
    trace = read_trace(tmp_path / "run")
    assert 0 < len(trace) < 20
    assert trace.header.client is not None
    assert trace.header.client.finished is False


async def test_a_disk_that_is_full_at_the_very_end_leaves_the_rows_as_they_grew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import errno

    from traces import ConfigError

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async with serving() as server:
        monkeypatch.setattr("pathlib.Path.replace", _refuse_of(tmp_path / "run.csv", refuse))
        with pytest.raises(ConfigError, match="No space left on device"):
            await observe_trace(workload(every(5_000, 4)), url=server.url, output=tmp_path / "run")
    monkeypatch.undo()
    trace = read_trace(tmp_path / "run")
    assert statuses(trace) == ["ok"] * 4


def _refuse_of(path: Path, refuse: Callable[..., None]) -> Callable[..., Path]:
    """Refuse to put a file in the place of ``path`` but for the first time, when it is made."""
    replace_file, times = Path.replace, iter(range(100))

    def putting(self: Path, target: Path) -> Path:
        if Path(target) == path and next(times) > 0:
            refuse()
        return replace_file(self, target)

    return putting


async def test_parquet_out_leaves_only_parquet(tmp_path: Path) -> None:
    async with serving() as server:
        await observe_trace(workload([0, 0]), url=server.url, output=tmp_path / "run.parquet")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.itl.parquet", "run.parquet", "run.yaml"]
    assert len(read_trace(tmp_path / "run.parquet")) == 2


async def test_an_observed_trace_can_be_observed_again() -> None:
    async with serving() as server:
        first = await observe_trace(workload(every(5_000, 3)), url=server.url)
        again = await observe_trace(
            replace(first, events=None), url=server.url, limits=Limits(stall_timeout_s=5)
        )
    assert list(again.column("arrival_time_us")) == every(5_000, 3)
    assert list(again.column("output_tokens")) == [5, 5, 5]


async def test_a_run_interrupted_before_its_first_request_leaves_an_empty_trace(tmp_path: Path) -> None:
    @contextmanager
    def interrupt(*_: object) -> Iterator[None]:
        asyncio.get_running_loop().call_later(0.2, os.kill, os.getpid(), signal.SIGINT)
        yield

    async with serving() as server:
        observation = await observe_with(
            workload([60_000_000]),
            Settings(endpoint=parse_endpoint(server.url)),
            output=tmp_path / "run",
            display=interrupt,
            handle_signals=True,
        )
    assert observation.interrupted
    assert observation.num_ok == 0
    assert len(read_trace(tmp_path / "run")) == 0
    assert "none, 1 not sent" in table(summarize_observed(observation.trace))
