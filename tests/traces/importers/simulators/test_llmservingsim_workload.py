"""LLMServingSim's workloads: requests and sessions to simulate, told apart from its vLLM's runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from traces import Trace, TraceError, check_trace, format_of, prefix_hit_ceiling_frac, write_trace
from traces.conversion import convert
from traces.importers import read_public
from traces.importers.simulators.llmservingsim_workload import _added, _contains, _lengths, _us
from traces.strict.limits import MOST_US


def flat(arrival_ns: int, prompt: list[int], output: int, *, ids: bool = True) -> dict[str, Any]:
    row: dict[str, Any] = {"input_toks": len(prompt), "output_toks": output, "arrival_time_ns": arrival_ns}
    return row | ({"input_tok_ids": prompt, "output_tok_ids": [7] * output} if ids else {})


def session(name: str, *calls: dict[str, Any], arrival_ns: int = 1_000_000) -> dict[str, Any]:
    return {"session_id": name, "arrival_time_ns": arrival_ns, "sub_requests": list(calls)}


def call(
    prompt: list[int], answer: list[int], wait_ns: int | None = None, *, ids: bool = True
) -> dict[str, Any]:
    said: dict[str, Any] = {"input_toks": len(prompt), "output_toks": len(answer)}
    said |= {} if wait_ns is None else {"tool_duration_ns": wait_ns}
    return said | ({"input_tok_ids": prompt, "output_tok_ids": answer} if ids else {})


def read(tmp_path: Path, *rows: dict[str, Any]) -> Trace:
    path = tmp_path / "sharegpt.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert format_of(path) == "llmservingsim"
    trace = convert("llmservingsim", path)
    write_trace(trace, tmp_path / "kept")
    assert check_trace(tmp_path / "kept") == []
    return trace


def notes_of(trace: Trace) -> str:
    assert trace.header.source is not None
    return "\n".join(trace.header.source.lines())


def test_equal_token_ids_share_a_prefix(tmp_path: Path) -> None:
    ids = list(range(40))
    trace = read(tmp_path, flat(46_926_808, ids, 70), flat(347_938_952, [*ids[:32], *range(90, 98)], 104))
    assert trace.column("arrival_time_us").tolist() == [46_927, 347_939]
    assert trace.column("output_tokens").tolist() == [70, 104]
    assert trace.column("prefix_hashes").tolist() == ["0 1", "0 1"]
    assert prefix_hit_ceiling_frac(trace) == pytest.approx(32 / 80)
    assert trace.header.mode == "generated"


def test_without_token_ids_nothing_is_said_to_be_shared(tmp_path: Path) -> None:
    trace = read(tmp_path, flat(0, [1] * 20, 5, ids=False), flat(9, [1] * 20, 0, ids=False))
    assert trace.header.hash_block_size is None
    assert "which prompts share a prefix is not known" in notes_of(trace)
    assert "1 request without a response left out" in notes_of(trace)


def test_a_session_waits_for_its_tools_and_holds_what_came_before(tmp_path: Path) -> None:
    first, answer = list(range(20)), [50, 51, 52]
    grown = [*first, *answer, 60, 61]
    trace = read(
        tmp_path, flat(0, [1, 2], 1), session("s0", call(first, answer, 5_000_000), call(grown, [9]))
    )
    assert trace.column("session_id").fillna("").tolist() == ["", "s0", "s0"]
    assert trace.column("round_index").fillna(-1).tolist() == [-1, 0, 1]
    assert trace.column("arrival_time_us").fillna(-1).tolist() == [0, 1000, -1]
    assert trace.column("think_time_us").fillna(-1).tolist() == [-1, -1, 5000]
    assert trace.column("new_input_tokens").fillna(-1).tolist() == [-1, 20, 2]
    assert "what rounds share" not in notes_of(trace)


def test_a_session_without_ids_says_that_sharing_is_not_known(tmp_path: Path) -> None:
    calls = (call([1] * 30, [2] * 5, 9, ids=False), call([1] * 60, [2] * 5, ids=False))
    taken = read(tmp_path, session("s0", *calls))
    assert taken.column("new_input_tokens").tolist() == [30, 25]
    assert "each prompt is taken to hold" in notes_of(taken)
    trace = read(tmp_path, session("s0", *reversed(calls)))
    assert trace.column("new_input_tokens").isna().all()
    assert "what rounds share is not known" in notes_of(trace)


def test_a_session_whose_prompts_do_not_contain_each_other_shares_by_its_blocks(tmp_path: Path) -> None:
    first = list(range(32))
    trace = read(tmp_path, session("s0", call(first, [1], 9), call([*first[:16], *range(70, 90)], [2])))
    assert trace.column("new_input_tokens").isna().all()
    assert trace.column("prefix_hashes").tolist() == ["0 1", "0 2"]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (flat(5, [1, 2], 3) | {"input_toks": 3}, "input_tok_ids: got 2 ids, expected the 3 tokens"),
        ({"input_toks": 3, "output_toks": 4, "arrival_time_ns": -1}, "arrival_time_ns: got -1"),
        ({"input_toks": 3, "output_toks": 4, "arrival_time_ns": True}, "arrival_time_ns: got True"),
        ({"input_toks": 3.5, "output_toks": 4, "arrival_time_ns": 1}, "input_toks: got 3.5"),
        (session("s", call([1], [2])) | {"session_id": ""}, "session_id: got ''"),
        (session("s") | {"input_toks": 1}, "sub_requests: got no list of calls"),
        (session("s" * 501, call([1], [2])), "expected a name of its own, of at most 500"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, row: dict[str, Any], said: str) -> None:
    path = tmp_path / "w.jsonl"
    path.write_text(json.dumps(flat(0, [1, 2], 1)) + "\n" + json.dumps(row) + "\n")
    with pytest.raises(TraceError, match=f"w.jsonl:2: .*{said}"):
        convert("llmservingsim", path)


VIDUR = (
    "Request Id,request_e2e_time,request_scheduling_delay,prefill_e2e_time,request_num_prefill_tokens,"
    "request_num_decode_tokens"
)


def test_vidurs_outcomes_are_times_of_each_request(tmp_path: Path) -> None:
    """Two requests, 1.5 s apart: gaps between an answer's tokens are known from two tokens on."""
    (tmp_path / "request_metrics.csv").write_text(
        f"{VIDUR},request_inter_arrival_delay,request_num_restarts\n"
        "0,2.0,0.25,1.0,100,3,,0\n1,0.5,0.125,0.5,50,1,1.5,2\n2,,0.125,,50,2,1.5,0\n"
    )
    trace = read_public("vidur", tmp_path)
    assert trace.cells("arrival_time_us").values.tolist() == [0, 1_500_000, 3_000_000]
    assert trace.cells("content_first_time_us").known().tolist() == [1_000_000, 2_000_000]
    assert trace.cells("last_token_time_us").known().tolist() == [2_000_000, 2_000_000]
    assert trace.cells("scheduled_time_us").values.tolist() == [250_000, 1_625_000, 3_125_000]
    assert trace.cells("itl_mean_us").known().tolist() == [500_000]
    assert trace.cells("num_preemptions").values.tolist() == [0, 2, 0]
    assert trace.cells("status").values.tolist() == ["ok", "ok", "incomplete"]
    (tmp_path / "load.csv").write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n0.5,7,3\n2,8,1\n")
    trace = read_public("vidur", tmp_path / "load.csv")
    assert trace.cells("input_tokens").values.tolist() == [7, 8]
    assert np.diff(trace.cells("arrival_time_us").values).tolist() == [1_500_000]
    (tmp_path / "plain.csv").write_text("num_prefill_tokens,num_decode_tokens\n7,3\n")
    assert len(read_public("vidur", tmp_path / "plain.csv")) == 1
    with pytest.raises(TraceError, match="got no such file"):
        read_public("vidur", tmp_path / "none.csv")


def test_times_and_lengths_end_where_a_number_does() -> None:
    most = MOST_US * 1000
    assert _us({"a": most}, "a", where="w") == MOST_US
    assert _us({"a": 0}, "a", where="w") == 0
    assert _us({"a": 1500}, "a", where="w") == 2
    assert _us({}, "a", where="w") is None
    for wrong in (most + 1, -1, True, "1", float("nan")):
        with pytest.raises(TraceError, match="w: a: got"):
            _us({"a": wrong}, "a", where="w")
    assert _lengths({"input_toks": 0, "output_toks": 2**63 - 1}, where="w") == (0, 2**63 - 1)
    for wrong in (-1, 2**63, True):
        with pytest.raises(TraceError, match="w: output_toks: got"):
            _lengths({"input_toks": 0, "output_toks": wrong}, where="w")


def test_a_prompt_contains_what_came_before_only_where_both_are_known() -> None:
    assert _contains([1, 2, 3, 4], [1, 2], [3])
    assert not _contains([1, 2], [1, 2], [3])
    assert not _contains([1, 2, 4], [1, 2], [3])
    for missing in ((None, [1], [2]), ([1, 2], None, [2]), ([1, 2], [1], None)):
        assert not _contains(*missing)
    assert [_added([(10, 3), (20, 5), (25, 1)], turn) for turn in range(3)] == [10, 7, 0]
