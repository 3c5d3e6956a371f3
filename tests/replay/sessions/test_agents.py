"""Agents' sessions through the twin: real ones, and what is told of each."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import vtwin
from replay import load_config, run
from replay.sessions.results import session_results
from traces import Trace, prompt_tokens, select_rows
from traces.importers import read_public
from traces.tables.hash_chains import whole_hashes
from traces.trace_summary import prefix_hit_ceiling_frac
from traces.workload import SessionStarts, started

SAMPLES = Path(__file__).parents[3] / "traces" / "samples" / "agents"
ROOMY = """\
engine: {max_num_seqs: 64, max_num_batched_tokens: 8192, max_model_len: 200000, num_gpu_blocks: 150000}
latency:
  model: blackbox
  coefficients: {alpha0: 500, alpha1: 0, alpha2: 0, beta0: 6000, beta1: 10, beta2: 1}
"""


@pytest.fixture(scope="module")
def agents() -> Trace:
    return read_public("weka", SAMPLES)


@pytest.mark.parametrize("name", ["0017", "0128", "0226", "0251", "0288", "0312", "0489", "0693"])
def test_an_unlimited_cache_has_the_hits_of_the_trace(tmp_path: Path, name: str) -> None:
    (tmp_path / "twin.yaml").write_text(ROOMY)
    trace = read_public("weka", SAMPLES / f"trace_{name}.json.gz")
    done = run(trace, load_config(tmp_path / "twin.yaml"))
    hits = done.trace.cells("num_cached_tokens").filled(0).sum() / prompt_tokens(trace).sum()
    assert hits == pytest.approx(prefix_hit_ceiling_frac(trace), abs=0.001)
    needed = done.summary["kv_needed"]
    assert needed is not None
    assert needed["ideal_hit_frac"] == pytest.approx(hits, abs=1e-9)


def test_sessions_that_come_back_too_late_compute_again(tmp_path: Path, agents: Trace) -> None:
    """Every prompt token was cached, could have been, or is new."""
    (tmp_path / "twin.yaml").write_text(ROOMY.replace("150000", "10500"))
    trace = started(agents, SessionStarts(at_once=4, most_think_us=60_000_000))
    done = run(trace, load_config(tmp_path / "twin.yaml"))
    found = session_results(done.trace, block_size=16)
    assert found is not None
    assert found.is_complete.all()
    assert found.recomputed.sum() > 0.02 * found.prompt_tokens.sum()
    assert (found.own + found.shared == found.cached).all()
    ideal = prefix_hit_ceiling_frac(agents)
    assert (found.cached.sum() + found.recomputed.sum()) / found.prompt_tokens.sum() == pytest.approx(
        ideal, abs=2e-3
    )
    np.testing.assert_allclose(found.model_us + found.tool_us, found.duration_us)


def test_so_many_sessions_are_under_way_at_once(tmp_path: Path, agents: Trace) -> None:
    (tmp_path / "twin.yaml").write_text(ROOMY)
    done = run(
        started(agents, SessionStarts(at_once=3, most_think_us=1_000_000)),
        load_config(tmp_path / "twin.yaml"),
    )
    session = done.trace.cells("session_id").values
    first = done.trace.cells("send_time_us").values
    last = done.trace.cells("last_token_time_us").values
    spans = [
        (first[session == name].min(), last[session == name].max())
        for name in dict.fromkeys(session.tolist())
    ]
    under_way = [sum(begin <= moment < end for begin, end in spans) for moment, _ in spans]
    assert max(under_way) == 3
    assert under_way[3:] == [3] * 5


def test_sessions_start_at_a_rate(agents: Trace) -> None:
    drawn = [started(agents, SessionStarts(rate_per_s=0.5, seed=seed)) for seed in (1, 1, 2)]
    times = [each.cells("arrival_time_us").known() for each in drawn]
    assert len(times[0]) == 8
    assert times[0].tolist() == times[1].tolist() != times[2].tolist()
    assert (np.diff(times[0]) > 0).all()
    assert 4e6 < times[0][-1] < 60e6


def test_rows_that_go_leave_prompts_whole(agents: Trace) -> None:
    keep = np.arange(len(agents)) % 3 != 1
    part = select_rows(agents, keep)
    assert whole_hashes(part.table) == [
        text for text, kept in zip(whole_hashes(agents.table), keep, strict=True) if kept
    ]


def test_a_user_replays_agents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("twin.yaml").write_text(ROOMY)
    assert vtwin.main(["trace", "convert", str(SAMPLES), "--from", "weka", "--output", "agents"]) == 0
    capsys.readouterr()
    how = ["replay", "agents", "--config", "twin.yaml", "--max-think-time", "10s"]
    assert vtwin.main([*how, "--sessions", "4", "--json", "--report", "page.html"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["groups"]["sessions"]["num_complete"] == 8
    assert len(told["groups"]["sessions"]["slowest"]) == 8
    assert told["kv_needed"]["blocks_for"]["0.95"] > told["kv_needed"]["blocks_for"]["0.5"]
    assert "KV cache that the prompts need" in Path("page.html").read_text()
    for options, complaint in (
        (["--sessions", "2", "--session-rate", "1"], "--sessions: cannot be combined with --session-rate"),
        (["--session-rate", "0"], "--session-rate: got 0, expected a number > 0"),
        (["--think-time-scale", "-1"], "--think-time-scale: got -1, expected a number >= 0"),
    ):
        assert vtwin.main([*how, *options]) == 2
        assert complaint in capsys.readouterr().err


@pytest.mark.parametrize("instances", [1, 3])
def test_a_session_costs_its_share_of_the_gpus(tmp_path: Path, instances: int) -> None:
    cluster = f"cluster: {{instances: {instances}, cost_per_gpu_hour: 2.5}}\n"
    (tmp_path / "twin.yaml").write_text(ROOMY + cluster)
    trace = started(
        read_public("mooncake", SAMPLES.parent / "aiperf_agentic_code_20.jsonl"), SessionStarts(at_once=3)
    )
    done = run(trace, load_config(tmp_path / "twin.yaml"))
    sessions = done.summary["groups"]["sessions"]
    assert sessions is not None
    hours = done.summary["duration_us"] / 3.6e9 * instances / 3
    assert sessions["gpu_hours_per_session"] == pytest.approx(hours)
    assert sessions["cost_per_session"] == pytest.approx(2.5 * hours)
