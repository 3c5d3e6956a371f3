"""Servers that break the rules: each request comes to an end of its own, on both senders and both loops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest

from observe.senders.exchange import AnswerLimit, Exchange, Held, Sender, answer_limit
from tests.observe.raw_server import GOOD, HEAD, SENDERS, Answer, chunk, event, loop_factories, sent_to

Result = TypeVar("Result")
Run = Callable[[Coroutine[Any, Any, Result]], Result]

LENGTH = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"
SMALL = AnswerLimit(num_bytes=1 << 20, num_lines=4096)

MODES: dict[str, tuple[Answer, str | None]] = {
    # name: what the server does, and what the request's error says (None: it is a whole answer)
    "reset with the last bytes of a whole answer": (Answer(first=GOOD, end="reset"), None),
    "reset with bytes in the middle": (
        Answer(first=HEAD + chunk(event()), end="reset"),
        "connection lost in the middle of the answer, after",
    ),
    "reset with the head": (Answer(first=HEAD, end="reset"), "connection lost before the first event"),
    "reset before the head": (Answer(end="reset"), "connection closed before an answer"),
    "reset without reading the request": (
        Answer(end="reset", reads_request=False),
        "connection closed before an answer",
    ),
    "refused and reset without reading the request": (
        Answer(first=b"HTTP/1.1 413 No\r\nContent-Length: 3\r\n\r\nbig", end="reset", reads_request=False),
        "HTTP 413: big",
    ),
    "closed with the last bytes": (Answer(first=GOOD), None),
    "closed in the middle of a chunk": (Answer(first=HEAD + b"ff\r\ndata"), "in the middle of the answer"),
    "fewer bytes than announced": (Answer(first=LENGTH % 99 + event()), "in the middle of the answer"),
    "status 101": (
        Answer(
            first=b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n",
            end="keep",
        ),
        "HTTP 101: expected an answer",
    ),
    "status 101 without an upgrade": (Answer(first=b"HTTP/1.1 101 Go\r\n\r\n", end="keep"), "101"),
    "status 000": (Answer(first=b"HTTP/1.1 000 Nothing\r\n\r\n", end="keep"), "expected an answer"),
    "status 99": (Answer(first=b"HTTP/1.1 099 Nothing\r\n\r\n", end="keep"), "expected an answer"),
    "a head without end": (Answer(first=b"HTTP/1.1 200 OK\r\n", again=b"X-A: " + b"a" * 4000 + b"\r\n"), ""),
    "a header line without end": (Answer(first=b"HTTP/1.1 200 OK\r\nX-A: ", again=b"a" * 4000), ""),
    "a status line without end": (Answer(first=b"HTTP/1.1 200 ", again=b"a" * 4000), ""),
    "events without end": (Answer(first=HEAD, again=chunk(event() * 100)), "endless answer: more than"),
    "a line without end": (Answer(first=HEAD, again=chunk(b"y" * 65536)), "endless answer: more than"),
    "comments without end": (
        Answer(first=HEAD, again=chunk(b": ping\n\n" * 500)),
        "endless answer: more than",
    ),
    "carriage returns without end": (
        Answer(first=HEAD, again=chunk(b"\r" * 4000)),
        "endless answer: more than",
    ),
    "a body without end or length": (
        Answer(first=b"HTTP/1.1 200 OK\r\n\r\n", again=event() * 100),
        "endless answer: more than",
    ),
    "a refusal without end": (
        Answer(first=b"HTTP/1.1 500 No\r\n\r\n", again=b"no " * 1000),
        "HTTP 500: no no",
    ),
    "not HTTP": (Answer(first=b"SSH-2.0-OpenSSH_9.6\r\n\r\n", end="keep"), ""),
    "HTTP/2 preface": (Answer(first=b"\x00\x00\x12\x04\x00\x00\x00\x00\x00" + b"\x00" * 18, end="keep"), ""),
    "chunk size not a number": (Answer(first=HEAD + b"zz\r\ndata\r\n", end="keep"), ""),
    "chunk size of 2**70": (Answer(first=HEAD + b"4" + b"0" * 17 + b"\r\ndata\r\n"), ""),
    "negative length": (Answer(first=b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", end="keep"), ""),
    "two lengths": (
        Answer(first=b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", end="keep"),
        "",
    ),
    "null bytes in the head": (Answer(first=b"HTTP/1.1 200 OK\r\nX: \x00\r\n\r\n", end="keep"), ""),
    "nothing at all": (Answer(), "connection closed before an answer"),
    "interim heads without end": (
        Answer(again=b"HTTP/1.1 102 Processing\r\n\r\n" * 100),
        "more than 32 times, expected an answer",
    ),
}


@pytest.fixture(params=["uvloop", "asyncio"])
def run(request: pytest.FixtureRequest) -> Run[Any]:
    """Both loops in turn."""

    def run_on(coroutine: Coroutine[Any, Any, Any]) -> Any:  # noqa: ANN401
        with asyncio.Runner(loop_factory=loop_factories()[request.param]) as runner:
            return runner.run(coroutine)

    return run_on


@pytest.fixture(params=SENDERS)
def open_sender(request: pytest.FixtureRequest) -> Callable[[str], Sender]:
    """Both senders in turn."""
    return SENDERS[request.param]


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_ends_its_request_and_no_other(
    mode: str, run: Run[Any], open_sender: Callable[[str], Sender]
) -> None:
    answer, words = MODES[mode]
    exchanges = run(
        sent_to(
            lambda number: answer if number == 1 else Answer(first=GOOD, end="keep"),
            open_sender,
            number=3,
            limit=SMALL,
        )
    )
    before, hit, after = exchanges
    assert (before.failure, after.failure) == (None, None)
    assert b"".join(before.blobs) == b"".join(after.blobs)
    if words is None:
        assert hit.failure is None
        assert hit.blobs
    else:
        assert hit.failure is not None
        assert hit.failure.status == "error"
        assert words in hit.failure.message
    assert hit.num_bytes <= SMALL.num_bytes + (2 << 20)  # what one read or two may bring


def test_answers_under_way_are_limited_together_and_the_large_ones_end() -> None:
    """Small answers go on; what has been read makes room."""
    held = Held(most_bytes=10_000)
    small, large = (Exchange(x_request_id=name, held=held) for name in "ab")
    small.take(b"x" * 100, 1)
    assert large.excess() is None
    large.take(b"x" * 20_000, 1)
    assert "more than 10,000 bytes of memory" in str(large.excess())
    assert small.excess() is None
    large.let_go()
    assert (large.blobs, large.excess(), small.next_attempt(0).held) == ([], None, held)
    assert (held.num_bytes, held.num_answers) == (0, 0)


def test_a_hundred_resets_with_the_last_bytes_leave_none_waiting(
    run: Run[Any], open_sender: Callable[[str], Sender]
) -> None:
    cut = Answer(first=HEAD + chunk(event()), end="reset")
    exchanges = run(sent_to(lambda _: cut, open_sender, number=100, at_once=True))
    assert all(each.failure is not None for each in exchanges)
    assert all(each.num_bytes == len(event()) for each in exchanges)


def test_a_connection_that_ended_while_nobody_looked_is_not_used_again(run: Run[Any]) -> None:
    """The end comes with the answer: the next request must see it before it is written."""
    exchanges = run(sent_to(lambda _: Answer(first=GOOD, end="reset"), SENDERS["sockets"], number=5))
    assert [each.failure for each in exchanges] == [None] * 5
    assert all(each.connection_wait_ns > 0 for each in exchanges)


def test_what_follows_an_answer_unasked_ends_the_connection(
    run: Run[Any], open_sender: Callable[[str], Sender]
) -> None:
    forged = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfalse"
    twice = Answer(first=GOOD + forged, end="keep")
    exchanges = run(sent_to(lambda _: twice, open_sender, number=3))
    assert {b"".join(each.blobs) for each in exchanges} == {
        event() + event(finish='"length"') + b"data: [DONE]\n\n"
    }


def test_a_body_that_the_server_does_not_take_ends_with_what_it_said(
    run: Run[Any],
) -> None:
    """16 MiB do not fit into the socket: the send itself fails, after the answer has come."""
    refused = Answer(
        first=b"HTTP/1.1 413 No\r\nContent-Length: 3\r\nConnection: close\r\n\r\nbig",
        end="reset",
        reads_request=False,
    )
    (hit,) = run(sent_to(lambda _: refused, SENDERS["sockets"], body=b"x" * (16 << 20)))
    assert hit.failure is not None
    assert hit.failure.message.startswith(("HTTP 413: big", "connection closed before an answer"))


def test_a_real_answer_is_far_below_the_limit() -> None:
    """The longest that vLLM sends: a line of usage with each of 100,000 tokens, 400 bytes each."""
    most = answer_limit(100_000)
    assert most.num_bytes > 5 * 400 * 100_000
    assert most.num_lines > 10 * 2 * 100_000
