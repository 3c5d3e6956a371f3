"""Reading answers while the run goes on."""

from __future__ import annotations

import asyncio
from pathlib import Path

from observe.record.live_trace import LiveTrace
from observe.record.recorder import Recorder
from observe.run.run_counts import Progress
from observe.run.sent_request import SentRequest
from observe.senders.exchange import Exchange
from tests.observe.workloads import plan_of


async def test_answers_that_pile_up_are_read_faster_than_one_slice_a_turn(tmp_path: Path) -> None:
    """A client at its limit: 300 answers of 130 events wait. They are read in fewer turns of the loop than they are."""
    number, events = 300, 130
    plan = plan_of([0] * number)
    live = LiveTrace(tmp_path / "run", plan=plan, events=False)
    progress = Progress(num_planned=number, start_ns=0)
    recorder = Recorder(live, progress, max_tokens=[events] * number)
    event = b'data: {"choices":[{"text":"a"}]}\n\n'
    for row in range(number):
        exchange = Exchange(x_request_id="", dispatched_ns=0)
        exchange.blobs, exchange.stamps = [event] * events, list(range(events))
        recorder.put(SentRequest(row=row, exchange=exchange))
    recorder.close()
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    await recorder.work()
    counting.cancel()
    live.close()
    assert progress.num_done == number
    assert 5 < turns < number


async def test_after_an_abort_no_more_is_read_than_a_bound(tmp_path: Path) -> None:
    """Answers of a million lines each, dropped by a second Ctrl-C: the program ends, and does not read them all."""
    number, events = 3, 150_000
    plan = plan_of([0] * number)
    live = LiveTrace(tmp_path / "run", plan=plan, events=False)
    progress = Progress(num_planned=number, start_ns=0)
    recorder = Recorder(live, progress, max_tokens=[events] * number)
    event = b'data: {"choices":[{"text":"a"}]}\n\n'
    exchanges = [Exchange(x_request_id="", dispatched_ns=0) for _ in range(number)]
    for row, exchange in enumerate(exchanges):
        exchange.blobs, exchange.stamps = [event], [row]
        exchange.num_lines, exchange.num_bytes = events, len(event) * events
        exchange.fail("aborted", "dropped")
        recorder.put(SentRequest(row=row, exchange=exchange))
    recorder.close()
    await recorder.work()
    live.close()
    rows = (tmp_path / "run.csv").read_text().splitlines()
    chunks = [dict(zip(rows[0].split(","), row.split(","), strict=True))["num_chunks"] for row in rows[1:]]
    assert chunks == ["1", "0", "0"]
