"""Requests of a trace under another load: rows stay whole, the first ones stay the same, refusals say why."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from traces.errors import ConfigError, TraceError
from traces.files.write import write_trace
from traces.header import Header
from traces.metrics import prompt_tokens
from traces.trace import Trace, make_trace
from traces.workload import WorkloadOptions, trace_from_options

S = 1_000_000
WHOLE = ["input_tokens", "output_tokens", "tenant_id", "slo_class", "prefix_group", "prefix_length"]


def recorded(**columns: object) -> Trace:
    """Six observed requests whose every column tells the row apart."""
    given: dict[str, object] = {
        "request_id": list("abcdef"),
        "client_id": ["x", "x", "y", "y", "z", "z"],
        "tenant_id": [f"t{i}" for i in range(6)],
        "slo_class": ["critical", "batch", "critical", "batch", "standard", None],
        "prefix_group": ["g", "g", None, None, "h", None],
        "prefix_length": [100, 80, 0, 0, 50, 0],
        "input_tokens": [10, 20, 30, 40, 50, 60],
        "output_tokens": [1, 2, 3, 4, 5, 6],
        "arrival_time_us": np.arange(6) * S,
        "deadline_us": np.arange(6) * S + [5, 6, 7, 8, 9, 10],
        "send_time_us": np.arange(6) * S,
        "status": ["ok"] * 6,
    }
    given.update(columns)
    return make_trace(Header(tool="vtwin", mode="real", hash_block_size=16), given)


def saved(trace: Trace, folder: Path) -> Path:
    write_trace(trace, folder / "run")
    return folder / "run"


def drawn(stem: Path, **given: object) -> Trace:
    return trace_from_options(WorkloadOptions(**{"like": stem, **given}))  # type: ignore[arg-type]


def rows(trace: Trace, names: list[str]) -> set[tuple[object, ...]]:
    return set(trace.requests[names].astype(object).fillna("").itertuples(index=False, name=None))


def test_every_drawn_row_is_a_recorded_row(tmp_path: Path) -> None:
    trace = recorded()
    again = drawn(saved(trace, tmp_path), rate=5.0, num_requests=300)
    names = [*WHOLE, "client_id"]
    assert rows(again, names) == rows(trace, names)  # 300 draws of 6: every one came
    gaps = np.diff(again.requests["arrival_time_us"].to_numpy(dtype=np.int64))
    assert gaps.mean() == pytest.approx(S / 5, rel=0.2)
    assert again.header.workload_spec == f"like:{tmp_path / 'run'}"
    assert "status" not in again.requests.columns


def test_a_deadline_is_as_long_after_the_new_arrival(tmp_path: Path) -> None:
    again = drawn(saved(recorded(), tmp_path), rate=5.0, num_requests=50).requests
    allowed = again["deadline_us"] - again["arrival_time_us"]
    assert (allowed * 10 == again["input_tokens"] + 40).all()  # row i: 10 (i + 1) tokens, i + 5 µs


def test_the_first_rows_are_the_same_when_more_are_asked_for(tmp_path: Path) -> None:
    stem = saved(recorded(prefix_hashes=[f"{i} own{i}" for i in range(6)]), tmp_path)
    few, many = (drawn(stem, rate=2.0, num_requests=n, arrival_scaling="none") for n in (20, 200))
    pd.testing.assert_frame_equal(few.requests, many.requests.head(20))


def test_the_same_rows_come_under_another_load(tmp_path: Path) -> None:
    stem = saved(recorded(), tmp_path)
    slow, users = drawn(stem, rate=2.0), drawn(stem, concurrency=7)
    assert slow.requests["tenant_id"].tolist() == users.requests["tenant_id"].tolist()
    assert users.header.closed_loop is not None
    assert users.requests["arrival_time_us"].notna().sum() == 7
    assert drawn(stem, batch=4, waves=3).requests["tenant_id"].notna().all()
    even = drawn(stem, rate=2.0, arrival="constant").requests["arrival_time_us"]
    assert set(np.diff(even.to_numpy(dtype=np.int64))) == {S // 2}
    assert len(drawn(stem, stages="5:10s,0-10:4s")) > 20


def test_shared_blocks_stay_shared_and_own_ones_become_new(tmp_path: Path) -> None:
    hashes = ["p a", "p b", "c", "d", "e", "f"]
    again = drawn(saved(recorded(prefix_hashes=hashes), tmp_path), rate=5.0, num_requests=200)
    blocks = [text.split() for text in again.requests["prefix_hashes"]]
    with_prefix = [each for each in blocks if len(each) == 2]
    assert {first for first, _ in with_prefix} == {"p"}
    own = [each[-1] for each in blocks]
    assert len(set(own)) == len(own) == 200
    assert {name.split(".")[0] for name in own} == set("abcdef")
    assert again.header.hash_block_size == 16


def test_lengths_are_scaled_and_clipped_before_they_are_drawn(tmp_path: Path) -> None:
    stem = saved(recorded(), tmp_path)
    again = drawn(stem, rate=5.0, num_requests=100, prompt_scale=2.0, output_tokens_max=3)
    plain = drawn(stem, rate=5.0, num_requests=100)
    assert (prompt_tokens(again) == 2 * prompt_tokens(plain)).all()
    assert (again.column("output_tokens") == plain.column("output_tokens").clip(upper=3)).all()


def sessions(**columns: object) -> Trace:
    """Two sessions, of three and two rounds, and a request alone."""
    given: dict[str, object] = {
        "session_id": ["s", "q", "s", None, "s", "q"],
        "round_index": [0, 0, 1, 0, 2, 1],
        "think_time_us": [None, None, 7, None, 9, 11],
    }
    return recorded(**(given | columns))


def test_a_session_is_drawn_whole(tmp_path: Path) -> None:
    again = drawn(saved(sessions(), tmp_path), rate=5.0, num_requests=120).requests
    by_session = again[again["session_id"].notna()].groupby("session_id", sort=False)
    tenants = {tuple(rounds["tenant_id"]) for _, rounds in by_session if rounds.index[-1] < 117}
    assert tenants == {("t0", "t2", "t4"), ("t1", "t5")}
    assert set(again.loc[again["session_id"].isna(), "tenant_id"]) == {"t3"}
    later = (again["round_index"] > 0).fillna(False)
    assert again["arrival_time_us"].isna().tolist() == later.tolist()
    assert (again["think_time_us"].notna() == later).all()
    assert drawn(tmp_path / "run", concurrency=3).column("arrival_time_us").notna().sum() == 3


def test_rounds_without_think_times_keep_their_distance(tmp_path: Path) -> None:
    stem = saved(sessions(think_time_us=None), tmp_path)
    again = drawn(stem, rate=5.0, num_requests=60).requests
    for _, rounds in again[again["session_id"].notna()].groupby("session_id"):
        if len(rounds) == 3:
            assert np.diff(rounds["arrival_time_us"].to_numpy(dtype=np.int64)).tolist() == [2 * S, 2 * S]
    with pytest.raises(ConfigError, match="--like: got sessions without think times"):
        drawn(stem, concurrency=2)


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({}, "--like .*: needs a load: --rate R"),
        ({"rate": 1.0, "prompt_tokens": 5}, "--prompt-tokens: cannot be combined with --like"),
        ({"rate": 1.0, "rounds": 5}, "--rounds: cannot be combined with --like"),
        ({"rate": 1.0, "speed": 2.0}, "--speed: cannot be combined with --like"),
        ({"trace": Path("t")}, "--trace: cannot be combined with --like"),
        ({"preset": "chatbot", "rate": 1.0}, "--preset: cannot be combined with --like"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused(tmp_path: Path, given: dict[str, object], line: str) -> None:
    with pytest.raises(ConfigError, match=line):
        drawn(tmp_path / "run", **given)


def test_a_trace_that_is_not_there_is_an_error_of_the_trace(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="nowhere"):
        drawn(tmp_path / "nowhere", rate=1.0)


def spec_of(folder: Path, text: str) -> Trace:
    path = folder / "spec.yaml"
    path.write_text(text, encoding="utf-8")
    return trace_from_options(WorkloadOptions(workload=path))


FROM_FILE = "{type: empirical, file: run}"
HEAD = 'version: "2"\naggregate_rate: 5\nnum_requests: 200\nclients:\n'


def test_a_client_whose_two_distributions_name_one_trace_draws_whole_requests(tmp_path: Path) -> None:
    saved(recorded(), tmp_path)
    again = spec_of(
        tmp_path,
        HEAD
        + f"  - {{id: a, tenant_id: own, input_distribution: {FROM_FILE}, output_distribution: {FROM_FILE}}}\n"
        "  - {id: b, input_distribution: {type: constant, params: {value: 7}}, "
        "output_distribution: {type: constant, params: {value: 8}}}\n",
    ).requests
    a, b = again[again["client_id"] == "a"], again[again["client_id"] == "b"]
    names = ["input_tokens", "output_tokens", "slo_class", "prefix_group", "prefix_length"]
    assert set(a[names].fillna("").itertuples(index=False, name=None)) == rows(recorded(), names)
    assert set(a["tenant_id"]) == {"own"}
    assert set(b["input_tokens"]) == {7}
    assert b["prefix_group"].isna().all()
    assert b["deadline_us"].isna().all()


def test_a_clients_own_prefix_comes_before_the_prompts_of_a_trace(tmp_path: Path) -> None:
    plain = recorded(prefix_group=None, prefix_length=None, server_input_tokens=[13, 23, None, 43, 53, 63])
    saved(plain, tmp_path)
    client = f"{{id: a, prefix_group: g, prefix_length: 100, input_distribution: {FROM_FILE}, "
    again = spec_of(tmp_path, HEAD + f"  - {client}output_distribution: {FROM_FILE}}}\n")
    assert set(again.requests["prefix_length"]) == {100}
    assert set(again.requests["input_tokens"]) == {10, 20, 30, 40, 50, 60}
    assert set(prompt_tokens(again)) == {113, 123, 130, 143, 153, 163}


def test_one_distribution_alone_draws_one_side_of_a_trace(tmp_path: Path) -> None:
    saved(recorded(), tmp_path)
    (tmp_path / "outputs.json").write_text('{"3": 0.5, "9": 1.5}')
    again = spec_of(
        tmp_path,
        HEAD + f"  - {{id: a, input_distribution: {FROM_FILE}, "
        "output_distribution: {type: empirical, file: outputs.json}}\n",
    ).requests
    assert set(again["input_tokens"]) == {110, 100, 30, 40, 60}  # prefixes included: nothing is shared here
    counts = again["output_tokens"].value_counts().to_dict()
    assert set(counts) == {3, 9}
    assert 2 < counts[9] / counts[3] < 4.5


@pytest.mark.parametrize(
    ("client", "line"),
    [
        (
            f"prefix_group: g, input_distribution: {FROM_FILE}, output_distribution: {FROM_FILE}",
            r"clients\[0\].prefix_group: cannot be combined with requests that have their own",
        ),
        (
            "input_distribution: {type: empirical, file: gone}, output_distribution: {type: empirical, file: gone}",
            r"clients\[0\].file: .*gone",
        ),
        (
            f"input_distribution: {{type: gaussian, file: run}}, output_distribution: {FROM_FILE}",
            "file: cannot be combined with type gaussian, expected type empirical",
        ),
    ],
)
def test_a_file_that_does_not_fit_is_refused(tmp_path: Path, client: str, line: str) -> None:
    saved(recorded(), tmp_path)
    with pytest.raises(ConfigError, match=line):
        spec_of(tmp_path, HEAD + f"  - {{{client}}}\n")
