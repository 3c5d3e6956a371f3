"""Findings over a finished trace: kinds, counts, lines, and their mark in the header."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.traces.measured.test_stream_shape import STEADY, answers, reads_of
from traces import (
    ClientInfo,
    CounterReading,
    RunFinding,
    ServerInfo,
    Trace,
    findings_of,
    marked,
    read_trace,
    summarize_trace,
    write_trace,
)
from traces.findings.run_findings import KINDS, found_in
from traces.measured.finish_reasons import failure_status
from traces.trace import select_rows


def kinds(trace: Trace) -> list[str]:
    return [each.kind for each in findings_of(trace)]


def observed(number: int = 4, *, client: ClientInfo | None = None, **more: Any) -> Trace:  # noqa: ANN401
    return answers(*[STEADY] * number, **more).with_header(client=client or ClientInfo(finished=True))


def test_a_plain_run_has_none_and_neither_has_a_simulation() -> None:
    assert findings_of(observed()) == ()
    assert findings_of(answers([490_000] * 40, mode="replayed")) == ()


def test_findings_are_in_the_header_of_a_written_trace_and_outlive_its_events(tmp_path: Path) -> None:
    write_trace(marked(answers([490_000] * 40)), tmp_path / "run")
    back = read_trace(tmp_path / "run")
    (found,) = back.header.findings
    assert (found.kind, found.num, found.of) == ("stream_held_back", 1, 1)
    old = RunFinding(kind="cold_start", num=3, of=60, text="the first 3 requests were slower")
    trace = observed().with_header(findings=(old,))
    assert findings_of(trace) == (old,)
    assert (found_in(trace.header, "cold_start"), found_in(trace.header, "finish_reason")) == (old, None)


def test_the_summary_of_a_trace_tells_its_findings() -> None:
    summary = summarize_trace(answers([490_000] * 40))
    assert [each.kind for each in summary.findings] == ["stream_held_back"]
    assert any("holds the stream back" in note for note in summary.notes)


def test_a_few_answers_that_came_together_are_a_busy_clients() -> None:
    assert kinds(answers(*[STEADY] * 99, [490_000] * 40)) == []
    assert kinds(answers(*[STEADY] * 98, *[[490_000] * 40] * 2)) == []
    held = answers(*[STEADY] * 97, *[[490_000] * 40] * 3)
    assert kinds(held) == ["stream_held_back"]
    assert kinds(held.with_columns(status=["ok"] * 97 + ["error"] * 3)) == []


def test_first_tokens_that_were_read_late_are_counted_where_the_client_was_late() -> None:
    trace = observed(first_token_early_us=[0, 5000, None, 1000])
    assert kinds(trace) == []
    for client in (ClientInfo(late=True), ClientInfo(limited=True), ClientInfo(late=True, limited=True)):
        (found,) = findings_of(trace.with_header(client=client))
        assert (found.kind, found.num, found.of) == ("late_client", 2, 4)
        assert "up to 4.88 ms too long (p99; mean 1.5 ms)" in found.text


@pytest.mark.parametrize("offsets", [[490_000] * 40, reads_of(20, events=4)])
def test_a_late_client_is_the_first_cause_of_events_that_came_together(offsets: list[int]) -> None:
    trace = answers(offsets)
    for client, named in (
        (ClientInfo(), False),
        (ClientInfo(late=True), True),
        (ClientInfo(limited=True), True),
    ):
        found = findings_of(trace.with_header(client=client))[0]
        assert (": the client itself read them late, a proxy" in found.text) is named


def test_clumps_are_told_with_the_events_of_a_read() -> None:
    assert kinds(answers(*[STEADY] * 98, *[reads_of(20, events=4)] * 2)) == []
    (found,) = findings_of(answers(reads_of(20, events=4)))
    assert found.kind == "stream_in_clumps"
    assert "came in clumps, 4 events a read" in found.text
    assert found.text.endswith("left out, as is TTFT of 1")
    (found,) = findings_of(answers([0, *reads_of(20, events=4)]))
    assert found.text.endswith("left out")


@pytest.mark.parametrize("reason", ["abort", "error", "content_filter", "ABORT"])
def test_answers_that_were_given_up_are_counted_by_reason(reason: str) -> None:
    (found,) = findings_of(observed(finish_reason=["length", reason, "stop", reason]))
    assert (found.kind, found.num, found.of) == ("finish_reason", 2, 4)
    assert f"{reason} 2" in found.text


@pytest.mark.parametrize("reason", [None, "stop", "length", "tool_calls", "eos_token", "repetition", ""])
def test_other_reasons_are_successes(reason: str | None) -> None:
    assert failure_status(reason) is None


def test_fewer_tokens_than_asked_are_told_only_where_the_end_of_text_was_to_be_ignored() -> None:
    short = observed(max_tokens=[40, 50, 60, 40], finish_reason="stop")
    assert kinds(short) == []
    held = short.with_header(client=ClientInfo(ignore_eos=True))
    (found,) = findings_of(held)
    assert (found.kind, found.num, found.of) == ("fewer_tokens", 2, 4)
    assert "73% of the tokens" in found.text
    assert kinds(held.with_columns(length_capped=[None, True, True, None])) == []
    assert kinds(held.with_columns(guided=[True] * 4)) == []
    capped = held.with_columns(length_capped=[None, True, True, None])
    (found,) = findings_of(capped.with_header(server=ServerInfo(max_model_len=58)))
    assert (found.num, found.of) == (1, 3)  # 8 and 50 tokens have just room, 8 and 60 have not


def test_cached_prompts_are_told_by_usage_beyond_what_the_load_repeats() -> None:
    (found,) = findings_of(observed(cached_input_tokens=[8, 8, 8, 7], server_input_tokens=8))
    assert (found.kind, found.num, found.of) == ("warm_prefix_cache", 4, 4)
    assert "97% of the prompts' tokens" in found.text
    shared = observed(cached_input_tokens=[0, 8, 8, 8], prefix_group="a", prefix_length=0)
    assert kinds(shared) == ["warm_prefix_cache"]
    same = observed(cached_input_tokens=[0, 8, 8, 8], input_tokens=0, prefix_group="a", prefix_length=8)
    assert kinds(same) == []


def test_a_chat_template_may_be_found_in_the_cache() -> None:
    assert kinds(observed(server_input_tokens=24, cached_input_tokens=16)) == []


def test_cached_prompts_are_told_by_the_servers_counters() -> None:
    deltas = {
        'vllm:prefix_cache_queries_total{engine="0"}': CounterReading(before=100, after=132),
        'vllm:prefix_cache_hits_total{engine="0"}': CounterReading(before=90, after=120),
    }
    (found,) = findings_of(observed().with_header(metrics_delta=deltas))
    assert found.text.startswith(
        "94% of the prompts' tokens were found in the server's prefix cache (/metrics)"
    )
    deltas["vllm:num_preemptions_total"] = CounterReading(before=0, after=1)
    assert kinds(observed().with_header(metrics_delta=deltas)) == []


def test_a_trace_of_another_client_is_not_said_to_have_new_prompts() -> None:
    trace = observed(cached_input_tokens=[8, 8, 8, 8]).with_header(client=None)
    assert kinds(trace) == []


def test_answers_without_usage_are_counted() -> None:
    (found,) = findings_of(observed().with_columns(output_tokens=[None, None, 40, 40]))
    assert (found.kind, found.num, found.of) == ("no_usage", 2, 4)
    assert found.text.endswith("of zeros: their number of tokens is unknown")
    (found,) = findings_of(observed(client=ClientInfo(num_without_usage=4)))
    assert found.text.endswith("max_tokens where finish_reason is length, else one an event")
    both = observed(client=ClientInfo(num_without_usage=4))
    (found,) = findings_of(both.with_columns(output_tokens=[None, 40, 40, 40]))
    assert found.text.endswith("else one an event; of 1 they are unknown")


@pytest.mark.parametrize(
    ("server", "number", "said"),
    [
        (ServerInfo(data_parallel=2), 2, "2 engines stand behind this address (data_parallel)"),
        (
            ServerInfo(num_instances=3, instance_names=("a", "b", "c")),
            3,
            "3 servers stand behind this address (a, b, c): the numbers are of all 3 engines",
        ),
        (ServerInfo(num_instances=2, data_parallel=4), 8, "each with 4 engines"),
    ],
)
def test_several_engines_are_told_with_what_describes_them(
    server: ServerInfo, number: int, said: str
) -> None:
    (found,) = findings_of(observed().with_header(server=server))
    assert found.kind == "several_engines"
    assert said in found.text
    assert f"cluster.instances: {number}" in found.text


def test_hidden_reasoning_is_told() -> None:
    (found,) = findings_of(observed(hidden_tokens=[10, None, 5, None]))
    assert (found.kind, found.num, found.of) == ("hidden_reasoning", 2, 4)
    assert "15 tokens" in found.text


def test_every_kind_has_a_meaning() -> None:
    assert all(text and kind.replace("_", "").isalpha() for kind, text in KINDS.items())


CLUMPED = reads_of(20, events=4)
ONE_READ = [490_000] * 40
LATE_CLIENT = ClientInfo(late=True)
WHOLE: dict[str, tuple[Trace, tuple[str, int, int], str]] = {
    "held back": (
        answers(STEADY, ONE_READ, ONE_READ),
        ("stream_held_back", 2, 3),
        "2 of 3 answers came all at once, in one read each: a proxy on the way holds the stream back, or the server "
        "does not stream. Their TTFT, TPOT and ITL were not measured and are left out; E2E is right",
    ),
    "clumps": (
        answers(STEADY, CLUMPED, [0, *CLUMPED]),
        ("stream_in_clumps", 2, 3),
        "2 of 3 answers came in clumps, 3.93 events a read: a proxy on the way buffers the stream, or the server "
        "sends tokens in bundles. Their ITL was not measured and is left out, as is TTFT of 1",
    ),
    "given up": (
        observed(6, finish_reason=["abort", "error", "stop", "error", "content_filter", "abort"]),
        ("finish_reason", 5, 6),
        "5 of 6 answers were given up by the server (finish_reason: abort 2, error 2, content_filter 1); they are in "
        "no latency",
    ),
    "short": (
        observed(max_tokens=[40, 50, 60, 40], client=ClientInfo(ignore_eos=True)),
        ("fewer_tokens", 2, 4),
        "2 of 4 answers are shorter than asked, 73% of the tokens, although ignore_eos was sent: the server does not "
        "keep to it, and the load is not the one that was asked for",
    ),
    "hidden": (
        observed(hidden_tokens=[10, 0, 1, None], status=["ok", "ok", "ok", "error"]),
        ("hidden_reasoning", 2, 3),
        "2 of 3 answers have reasoning that was not streamed, 11 tokens: TTFT runs to the first text behind it, and "
        "TPOT is of the tokens behind that",
    ),
    "warm": (
        observed(cached_input_tokens=[8, 4, 0, 0], server_input_tokens=8),
        ("warm_prefix_cache", 2, 4),
        "38% of the prompts' tokens were found in the server's prefix cache (usage), although the load shares no "
        "prefix: somebody sent these prompts before. TTFT is that of a warm cache; another --prompt-salt, or none, "
        "makes new prompts",
    ),
    "warmer than the load": (
        observed(cached_input_tokens=[16] * 4, prefix_group=["a", "a", "b", "c"], prefix_length=8),
        ("warm_prefix_cache", 4, 4),
        "100% of the prompts' tokens were found in the server's prefix cache (usage), of which the load itself repeats "
        "12%: somebody sent these prompts before. TTFT is that of a warm cache; another --prompt-salt, or none, "
        "makes new prompts",
    ),
    "one cold": (
        answers(*[[at + 400 * (row == 0) * 1000 for at in STEADY] for row in range(20)], send_time_us=0),
        ("cold_start", 1, 20),
        "the first request is slower than the rest: TTFT 500 ms in the median, then 100 ms: the server was not warm. "
        "--warmup 1 takes them out",
    ),
    "two cold": (
        answers(*[[at + 400 * (row < 2) * 1000 for at in STEADY] for row in range(20)], send_time_us=0),
        ("cold_start", 2, 20),
        "the first 2 requests are slower than the rest: TTFT 500 ms in the median, then 100 ms: the server was not "
        "warm. --warmup 2 takes them out",
    ),
    "no usage": (
        observed(output_tokens=[None, 40, 40, 40], client=ClientInfo(num_without_usage=3)),
        ("no_usage", 3, 4),
        "3 of 4 answers have no usage, or one of zeros: their tokens are max_tokens where finish_reason is length, "
        "else one an event; of 1 they are unknown",
    ),
    "late": (
        observed(first_token_early_us=[0, 5000, None, 1000], client=LATE_CLIENT),
        ("late_client", 2, 4),
        "the client was late: the first token of 2 of 4 answers was read together with further ones, so TTFT may be "
        "up to 4.88 ms too long (p99; mean 1.5 ms). A quieter machine, or --processes N, would tell",
    ),
}


@pytest.mark.parametrize("case", WHOLE)
def test_a_finding_is_told_in_these_words(case: str) -> None:
    trace, counts, text = WHOLE[case]
    (found,) = findings_of(trace)
    assert ((found.kind, found.num, found.of), found.text) == (counts, text)


@pytest.mark.parametrize(
    ("server", "who"),
    [
        (ServerInfo(num_instances=1, data_parallel=1), None),
        (ServerInfo(num_instances=1, data_parallel=2), "2 engines stand behind this address (data_parallel)"),
        (ServerInfo(num_instances=2), "2 servers stand behind this address"),
        (
            ServerInfo(num_instances=5, data_parallel=2, instance_names=tuple("abcde")),
            "5 servers stand behind this address (a, b, c, d, …), each with 2 engines",
        ),
        (
            ServerInfo(num_instances=4, instance_names=tuple("abcd")),
            "4 servers stand behind this address (a, b, c, d)",
        ),
    ],
)
def test_who_stands_behind_an_address(server: ServerInfo, who: str | None) -> None:
    found = findings_of(observed().with_header(server=server))
    number = server.num_engines
    told = (
        f"{who}: the numbers are of all {number} engines together. A twin of one engine does not describe them; "
        f"cluster.instances: {number} does"
    )
    assert [(each.num, each.of, each.text) for each in found] == ([] if who is None else [(4, 4, told)])


def test_an_empty_run_keeps_the_findings_of_its_header() -> None:
    old = RunFinding(kind="cold_start", num=3, of=60, text="the first 3 requests were slower")
    trace = observed().with_header(findings=(old,))
    assert findings_of(select_rows(trace, np.zeros(4, bool))) == (old,)
