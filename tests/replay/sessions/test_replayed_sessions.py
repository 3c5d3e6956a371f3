"""Replayed sessions: a round finds in the prefix cache what was said before it, and comes when it came."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import vtwin
from replay import TwinConfig, dump_config, simulate_trace
from replay.sessions.results import session_results
from replay.trace.pacing import Loop, pacing_of
from replay.trace.request_columns import requests_from_trace
from replay.trace.trace_notes import trace_notes
from sim import Blackbox, EngineConfig
from traces import ClosedLoop, ConfigError, Header, Trace, make_trace, read_trace
from traces.workload.recorded.session_starts import is_first

SERVER = TwinConfig(
    engine=EngineConfig(async_scheduling=False, block_size=4, num_gpu_blocks=200),
    latency=Blackbox(beta0=1000),
)


def talks(*, prefix: int = 0, sent: bool = True, header: Header | None = None) -> Trace:
    """Two sessions of three rounds: 9 tokens at first and 8 more each round, answers of 5; and a stranger."""
    rows = [(name, place) for name in ("a", "b") for place in range(3)]
    arrivals = [place * 100_000 + (name == "b") * 7_000 for name, place in rows]
    return make_trace(
        header or Header(tool="vtwin", session_context_growth="accumulate"),
        {
            "request_id": [str(row) for row in range(7)],
            "arrival_time_us": [*arrivals, 300_000] if sent else [0, None, None, 0, None, None, 0],
            "session_id": [*(name for name, _ in rows), None],
            "round_index": [*(place for _, place in rows), None],
            "prefix_group": ["g" if prefix else None] * 7,
            "prefix_length": [prefix] * 7,
            "new_input_tokens": [*([9, 8, 8] * 2), None],
            "input_tokens": [*([9, 22, 35] * 2), 30],
            "output_tokens": [5] * 7,
        },
    )


def test_a_round_finds_the_full_blocks_that_were_computed_before_it() -> None:
    trace, _ = simulate_trace(talks(), SERVER)
    # 9 + 5 tokens, the last not computed: 3 blocks of 4; then 22 + 5: 6 blocks
    assert list(trace.column("num_cached_tokens")) == [0, 12, 24, 0, 12, 24, 0]


def test_sessions_of_one_group_share_its_prefix_and_no_more() -> None:
    trace, _ = simulate_trace(talks(prefix=10), SERVER)
    assert list(trace.column("num_cached_tokens")) == [0, 20, 36, 8, 20, 36, 8]


def test_what_an_unlimited_cache_would_have_had_is_computed_again() -> None:
    trace, _ = simulate_trace(talks(prefix=10), SERVER)
    nothing = trace.with_columns(num_cached_tokens=[0, 4, 36, 0, 0, 0, 0])
    found = session_results(nothing, block_size=4)
    assert found is not None
    assert found.recomputed.tolist() == [16, 8 + 20 + 36]
    assert (found.own.tolist(), found.shared.tolist()) == ([28, 0], [12, 0])


def test_a_block_that_two_requests_have_is_shared_and_one_that_one_has_is_not() -> None:
    columns = {"request_id": ["a", "b", "c"], "arrival_time_us": [0, 1, 2], "input_tokens": [12] * 3}
    hashes = {"output_tokens": [1] * 3, "prefix_hashes": ["1 2 4", "1 2 5", "1 3 5"]}
    trace = make_trace(Header(hash_block_size=4), {**columns, **hashes})
    assert list(requests_from_trace(trace, block_size=4).num_hashes) == [2, 3, 3]
    assert list(
        requests_from_trace(trace.with_columns(prefix_hashes=["1 2", "1 3", "6"]), block_size=4).num_hashes
    ) == [*(1, 1, 0)]


def test_the_first_round_of_a_session_waits_for_no_answer() -> None:
    assert list(is_first(talks())) == [True, False, False, True, False, False, True]


def test_hashes_are_dense_and_sessions_have_none_in_common() -> None:
    requests = requests_from_trace(talks(), block_size=4)
    ids = [
        set(requests.hash_ids[start : start + count].tolist())
        for start, count in zip(requests.hash_starts, requests.num_hashes, strict=True)
    ]
    assert set().union(*ids) == set(range(int(requests.hash_ids.max()) + 1))
    assert ids[0] < ids[1] <= ids[2]
    assert not ids[2] & ids[5]
    assert ids[6] == set()


def test_a_round_goes_on_from_the_one_before_it_and_one_with_a_parent_from_that() -> None:
    requests = requests_from_trace(talks(), block_size=4)
    assert requests.kv_number is not None
    assert requests.goes_on_from is not None
    assert requests.kv_number.tolist() == [0, 1, -1, 2, 3, -1, -1]
    assert requests.goes_on_from.tolist() == [-1, 0, 1, -1, 2, 3, -1]
    columns = {"request_id": ["a", "b", "c"], "arrival_time_us": [0, 1, 2], "input_tokens": [12] * 3}
    tree = {"output_tokens": [1] * 3, "session_id": ["s"] * 3, "parent_request_id": [None, "a", "a"]}
    branches = requests_from_trace(make_trace(Header(), {**columns, **tree}), block_size=4)
    assert branches.goes_on_from is not None
    assert branches.goes_on_from.tolist() == [-1, 0, 0]


def test_a_time_to_pin_without_sessions_is_noted() -> None:
    pinning = replace(SERVER, engine=replace(SERVER.engine, session_kv_ttl_us=5))
    alone = make_trace(
        Header(),
        {"request_id": ["a"], "arrival_time_us": [0], "input_tokens": [12], "output_tokens": [1]},
    )
    assert any(
        note.startswith("engine.session_kv_ttl_us: no request") for note in trace_notes(alone, pinning)
    )
    assert not any(note.startswith("engine.session_kv_ttl_us") for note in trace_notes(talks(), pinning))


@pytest.mark.parametrize("in_waves", [True, None])
def test_waves_and_users_with_sessions_come_when_they_were_sent(in_waves: bool | None) -> None:
    loop = ClosedLoop(concurrency=2, in_waves=in_waves)
    ran = talks(header=Header(tool="vtwin", closed_loop=loop))
    with pytest.raises(ConfigError, match="closed_loop: got waves"):
        pacing_of(ran)
    sent = ran.with_columns(send_time_us=np.arange(7) * 50_000)
    assert pacing_of(sent).closed_loop is None
    replayed, _ = simulate_trace(sent, SERVER)
    assert list(replayed.column("send_time_us")) == [row * 50_000 for row in range(7)]
    with pytest.raises(ConfigError, match="closed_loop: got waves"):
        pacing_of(sent, "closed")


def test_sessions_that_have_not_run_are_refused() -> None:
    with pytest.raises(ConfigError, match="sessions: got 4 rounds whose times are the answers' doing"):
        simulate_trace(talks(sent=False), SERVER)


def test_a_trace_of_rounds_or_waves_says_that_answers_send_them() -> None:
    def has_rounds(trace: Trace, loop: Loop = "auto") -> bool:
        return pacing_of(trace, loop, simulates_rounds=True).has_rounds

    assert has_rounds(talks(sent=False))
    assert not has_rounds(talks())
    assert has_rounds(talks(), "closed")
    ran = talks(header=Header(tool="vtwin", closed_loop=ClosedLoop(concurrency=2, in_waves=True)))
    sent = ran.with_columns(send_time_us=np.arange(7) * 50_000)
    assert not has_rounds(sent)
    paced = pacing_of(sent.without_columns("session_id"), "closed", simulates_rounds=True)
    assert paced.waves == (2, 0)


@pytest.mark.parametrize("asked", [["--rate", "3", "--rounds", "3"], ["--batch", "6", "--waves", "3"]])
def test_one_server_lets_answers_send_what_waits_for_them_as_a_cluster_of_one_does(
    asked: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "twin.yaml").write_text(dump_config(SERVER))
    made = []
    for name, more in (("one", []), ("cluster", ["--instances", "1"])):
        told = [*asked, *more, "--num-requests", "30"] if "--rate" in asked else [*asked, *more]
        lengths = ["--prompt-tokens", "40", "--output-tokens", "10", "--config", str(tmp_path / "twin.yaml")]
        assert vtwin.main(["run", *told, *lengths, "--output", str(tmp_path / name)]) == 0
        made.append(read_trace(tmp_path / name))
    capsys.readouterr()
    one, cluster = made
    assert all((one.requests[name].equals(cluster.requests[name])) for name in one.requests)
    assert one.column("send_time_us").is_monotonic_increasing or "--rate" in asked
