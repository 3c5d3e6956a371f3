"""Sessions and waves: who waits for whom, and what a round's prompt adds up to."""

from pathlib import Path

import numpy as np
import pytest

from traces.errors import ConfigError
from traces.files.check import check_trace
from traces.files.read import read_trace
from traces.files.write import write_trace
from traces.trace import Trace
from traces.trace_summary import prefix_hit_ceiling_frac
from traces.workload import WorkloadOptions, load_spec, synth, trace_from_options
from traces.workload.recorded.from_trace import requests_again, workload_of

SPEC = """
version: "2"
aggregate_rate: 10
num_requests: 30
clients:
  - id: agent
    rate_fraction: 0.5
    prefix_group: system
    prefix_length: 64
    input_distribution: {type: uniform, params: {min: 10, max: 40}}
    output_distribution: {type: uniform, params: {min: 5, max: 9}}
    reasoning: {multi_turn: {max_rounds: 4, think_time_us: 200000, context_growth: accumulate}}
  - id: single
    rate_fraction: 0.5
    input_distribution: {type: constant, params: {value: 7}}
    output_distribution: {type: constant, params: {value: 3}}
"""


def plain(**given: object) -> Trace:
    lengths = {"prompt_tokens": 50, "output_tokens": 20}
    return trace_from_options(WorkloadOptions(**{**lengths, **given}))  # type: ignore[arg-type]


def spec(tmp_path: Path, text: str = SPEC) -> Trace:
    (tmp_path / "spec.yaml").write_text(text)
    return synth(load_spec(tmp_path / "spec.yaml"), seed=3)


def test_a_rounds_prompt_is_all_that_was_said_before_and_what_it_adds(tmp_path: Path) -> None:
    trace = spec(tmp_path)
    assert trace.header.session_context_growth == "accumulate"
    sessions = trace.requests[trace.requests["session_id"].notna()]
    assert set(sessions["client_id"]) == {"agent"}
    assert sessions["session_id"].nunique() > 2
    for _, rounds in sessions.groupby("session_id"):
        assert list(rounds["round_index"]) == list(range(len(rounds)))
        said = (rounds["new_input_tokens"] + rounds["output_tokens"]).cumsum().shift(fill_value=0)
        assert list(rounds["input_tokens"]) == list(said + rounds["new_input_tokens"])
        assert list(rounds["prefix_length"]) == [64] * len(rounds)
        assert list(rounds["arrival_time_us"].isna()) == [False] + [True] * (len(rounds) - 1)
        assert list(rounds["think_time_us"][1:]) == [200_000] * (len(rounds) - 1)
    alone = trace.requests[trace.requests["client_id"] == "single"]
    assert set(alone["input_tokens"]) == {7}
    assert alone["session_id"].isna().all()
    assert alone["arrival_time_us"].notna().all()


def test_what_was_said_before_is_what_an_endless_prefix_cache_would_find() -> None:
    trace = plain(rate=5.0, rounds=3, num_requests=6)
    new = int(trace.column("new_input_tokens").sum())
    whole = int(trace.column("input_tokens").sum())
    assert prefix_hit_ceiling_frac(trace) == pytest.approx(1 - new / whole)


def test_rounds_that_do_not_build_on_each_other_are_as_long_as_drawn() -> None:
    trace = plain(rate=5.0, rounds=3, context_growth="none", num_requests=9, prompt_tokens_stdev=0)
    assert set(trace.column("input_tokens")) == {50}
    assert "new_input_tokens" not in trace.requests.columns
    assert list(trace.column("session_id")) == ["s0"] * 3 + ["s1"] * 3 + ["s2"] * 3


def test_rounds_with_times_of_their_own_come_a_think_time_apart(tmp_path: Path) -> None:
    text = SPEC.replace("    reasoning:", "    closed_loop: false\n    reasoning:")
    trace = spec(tmp_path, text)
    assert trace.column("arrival_time_us").notna().all()
    assert trace.column("think_time_us").isna().all()
    rounds = trace.requests[trace.requests["session_id"] == trace.column("session_id").dropna().iloc[0]]
    assert set(np.diff(rounds["arrival_time_us"].to_numpy(dtype=np.int64))) == {200_000}


def test_a_client_of_one_session_has_one_and_the_trace_is_that_short(tmp_path: Path) -> None:
    trace = spec(tmp_path, SPEC.replace("accumulate}", "accumulate, single_session: true}"))
    assert trace.column("session_id").nunique() == 1
    assert len(trace) == 30
    alone = SPEC[: SPEC.index("  - id: single")].replace("accumulate}", "accumulate, single_session: true}")
    assert len(spec(tmp_path, alone)) == 4


def test_a_session_that_the_number_of_requests_cuts_loses_its_last_rounds() -> None:
    few, many = plain(rate=2.0, rounds=4, num_requests=6), plain(rate=2.0, rounds=4, num_requests=11)
    assert list(few.column("round_index")) == [0, 1, 2, 3, 0, 1]
    assert few.requests.equals(many.requests.head(6))


def test_users_of_a_closed_loop_each_begin_a_session() -> None:
    trace = plain(concurrency=2, rounds=3, think_time=1.0, num_requests=9)
    assert [row for row, gap in enumerate(trace.column("arrival_time_us").isna()) if not gap] == [0, 3]
    assert trace.header.closed_loop is not None
    assert trace.header.closed_loop.concurrency == 2


def test_a_batch_comes_in_waves() -> None:
    trace = plain(batch=4, waves=3)
    loop = trace.header.closed_loop
    assert loop is not None
    assert (loop.concurrency, loop.in_waves, len(trace)) == (4, True, 12)
    assert list(trace.column("arrival_time_us").fillna(-1)) == [0] * 4 + [-1] * 8
    assert len(plain(batch=2)) == 20


def test_sessions_survive_the_file_and_are_a_workload_again(tmp_path: Path) -> None:
    trace = spec(tmp_path)
    write_trace(trace, tmp_path / "t")
    assert check_trace(tmp_path / "t") == []
    read = read_trace(tmp_path / "t")
    assert read.header.session_context_growth == "accumulate"
    run = read.with_columns(
        arrival_time_us=np.arange(len(read)), send_time_us=np.arange(len(read)), status=["ok"] * len(read)
    )
    again = workload_of(run)
    assert list(again.column("arrival_time_us").isna()) == list(trace.column("arrival_time_us").isna())
    assert again.column("new_input_tokens").equals(trace.column("new_input_tokens"))
    short = requests_again(WorkloadOptions(trace=tmp_path / "t", duration=0.5))
    kept = short.requests[short.requests["session_id"].notna()]
    whole = trace.requests[trace.requests["session_id"].isin(kept["session_id"])]
    assert len(kept) == len(whole) > 0
    six = requests_again(WorkloadOptions(trace=tmp_path / "t", num_requests=6))
    assert list(six.column("round_index").dropna())[:4] == [0, 1, 2, 3]


def test_a_retried_request_is_sent_again_like_any_other() -> None:
    trace = plain(rate=1.0, num_requests=3).with_columns(attempt=[1, 3, 1], status=["ok"] * 3)
    assert len(workload_of(trace)) == 3


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"rate": 1.0, "waves": 3}, "--waves: needs --batch"),
        ({"rate": 1.0, "batch": 3}, "--rate: cannot be combined with --batch"),
        ({"batch": 3, "num_requests": 5}, "--num-requests: cannot be combined with --batch"),
        ({"rate": 1.0, "rounds": 0}, "--rounds: got 0, expected an integer >= 1"),
        ({"rate": 1.0, "context_growth": "none"}, "--context-growth: needs --rounds"),
        ({"trace": Path("x"), "rounds": 2}, "--rounds: cannot be combined with --trace"),
    ],
)
def test_what_makes_no_sense_is_refused(given: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        plain(**{"prompt_tokens": None, "output_tokens": None, **given})
