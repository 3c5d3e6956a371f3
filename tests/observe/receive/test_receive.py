"""Spans over OTLP/HTTP: what is answered is on the disk, in the file of its hour, once, whatever comes beside it."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceResponse,
)

import vtwin
from observe.receive import receiver, receiver_app
from observe.receive.lost_posts import LostPosts
from observe.receive.receiver import _watch, run_receiver, summary
from observe.receive.receiver_app import SpanReceiver, _Coming, _make_room
from observe.receive.time_windows import AHEAD_S, LATE_S, QUIET_S, Windows, check_output
from tests.traces.importers.otel.spans import START_NS, chat, document, protobuf, span, vllm
from traces import ConfigError, Trace, TraceError, check_trace, companion_file, read_trace

NOW_S = START_NS / 1e9
PROTOBUF = {"Content-Type": "application/x-protobuf"}
JSON = {"Content-Type": "application/json"}


class Clock:
    def __init__(self, now_s: float = NOW_S + 10) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s


def windows_in(tmp_path: Path, clock: Clock | None = None, **options: Any) -> Windows:  # noqa: ANN401
    return Windows(tmp_path / "prod", every_s=3600, clock=clock or Clock(), **options)


def receiving(windows: Windows, *, max_body_bytes: int = 4 * 2**20) -> AbstractAsyncContextManager[str]:
    return receiver.receiving(windows, host="127.0.0.1", port=0, max_body_bytes=max_body_bytes)


def files_in(tmp_path: Path) -> list[str]:
    return sorted(file.name.removesuffix(".yaml") for file in tmp_path.glob("*.yaml"))


def read_all(tmp_path: Path) -> list[Trace]:
    for name in files_in(tmp_path):
        assert check_trace(tmp_path / name) == []
    return [read_trace(tmp_path / name) for name in files_in(tmp_path)]


async def post(url: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes, str]:
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{url}/v1/traces", data=body, headers=headers) as reply,
    ):
        return reply.status, await reply.read(), reply.content_type


async def test_what_is_answered_is_a_trace_at_once_and_in_order_at_the_end(tmp_path: Path) -> None:
    windows = windows_in(tmp_path)
    async with receiving(windows) as url:
        assert await post(url, protobuf(vllm(2, start_s=5.0)), PROTOBUF) == (
            200,
            b"",
            "application/x-protobuf",
        )
        (growing,) = read_all(tmp_path)
        assert growing.header.client is not None
        assert (growing.header.client.finished, growing.header.trace_version) == (False, 3)
        packed = gzip.compress(json.dumps(document(vllm(1), vllm(2, start_s=5.0))).encode())
        assert await post(url, packed, JSON | {"Content-Encoding": "gzip"}) == (
            200,
            b"{}",
            "application/json",
        )
        (growing,) = read_all(tmp_path)
        assert list(growing.column("request_id")) == [f"{number:016x}" for number in (2, 1)]
    assert windows.put_in_order(all_of_them=True)[0][1] == 2
    (trace,) = read_all(tmp_path)
    assert list(trace.column("request_id")) == [f"{number:016x}" for number in (1, 2)]
    assert list(trace.column("server_queue_us")) == [10_000] * 2
    assert trace.header.client is not None
    assert (trace.header.client.finished, trace.header.server.type) == (True, "vllm")
    hour_us = (START_NS // 1000) // 3_600_000_000 * 3_600_000_000
    assert trace.header.start_unix_us == hour_us
    assert list(trace.column("arrival_time_us")) == [
        START_NS // 1000 - hour_us,
        START_NS // 1000 - hour_us + 5_000_000,
    ]
    assert summary(windows) == ["2 requests in 1 file", "1 spans came a second time"]


async def test_part_of_a_post_may_not_be_taken_and_the_sender_hears_why(tmp_path: Path) -> None:
    spans = [vllm(1), vllm(2, usage__prompt_tokens=None), vllm(3, start_s=-90_000.0), vllm(4, start_s=4000.0)]
    windows = windows_in(tmp_path)
    async with receiving(windows) as url:
        status, body, _ = await post(url, protobuf(*spans), PROTOBUF)
        partial = ExportTraceServiceResponse.FromString(body).partial_success
        assert (status, partial.rejected_spans) == (200, 3)
        assert "1 spans have no token counts" in partial.error_message
        assert "2 spans began more than a day ago, or have yet to" in partial.error_message
        status, body, _ = await post(url, json.dumps(document(*spans[1:])).encode(), JSON)
        assert json.loads(body)["partialSuccess"]["rejectedSpans"] == "3"
    windows.put_in_order(all_of_them=True)
    (trace,) = read_all(tmp_path)
    assert len(trace) == 1
    assert trace.header.source is not None
    assert "1 spans have no token counts: left out" in trace.header.source.notes


REFUSED = {
    "no protobuf": (b"\xff\xff", PROTOBUF, 400),
    "cut off": (protobuf(vllm(1))[:-3], PROTOBUF, 400),
    "no JSON": (b"{", JSON, 400),
    "other JSON": (b"[]", JSON, 400),
    "deep": (b"[" * 100_000, JSON, 400),
    "no gzip": (protobuf(vllm(1)), PROTOBUF | {"Content-Encoding": "gzip"}, 400),
    "a bomb": (gzip.compress(bytes(900_000)), PROTOBUF | {"Content-Encoding": "gzip"}, 413),
    "too long": (bytes(900_000), PROTOBUF, 413),
    "text": (b"spans", {"Content-Type": "text/plain"}, 415),
    "zstd": (b"spans", PROTOBUF | {"Content-Encoding": "zstd"}, 415),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_a_post_that_cannot_be_is_refused_and_the_next_is_taken(tmp_path: Path, case: str) -> None:
    body, headers, expected = REFUSED[case]
    async with receiving(windows_in(tmp_path), max_body_bytes=500_000) as url:
        status, said, content_type = await post(url, body, headers)
        assert status == expected
        if content_type == "application/json":
            status_said = json.loads(said)
            assert status_said["code"] == 3
            assert status_said["message"]
        else:
            assert ExportTracePartialSuccess.FromString(said).error_message
        assert (await post(url, protobuf(vllm(1)), PROTOBUF))[0] == 200
    assert len(read_all(tmp_path)[0]) == 1


async def test_other_paths_and_methods_are_not_there(tmp_path: Path) -> None:
    async with receiving(windows_in(tmp_path)) as url, aiohttp.ClientSession() as session:
        async with session.post(f"{url}/v1/metrics", data=b"") as reply:
            assert reply.status == 404
        async with session.get(f"{url}/v1/traces") as reply:
            assert reply.status == 405


async def test_posts_at_once_are_all_taken_each_request_once(tmp_path: Path) -> None:
    windows = windows_in(tmp_path)
    async with receiving(windows) as url:
        batches = [[vllm(10 * batch + n, start_s=n / 10) for n in range(1, 15)] for batch in range(20)]
        done = await asyncio.gather(*(post(url, protobuf(*batch), PROTOBUF) for batch in batches))
        assert {status for status, _, _ in done} == {200}
    windows.put_in_order(all_of_them=True)
    (trace,) = read_all(tmp_path)
    assert (
        len(trace) == len({each.span_id for batch in batches for each in batch}) == windows.tally.num_requests
    )


async def test_a_crowd_is_asked_to_come_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiver_app, "MOST_POSTS", 1)
    windows, may_end = windows_in(tmp_path), threading.Event()
    take = windows.take

    def slowly(spans: Any) -> Any:  # noqa: ANN401 - as the method
        may_end.wait(5)
        return take(spans)

    monkeypatch.setattr(windows, "take", slowly)
    async with receiving(windows) as url, aiohttp.ClientSession() as session:

        async def posted() -> tuple[int, str | None, str | None]:
            async with session.post(f"{url}/v1/traces", data=protobuf(vllm(1)), headers=PROTOBUF) as reply:
                return reply.status, *(reply.headers.get(name) for name in ("Retry-After", "Connection"))

        for _ in range(2):  # there is room again, for one
            may_end.clear()
            two = [asyncio.create_task(posted()) for _ in range(2)]
            refused, taken = await asyncio.wait(two, return_when=asyncio.FIRST_COMPLETED)
            assert [each.result() for each in refused] == [(503, "5", "close")]
            may_end.set()
            assert [await each for each in taken] == [(200, None, None)]


async def test_a_full_disk_is_told_and_the_sender_tries_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    windows = windows_in(tmp_path)
    async with receiving(windows) as url:
        with monkeypatch.context() as patched:
            await post(url, protobuf(vllm(3)), PROTOBUF)
            patched.setattr("os.fsync", _no_space)
            assert (await post(url, protobuf(vllm(1)), PROTOBUF))[0] == 503
            assert (await post(url, protobuf(vllm(1), vllm(2)), PROTOBUF))[0] == 503
        (line,) = capsys.readouterr().err.splitlines()  # of two
        assert line.startswith("receive: the sender is asked to try again: ")
        assert "No space left" in line
        assert (await post(url, protobuf(vllm(1)), PROTOBUF))[0] == 200
        assert (await post(url, protobuf(vllm(2)), PROTOBUF))[0] == 200
    assert capsys.readouterr().err == "receive: the sender is asked to try again: 2 times in all\n"
    windows.put_in_order(all_of_them=True)
    assert len(read_all(tmp_path)[0]) == 3


async def test_a_disk_that_is_full_from_the_beginning_is_begun_on_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    windows = windows_in(tmp_path)
    async with receiving(windows) as url:
        with monkeypatch.context() as patched:
            patched.setattr("os.fsync", _no_space)
            assert (await post(url, protobuf(vllm(1)), PROTOBUF))[0] == 503
        assert (await post(url, protobuf(vllm(1)), PROTOBUF))[0] == 200
    windows.put_in_order(all_of_them=True)
    assert len(read_all(tmp_path)[0]) == 1


def _no_space(_: int) -> None:
    raise OSError(28, "No space left on device")


def spans_of(*made: Any) -> list[Any]:  # noqa: ANN401 - protobuf's
    from traces.importers.otel import spans_of_protobuf

    return list(spans_of_protobuf(protobuf(*made)))


def test_a_file_an_hour_is_put_in_order_when_it_is_over_and_quiet_and_opened_again_for_a_late_span(
    tmp_path: Path,
) -> None:
    clock = Clock()
    windows = windows_in(tmp_path, clock)
    windows.take(spans_of(vllm(1, start_s=1.0, trace=5), vllm(2, start_s=0.5)))
    clock.now_s += 3600
    windows.take(spans_of(vllm(3, start_s=3600.0)))
    assert windows.put_in_order() == [(tmp_path / "prod-20260921T140000Z", 2)]
    assert windows.put_in_order() == []
    windows.take(spans_of(vllm(4, start_s=0.0, trace=5), vllm(1, start_s=1.0, trace=5)))
    clock.now_s += QUIET_S - 1
    assert windows.put_in_order() == []
    clock.now_s += 1
    assert windows.put_in_order() == [(tmp_path / "prod-20260921T140000Z", 3)]
    first, second = read_all(tmp_path)
    assert list(first.column("request_id")) == [f"{number:016x}" for number in (4, 2, 1)]
    assert list(first.column("round_index").fillna(-1)) == [0, -1, 1]
    assert list(second.column("request_id")) == [f"{3:016x}"]
    windows.put_in_order(all_of_them=True)


def test_spans_of_clients_are_left_out_of_a_file_that_has_the_servers(tmp_path: Path) -> None:
    windows = windows_in(tmp_path)
    windows.take(spans_of(chat(1, trace=5, conversation__id="talk")))
    windows.take(spans_of(vllm(2, start_s=0.1, trace=5)))
    windows.put_in_order(all_of_them=True)
    (trace,) = read_all(tmp_path)
    assert list(trace.column("session_id")) == ["talk"]
    assert list(trace.column("seen_by")) == ["server"]


def test_a_full_file_is_followed_by_another_and_few_are_open(tmp_path: Path) -> None:
    clock = Clock(NOW_S + 40_000)
    windows = windows_in(tmp_path, clock, most_rows=3)
    windows.take(spans_of(*(vllm(n, start_s=n) for n in range(1, 9))))
    windows.take(spans_of(*(vllm(n, start_s=n * 3600) for n in range(9, 12))))
    windows.take(spans_of(*(vllm(100 + n, start_s=n * 3600) for n in range(1, 6))))
    assert len(windows._open) <= 4
    windows.put_in_order(all_of_them=True)
    lengths = [len(trace) for trace in read_all(tmp_path)]
    assert sum(lengths) == 16
    assert max(lengths) <= 3
    assert [name for name in files_in(tmp_path) if name.endswith("-3")] == ["prod-20260921T140000Z-3"]


def test_a_file_is_over_a_minute_after_its_hour(tmp_path: Path) -> None:
    clock = Clock()
    windows = windows_in(tmp_path, clock)
    windows.take(spans_of(vllm(1)))
    clock.now_s = (NOW_S // 3600 + 1) * 3600 + QUIET_S - 1e-3
    assert windows.put_in_order() == []
    clock.now_s = (NOW_S // 3600 + 1) * 3600 + QUIET_S
    assert [num for _, num in windows.put_in_order()] == [1]


def test_of_too_many_open_files_the_one_is_closed_that_had_no_span_for_longest(tmp_path: Path) -> None:
    clock = Clock(NOW_S + 40_000)
    windows = windows_in(tmp_path, clock)
    for number, hour in enumerate((0, 1, 2, 3, 0, 4), start=1):
        clock.now_s += 1
        windows.take(spans_of(vllm(number, start_s=hour * 3600)))
    traces = [read_trace(tmp_path / name) for name in files_in(tmp_path)]
    assert [each.header.client.finished for each in traces if each.header.client] == [
        False,
        True,
        False,
        False,
        False,
    ]
    windows.put_in_order(all_of_them=True)


def test_spans_that_are_no_requests_are_counted_one_by_one(tmp_path: Path) -> None:
    windows = windows_in(tmp_path)
    windows.take(spans_of(span(1, {}, name="tool"), span(2, {}, name="tool"), vllm(3)))
    assert (windows.tally.num_other, windows.tally.num_requests) == (2, 1)
    for num_repeated in (1, 2):
        windows.take(spans_of(vllm(3)))
        assert (windows.tally.num_requests, windows.tally.num_repeated) == (1, num_repeated)
    short = vllm(4)
    short.span_id = b"\1"
    windows.take(spans_of(short))
    assert sum(windows.tally.left_out.values()) == 1
    windows.put_in_order(all_of_them=True)


def test_an_output_of_an_earlier_run_is_refused_unless_gone_on_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    windows = windows_in(tmp_path)
    windows.take(spans_of(vllm(1)))
    windows.put_in_order(all_of_them=True)
    assert vtwin.main(["receive", "--output", str(tmp_path / "prod"), "--port", "0"]) == 2
    assert "was received before" in " ".join(capsys.readouterr().err.split())
    assert vtwin.main(["receive", "--output", str(tmp_path / "other"), "--every", "5s"]) == 2
    (tmp_path / "other-notes.txt").touch()
    check_output(tmp_path / "other", resume=False, overwrite=False)
    again = windows_in(tmp_path, resume=True)
    again.take(spans_of(vllm(1), vllm(2, start_s=1.0)))
    again.put_in_order(all_of_them=True)
    assert [len(trace) for trace in read_all(tmp_path)] == [2]
    anew = windows_in(tmp_path)
    anew.take(spans_of(vllm(3)))
    anew.put_in_order(all_of_them=True)
    assert [len(trace) for trace in read_all(tmp_path)] == [1]


def test_files_of_an_earlier_run_are_gone_on_with_or_replaced(tmp_path: Path) -> None:
    (tmp_path / "prod-20260921T140000Z.yaml").touch()
    for allowed in ({"resume": True, "overwrite": False}, {"resume": False, "overwrite": True}):
        check_output(tmp_path / "prod", **allowed)
    with pytest.raises(ConfigError, match="was received before"):
        check_output(tmp_path / "prod", resume=False, overwrite=False)


@pytest.mark.parametrize(
    ("every", "said"),
    [
        ("60s", "was received before"),
        ("168h", "was received before"),
        ("59.9s", "--every"),
        ("168.001h", "--every"),
    ],
)
def test_a_file_holds_a_minute_to_a_week(
    every: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "prod-20260921T140000Z.yaml").touch()
    command = ["receive", "--output", str(tmp_path / "prod"), "--port", "0", "--every", every]
    assert vtwin.main(command) == 2
    assert said in " ".join(capsys.readouterr().err.split())


def test_an_id_that_is_not_of_eight_bytes_is_no_id(tmp_path: Path) -> None:
    windows = windows_in(tmp_path)
    long, short = vllm(2), vllm(3)
    long.span_id, short.span_id = b"\1" * 2_000_000, b"\1"
    foreign = vllm(4)
    foreign.trace_id = b"\1" * 2_000_000
    assert windows.take(spans_of(vllm(1), long, short, foreign)) == {"have no span id": 2}
    windows.put_in_order(all_of_them=True)
    (trace,) = read_all(tmp_path)
    assert sorted(trace.column("request_id")) == [f"{number:016x}" for number in (1, 4)]


async def test_half_a_character_costs_no_span(tmp_path: Path) -> None:
    said = document(*(vllm(number, response__model="m") for number in range(1, 11)))
    body = json.dumps(said).replace('"m"', '"a\\ud800b"', 1).encode()
    async with receiving(windows_in(tmp_path)) as url:
        assert await post(url, body, JSON) == (200, b"{}", "application/json")
    (trace,) = read_all(tmp_path)
    assert len(trace) == 10
    assert "a\ufffdb" in set(trace.column("model"))


async def test_a_fault_of_the_receiver_is_an_answer_and_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    windows = windows_in(tmp_path)
    async with receiving(windows) as url:
        with monkeypatch.context() as patched:
            patched.setattr(Windows, "take", lambda *_: 1 / 0)
            status, body, kind = await post(url, protobuf(vllm(1)), PROTOBUF)
        assert (status, kind) == (500, "application/x-protobuf")
        assert ExportTracePartialSuccess.FromString(body).error_message == "a fault of the receiver"
        assert capsys.readouterr().err == "receive: a post was lost: ZeroDivisionError: division by zero\n"
        assert (await post(url, protobuf(vllm(1)), PROTOBUF))[0] == 200


def test_ten_thousand_lost_posts_are_a_handful_of_lines(capsys: pytest.CaptureFixture[str]) -> None:
    lost = LostPosts()
    for number in range(10_200):
        lost.add("a post was lost", f"fault {number}")
    lost.add("the sender is asked to try again", "the disk is full")
    lost.tell_all()
    assert capsys.readouterr().err.splitlines() == [
        "receive: a post was lost: fault 0",
        *(f"receive: a post was lost: fault {n - 1} ({n:,} times so far)" for n in (10, 100, 1000, 10_000)),
        "receive: the sender is asked to try again: the disk is full",
        "receive: a post was lost: 10,200 times in all",
    ]


async def test_half_sent_bodies_close_the_receiver_to_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiver_app, "MOST_COMING", 4)
    monkeypatch.setattr("observe.receive.receiver.SHUTDOWN_PATIENCE_S", 0.05)
    body = protobuf(vllm(1))
    async with receiving(windows_in(tmp_path)) as url:
        host, port = url.removeprefix("http://").split(":")
        halves = []
        for _ in range(12):
            reader, writer = await asyncio.open_connection(host, int(port))
            head = f"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
            writer.write(f"{head}Content-Type: application/x-protobuf\r\n\r\n".encode() + body[:10])
            await writer.drain()
            halves.append((reader, writer))
        assert (await post(url, body, PROTOBUF))[0] == 200
        assert (await halves[0][0].readline()).startswith(b"HTTP/1.1 503")  # the first had to go
        halves[-3][1].write(body[10:])
        assert (await halves[-3][0].readline()).startswith(
            b"HTTP/1.1 200"
        )  # the last three were left, with the post
        for _, writer in halves:
            writer.close()


async def test_a_body_that_has_come_is_on_its_way_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiver_app, "MOST_COMING", 1)
    async with receiving(windows_in(tmp_path)) as url:
        assert [(await post(url, protobuf(vllm(number)), PROTOBUF))[0] for number in (1, 2, 3)] == [200] * 3


async def test_a_body_without_an_end_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiver_app, "BODY_PATIENCE_S", 0.05)
    async with receiving(windows_in(tmp_path)) as url:
        host, port = url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        head = "POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n"
        writer.write(f"{head}Content-Type: application/x-protobuf\r\n\r\n".encode() + bytes(50))
        assert (await reader.readline()).startswith(b"HTTP/1.1 408")
        writer.close()


async def test_bytes_on_their_way_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiver_app, "MOST_POSTS", 2)
    monkeypatch.setattr("observe.receive.receiver.SHUTDOWN_PATIENCE_S", 0.05)
    async with receiving(windows_in(tmp_path), max_body_bytes=100_000) as url:
        host, port = url.removeprefix("http://").split(":")
        writers = []
        for _ in range(6):
            reader, writer = await asyncio.open_connection(host, int(port))
            head = "POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n"
            writer.write(f"{head}Content-Type: application/x-protobuf\r\n\r\n".encode() + bytes(90_000))
            await writer.drain()
            writers.append((reader, writer))
        answers = await asyncio.gather(*(reader.readline() for reader, _ in writers[:4]))
        assert all(line.startswith(b"HTTP/1.1 503") for line in answers)
        assert (await post(url, protobuf(vllm(1)), PROTOBUF))[0] == 200
        for _, writer in writers:
            writer.close()


def test_room_is_made_beyond_the_most_and_not_at_it() -> None:
    """Two bodies of 160 bytes are as many as 32 whole ones of 10."""
    site = SpanReceiver(windows=Windows(Path("x"), every_s=60), max_body_bytes=10)
    older, newer = (_Coming(asyncio.Timeout(None), num_bytes=160) for _ in range(2))
    older.patience = newer.patience = SimpleNamespace(reschedule=lambda _: None)  # type: ignore[assignment]
    site.coming = {older: None, newer: None}
    _make_room(site)
    assert list(site.coming) == [older, newer]
    newer.num_bytes += 1
    _make_room(site)
    assert (list(site.coming), older.has_to_go, newer.has_to_go) == ([newer], True, False)
    newer.num_bytes = 321  # alone it may be as long as it is
    _make_room(site)
    assert list(site.coming) == [newer]


async def test_quiet_files_are_put_in_order_while_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("observe.receive.receiver.TICK_S", 0.001)
    clock = Clock()
    windows = windows_in(tmp_path, clock)
    windows.take(spans_of(vllm(1)))
    clock.now_s += 7200
    watching = asyncio.create_task(_watch(windows))
    await asyncio.wait([watching], timeout=0.1)
    while not watching.done() and "1 request -> " not in capsys.readouterr().err:
        await asyncio.wait([watching], timeout=0.1)
    assert not watching.done()
    watching.cancel()
    await asyncio.wait([watching])


def test_a_file_that_cannot_be_put_in_order_keeps_no_other_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    windows = windows_in(tmp_path, Clock(NOW_S + 7300))
    windows.take(spans_of(vllm(1), vllm(2, start_s=3600.0), vllm(3, start_s=7200.0)))
    first = tmp_path / files_in(tmp_path)[0]
    companion_file(first, ".csv").write_bytes(b"\xff,no,table\n")
    monkeypatch.setattr("observe.receive.receiver._until_told", _at_once)
    with pytest.raises(TraceError, match=f"kept as it is in 1 file, the first {first}"):
        run_receiver(windows, host="127.0.0.1", port=0, max_body_bytes=1000)
    assert capsys.readouterr().err.count("1 request -> ") == 2
    assert [read_trace(tmp_path / name).header.client.finished for name in files_in(tmp_path)[1:]] == [
        True
    ] * 2  # type: ignore[union-attr]


async def _at_once(*_: object, **__: object) -> None:
    """In place of receiving until told."""


async def test_an_output_has_one_owner_who_may_be_killed(tmp_path: Path) -> None:
    with running(tmp_path) as (process, url):
        assert (await post(url, now_spans(1), PROTOBUF))[0] == 200
        with running(tmp_path, "--resume") as (second, _):
            _, said = second.communicate(timeout=60)
        assert second.returncode == 2
        assert f"another run writes to {tmp_path / 'prod'} (process {process.pid})" in " ".join(said.split())
        process.kill()
        process.wait()
    with running(tmp_path, "--resume") as (process, url):
        assert (await post(url, now_spans(2), PROTOBUF))[0] == 200


@contextmanager
def running(tmp_path: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [
        sys.executable,
        "-P",
        "-m",
        "vtwin",
        "receive",
        "--port",
        "0",
        "--output",
        str(tmp_path / "prod"),
    ]
    with subprocess.Popen(
        [*command, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"COLUMNS": "200"},
    ) as process:
        assert process.stdout is not None
        try:
            yield process, (process.stdout.readline().split() or [""])[-1].removesuffix("/v1/traces")
        finally:
            process.kill()


def now_spans(*numbers: int) -> bytes:
    """Spans that began just now."""
    return protobuf(*(vllm(number, start_s=time.time() - NOW_S) for number in numbers))


async def test_what_was_answered_outlives_a_kill_and_resume_goes_on(tmp_path: Path) -> None:
    with running(tmp_path) as (process, url):
        for number in range(1, 6):
            assert (await post(url, now_spans(number), PROTOBUF))[0] == 200
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert sum(map(len, read_all(tmp_path))) == 5
    with (tmp_path / f"{files_in(tmp_path)[0]}.csv").open("a") as table:
        table.write("half a ro")  # what a kill in the middle of a write would leave
    with running(tmp_path, "--resume") as (process, url):
        assert (await post(url, now_spans(6), PROTOBUF))[0] == 200
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert out.startswith("1 request in 1 file")
    assert " requests -> " in err or " request -> " in err
    assert sum(map(len, read_all(tmp_path))) == 6
    assert (read_all(tmp_path)[0].header.command or "").startswith("vtwin receive ")
    assert not list(tmp_path.glob(".*"))
    assert companion_file(tmp_path / files_in(tmp_path)[0], ".csv").is_file()


@pytest.mark.parametrize(
    ("case", "is_closed"), [("too long", True), ("a bomb", True), ("no protobuf", False), ("text", False)]
)
async def test_a_sender_in_the_middle_of_its_body_is_cut_off_and_no_other(
    tmp_path: Path, case: str, is_closed: bool
) -> None:
    body, headers, status = REFUSED[case]
    async with (
        receiving(windows_in(tmp_path), max_body_bytes=500_000) as url,
        aiohttp.ClientSession() as session,
        session.post(f"{url}/v1/traces", data=body, headers=headers) as reply,
    ):
        assert reply.status == status
        assert (reply.headers.get("Connection") == "close") == is_closed
        assert "Retry-After" not in reply.headers


async def test_a_body_of_just_the_most_bytes_is_taken(tmp_path: Path) -> None:
    body = protobuf(vllm(1))
    for most, status in ((len(body), 200), (len(body) - 1, 413)):
        folder = tmp_path / str(most)
        folder.mkdir()
        async with receiving(windows_in(folder), max_body_bytes=most) as url:
            assert (await post(url, body, PROTOBUF))[0] == status


def test_a_span_of_a_day_ago_is_taken_and_one_before_is_not(tmp_path: Path) -> None:
    clock = Clock(NOW_S)
    windows = windows_in(tmp_path, clock)
    ends = [vllm(1, start_s=-LATE_S), vllm(2, start_s=AHEAD_S), vllm(3, start_s=0.0)]
    assert windows.take(spans_of(*ends)).total() == 0
    beyond = [vllm(4, start_s=-LATE_S - 1e-6), vllm(5, start_s=AHEAD_S + 1e-6)]
    assert windows.take(spans_of(*beyond)).total() == 2
    windows.put_in_order(all_of_them=True)


def test_files_are_numbered_from_the_second_on_and_a_just_full_one_is_alone(tmp_path: Path) -> None:
    windows = windows_in(tmp_path, most_rows=3)
    windows.take(spans_of(*(vllm(n, start_s=n / 10) for n in range(1, 4))))
    assert files_in(tmp_path) == ["prod-20260921T140000Z"]
    windows.take(spans_of(*(vllm(n, start_s=n / 10) for n in range(4, 9))))
    assert files_in(tmp_path) == [f"prod-20260921T140000Z{part}" for part in ("", "-2", "-3")]
    windows.put_in_order(all_of_them=True)
    assert [len(trace) for trace in read_all(tmp_path)] == [3, 3, 2]
