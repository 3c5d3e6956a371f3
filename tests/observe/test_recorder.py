"""Reading answers while the run goes on."""

from __future__ import annotations

import asyncio
from pathlib import Path

from observe.record.live_trace import LiveTrace
from observe.record.recorder import Recorder
from observe.run.progress import Progress
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
