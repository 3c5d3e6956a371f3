"""A client that is late: what is wrong with its stamps is bounded, and told in every place."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from observe.record.live_trace import LiveTrace
from observe.record.recorder import Recorder, read_exchange
from observe.result.client_verdict import (
    asked_pace,
    client_word,
    limiting_bounds,
    quantiles_of,
    quantiles_of_histogram,
    with_lateness,
)
from observe.result.json_document import summarize_observed
from observe.run.dispatch import LoadRun
from observe.run.run_counts import Progress
from observe.senders.exchange import Exchange, LastPoll
from observe.settings import Limits
from tests.observe.raw_server import event
from tests.observe.workloads import every, plan_of, workload
from traces import ClientInfo, Trace, finding_lines, request_metrics
from traces.findings.late_client import early_us, ttft_too_long_us

MS = 1_000_000
FIRST_NS, GAP_NS = 5 * MS, 25 * MS
"""When the server sends the first event of an answer, and how much later each other one."""
NUM_EVENTS = 12
LONGEST_BLOCK_NS = 40 * MS


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop that does not wait: its clock goes to the next timer's time, and on while a task ``blocks``."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ns = 0
        select = self._selector.select  # type: ignore[attr-defined] # asyncio's own

        def go_on(timeout: float | None) -> list[object]:
            self.now_ns += round(1e9 * (timeout or 0))
            return list(select(0 if timeout is not None else None))

        self._selector.select = go_on  # type: ignore[attr-defined]

    def time(self) -> float:
        """Return the time in seconds."""
        return self.now_ns / 1e9

    async def block(self, seed: int) -> None:
        """Keep the loop from its sockets again and again, for up to 40 ms."""
        rng = random.Random(seed)
        while True:
            self.now_ns += rng.randrange(LONGEST_BLOCK_NS)
            await asyncio.sleep(0.003)


class TimedServer:
    """Answers over a wire that has no delay: a read gets all that was sent by then, and the last event's time."""

    library = clock_name = "virtual"

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    async def send(self, exchange: Exchange) -> None:
        """Let the loop read the answer whenever it looks at its sockets."""
        exchange.dispatched_ns, exchange.http_status = self._loop.now_ns, 200
        begin_ns = self._loop.now_ns + FIRST_NS
        unread = [(event(), begin_ns + number * GAP_NS) for number in range(NUM_EVENTS - 1)]
        last = event(finish='"length"') + b"data: [DONE]\n\n"
        unread.append((last, begin_ns + (NUM_EVENTS - 1) * GAP_NS))
        whole = self._loop.create_future()

        def read() -> None:
            come = [each for each in unread if each[1] <= self._loop.now_ns]
            del unread[: len(come)]
            exchange.take(b"".join(blob for blob, _ in come), come[-1][1])
            if unread:
                self._loop.call_at(unread[0][1] / 1e9, read)
            else:
                whole.set_result(None)

        self._loop.call_at(begin_ns / 1e9, read)
        await whole

    async def close(self) -> None:
        """Close nothing."""


async def sent_late(loop: VirtualLoop, folder: Path) -> Trace:
    """Send 300 requests, 5 ms apart, while the loop is kept from its sockets."""
    plan = plan_of(every(5_000, 300))
    live, progress = LiveTrace(folder / "run", plan=plan, events=False), Progress(num_planned=len(plan))
    recorder = Recorder(live, progress, max_tokens=[NUM_EVENTS] * len(plan))
    run = LoadRun(
        plan,
        TimedServer(loop),
        progress=progress,
        on_end=recorder.put,
        limits=Limits(),
        clock=lambda: loop.now_ns,
    )
    blocking = asyncio.gather(loop.block(1), loop.block(2))  # they and the watch come in any order
    await run.execute(loop.now_ns)
    blocking.cancel()
    await asyncio.gather(blocking, return_exceptions=True)
    recorder.close()
    await recorder.work()
    client = ClientInfo(
        rate_asked_per_s=asked_pace(plan).rate_per_s,
        own_lag_us=quantiles_of(np.array(progress.own_lag_us)),
        loop_lag_us=quantiles_of_histogram(progress.loop_lag),
        limited=limiting_bounds(plan, progress, cpu_frac=0.0) is not None,
    )
    header = replace(plan.trace.header, mode="real", client=with_lateness(client))
    live.write_header(header)
    return live.finish(header)


@pytest.fixture(scope="module")
def late_run(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    """A run whose client is late, on a clock of its own: each time is known to the µs."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(sent_late(cast("VirtualLoop", runner.get_loop()), tmp_path_factory.mktemp("late")))


def test_a_first_token_came_no_later_than_its_time_and_no_earlier_than_the_bound(late_run: Trace) -> None:
    trace = late_run
    assert trace.header.client is not None
    assert client_word(trace.header.client) != "kept up"
    ttft, early = request_metrics(trace)["ttft_us"].to_numpy(dtype=np.float64), early_us(trace)
    true_us = FIRST_NS // 1000
    several = early > 0
    assert 0.1 < several.mean() < 0.9  # the first read brought several events, and the time of the last
    assert (ttft[~several] == true_us).all()
    assert (ttft[several] > true_us).all()
    assert (ttft - early <= true_us).all()
    assert early[several].max() <= 4 * LONGEST_BLOCK_NS / 1000 + 20_000  # for so long the loop did not look
    summary = summarize_observed(trace)
    assert summary["client"]["verdict"] in ("late", "limited")
    assert summary["client"]["ttft_too_long_us"] == ttft_too_long_us(trace)
    assert any("the client was late: the first token of" in line for line in finding_lines(trace))
    assert any(each["kind"] == "late_client" for each in summary["findings"])


def test_reads_of_several_events_are_no_gaps_of_the_server(late_run: Trace) -> None:
    itl_us = request_metrics(late_run)["itl_mean_us"].to_numpy(dtype=np.float64)
    assert np.isnan(itl_us).mean() > 0.5


def test_a_client_that_kept_up_has_no_bound() -> None:
    trace = workload(every(1000, 3), header={"mode": "real"}, first_token_early_us=[None, 900, 5])
    for client, total in (
        (None, 0),
        (ClientInfo(late=False, limited=False), 0),
        (ClientInfo(late=True), 905),
    ):
        assert early_us(replace(trace, header=replace(trace.header, client=client))).sum() == total


def test_the_words_for_a_client() -> None:
    lags = {"own_lag_us": {"p99": 12_000.0}, "loop_lag_us": {"p99": 300.0}}
    for client, word in (
        (ClientInfo(rate_asked_per_s=5.0, **lags), "late"),  # type: ignore[arg-type]
        (ClientInfo(**lags), "kept up"),  # type: ignore[arg-type] # of a closed loop: sent as answers come
        (ClientInfo(rate_asked_per_s=5.0, limited=True, **lags), "limited"),  # type: ignore[arg-type]
        (ClientInfo(loop_lag_us={"p99": 10_001.0}), "late"),
        (ClientInfo(loop_lag_us={"p99": 10_000.0}), "kept up"),
    ):
        assert client_word(with_lateness(client)) == word


async def test_the_bound_is_the_last_read_or_when_the_loop_last_looked() -> None:
    first, poll = event("a"), LastPoll(5_000_000)
    for blobs, wanted in (
        ([(first, 9_000_000)], None),  # alone
        ([(first + event("b"), 9_000_000)], 5_000_000),
        ([(b": ping\n\n", 6_000_000), (first + event("b") + event("c"), 9_000_000)], 6_000_000),
        ([(first, 6_000_000), (event("b") + event("c"), 9_000_000)], None),  # the first is sure
    ):
        exchange = Exchange(x_request_id="x", dispatched_ns=1_000_000, last_poll=poll)
        for blob, stamp in blobs:
            exchange.take(blob, stamp)
        assert (await read_exchange(exchange)).content_first_since == wanted
    before = Exchange(x_request_id="x", dispatched_ns=7_000_000, last_poll=poll)
    before.take(first + event("b"), 9_000_000)
    assert (await read_exchange(before)).content_first_since == 7_000_000
