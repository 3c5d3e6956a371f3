"""A client that caps its requests in prefill: sent, and without a first token."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from observe import Limits, Settings, observe_trace, parse_endpoint
from observe.processes.partition import partition_cap
from observe.senders.aiohttp_sender import AiohttpSender
from replay import pacing_of
from tests.observe.servers import Behaviour, observed, serving
from tests.observe.workloads import every, statuses, workload
from traces import ClientInfo, ClosedLoop, ConfigError, Trace

SLOW = Behaviour(ttft_s=0.05, itl_s=0.03)
"""Answers of some 10 tokens take five times as long as their first one."""


def most_at_once(trace: Trace, until: str) -> int:
    """Return how many requests at most were sent and had not come to ``until``, a column of times."""
    sent, ends = (np.asarray(trace.cells(name).floats()) for name in ("send_time_us", until))
    return max(int(((sent <= time) & (time < ends)).sum()) for time in sent)


@pytest.mark.parametrize("sender", ["sockets", "aiohttp"])
async def test_no_more_are_in_prefill_than_the_cap_and_more_are_in_flight(
    monkeypatch: pytest.MonkeyPatch, sender: str
) -> None:
    if sender == "aiohttp":
        monkeypatch.setattr("observe.executor.open_sender", AiohttpSender)
    async with serving(SLOW) as server:
        trace = await observe_trace(
            workload([0] * 8, output_tokens=10), url=server.url, limits=Limits(prefill_concurrency=2)
        )
    client = trace.header.client
    assert client is not None
    assert statuses(trace) == ["ok"] * 8
    assert most_at_once(trace, "content_first_time_us") == 2
    assert most_at_once(trace, "last_token_time_us") > 4
    assert (client.prefill_concurrency, client.max_concurrency, client.num_held_back) == (2, None, 6)
    lag_us = trace.cells("dispatch_lag_us").floats()
    assert lag_us[-1] > 3 * 45_000


async def test_both_caps_hold_at_once_and_in_a_closed_loop() -> None:
    loop = ClosedLoop(concurrency=5)
    load = workload([0] * 5 + [None] * 5, output_tokens=6, header={"closed_loop": loop})
    async with serving(SLOW) as server:
        trace = await observe_trace(
            load, url=server.url, limits=Limits(max_concurrency=4, prefill_concurrency=1)
        )
    assert most_at_once(trace, "content_first_time_us") == 1
    assert 2 <= most_at_once(trace, "last_token_time_us") <= 4


async def test_a_request_without_a_first_token_lets_its_place_go_at_its_end() -> None:
    failing = Behaviour(status={"/v1/completions": 500}, ttft_s=0.01)
    async with serving(failing) as server, asyncio.timeout(120):  # a place that is kept would never end it
        seen = await observed(
            server, workload(every(1_000, 5)), limits=Limits(prefill_concurrency=1, max_retries=1)
        )
    assert statuses(seen.trace) == ["error"] * 5


async def test_a_cut_by_tokens_and_the_cap_watch_the_same_answer() -> None:
    load = workload([0] * 4, output_tokens=30, cancel_after_tokens=[5] * 4)
    async with serving(Behaviour(ttft_s=0.04, itl_s=0.03)) as server:
        seen = await observed(server, load, limits=Limits(prefill_concurrency=1))
    assert statuses(seen.trace) == ["cancelled"] * 4
    assert seen.trace.cells("output_tokens").values.tolist() == [5] * 4
    assert most_at_once(seen.trace, "content_first_time_us") == 1
    assert most_at_once(seen.trace, "cancel_time_us") > 1


async def test_the_cap_is_divided_among_processes() -> None:
    async with serving(SLOW) as server:
        seen = await observed(
            server, workload([0] * 8, output_tokens=4), processes=2, limits=Limits(prefill_concurrency=2)
        )
    client = seen.trace.header.client
    assert client is not None
    assert most_at_once(seen.trace, "content_first_time_us") <= 2
    assert any("--prefill-concurrency 2 was divided among 2 processes" in note for note in client.notes)


def test_what_cannot_be_capped_is_refused() -> None:
    there = parse_endpoint("http://127.0.0.1:9")
    capped = Limits(prefill_concurrency=2)
    for how in ({"streaming": False}, {"api": "embeddings"}):
        with pytest.raises(ConfigError, match="--prefill-concurrency: got answers in one piece"):
            Settings(endpoint=there, limits=capped, **how)  # type: ignore[arg-type]  # one of the two
    with pytest.raises(ConfigError, match="--prefill-concurrency: got 1, expected at least one per process"):
        partition_cap(1, 2, option="--prefill-concurrency")


@pytest.mark.parametrize("limits", [Limits(max_concurrency=1), Limits(prefill_concurrency=1)])
async def test_waves_are_sent_at_once_and_have_no_cap(limits: Limits) -> None:
    waves = workload([0, 0, None, None], header={"closed_loop": ClosedLoop(concurrency=2, in_waves=True)})
    async with serving() as server:
        with pytest.raises(ConfigError, match="cannot be combined with waves"):
            await observed(server, waves, limits=limits)
        assert not server.requests


async def test_a_run_that_the_cap_held_back_is_replayed_as_it_was_sent() -> None:
    load = workload([0] * 4 + [None] * 2, header={"closed_loop": ClosedLoop(concurrency=4)})
    async with serving() as server:
        seen = await observed(server, load, limits=Limits(prefill_concurrency=1, max_concurrency=4))
    held = pacing_of(seen.trace)
    assert (held.at, held.closed_loop, held.max_concurrency) == ("send", None, None)
    free = seen.trace.with_header(client=ClientInfo(prefill_concurrency=9, num_held_back=0))
    assert pacing_of(free).closed_loop == (4, 0)
