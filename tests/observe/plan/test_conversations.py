"""Sessions: rounds wait for answers, and prompts grow by what the server really said."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from observe import Limits, Settings, observe_trace, observe_with, parse_endpoint
from observe.plan.chains import chains_of
from observe.plan.conversations import extended_prompt
from observe.response.reading import Reply
from tests.observe.servers import Behaviour, FakeServer, Received, serving
from tests.observe.workloads import machine_lag_us, statuses, workload
from traces import ClosedLoop, Trace, check_trace, read_trace


def sessions(
    starts_us: list[int], rounds: int, *, think_us: int = 0, header: dict[str, Any] | None = None
) -> Trace:
    """Sessions of growing prompts: 8 tokens at first and 8 more each round, answers of 5."""
    number = len(starts_us) * rounds
    place = [row % rounds for row in range(number)]
    return workload(
        [starts_us[row // rounds] if place[row] == 0 else None for row in range(number)],
        header={"session_context_growth": "accumulate", **(header or {})},
        session_id=[f"s{row // rounds}" for row in range(number)],
        round_index=place,
        think_time_us=[think_us if turn else None for turn in place],
        new_input_tokens=[8] * number,
    ).with_columns(input_tokens=[8 + 13 * turn for turn in place])


def prompts(server: FakeServer) -> list[Any]:
    name = "messages" if "messages" in server.requests[-1].body else "prompt"
    return [request.body[name] for request in server.requests]


async def test_a_prompt_is_the_last_one_its_answers_very_tokens_and_new_ones(tmp_path: Path) -> None:
    async with serving() as server:
        trace = await observe_trace(sessions([0], 3), url=server.url, output=tmp_path / "run")
        _, first, second, third = prompts(server)  # the first asks whether the server names its tokens
        answers = [request.token_ids for request in server.requests[1:]]
        asks = ["return_token_ids" in request.body for request in server.requests[1:]]
    assert statuses(trace) == ["ok"] * 3
    assert second[:13] == first + answers[0]
    assert third[:26] == second + answers[1]
    assert [len(first), len(second), len(third)] == [8, 21, 34]
    assert asks == [True, True, False]
    assert list(trace.column("input_tokens")) == [8, 21, 34]
    assert list(trace.column("server_input_tokens")) == [8, 21, 34]
    assert list(trace.column("new_input_tokens")) == [8, 8, 8]
    assert trace.header.session_context_growth == "accumulate"
    assert check_trace(tmp_path / "run") == []
    assert read_trace(tmp_path / "run").column("input_tokens").equals(trace.column("input_tokens"))


async def test_an_answer_of_another_length_is_what_is_sent_back_and_recorded() -> None:
    async with serving(Behaviour(fewer_tokens=2)) as server:
        trace = await observe_trace(sessions([0], 3), url=server.url)
    assert list(trace.column("output_tokens")) == [3, 3, 3]
    assert list(trace.column("input_tokens")) == [8, 19, 30]


@pytest.mark.parametrize("streaming", [True, False])
async def test_a_round_is_due_a_think_time_after_the_answer(streaming: bool) -> None:
    async with serving(Behaviour(ttft_s=0.05)) as server:
        settings = Settings(endpoint=parse_endpoint(server.url), streaming=streaming)
        trace = (await observe_with(sessions([0, 20_000], 2, think_us=40_000), settings)).trace
    assert statuses(trace) == ["ok"] * 4
    due = trace.column("arrival_time_us").to_numpy(dtype=np.int64)
    send = trace.column("send_time_us").to_numpy(dtype=np.int64)
    last = trace.column("last_chunk_time_us").to_numpy(dtype=np.int64)
    assert (due[0], due[2]) == (0, 20_000)
    for row in (1, 3):
        assert 40_000 <= due[row] - last[row - 1] < 60_000 + machine_lag_us(trace)
        assert send[row] >= due[row]


async def test_a_round_that_has_a_time_of_its_own_waits_for_it_too() -> None:
    trace = sessions([0], 2).with_columns(arrival_time_us=[0, 150_000])
    async with serving() as server:
        seen = await observe_trace(trace, url=server.url)
    assert list(seen.column("arrival_time_us")) == [0, 150_000]
    late = sessions([0], 2).with_columns(arrival_time_us=[0, 1000])
    async with serving(Behaviour(ttft_s=0.1)) as server:
        seen = await observe_trace(late, url=server.url)
    assert seen.column("arrival_time_us").iloc[1] > 100_000


async def test_a_server_that_names_no_tokens_gets_its_text_back() -> None:
    async with serving(Behaviour(names_tokens=False, tokenize=True)) as server:
        trace = await observe_trace(sessions([0], 2), url=server.url)
        _, first, second = prompts(server)
    assert statuses(trace) == ["ok"] * 2
    assert second.startswith(first + "xxxxx ")
    assert list(trace.column("input_tokens")) == list(trace.column("server_input_tokens"))
    assert trace.header.client is not None
    assert any("the server returns no token ids" in note for note in trace.header.client.notes)


async def test_on_chat_the_answer_comes_back_as_the_assistants_message() -> None:
    async with serving(Behaviour(tokenize=True, reasoning=True)) as server:
        trace = await observe_trace(sessions([0], 3), url=server.url, api="chat")
        last = prompts(server)[-1]
    assert statuses(trace) == ["ok"] * 3
    assert [message["role"] for message in last] == ["user", "assistant"] * 2 + ["user"]
    assert last[1]["content"] == "xxxx"  # the fifth was reasoning, which nobody sends back
    assert list(trace.column("input_tokens")) == list(trace.column("server_input_tokens"))


async def test_a_round_that_fails_ends_its_session_and_no_other() -> None:
    async with serving() as server:

        def fail_the_second_round_of_the_first(request: Received) -> None:
            """The probe is number 0, the head of the first session 1; its second prompt begins with that head."""
            head = server.requests[1].body["prompt"] if len(server.requests) > 1 else None
            said = request.body["prompt"]
            if request.number > 1 and said[: len(head)] == head and server.behaviour.fault is None:
                server.behaviour = Behaviour(fault="status 500", fault_on=frozenset({request.number}))

        server.on_request = fail_the_second_round_of_the_first
        trace = await observe_trace(sessions([0, 50_000], 3), url=server.url)
    assert list(trace.column("session_id")) == ["s0", "s0", "s1", "s1", "s1"]
    assert statuses(trace) == ["ok", "error", "ok", "ok", "ok"]
    assert trace.header.client is not None
    assert any(
        "were not sent because an earlier round of their session" in note
        for note in trace.header.client.notes
    )


async def test_rounds_that_do_not_build_on_each_other_go_on_after_a_failure() -> None:
    trace = sessions([0], 3)
    alone = workload([0, None, None], session_id=["a"] * 3, round_index=[0, 1, 2])
    assert "new_input_tokens" in trace.requests.columns
    async with serving(Behaviour(fault="status 500", fault_on=frozenset({1}))) as server:
        seen = await observe_trace(alone, url=server.url)
        starts = {tuple(prompt[:8]) for prompt in prompts(server)}
    assert statuses(seen) == ["ok", "error", "ok"]
    assert len(starts) == 3


async def test_users_of_a_closed_loop_go_through_one_session_after_another() -> None:
    trace = sessions([0] * 4, 2, header={"closed_loop": ClosedLoop(concurrency=2)})
    async with serving(Behaviour(ttft_s=0.01)) as server:
        seen = await observe_trace(trace, url=server.url)
    assert statuses(seen) == ["ok"] * 8
    assert seen.header.client is not None
    assert seen.header.client.peak_in_flight == 2
    send = seen.column("send_time_us").to_numpy(dtype=np.int64).reshape(4, 2)
    last = seen.column("last_chunk_time_us").to_numpy(dtype=np.int64).reshape(4, 2)
    assert (send[:, 1] >= last[:, 0]).all()
    assert min(send[2, 0], send[3, 0]) >= last[:2, 1].min()


async def test_a_cap_holds_back_later_rounds_too() -> None:
    async with serving(Behaviour(ttft_s=0.03)) as server:
        trace = await observe_trace(sessions([0, 0, 0], 2), url=server.url, limits=Limits(max_concurrency=1))
    client = trace.header.client
    assert client is not None
    assert (client.peak_in_flight, statuses(trace)) == (1, ["ok"] * 6)


async def test_a_drained_run_begins_no_round() -> None:
    async with serving(Behaviour(ttft_s=0.15)) as server:
        settings = Settings(endpoint=parse_endpoint(server.url), max_error_frac=None)
        run = asyncio.create_task(observe_with(sessions([0], 3), settings, handle_signals=True))
        await server.received(2)
        os.kill(os.getpid(), signal.SIGINT)
        seen = await run
    assert seen.interrupted
    assert statuses(seen.trace) == ["ok"]


def test_chains_follow_the_rounds_whatever_the_order_of_the_rows() -> None:
    trace = workload([0, 1, 2, 3], session_id=["a", "b", "a", None], round_index=[1, 0, 0, 5])
    assert chains_of(trace) == [(2, 0), (1,), (3,)]


@pytest.mark.parametrize(
    ("prompt", "added", "whole"),
    [
        ([1, 2], [5], [1, 2, 3, 4, 5]),
        ("a b", "d", 'a bx"y d'),
        (
            [{"role": "user", "content": "a"}],
            [{"role": "user", "content": "b"}],
            [
                {"role": "user", "content": "a"},
                {"role": "assistant", "content": 'x"y'},
                {"role": "user", "content": "b"},
            ],
        ),
    ],
)
def test_a_prompt_grows_in_its_own_kind(prompt: object, added: object, whole: object) -> None:
    reply = Reply(text='x"y', token_ids=(3, 4))
    assert orjson.loads(extended_prompt(orjson.dumps(prompt), reply, orjson.dumps(added))) == whole
    silent = extended_prompt(b"[1,2]", Reply(text="", token_ids=()), b"[5]")
    assert orjson.loads(silent) == [1, 2, 5]
