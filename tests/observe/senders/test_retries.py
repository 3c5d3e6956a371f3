"""Retries: none unless asked, only of what had not begun, and marked."""

from __future__ import annotations

import asyncio
import os
import signal
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from observe import Limits, Settings, observe_trace, observe_with, parse_endpoint
from observe.result.json_document import summarize_observed
from observe.result.summary_table import table
from observe.run.sent_request import SentRequest
from observe.run.timeouts import overdue_reason
from observe.senders.exchange import Exchange
from observe.senders.retry import is_retryable, pause_s, retry_after_s
from tests.observe.servers import Behaviour, serving
from tests.observe.workloads import every, statuses, workload
from traces import request_metrics


@pytest.fixture(params=[True, False], ids=["sockets", "aiohttp"])
def either_sender(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both senders in turn."""
    plain = bool(request.param)
    monkeypatch.setattr("observe.senders.choose_sender.is_direct_http", lambda _: plain)


def failed(status: int | None = None, *, why: str = "error", began: bool = False) -> Exchange:
    exchange = Exchange(x_request_id="x", http_status=status)
    exchange.first_byte_ns = 5 if began or status is not None else None
    exchange.fail(why, "oops")  # type: ignore[arg-type]
    return exchange


@pytest.mark.parametrize("exchange", [failed(429), failed(500), failed(503), failed()], ids=str)
def test_what_was_refused_or_never_began_is_worth_another_try(exchange: Exchange) -> None:
    assert is_retryable(exchange)


@pytest.mark.parametrize(
    "exchange",
    [
        failed(400),
        failed(200),
        failed(307),
        failed(began=True),
        failed(why="timeout"),
        failed(503, why="aborted"),
        Exchange(x_request_id="x", http_status=200),
    ],
)
def test_what_had_begun_is_the_users_or_took_too_long_is_not(exchange: Exchange) -> None:
    assert not is_retryable(exchange)


def test_pauses_double_unless_the_server_says_how_long() -> None:
    exchange = failed(503)
    assert [pause_s(exchange, num_attempts, most_s=60) for num_attempts in range(1, 9)] == [
        0.5,
        1,
        2,
        4,
        8,
        16,
        30,
        30,
    ]
    exchange.retry_after_s = 0.0
    assert pause_s(exchange, 1, most_s=60) == 0


def test_retry_after_is_seconds_or_a_date() -> None:
    assert retry_after_s(" 3 ") == 3
    assert retry_after_s("") is None
    assert retry_after_s("soon") is None
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
    assert retry_after_s(later) == pytest.approx(60, abs=2)
    assert retry_after_s("Wed, 21 Oct 2015 07:28:00 GMT") == 0


@pytest.mark.usefixtures("either_sender")
@pytest.mark.parametrize("fault", ["status 429", "status 500", "die before the head"])
async def test_a_retried_request_is_marked_and_counts_from_its_due_time_and_its_last_dispatch(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("observe.senders.retry._FIRST_PAUSE_S", 0.4)
    behaviour = Behaviour(fault=fault, fault_on=frozenset({1}))  # type: ignore[arg-type]
    async with serving(behaviour) as server:
        trace = await observe_trace(workload(every(50_000, 3)), url=server.url, limits=Limits(max_retries=2))
        assert len(server.requests) == 4
        names = [request.headers["x-request-id"] for request in server.requests]
    assert statuses(trace) == ["ok"] * 3
    assert list(trace.column("attempt").fillna(1)) == [1, 2, 1]
    assert len(set(names)) == 3
    metrics = request_metrics(trace)
    assert metrics["ttft_us"].iloc[1] < 300_000
    assert metrics["ttft_from_due_us"].iloc[1] > 400_000
    client = trace.header.client
    assert client is not None
    assert (client.max_retries, client.num_retried) == (2, 1)
    assert client.own_lag_us["max"] < 300_000
    summary = summarize_observed(trace)
    assert summary["num_retried"] == 1
    assert "1 retried" in table(summary)


async def test_nothing_is_sent_again_unless_asked() -> None:
    async with serving(Behaviour(fault="status 429")) as server:
        trace = await observe_trace(workload([0, 0]), url=server.url)
        assert len(server.requests) == 2
    assert "attempt" not in trace.requests.columns or trace.column("attempt").isna().all()


async def test_retry_after_is_kept_to_and_tries_end() -> None:
    async with serving(Behaviour(fault="status 429", retry_after="0")) as server:
        trace = await observe_trace(workload([0]), url=server.url, limits=Limits(max_retries=3))
        assert len(server.requests) == 4
    assert statuses(trace) == ["error"]
    assert list(trace.column("attempt")) == [4]


@pytest.mark.parametrize(
    "value", ["9" * 400, "31536000", "Fri, 31 Dec 9999 23:59:59 GMT", "Fri, 31 Dec 9999 23:59:59 -9999"]
)
def test_a_far_retry_after_is_waited_for_up_to_the_limit(value: str) -> None:
    exchange = failed(503)
    exchange.retry_after_s = retry_after_s(value)
    assert pause_s(exchange, 1, most_s=2.5) == (2.5 if exchange.retry_after_s is not None else 0.5)


async def test_a_wait_that_was_cut_is_told_in_the_trace() -> None:
    async with serving(Behaviour(fault="status 429", retry_after="31536000")) as server:
        limits = Limits(max_retries=2, max_retry_wait_s=0.01)
        trace = await observe_trace(workload([0]), url=server.url, limits=limits)
        assert len(server.requests) == 3
    client = trace.header.client
    assert client is not None
    assert client.max_retry_wait_s == 0.01
    assert (
        "2 times Retry-After asked for a longer wait than 0.01 s (--max-retry-wait), which was waited"
        in client.notes
    )


def test_a_request_that_waits_to_be_retried_does_not_stall() -> None:
    request = SentRequest(row=0, exchange=failed(429))
    limits = Limits(stall_timeout_s=0.1, timeout_s=0.1)
    reason = overdue_reason(request, 10**9, limits=limits, deadline_ns=None)
    assert reason == "no complete answer within 0.1 s (--timeout)"
    request.is_waiting_to_retry = True
    assert overdue_reason(request, 10**9, limits=limits, deadline_ns=0) is None


async def test_an_interrupted_run_waits_for_no_further_try() -> None:
    async with serving(Behaviour(fault="status 429", retry_after="3600")) as server:
        settings = Settings(endpoint=parse_endpoint(server.url), limits=Limits(max_retries=3))
        run = asyncio.create_task(observe_with(workload([0]), settings, handle_signals=True))
        await server.received(1)
        os.kill(os.getpid(), signal.SIGINT)
        seen = await run
    assert seen.interrupted
    assert statuses(seen.trace) == ["error"]
    assert "HTTP 429" in str(seen.trace.column("error_message").iloc[0])
