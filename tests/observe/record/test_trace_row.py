"""A request's row: what is written of an answer, and what of it is not known."""

from __future__ import annotations

import pytest

from observe.record.trace_row import outcome_cells
from observe.response.stream_reader import StreamReader
from observe.run.sent_request import SentRequest
from observe.senders.exchange import Exchange
from tests.observe.response.test_stream_reader import DONE, text, usage
from tests.observe.workloads import plan_of


def cells(*blobs: bytes, whole: bool = True, due_ns: int = 0, dispatched_ns: int = 0) -> dict[str, object]:
    """Return the row of a request of up to 5 tokens whose answer these blobs are."""
    reader = StreamReader()
    for number, blob in enumerate(blobs):
        reader.take(blob, number)
    exchange = Exchange(x_request_id="x", dispatched_ns=dispatched_ns)
    if not whole:
        exchange.fail("error", "lost")
    request = SentRequest(row=0, exchange=exchange, due_ns=due_ns)
    reading = reader.finish(len(blobs), whole=whole)
    return dict(outcome_cells(request, reading, plan=plan_of([0]), start_ns=0))


@pytest.mark.parametrize(("tokens", "capped"), [(4, True), (5, None), (6, None)])
def test_an_answer_of_all_that_was_asked_for_is_not_cut_short(tokens: int, capped: bool | None) -> None:
    found = cells(text("many words", finish="length"), usage(tokens), DONE)
    assert (found["output_tokens"], found["max_tokens"]) == (tokens, 5)
    assert found["length_capped"] is capped


def test_a_failure_has_no_tokens_only_where_nothing_was_seen() -> None:
    assert cells(whole=False)["output_tokens"] == 0
    assert cells(text("a"), whole=False)["output_tokens"] is None
    assert cells(text("a", total=2), whole=False)["output_tokens"] == 2


@pytest.mark.parametrize(("dispatched_ns", "lag_us"), [(7_000, 4), (1_000, -2)])
def test_lag_is_what_it_is_a_request_sent_early_has_a_negative_one(dispatched_ns: int, lag_us: int) -> None:
    assert (
        cells(text("a", finish="stop"), DONE, due_ns=3_000, dispatched_ns=dispatched_ns)["dispatch_lag_us"]
        == lag_us
    )


def test_no_time_is_before_the_start() -> None:
    found = cells(text("a", finish="stop"), DONE, dispatched_ns=-9_000)
    assert found["send_time_us"] == 0
