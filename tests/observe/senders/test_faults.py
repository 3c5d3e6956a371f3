"""Servers that fail, before a run and in it: each fault is one line, or one row, and nothing hangs."""

from __future__ import annotations

import asyncio
from unittest import mock

import aiohttp
import pytest

from observe import Exchange, Limits, observe_trace, parse_endpoint
from observe.senders.aiohttp_sender import AiohttpSender
from tests.observe.servers import Behaviour, serving
from tests.observe.workloads import every, only_error, statuses, workload
from traces import ConfigError, ServerError, request_metrics


@pytest.fixture(params=[True, False], ids=["sockets", "aiohttp"])
def either_sender(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Both senders in turn."""
    plain = bool(request.param)
    monkeypatch.setattr("observe.senders.choose_sender.is_direct_http", lambda _: plain)
    return plain


@pytest.mark.usefixtures("either_sender")
@pytest.mark.parametrize(
    ("fault", "status", "message"),
    [
        ("status 500", "error", 'HTTP 500: {"error": {"message": "boom"}}'),
        ("redirect", "error", "HTTP 307 without a body"),
        ("status 429", "error", "HTTP 429: too many requests"),
        ("status 400", "error", "HTTP 400: {"),
        ("reset after two events", "error", "connection lost in the middle of the answer"),
        ("die before the head", "error", "connection closed before an answer"),
        ("die after two events", "error", "connection lost in the middle of the answer"),
        ("end after two events", "error", "stream ended after 2 events without finish_reason or [DONE]"),
        ("malformed event", "error", "event 2: got '{oops', expected a JSON object"),
        ("error event", "error", "server said: engine died"),
        ("html", "error", "body without an event: got '<html>welcome</html>', expected text/event-stream"),
        ("stall after two events", "timeout", "no byte for 0.2 s (--stall-timeout)"),
        ("stall before the head", "timeout", "no byte for 0.2 s (--stall-timeout)"),
    ],
)
async def test_each_fault_is_an_outcome_of_its_request_and_of_no_other(
    fault: str, status: str, message: str
) -> None:
    behaviour = Behaviour(fault=fault, fault_on=frozenset({1}), itl_s=0.002)  # type: ignore[arg-type]
    async with serving(behaviour) as server:
        trace = await observe_trace(
            workload(every(10_000, 3)), url=server.url, limits=Limits(stall_timeout_s=0.2)
        )
    assert statuses(trace) == ["ok", status, "ok"]
    assert message in only_error(trace)
    row = trace.requests.iloc[1]
    assert row["max_tokens"] == 5
    if "two events" in fault:
        assert row["num_chunks"] == 2
        assert row["output_tokens"] == 2
        assert row["last_token_time_us"] > row["send_time_us"]
    if fault.startswith(("status", "redirect", "die before", "html", "stall before")):
        assert row["output_tokens"] == 0
    assert request_metrics(trace)["ttft_us"].isna().tolist() == [False, True, False]


@pytest.mark.usefixtures("either_sender")
@pytest.mark.parametrize("fault", ["slow head", "enormous line", "tools only"])
async def test_what_is_only_unusual_is_no_fault(fault: str) -> None:
    async with serving(Behaviour(fault=fault, tokenize=True)) as server:  # type: ignore[arg-type]
        trace = await observe_trace(workload([0, 20_000], input_tokens=30), url=server.url, api="chat")
    assert statuses(trace) == ["ok", "ok"]
    assert list(trace.column("output_tokens")) == [5, 5]
    assert list(trace.column("num_token_chunks")) == [5, 5]
    if fault == "slow head":
        assert (request_metrics(trace)["ttft_us"] > 50_000).all()


@pytest.mark.usefixtures("either_sender")
@pytest.mark.parametrize("more", [3, -3])
async def test_more_or_fewer_tokens_than_asked_are_counted_as_they_came(more: int) -> None:
    async with serving(Behaviour(fewer_tokens=-more)) as server:
        trace = await observe_trace(workload([0]), url=server.url)
    assert statuses(trace) == ["ok"]
    assert list(trace.column("output_tokens")) == [5 + more]
    assert trace.header.client is not None
    assert "1 answers have more or fewer tokens than requested" in trace.header.client.notes


@pytest.mark.usefixtures("either_sender")
@pytest.mark.parametrize("retries", [0, 1])
async def test_a_kept_connection_that_the_server_closes_as_the_request_comes(retries: int) -> None:
    """Nobody can know it beforehand: an outcome of its own, or, where that was asked for, sent again."""
    async with serving(Behaviour(close_on_next=True)) as server:
        trace = await observe_trace(
            workload([0, 100_000]), url=server.url, limits=Limits(max_retries=retries, stall_timeout_s=5)
        )
    assert statuses(trace) == ["ok", "ok" if retries else "error"]
    if retries:
        assert trace.column("attempt").iloc[1] == 2
    else:
        assert "connection closed before an answer" in only_error(trace)


async def test_what_comes_in_the_same_turn_as_the_break_is_kept() -> None:
    """On uvloop the last bytes and the end of the connection may come in one turn of the loop."""
    protocol = mock.Mock(_reading_paused=False)
    content = aiohttp.StreamReader(protocol, 1 << 16, loop=asyncio.get_running_loop())
    content.feed_data(b"data: a\n\n")
    content.set_exception(aiohttp.ClientPayloadError("cut"))
    exchange = Exchange(x_request_id="x")
    sender = AiohttpSender(parse_endpoint("h"), "/v1/completions")
    with pytest.raises(aiohttp.ClientPayloadError):
        await sender._read(mock.Mock(content=content), exchange)
    await sender.close()
    assert exchange.blobs == [b"data: a\n\n"]
    assert len(exchange.stamps) == 1


async def test_a_whole_answer_may_take_no_longer_than_the_timeout() -> None:
    async with serving(Behaviour(itl_s=0.05)) as server:
        trace = await observe_trace(
            workload([0], output_tokens=50), url=server.url, limits=Limits(timeout_s=0.3)
        )
    assert statuses(trace) == ["timeout"]
    assert only_error(trace) == "no complete answer within 0.3 s (--timeout)"
    assert 1 < trace.column("num_chunks").iloc[0] < 10


async def test_a_deadline_of_the_workload_is_kept() -> None:
    async with serving(Behaviour(ttft_s=5)) as server:
        trace = await observe_trace(workload([0], deadline_us=[150_000]), url=server.url)
    assert statuses(trace) == ["timeout"]
    assert "deadline" in only_error(trace)


@pytest.mark.usefixtures("either_sender")
async def test_a_server_that_dies_half_way_leaves_the_rest_as_errors() -> None:
    async with serving(Behaviour(ttft_s=0.01)) as server:
        run = asyncio.create_task(observe_trace(workload(every(20_000, 20)), url=server.url))
        await server.received(8)
        await server.die()
        trace = await run
    assert len(trace) == 20
    said = statuses(trace)
    assert said[0] == "ok"
    assert said[-1] == "error"
    assert "cannot connect" in str(trace.column("error_message").iloc[-1])
    client = trace.header.client
    assert client is not None
    assert "no /metrics after the run: changes of its counters are unknown" in client.notes


# the server before the run


async def test_a_refused_connection_is_a_server_error() -> None:
    async with serving() as server:
        url = server.url
        await server.die()
    with pytest.raises(ServerError, match=r"cannot connect to 127\.0\.0\.1"):
        await observe_trace(workload([0]), url=url)


async def test_a_name_that_cannot_be_resolved_is_a_server_error() -> None:
    with pytest.raises(ServerError, match=r"cannot resolve no-such-host\.invalid"):
        await observe_trace(workload([0]), url="http://no-such-host.invalid:1")


@pytest.mark.parametrize("status", [401, 403, 500, 503])
async def test_a_server_that_refuses_before_the_run_is_a_server_error(status: int) -> None:
    async with serving(Behaviour(status={"/v1/models": status})) as server:
        with pytest.raises(ServerError, match=f"HTTP {status}"):
            await observe_trace(workload([0]), url=server.url, api_key="sk-secret")


async def test_an_unknown_server_is_tried_with_one_token_and_a_refusal_ends_it() -> None:
    async with serving(Behaviour(is_vllm=False, status={"/v1/completions": 500})) as server:
        with pytest.raises(ServerError, match="/v1/completions: HTTP 500"):
            await observe_trace(workload([0]), url=server.url)


@pytest.mark.parametrize("rejected", ["continuous_usage_stats", "min_tokens", "ignore_eos"])
async def test_what_an_unknown_server_rejects_is_left_out(rejected: str) -> None:
    async with serving(Behaviour(is_vllm=False, rejects=(rejected,))) as server:
        trace = await observe_trace(workload([0]), url=server.url)
        sent = server.requests[-1].body
    assert statuses(trace) == ["ok"]
    assert rejected not in {**sent, **sent["stream_options"]}


async def test_a_server_that_takes_no_token_ids_gets_text() -> None:
    async with serving(Behaviour(is_vllm=False, text_prompts_only=True)) as server:
        trace = await observe_trace(workload([0], input_tokens=30), url=server.url)
    assert statuses(trace) == ["ok"]
    assert list(trace.column("server_input_tokens")) == [30]
    assert trace.header.client is not None
    assert "the server does not accept token ids as a prompt" in trace.header.client.notes


async def test_a_vllm_server_gets_no_trial_request() -> None:
    async with serving() as server:
        await observe_trace(workload([0, 0]), url=server.url)
        assert len(server.requests) == 2


async def test_a_server_without_any_of_the_extras_works_and_each_absence_is_said_once() -> None:
    status = {"/v1/models": 404, "/version": 404, "/metrics": 404}
    async with serving(Behaviour(is_vllm=False, status=status)) as server:
        trace = await observe_trace(workload([0]), url=server.url, model="mine")
    assert statuses(trace) == ["ok"]
    assert trace.header.client is not None
    notes = trace.header.client.notes
    assert [note.partition(":")[0] for note in notes] == ["no /v1/models", "no /version", "no /metrics"]
    assert trace.header.server.sources["model"] == "given by the user"


async def test_a_model_that_vllm_does_not_list_is_a_config_error() -> None:
    async with serving() as server:
        with pytest.raises(ConfigError, match=r"--model: got 'other', expected .*tiny"):
            await observe_trace(workload([0]), url=server.url, model="other")
