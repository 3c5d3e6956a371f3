"""The display of a run."""

from __future__ import annotations

import io
import threading
from dataclasses import replace

import pytest

from observe.run.in_flight_counts import InFlightCounter
from observe.run.panel import Watcher, lines_of, show
from observe.run.run_counts import Progress
from observe.senders.exchange import Exchange
from tests.observe.workloads import every, plan_of
from traces import ClosedLoop

MS = 1_000_000


def test_the_panel_says_what_is_asked_and_what_is_done() -> None:
    progress = Progress(num_planned=10, start_ns=0)
    progress.num_launched, progress.in_flight, progress.peak_in_flight = 4, 2, 3
    progress.status.update(ok=1, error=1)
    progress.ttft.add(20_000)
    progress.itl.add(5_000)
    progress.dispatch_lag_us.append(1_500)
    watcher = Watcher(progress, plan_of(every(500_000, 10)), clock=lambda: 2_000 * MS)
    lines = lines_of(watcher.snapshot())
    assert lines[0] == "2 s, 2 s of sending left"
    assert lines[1] == "sent 4 of 10, 2.00/s (scheduled 2.50/s) · lag ≤ 1.5 ms"
    assert lines[2] == "done 2, 1 failed · in flight 2 (peak 3) · 0 tokens/s"
    assert lines[3].startswith("TTFT p50 20.")
    assert "ITL p50 5." in lines[3]


def test_the_panel_has_no_tokens_where_none_are_generated() -> None:
    plan = plan_of([0])
    embeds = replace(plan, shape=replace(plan.shape, api="embeddings"))
    lines = lines_of(Watcher(Progress(num_planned=1, start_ns=0), embeds, clock=lambda: MS).snapshot())
    assert not any("token" in line or "TTFT" in line for line in lines)


def test_the_panel_counts_answers_that_have_begun_before_they_end() -> None:
    progress = Progress(num_planned=1, start_ns=0)
    progress.num_launched = progress.in_flight = 1
    under_way = Exchange(x_request_id="x", dispatched_ns=10 * MS)
    counter = InFlightCounter(progress)
    watcher = Watcher(progress, plan_of([0]), clock=lambda: 2_000 * MS)
    for number in range(6):
        under_way.blobs.append(b'data: {"choices":[]}\n\n')
        under_way.stamps.append((30 + 20 * number) * MS)
        if number % 2:
            counter.count([under_way])
    lines = lines_of(watcher.snapshot())
    assert lines[2] == "done 0 · in flight 1 (peak 0), 1 streaming · 3 tokens/s"
    assert lines[3].startswith("TTFT p50 20.")
    assert progress.first_event.total == 1
    counter.count([])
    assert (progress.num_streaming, progress.tokens_under_way) == (0, 0)


def test_the_panel_never_shows_more_streaming_than_in_flight() -> None:
    """Answers are counted now and then: some of those counted may have ended since."""
    progress = Progress(num_planned=9, start_ns=0)
    progress.in_flight, progress.num_streaming = 2, 5
    snapshot = Watcher(progress, plan_of([0]), clock=lambda: 2_000 * MS).snapshot()
    assert (snapshot.in_flight, snapshot.num_streaming) == (2, 2)


def test_a_panel_of_nothing_yet_is_well() -> None:
    progress = Progress(num_planned=2)
    closed = Watcher(progress, plan_of([0, None], loop=ClosedLoop(concurrency=1)), clock=lambda: 5)
    assert lines_of(closed.snapshot())[3] == "TTFT - · ITL -"
    assert closed.snapshot().left_s is None


def test_without_a_terminal_lines_are_written_and_the_thread_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("observe.run.panel._FIRST_LINE_S", 0.01)
    monkeypatch.setattr("observe.run.panel._LINE_EVERY_S", 0.01)
    out = io.StringIO()
    written = threading.Event()
    monkeypatch.setattr(out, "flush", written.set)
    with show(out)(Progress(num_planned=1), plan_of([0])):
        assert written.wait(5)
    assert out.getvalue().startswith("observe: 0 s")
    assert "observe-lines" not in [thread.name for thread in threading.enumerate()]
