"""Every column of a workload has a treatment, and what cannot be sent is told."""

from __future__ import annotations

import pytest

from observe.record.trace_row import OUTCOME_COLUMNS, WORKLOAD_COLUMNS
from tests.docs.coverage_rows.observed_columns import COLUMN_COVERAGE
from tests.observe.servers import observed, serving
from tests.observe.workloads import workload
from traces import ClosedLoop
from traces.schema import FIELDS


def test_every_column_of_a_trace_has_a_treatment() -> None:
    assert set(COLUMN_COVERAGE) == set(FIELDS)


def test_the_table_agrees_with_what_is_written() -> None:
    written = {*WORKLOAD_COLUMNS, *OUTCOME_COLUMNS}
    unused = {name for name, column in COLUMN_COVERAGE.items() if column.treatment == "unused"}
    measured = {name for name, column in COLUMN_COVERAGE.items() if column.treatment == "measured"}
    not_true_of_what_was_sent = {"network_rtt_us", "network_bandwidth_mbps"}
    assert set(FIELDS) - written == unused | not_true_of_what_was_sent
    assert measured <= set(OUTCOME_COLUMNS)


@pytest.mark.parametrize(
    ("columns", "note"),
    [
        (
            {"image_tokens": [3, 0]},
            "1 requests have image, audio or video tokens: sent as as many tokens of text",
        ),
        (
            {"reason_ratio": [0.5, 0.1]},
            "2 requests have a reason_ratio: their output is sent as ordinary output",
        ),
        (
            {"network_rtt_us": [5000, None]},
            "1 requests have a network of their own: they are sent over this machine's",
        ),
        ({"model": ["gone", None]}, "1 requests ask for model gone: sent to tiny instead"),
        ({"adapter": ["sql", "sql"]}, "2 requests ask for LoRA adapter sql: sent to tiny instead"),
        ({"streaming": [False, True]}, "1 answers were in one piece in the trace and are requested streamed"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
async def test_what_cannot_be_sent_is_one_line_and_on_record(
    columns: dict[str, list[object]], note: str
) -> None:
    told: list[str] = []
    async with serving() as server:
        seen = await observed(server, workload([0, 0], **columns), tell=told.append)
    assert told == [note]
    client = seen.trace.header.client
    assert client is not None
    assert client.notes == (note,)


async def test_a_deadline_of_a_request_that_waits_for_an_answer_is_told() -> None:
    loop = {"closed_loop": ClosedLoop(concurrency=1)}
    async with serving() as server:
        seen = await observed(server, workload([0, None], header=loop, deadline_us=[10**9, 10**9]))
    assert (
        "1 requests have a deadline_us that does not apply, since an answer decides when they are sent"
        in seen.notes
    )


async def test_an_adapter_that_the_server_lists_is_the_requests_model_also_beside_a_model_of_the_users() -> (
    None
):
    async with serving() as server:
        server.adapters = ("sql",)
        for model in (None, "tiny"):
            server.requests.clear()
            seen = await observed(server, workload([0, 0], adapter=["sql", None]), model=model)
            assert sorted(request.body["model"] for request in server.requests) == ["sql", "tiny"]
            assert seen.trace.column("adapter").fillna("").tolist() == ["sql", ""]
            assert seen.notes == () or model is None


async def test_an_adapter_that_was_not_sent_is_not_on_record() -> None:
    async with serving() as server:
        seen = await observed(server, workload([0], adapter=["sql"]))
        assert server.requests[0].body["model"] == "tiny"
    assert seen.trace.column("adapter").isna().all()


async def test_answers_that_the_server_cut_short_are_marked_and_counted() -> None:
    from observe.result.json_document import summarize_observed
    from observe.result.summary_table import table
    from tests.observe.servers import Behaviour

    async with serving(Behaviour(fewer_tokens=2)) as server:
        seen = await observed(server, workload([0, 0]))
    assert seen.trace.column("length_capped").tolist() == [True, True]
    summary = summarize_observed(seen.trace)
    assert summary["num_length_capped"] == 2
    assert "2 cut short by max_model_len" in table(summary)
    assert summary["output_tokens"]["mean"] == 3
    assert "output tokens" in table(summary)
