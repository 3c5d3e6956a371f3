"""A client that is late: what is wrong with its stamps is bounded, and told in every place."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import numpy as np

from observe.record.recorder import read_exchange
from observe.result.client_verdict import client_word, with_lateness
from observe.result.json_document import summarize_observed
from observe.senders.exchange import Exchange, LastPoll
from tests.observe.raw_server import event
from tests.observe.servers import Behaviour, observed, serving_in_thread
from tests.observe.workloads import every, workload
from traces import ClientInfo, Trace, finding_lines, request_metrics
from traces.findings.late_client import early_us, ttft_too_long_us

BLOCK_S = 0.04


@asynccontextmanager
async def busy_loop() -> AsyncIterator[None]:
    """Keep the loop from its sockets for most of the time."""

    async def block() -> None:
        while True:
            time.sleep(BLOCK_S)
            await asyncio.sleep(0.003)

    blocking = asyncio.create_task(block())
    try:
        yield
    finally:
        blocking.cancel()


async def late_run() -> Trace:
    behaviour = Behaviour(ttft_s=0.005, itl_s=0.025)
    with serving_in_thread(behaviour) as server:
        async with busy_loop():
            return (await observed(server, workload(every(20_000, 40), output_tokens=12))).trace


async def test_a_first_token_came_no_later_than_its_time_and_no_earlier_than_the_bound() -> None:
    trace = await late_run()
    assert trace.header.client is not None
    assert client_word(trace.header.client) != "kept up"
    ttft, early = request_metrics(trace)["ttft_us"].to_numpy(dtype=np.float64), early_us(trace)
    assert (early > 0).mean() > 0.15  # the first read brought several events
    assert (ttft[early > 0] > 20_000).mean() > 0.5  # and the time of the last
    assert np.mean(ttft - early <= 15_000) > 0.7  # 10 ms for the server's timer on a busy machine
    summary = summarize_observed(trace)
    assert summary["client"]["verdict"] in ("late", "limited")
    assert summary["client"]["ttft_too_long_us"] == ttft_too_long_us(trace)
    assert any("the client was late: the first token of" in line for line in finding_lines(trace))
    assert any(each["kind"] == "late_client" for each in summary["findings"])


async def test_reads_of_several_events_are_no_gaps_of_the_server() -> None:
    trace = await late_run()
    itl_us = request_metrics(trace)["itl_mean_us"].to_numpy(dtype=np.float64)
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
