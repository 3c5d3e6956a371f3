"""Too few file descriptors: said before the run where that is certain, else the client's fault and not the server's."""

from __future__ import annotations

import errno
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from observe import Limits, observe_trace
from observe.run.preflight import num_sent_at_once
from observe.senders.exchange import Exchange, Sender
from observe.senders.retry import is_retryable
from tests.observe.raw_server import SENDERS, Answer, raw_server
from tests.observe.servers import Behaviour, serving
from tests.observe.workloads import every, plan_of, statuses, workload
from traces import ClosedLoop, ConfigError


@contextmanager
def most_descriptors(number: int) -> Iterator[None]:
    """Let this process open no more than ``number`` files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (number, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def few(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Let the hard limit look like ``number``: it cannot be raised again."""
    monkeypatch.setattr(
        "observe.senders.shortage.resource.getrlimit", lambda _: (number, number), raising=True
    )


def test_how_many_are_certainly_in_flight_together() -> None:
    assert num_sent_at_once(plan_of([0] * 7), cap=None) == 7
    assert num_sent_at_once(plan_of([0] * 7), cap=3) == 3
    assert num_sent_at_once(plan_of(every(10, 7)), cap=None) == 1
    assert num_sent_at_once(plan_of([None] * 7, loop=ClosedLoop(concurrency=4)), cap=None) == 4


async def test_a_load_that_needs_more_than_there_are_is_refused_before_it_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    few(monkeypatch, 256)
    async with serving() as server:
        with pytest.raises(ConfigError, match=r"400 requests at once and 256 file descriptors.*ulimit -n"):
            await observe_trace(workload([0] * 400), url=server.url)
        assert server.requests == []
        trace = await observe_trace(workload([0] * 400), url=server.url, limits=Limits(max_concurrency=20))
    assert set(statuses(trace)) == {"ok"}


@pytest.mark.parametrize("sender_name", SENDERS)
async def test_a_connection_that_this_machine_refuses_is_the_clients_failure(sender_name: str) -> None:
    open_sender: Callable[[str], Sender] = SENDERS[sender_name]
    exchange = Exchange(x_request_id="x")
    async with raw_server(lambda _: Answer()) as url:
        sender = open_sender(url)
        with most_descriptors(3):
            await sender.send(exchange)
        await sender.close()
    assert exchange.failure is not None
    assert exchange.failure.is_clients
    assert exchange.failure.message == "client: Too many open files: no connection (ulimit -n 3)"


async def test_the_verdict_then_says_client(monkeypatch: pytest.MonkeyPatch) -> None:
    async def no_descriptor(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    async with serving(Behaviour(ttft_s=0.01)) as server:
        monkeypatch.setattr("observe.senders.socket_sender.SocketSender._open", no_descriptor)
        trace = await observe_trace(workload(every(1000, 3)), url=server.url)
    client = trace.header.client
    assert client is not None
    assert client.limited
    assert client.reason is not None
    assert "3 requests failed for want of descriptors or ports" in client.reason


def test_such_a_failure_may_pass() -> None:
    exchange = Exchange(x_request_id="x")
    exchange.fail("error", "client: Too many open files", is_clients=True)
    assert is_retryable(exchange)
