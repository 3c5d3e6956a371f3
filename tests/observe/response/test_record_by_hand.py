"""What goes on record, worked out with a pencil: every column of a row, every count, every value that cannot be."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from observe.plan.send_plan import SendPlan
from observe.record import csv_appender
from observe.record import recorder as recording
from observe.record.csv_appender import CsvAppender
from observe.record.live_trace import LiveTrace
from observe.record.recorder import AnswerCounts, Recorder, read_exchange
from observe.record.trace_row import event_rows, outcome_cells
from observe.record.warm_up_phase import WarmUpPhase
from observe.response.delta import has_reasoning, has_text, text_of
from observe.response.reading import Reading, Reply, ServerTimings
from observe.response.stated_values import milliseconds, short_text, token_count, token_ids
from observe.response.stream_reader import StreamReader, error_message
from observe.response.unstreamed import read_unstreamed
from observe.run.run_counts import Progress
from observe.run.sent_request import SentRequest
from observe.senders.exchange import Exchange
from observe.settings import WarmUp
from tests.observe.response.test_stream_reader import DONE, sse, text, usage
from tests.observe.workloads import plan_of, workload
from traces import ClosedLoop, TraceError

# -- values that a server states -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "is_one"),
    [
        (0, True),
        (2**31 - 1, True),
        (2**31, False),
        (-1, False),
        (True, False),
        (1.0, False),
        ("1", False),
        (None, False),
    ],
)
def test_a_number_of_tokens(value: object, is_one: bool) -> None:
    assert token_count(value) == (value if is_one else None)
    assert token_ids([5, value]) == ((5, value) if is_one else None)


def test_token_ids_are_a_list() -> None:
    assert token_ids([]) == ()
    assert token_ids((1, 2)) is None


@pytest.mark.parametrize(
    ("value", "is_one"),
    [
        (0, True),
        (0.25, True),
        (10**10, True),
        (1.00001e10, False),
        (-0.001, False),
        (float("inf"), False),
        (float("nan"), False),
        (True, False),
        ("1", False),
    ],
)
def test_a_time_in_ms(value: object, is_one: bool) -> None:
    assert milliseconds(value) == (value if is_one else None)


@pytest.mark.parametrize(
    ("value", "is_one"),
    [("a", True), ("a" * 200, True), ("a" * 201, False), ("", False), ("a\n", False), (7, False)],
)
def test_a_short_text(value: object, is_one: bool) -> None:
    assert short_text(value) == (value if is_one else None)


# -- one answer ----------------------------------------------------------------------------------------------


def read(*blobs: bytes, whole: bool = True, asked: int | None = None, with_reply: bool = False) -> Reading:
    """Read the blobs, the k-th stamped 10 * (k + 1)."""
    reader = StreamReader(asked=asked, with_reply=with_reply)
    for number, blob in enumerate(blobs):
        reader.take(blob, 10 * (number + 1))
    return reader.finish(10 * len(blobs), whole=whole)


def test_a_server_may_count_as_many_tokens_as_were_asked_for_or_as_the_answer_has_bytes() -> None:
    blobs = [text("a", finish="length"), usage(0), DONE]
    num_bytes = sum(map(len, blobs[:1] + blobs[2:])) + len(usage(100))
    for total, is_possible in ((num_bytes, True), (num_bytes + 1, False)):
        found = read(blobs[0], usage(total), DONE, asked=5)
        assert found.output_tokens == (total if is_possible else None)
        assert found.unusable == (() if is_possible else ("completion_tokens",))
        assert read(blobs[0], usage(total), DONE, asked=num_bytes + 1).output_tokens == total
        assert read(blobs[0], usage(total), DONE).output_tokens == total
    impossible = read(text("a", total=1), text("b", total=999, finish="length"), usage(999), DONE, asked=5)
    assert impossible.event_tokens == [None, None, 0]


def test_what_cannot_be_is_named_once_each_in_the_order_of_the_alphabet() -> None:
    event = {
        "choices": [{"text": "a", "finish_reason": "x\ny", "token_ids": [-1]}],
        "system_fingerprint": 7,
        "usage": {
            "prompt_tokens": -2,
            "completion_tokens": 1,
            "prompt_tokens_details": {"cached_tokens": True},
        },
        "metrics": {"queue_time_ms": -1, "time_to_first_token_ms": 3, "generation_time_ms": "x"},
    }
    found = read(sse(event), sse(event), DONE, with_reply=True)
    assert found.unusable == (
        "cached_tokens",
        "finish_reason",
        "generation_time_ms",
        "prompt_tokens",
        "queue_time_ms",
        "system_fingerprint",
        "token_ids",
    )
    assert found.timings == ServerTimings(prefill_ms=3.0)
    assert read(text("a", finish="stop"), usage(1), DONE, with_reply=True).unusable == ()


def test_what_was_said_is_kept_where_it_is_asked_for() -> None:
    first = sse({"choices": [{"text": "a", "token_ids": [4, 5]}]})
    second = sse({"choices": [{"delta": {"content": "b", "reasoning": "c"}, "token_ids": [6]}]})
    assert read(first, second, DONE, with_reply=True).reply == Reply(text="ab", token_ids=(4, 5, 6))
    assert read(first, second, DONE).reply is None


def test_the_first_fault_the_first_fingerprint_and_the_last_reason_stand() -> None:
    def event(**more: object) -> bytes:
        return sse({"choices": [{"text": "a", "finish_reason": more.pop("reason", None)}], **more})

    found = read(
        event(system_fingerprint="one", reason="length"),
        event(system_fingerprint="two", reason="stop", error="first"),
        event(object="error", message="second"),
        b"data: [1]\n\n",
    )
    assert (found.fault, found.system_fingerprint, found.finish_reason) == (
        "server said: first",
        "one",
        "stop",
    )
    assert read(event(object="error", message="said")).fault == "server said: said"
    assert (
        read(event(), event(), b"data: [1]\n\n", event()).fault
        == "event 2: got '[1]', expected a JSON object"
    )


def test_a_payload_is_quoted_up_to_eighty_characters() -> None:
    assert read(b"data: " + b"x" * 80 + b"\n\n").fault == f"event 0: got '{'x' * 80}', expected a JSON object"
    assert (
        read(b"data: " + b"x" * 81 + b"\n\n").fault == f"event 0: got '{'x' * 79}…', expected a JSON object"
    )


def test_a_body_without_an_event_is_known_by_its_first_bytes_however_they_are_cut() -> None:
    body = b'{"error": {"message": "' + b"m" * 150 + b'"}}'
    for cut in (1, 100, len(body)):
        assert read(body[:cut], body[cut:]).fault == f"server said: {'m' * 150}"


def test_what_a_body_opened_with_is_kept_until_there_are_200_bytes() -> None:
    body = b'{"error": {"message": "' + b"m" * 300 + b'"}}'
    assert read(body[:199], body[199:]).fault == f"server said: {'m' * 300}"
    assert (read(body[:200], body[200:]).fault or "").startswith('body without an event: got \'{"error"')


def test_usage_of_a_number_of_tokens_at_a_time() -> None:
    """A count that stands still carries nothing; one that comes with the first event counts from nothing."""
    found = read(text("ab", total=2), text("", total=2), text("c", total=3, finish="stop"), DONE)
    assert found.event_tokens == [2, 0, 1]
    assert (found.num_token_chunks, found.counted_by_event, found.last_token) == (2, True, 30)
    fell_to_nothing = read(text("ab", total=2), text("c", total=0, finish="stop"), DONE)
    assert not fell_to_nothing.counted_by_event


def test_an_event_that_ends_with_the_body_is_stamped_with_its_end() -> None:
    found = read(text("a"), text("b", finish="stop").rstrip())
    assert found.event_stamps == [10, 20]
    assert read(text("b", finish="stop").rstrip(), b"", b"").event_stamps == [30]


def test_an_event_that_nobody_ended_and_nobody_stamped_came_at_the_start() -> None:
    reader = StreamReader()
    reader.take(text("a", finish="stop").rstrip(), 10)
    assert reader.finish(None, whole=True).event_stamps == [0]


def test_an_answer_that_carried_nothing_was_not_counted_by_its_events() -> None:
    found = read(usage(0), DONE)
    assert (found.event_tokens, found.num_token_chunks, found.counted_by_event) == ([0], 0, False)


def test_take_says_how_many_events_a_blob_completes() -> None:
    reader = StreamReader()
    reader.take(b"", 0)
    assert [reader.take(blob, 0) for blob in (text("a") + text("b"), b"data: ", b"{}\n\n")] == [2, 0, 1]


@pytest.mark.parametrize(
    ("choice", "carries", "said"),
    [
        ({"text": "a"}, True, "a"),
        ({"text": ""}, False, ""),
        ({"delta": {"content": "a"}}, True, "a"),
        ({"message": {"content": "a"}}, True, "a"),
        ({"delta": {"refusal": "a"}}, True, ""),
        ({"delta": {"function_call": {"name": "f"}}}, True, ""),
        ({"delta": {"role": "assistant"}}, False, ""),
        ({"delta": "a"}, False, ""),
        ({"text": 7}, True, ""),
        ({}, False, ""),
    ],
)
def test_what_a_choice_holds(choice: dict[str, Any], carries: bool, said: str) -> None:
    assert (has_text(choice) or has_reasoning(choice), text_of(choice)) == (carries, said)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"error": "a"}, "server said: a"),
        ({"error": {"message": "a", "type": "b"}}, "server said: a"),
        ({"error": {"type": "b"}}, "server said: b"),
        ({"error": {"code": 5}}, "server said: {'code': 5}"),
        ({"object": "error", "message": "a"}, "server said: a"),
        ({"object": "list", "message": "a"}, None),
        ({"error": None}, None),
    ],
)
def test_what_an_error_says(answer: dict[str, Any], message: str | None) -> None:
    assert error_message(answer) == message


def test_an_answer_in_one_piece() -> None:
    body = b'{"choices": [{"text": "abc", "finish_reason": "stop"}], "usage": {"completion_tokens": 3}}'
    found = read_unstreamed(StreamReader(streamed=False), [body[:9], body[9:]], 70, whole=True)
    assert (found.event_stamps, found.event_tokens, found.output_tokens) == ([70], [3], 3)
    assert (found.content_first, found.last_token, found.streamed, found.fault) == (None, 70, False, None)
    for blobs, stamp, whole in (([], 70, True), ([body], None, True), ([body], 70, False)):
        nothing = read_unstreamed(StreamReader(streamed=False), blobs, stamp, whole=whole)
        assert (nothing.event_stamps, nothing.output_tokens, nothing.fault) == ([], None, None)
    long = read_unstreamed(
        StreamReader(streamed=False, hide=lambda said: str(len(said))), [b"<" * 5000], 70, whole=True
    )
    assert long.fault == "body: got '4096', expected a JSON object", "so much is looked through for secrets"
    wrong = read_unstreamed(StreamReader(streamed=False), [b"<" * 90], 70, whole=True)
    assert wrong.fault == f"body: got '{'<' * 79}…', expected a JSON object"


# -- its row -------------------------------------------------------------------------------------------------

START = 5_000_000
"""The run's start, ns."""


def one_answer() -> Reading:
    """Return an answer of two tokens, whose events came 9.0019 and 12.5 us after the start."""
    reader = StreamReader()
    closing = {
        "choices": [],
        "usage": {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 8}},
        "metrics": {"queue_time_ms": 0.0255, "time_to_first_token_ms": 12.25, "generation_time_ms": 100},
    }
    reader.take(text(""), START + 8_000)
    reader.take(text("a"), START + 9_001)
    reader.take(text("b", finish="length"), START + 12_500)
    reader.take(sse(closing), START + 13_999)
    return reader.finish(None, whole=False)


def sent(**more: Any) -> SentRequest:  # noqa: ANN401 - any field
    exchange = Exchange(
        x_request_id="id",
        dispatched_ns=START + 5_999,
        connection_wait_ns=2_999_999,
        first_byte_ns=START + 7_500,
        dns_ns=1_500,
        connect_ns=2_999,
        sent_ns=START + 8_998,
    )
    fields: dict[str, Any] = {"row": 0, "exchange": exchange, "due_ns": START + 3_500, **more}
    return SentRequest(**fields)


def test_every_column_of_a_row() -> None:
    cells = outcome_cells(sent(), one_answer(), plan=plan_of([3]), start_ns=START)
    assert cells == {
        "streaming": True,
        "output_tokens": 2,
        "server_input_tokens": 9,
        "send_time_us": 5,
        "first_chunk_time_us": 8,
        "last_chunk_time_us": 13,
        "num_chunks": 4,
        "status": "ok",
        "error_message": None,
        "finish_reason": "length",
        "x_request_id": "id",
        "content_first_time_us": 9,
        "last_token_time_us": 12,
        "num_token_chunks": 2,
        "cached_input_tokens": 8,
        "server_queue_us": 26,  # 25.5 rounds to even
        "server_prefill_us": 12_250,
        "server_decode_us": 100_000,
        "max_tokens": 5,
        "dispatch_lag_us": 2,
        "connection_wait_us": 2_999,
        "first_byte_time_us": 7,
        "http_dns_us": 1,
        "http_connect_us": 2,
        "http_tls_us": None,
        "http_send_us": 2,
        "vllm_priority": None,
        "model": None,
        "adapter": None,
        "length_capped": True,
        "guided": None,
        "attempt": None,
        "num_token_reads": 1,  # 3 µs apart: one read
        "first_token_early_us": None,
        "first_chunk_tokens": 2,
        "reasoning_tokens": None,
        "hidden_tokens": None,
        "cancel_time_us": None,
        "visible_first_time_us": None,
        "num_tool_calls": None,
    }


def test_a_row_of_a_request_that_was_never_sent() -> None:
    request = sent(exchange=Exchange(x_request_id="id"), num_attempts=2)
    request.exchange.fail("error", "no way")
    reading = StreamReader().finish(None, whole=False)
    cells = outcome_cells(request, reading, plan=plan_of([3]), start_ns=START)
    for name in (
        "send_time_us",
        "first_chunk_time_us",
        "last_chunk_time_us",
        "dispatch_lag_us",
        "connection_wait_us",
    ):
        assert cells[name] is None
    assert (cells["status"], cells["error_message"], cells["attempt"]) == ("error", "no way", 2)
    assert (cells["output_tokens"], cells["num_chunks"], cells["length_capped"]) == (0, 0, None)


def test_the_fault_of_a_stream_is_on_record_on_one_line_and_that_of_the_wire_goes_before() -> None:
    reading = replace(one_answer(), fault="a\nb")
    request = sent()
    assert outcome_cells(request, reading, plan=plan_of([3]), start_ns=START)["error_message"] == "a b"
    request.exchange.fail("timeout", "late")
    cells = outcome_cells(request, reading, plan=plan_of([3]), start_ns=START)
    assert (cells["status"], cells["error_message"]) == ("timeout", "late")


def test_an_answer_in_one_piece_has_no_first_chunk() -> None:
    cells = outcome_cells(sent(), replace(one_answer(), streamed=False), plan=plan_of([3]), start_ns=START)
    assert (cells["first_chunk_time_us"], cells["last_chunk_time_us"]) == (None, 13)


def rounds(*, extends: bool, loop: ClosedLoop | None = None) -> SendPlan:
    """Return a plan of two rounds of which the second may build on the first, its prefix group's tokens being 3."""
    plan = plan_of([0, 0], loop=loop)
    trace = plan.trace.with_columns(prefix_group=["g", "g"], prefix_length=[3, 3])
    return replace(plan, trace=trace, extends_row={1: 0} if extends else {})


@pytest.mark.parametrize(
    ("extends", "loop", "more", "arrival_us", "input_tokens"),
    [
        (True, None, {"is_paced": True}, "absent", "absent"),
        (True, None, {"input_tokens": 20}, 3, 17),
        (True, None, {"due_ns": START + 2_000_999_999}, 2_000_999, 6),
        (True, None, {}, 3, 6),  # nine, as the server says
        (True, None, {"input_tokens": 2}, 3, 0),
        (True, None, {"due_ns": START - 9_000}, 0, 6),
        (False, None, {"input_tokens": 20}, 3, "absent"),
        (True, ClosedLoop(concurrency=1), {"input_tokens": 20}, None, 17),
        (False, ClosedLoop(concurrency=1), {"input_tokens": 20}, None, "absent"),
    ],
)
def test_what_only_the_run_knows_of_a_later_round(
    extends: bool, loop: ClosedLoop | None, more: dict[str, Any], arrival_us: object, input_tokens: object
) -> None:
    request = sent(**{"row": 1, "is_paced": False} | more)
    cells = outcome_cells(request, one_answer(), plan=rounds(extends=extends, loop=loop), start_ns=START)
    assert cells.get("arrival_time_us", "absent") == arrival_us
    assert cells.get("input_tokens", "absent") == input_tokens


def test_the_rows_of_its_events() -> None:
    early = replace(one_answer(), event_stamps=[START - 1, START + 999, START + 1_000, START + 2_500])
    assert event_rows("r", early, start_ns=START) == [
        ["r", 0, 0, 0],
        ["r", 1, 0, 1],
        ["r", 2, 1, 1],
        ["r", 3, 2, 0],
    ]


# -- counts --------------------------------------------------------------------------------------------------


def test_what_the_answers_were_like_is_counted() -> None:
    plain = replace(one_answer(), timings=ServerTimings(), cached_input_tokens=None)
    counts = AnswerCounts()
    counts.note(one_answer(), asked=2)  # two tokens, counted at the end, with timings and cached tokens
    counts.note(replace(plain, counted_by_event=True, system_fingerprint="f"), asked=3)
    counts.note(replace(plain, output_tokens=None, system_fingerprint="f"), asked=3)
    counts.note(replace(plain, counted_by_event=True), asked=2)
    counts.note(replace(plain, output_tokens=None), asked=3)
    counts.note(replace(plain, output_tokens=None), asked=3)
    for names in (("a",), ("a", "b"), ()):
        counts.note_unusable(replace(plain, unusable=names))
    assert (
        counts.num_whole,
        counts.counted_by_event,
        counts.counted_at_end,
        counts.without_usage,
        counts.other_length,
        counts.with_cached_tokens,
        counts.with_timings,
    ) == (6, 2, 1, 3, 1, 1, 1)
    assert counts.fingerprints == Counter(f=2)
    assert counts.unusable == Counter(a=2, b=1)


def test_an_aborted_answer_is_read_as_long_as_lines_and_kilobytes_are_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten lines or kilobytes may be read: 3 lines and 4000 bytes are 7, then 3 fit, then 1 is too many."""
    monkeypatch.setattr(recording, "_LINES_AFTER_ABORT", 10)
    live = LiveTrace(tmp_path / "run", plan=plan_of([0]), events=False)
    recorder = Recorder(live, Progress(num_planned=1, start_ns=0), max_tokens=[1])
    kept = []
    for status, lines, num_bytes in (
        ("aborted", 3, 4_000),
        ("error", 99, 0),
        ("aborted", 4, 0),
        ("aborted", 3, 999),
        ("aborted", 1, 0),
        ("timeout", 99, 0),
    ):
        exchange = Exchange(x_request_id="x", blobs=[b"a"], stamps=[1], num_lines=lines, num_bytes=num_bytes)
        exchange.fail(status, "why")  # type: ignore[arg-type] # one of them
        recorder._drop_if_too_long(exchange)
        kept.append((len(exchange.blobs), len(exchange.stamps)))
    live.close()
    assert kept == [(1, 1), (1, 1), (0, 0), (1, 1), (0, 0), (1, 1)]


@pytest.mark.parametrize(("num_blobs", "events", "expected"), [(9, 2, 4), (11, 1, 2)])
async def test_the_loop_has_its_turn_after_so_many_events(num_blobs: int, events: int, expected: int) -> None:
    """Four make a slice: of blobs of two a turn after the second, fourth, sixth and eighth; of one after 4 and 8."""
    exchange = Exchange(x_request_id="x")
    for stamp in range(num_blobs):
        exchange.take(text("a") * events, stamp)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    reading = await read_exchange(exchange, events_per_slice=4)
    counting.cancel()
    assert turns == expected
    assert len(reading.event_stamps) == num_blobs * events
    assert exchange.blobs == []


async def test_a_slice_is_longer_by_64_events_for_every_four_answers_that_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten answers: nine wait behind the first, eight behind the second."""
    slices: list[int] = []

    async def noted(exchange: Exchange, *, events_per_slice: int, **more: Any) -> Reading:  # noqa: ANN401
        slices.append(events_per_slice)
        return await read_exchange(exchange, events_per_slice=events_per_slice, **more)

    monkeypatch.setattr(recording, "read_exchange", noted)
    live = LiveTrace(tmp_path / "run", plan=plan_of([0] * 10), events=False)
    recorder = Recorder(live, Progress(num_planned=10, start_ns=0), max_tokens=[5] * 10)
    for row in range(10):
        recorder.put(SentRequest(row=row, exchange=Exchange(x_request_id="x", dispatched_ns=0)))
    recorder.close()
    await recorder.work()
    live.close()
    assert slices == [192, 192, 128, 128, 128, 128, 64, 64, 64, 64]


async def test_an_answer_that_was_cut_off_is_not_judged_by_its_end() -> None:
    whole, cut = Exchange(x_request_id="x"), Exchange(x_request_id="x")
    for exchange in (whole, cut):
        exchange.take(text("a"), 3)
    cut.fail("error", "lost")
    assert (await read_exchange(cut)).fault is None
    assert (await read_exchange(whole)).fault == "stream ended after 1 events without finish_reason or [DONE]"


async def test_an_awaited_answer_is_read_first_and_heard_of(tmp_path: Path) -> None:
    plan = plan_of([0, 0, 0])
    live = LiveTrace(tmp_path / "run", plan=plan, events=False)
    recorder = Recorder(live, Progress(num_planned=3, start_ns=0), max_tokens=[5] * 3, awaited={2})
    heard: list[object] = []
    recorder.on_reply = lambda row, reply: heard.append((row, None if reply is None else reply.text))
    recorder.on_outcome = heard.append
    for row in range(3):
        exchange = Exchange(x_request_id="x", dispatched_ns=0)
        exchange.take(text(f"said {row}", finish="stop"), 7)
        if row == 1:
            exchange.fail("error", "lost")
        recorder.put(SentRequest(row=row, exchange=exchange))
    recorder.close()
    await recorder.work()
    live.close()
    assert heard == [(2, "said 2"), True, True, False]
    assert live.num_rows == 3
    assert recorder.answer_counts.num_whole == 2


# -- files ---------------------------------------------------------------------------------------------------


def test_a_piece_of_a_line_is_taken_back_however_long_the_file_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looked for in the last eight bytes: of a file of twelve the piece of three is found, and of one of five."""
    monkeypatch.setattr(csv_appender, "_LONGEST_PIECE", 8)
    for lines, piece in (
        ("n\n1\n", "2"),
        ("n\n1\n2\n3\n4", "456"),
        ("n\n", "abc"),
        ("n\n1\n2\n3\n", "abcdefg"),
        ("n\n12\n", ""),
    ):
        path = tmp_path / "rows.csv"
        path.unlink(missing_ok=True)
        appender = CsvAppender.begin(path, ["n"])
        appender.close()
        path.write_text(lines + piece)
        appender = CsvAppender.join(path, ["n"])
        appender.append([[True], [None], ["a,b"]])
        appender.close()
        assert path.read_text() == lines[: lines.rfind("\n") + 1] + 'true\n""\n"a,b"\n'


def test_of_a_file_of_whole_lines_one_byte_is_read_before_more_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    appender = CsvAppender.begin(tmp_path / "rows.csv", ["n"])
    real, reads = os.pread, []

    def noted(fd: int, length: int, offset: int) -> bytes:
        reads.append((length, offset))
        return real(fd, length, offset)

    monkeypatch.setattr("observe.record.csv_appender.os.pread", noted)
    appender.append([[12]])
    appender.append([[3]])
    appender.close()
    assert reads == [(1, 1), (1, 4)]


def test_a_file_without_a_whole_line_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("abc")
    appender = CsvAppender(os.open(path, os.O_RDWR | os.O_APPEND))
    appender.append([[7]])
    appender.close()
    assert path.read_text() == "7\n"


def test_a_file_may_be_read_by_all_that_the_umask_lets(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        CsvAppender.begin(tmp_path / "rows.csv", ["n"]).close()
    finally:
        os.umask(before)
    assert (tmp_path / "rows.csv").stat().st_mode & 0o777 == 0o644


def test_a_descriptor_is_closed_once_also_that_of_a_client_without_a_standard_input(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    closed: list[int] = []
    monkeypatch.setattr("observe.record.csv_appender.os.close", closed.append)
    appender = CsvAppender(0)
    appender.close()
    appender.close()
    monkeypatch.undo()
    assert closed == [0]


def test_a_write_in_pieces_is_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr("observe.record.csv_appender.os.write", lambda fd, data: real(fd, data[:3]))
    appender = CsvAppender.begin(tmp_path / "rows.csv", ["name", "n"])
    appender.append([["first", 1], ["second", 22]])
    appender.close()
    assert (tmp_path / "rows.csv").read_text() == "name,n\nfirst,1\nsecond,22\n"


def test_a_disk_that_is_full_keeps_what_it_has_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third row is written by half."""
    live = LiveTrace(tmp_path / "run", plan=plan_of([0, 0, 0]), events=False)
    for _ in range(2):
        live.append(live.lines_of(sent(), one_answer(), start_ns=START))
    whole = (tmp_path / "run.csv").read_text()
    real = os.write
    sizes = iter((9,))

    def write(fd: int, data: bytes) -> int:
        try:
            return real(fd, data[: next(sizes)])
        except StopIteration:
            raise OSError(28, "No space left on device") from None

    monkeypatch.setattr("observe.record.csv_appender.os.write", write)
    with pytest.raises(
        TraceError, match=r"run: No space left on device after 2 requests, which it keeps; expected"
    ):
        live.append(live.lines_of(sent(), one_answer(), start_ns=START))
    live.close()
    assert (tmp_path / "run.csv").read_text() == whole
    assert whole.count("\n") == 3


@pytest.mark.parametrize("joins", [False, True])
def test_who_begins_a_trace_takes_what_was_there_away_and_who_joins_it_does_not(
    joins: bool, tmp_path: Path
) -> None:
    LiveTrace(tmp_path / "run", plan=plan_of([0]), events=True).close()
    (tmp_path / "run.gauges.csv").write_text("a\n")
    LiveTrace(tmp_path / "run", plan=plan_of([0]), events=True, writes="join" if joins else "begin").close()
    assert (tmp_path / "run.gauges.csv").exists() is joins


@pytest.mark.parametrize("events", [True, False])
def test_a_finished_trace_is_in_the_order_of_the_plan(events: bool, tmp_path: Path) -> None:
    live = LiveTrace(tmp_path / "run", plan=(plan := plan_of([0, 0, 0])), events=events)
    live.write_header(plan.trace.header)
    for row in (2, 0, 1):
        live.append(live.lines_of(sent(row=row), one_answer(), start_ns=START))
    trace = live.finish(plan.trace.header)
    assert trace.column("request_id").tolist() == ["0", "1", "2"]
    if not events:
        assert trace.events is None
    else:
        assert trace.events is not None
        assert trace.events["request_id"].tolist() == ["0"] * 4 + ["1"] * 4 + ["2"] * 4


def test_a_row_has_the_phase_of_its_due_time_from_the_start_of_the_run(tmp_path: Path) -> None:
    plan = plan_of([0, 0])
    live = LiveTrace(
        tmp_path / "run", plan=plan, events=False, warmup=WarmUp(seconds=0.001, is_recorded=True)
    )
    live.write_header(plan.trace.header)
    for row, due_ns in enumerate((START + 999_999, START + 1_000_000)):
        live.append(live.lines_of(sent(row=row, due_ns=due_ns), one_answer(), start_ns=START))
    assert live.finish(plan.trace.header).column("phase").tolist() == ["warmup", "main"]


def test_who_is_due_first_warms_the_server_up() -> None:
    """Two requests, by their due time and not by their row; one that waits for an answer is due last."""
    planned = workload([30, None, 10, 20])
    recorded = WarmUpPhase(WarmUp(num_requests=2, is_recorded=True), planned)
    assert [recorded.of(row, due_ns=10**12) for row in range(4)] == ["main", "main", "warmup", "warmup"]
    timed = WarmUpPhase(WarmUp(seconds=2.5, is_recorded=True), planned)
    assert [timed.of(0, due_ns=due) for due in (2_499_999_999, 2_500_000_000)] == ["warmup", "main"]
    beside = WarmUpPhase(WarmUp(num_requests=2, seconds=0.5), planned)
    assert beside.of(2, due_ns=0) is None
