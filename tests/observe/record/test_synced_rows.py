"""How many rows a machine that stops can lose: those of the last second."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from pathlib import Path

import pytest

from observe.record import recorder as recording
from observe.record.live_trace import LiveTrace
from observe.record.recorder import Recorder
from observe.run.run_counts import Progress
from observe.run.sent_request import SentRequest
from observe.senders.exchange import Exchange
from tests.observe.workloads import plan_of
from traces import TraceError


def answered(row: int) -> SentRequest:
    exchange = Exchange(x_request_id="", dispatched_ns=0)
    exchange.take(b'data: {"choices":[{"text":"a","finish_reason":"length"}]}\n\n', row)
    return SentRequest(row=row, exchange=exchange)


async def recorded(
    folder: Path, *, rounds: int, per_round: int, pause_s: float
) -> tuple[LiveTrace, list[int]]:
    """Record rounds of rows; return after each round how many rows were not on the disk yet.

    A busy disk takes its time: it has ten seconds after the pause.
    """
    number = rounds * per_round
    plan = plan_of([0] * number)
    live = LiveTrace(folder / "run", plan=plan, events=True)
    recorder = Recorder(live, Progress(num_planned=number, start_ns=0), max_tokens=[1] * number)
    working = asyncio.create_task(recorder.work())
    unsynced: list[int] = []
    for first in range(0, number, per_round):
        for row in range(first, first + per_round):
            recorder.put(answered(row))
        await asyncio.sleep(pause_s)
        deadline = time.monotonic() + 10
        while live.num_synced < first + per_round and not working.done() and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        unsynced.append(live.num_rows - live.num_synced)
    recorder.close()
    await working
    live.close()
    return live, unsynced


async def test_rows_are_on_the_disk_within_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two intervals after a row was written it is on the disk: with 0.5 s between them, a second's rows can be lost."""
    assert 2 * recording.SYNC_EVERY_S <= 1
    synced: list[int] = []
    real = os.fsync

    def fsync(fd: int) -> None:
        synced.append(fd)
        real(fd)

    monkeypatch.setattr("observe.record.csv_appender.os.fsync", fsync)
    monkeypatch.setattr(recording, "SYNC_EVERY_S", 0.005)
    _, unsynced = await recorded(tmp_path, rounds=5, per_round=4, pause_s=0.01)
    assert unsynced == [0] * 5
    assert len(synced) >= 2 * 5  # rows and events, each round


async def test_nothing_is_synced_while_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr("observe.record.csv_appender.os.fsync", synced.append)
    monkeypatch.setattr(recording, "SYNC_EVERY_S", 0.001)
    await recorded(tmp_path, rounds=1, per_round=1, pause_s=0.1)
    assert len(synced) == 2


async def test_a_disk_that_refuses_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("observe.record.csv_appender.os.fsync", full)
    monkeypatch.setattr(recording, "SYNC_EVERY_S", 0.001)
    with pytest.raises(TraceError, match="No space left on device after"):
        await recorded(tmp_path, rounds=3, per_round=1, pause_s=0.05)


async def test_a_disk_that_takes_its_time_holds_nothing_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop goes on while a row is being written; rows are in the file without waiting for the end of the run."""
    begun, may_go_on, real = threading.Event(), threading.Event(), LiveTrace.append

    def slow(self: LiveTrace, *lines: tuple[bytes, bytes]) -> None:
        begun.set()
        assert may_go_on.wait(10), "the loop waits for the disk"
        real(self, *lines)

    monkeypatch.setattr(LiveTrace, "append", slow)
    live = LiveTrace(tmp_path / "run", plan=plan_of([0, 0, 0]), events=True)
    recorder = Recorder(live, Progress(num_planned=3, start_ns=0), max_tokens=[1] * 3)
    working = asyncio.create_task(recorder.work())
    recorder.put(answered(2))
    while not begun.is_set() and not working.done():
        await asyncio.sleep(0.001)
    recorder.put(answered(0))
    while recorder.answer_counts.num_whole < 2 and not working.done():
        await asyncio.sleep(0.001)
    assert live.num_rows == 0
    may_go_on.set()
    while live.num_rows < 2 and not working.done():
        await asyncio.sleep(0.001)
    recorder.put(answered(1))
    recorder.close()
    await working
    live.close()
    for name in ("run.csv", "run.itl.csv"):
        lines = (tmp_path / name).read_text().splitlines()[1:]
        assert [line.split(",")[0] for line in lines] == ["2", "0", "1"]
