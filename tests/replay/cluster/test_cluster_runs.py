"""``cluster:`` in ``vtwin run`` and ``vtwin replay``."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from replay import load_config, pacing_of
from replay.cluster.summary import jain_fairness
from replay.cluster.work import cluster_work
from tests.calibrate.known_servers import workload
from traces import Trace, read_trace
from vtwin import main

ENGINE = "engine: {max_num_seqs: 16, max_num_batched_tokens: 512, num_gpu_blocks: 300, max_model_len: 4096}\n"
LATENCY = (
    "latency: {model: blackbox, coefficients: {alpha0: 800, alpha1: 1.0, alpha2: 3, beta0: 5000, beta1: 20, "
    "beta2: 31}}\n"
)
ONE = ENGINE + LATENCY
WORKLOAD = (
    "--rate",
    "20",
    "--num-requests",
    "80",
    "--prompt-tokens",
    "200",
    "--output-tokens",
    "40",
    "--seed",
    "7",
)


def run(tmp_path: Path, twin: str, *options: str, command: tuple[str, ...] = ("run", *WORKLOAD)) -> Trace:
    """Return the trace that a command gives for a TWIN.yaml."""
    config, stem = tmp_path / "twin.yaml", tmp_path / "out"
    config.write_text(twin)
    code = main([*command, "--config", str(config), "--output", str(stem), "--overwrite", *options])
    assert code == 0
    return read_trace(stem)


def document(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def without_instance(path: Path) -> pd.DataFrame:
    return pd.read_csv(path, dtype=str).drop(columns="instance", errors="ignore")


@pytest.mark.parametrize(
    "options",
    [
        ("--rate", "20"),
        ("--rate", "20", "--itl"),
        ("--rate", "20", "--warmup-frac", "0.2"),
        ("--rate", "2"),
    ],
    ids=["open", "itl", "warm-up", "light"],
)
def test_a_cluster_of_one_writes_the_bytes_of_no_cluster_but_for_instance(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    command = ("run", *WORKLOAD[2:], *options)
    run(tmp_path, ONE, command=command)
    single = without_instance(tmp_path / "out.csv")
    tokens = (tmp_path / "out.itl.csv").read_bytes() if "--itl" in options else b""
    cluster = run(tmp_path, ONE + "cluster: {instances: 1}\n", command=command)
    pd.testing.assert_frame_equal(without_instance(tmp_path / "out.csv"), single)
    assert set(cluster.column("instance")) == {"0"}
    assert tokens == ((tmp_path / "out.itl.csv").read_bytes() if tokens else b"")


WITHOUT_ALPHA2 = ONE.replace("alpha2: 3", "alpha2: 0")
"""With it, answers that end in one step are seen apart, and one server lets the next ones go in another order."""


def test_a_closed_loop_on_one_instance_is_one_on_one_server(tmp_path: Path) -> None:
    command = ("run", *WORKLOAD[2:], "--concurrency", "6")
    run(tmp_path, WITHOUT_ALPHA2, command=command)
    single = without_instance(tmp_path / "out.csv")
    run(tmp_path, WITHOUT_ALPHA2 + "cluster: {}\n", command=command)
    pd.testing.assert_frame_equal(without_instance(tmp_path / "out.csv"), single)


def test_a_capped_client_of_one_instance_sends_as_to_one_server(tmp_path: Path) -> None:
    drawn = run(tmp_path, WITHOUT_ALPHA2)
    for suffix in (".yaml", ".csv"):
        (tmp_path / f"out{suffix}").rename(tmp_path / f"in{suffix}")
    command = ("replay", str(tmp_path / "in"), "--max-concurrency", "6")
    run(tmp_path, WITHOUT_ALPHA2, command=command)
    single = without_instance(tmp_path / "out.csv")
    capped = run(tmp_path, WITHOUT_ALPHA2 + "cluster: {}\n", command=command)
    pd.testing.assert_frame_equal(without_instance(tmp_path / "out.csv"), single)
    assert not capped.column("send_time_us").equals(drawn.column("send_time_us"))


def test_round_robin_gives_every_instance_its_share_in_turn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = run(tmp_path, ONE, "--instances", "3", "--json")
    order = np.argsort(trace.column("arrival_time_us").to_numpy(np.int64), kind="stable")
    assert list(trace.column("instance").to_numpy()[order]) == [str(i % 3) for i in range(80)]
    found = document(capsys)
    assert [each["num_requests"] for each in found["instances"]] == [27, 27, 26]
    assert found["routing_policy"] == "round-robin"
    assert found["num_by_exit"] == {"completed": 80}
    assert found["jain_fairness"] == pytest.approx(80**2 / (3 * (27**2 + 27**2 + 26**2)))


def test_inter_token_latencies_of_several_instances_are_those_of_their_tokens(tmp_path: Path) -> None:
    """The engine's spans, mapped to the requests of each instance, against the times of single tokens."""
    command = (
        "run",
        *WORKLOAD,
        "--rate",
        "400",
        "--num-requests",
        "300",
        "--routing",
        "least-loaded",
        "--instances",
        "3",
    )
    tight = ONE.replace("num_gpu_blocks: 300", "num_gpu_blocks: 150")
    by_spans = run(tmp_path, tight, command=command)
    by_tokens = run(tmp_path, tight, "--itl", command=command)
    assert by_spans.column("num_preemptions").sum() > 0  # whose pauses the spans have listed
    for name in ("itl_mean_us", "itl_p99_us"):
        np.testing.assert_allclose(by_spans.column(name), by_tokens.column(name), atol=1.01)
    assert by_spans.column("itl_p99_us").nunique() > 10


def test_ways_out_add_up_to_the_requests_and_say_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    twin = (
        ONE
        + "cluster: {instances: 2, flow_control: {detector: concurrency, max_concurrency: 3, capacity: 4}}\n"
    )
    trace = run(tmp_path, twin, "--json")
    found = document(capsys)
    assert found["num_by_exit"]["queue_full"] > 0
    assert sum(found["num_by_exit"].values()) == found["num_requests"] == 80
    assert found["num_by_exit"]["queue_full"] == found["num_by_status"]["rejected"]
    reasons = Counter(trace.column("error_message").dropna())
    assert reasons == {
        "queue_full: found no place in the gateway's queue": found["num_by_exit"]["queue_full"]
    }
    turned_away = trace.column("status") == "rejected"
    assert trace.column("instance")[turned_away].isna().all()
    assert (trace.column("gateway_queue_us")[~turned_away] >= 0).all()
    assert trace.column("gateway_queue_us").max() > 0


def test_a_class_has_its_target_at_the_gateway_and_a_request_its_own(tmp_path: Path) -> None:
    path = tmp_path / "twin.yaml"
    flow = "{order: slo-deadline, slo_targets_us: {critical: 200000, batch: 9000000}}"
    path.write_text(ONE + f"cluster: {{instances: 2, flow_control: {flow}}}\n")
    cluster = load_config(path).cluster
    trace = workload(4, rate=5, seed=1).with_columns(
        slo_class=["critical", "batch", "critical", None], slo_target_us=[None, None, 7000, None]
    )
    work = cluster_work(trace, pacing_of(trace, simulates_rounds=True), cluster)
    assert list(work.slo_target_us) == [200_000, 9_000_000, 7_000, -1]


def test_a_gateway_that_takes_nobody_is_said_to_be_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "twin.yaml"
    config.write_text(ONE + "cluster: {instances: 2, admission: {policy: reject-all}}\n")
    assert main(["run", *WORKLOAD, "--config", str(config), "--output", str(tmp_path / "out")]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == "no request finished: 80 rejected (not admitted)"


def test_pools_override_keys_and_name_their_instances(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pools = "[{name: big}, {name: small, instances: 2, latency: {coefficients: {beta0: 20000}}}]"
    trace = run(tmp_path, ONE + f"cluster: {{pools: {pools}}}\n", "--json")
    assert set(trace.column("instance")) == {"big/0", "small/0", "small/1"}
    big, small, _ = document(capsys)["instances"]
    assert small["e2e_mean_us"] > 2 * big["e2e_mean_us"]


def test_a_table_shows_fourteen_instances_and_says_how_many_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path, ONE, "--instances", "20")
    lines = capsys.readouterr().out.splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("instance"))
    assert len(lines[first + 1 :]) == 15
    assert lines[-1] == "… and 6 instances more (--json has all)"


def test_instances_that_served_nothing_share_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scaled = "{policy: target, metric: in-flight, target: 99, min_instances: 1, max_instances: 30}"
    run(tmp_path, ONE + f"cluster: {{instances: 1, autoscaler: {scaled}}}\n")
    lines = capsys.readouterr().out.splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("instance "))
    assert lines[first + 1].startswith("0 ")
    assert lines[first + 2] == "and 29 without a request"
    assert len(lines) <= 40


def test_jains_index_is_one_where_all_get_as_many_and_one_nth_where_one_gets_all() -> None:
    assert jain_fairness(np.array([5, 5, 5])) == 1
    assert jain_fairness(np.array([0, 0, 0, 9])) == 0.25
    assert jain_fairness(np.array([0, 0])) is None


def test_sessions_stay_where_they_began(tmp_path: Path) -> None:
    run(tmp_path, ONE)
    table = pd.read_csv(tmp_path / "out.csv", dtype=str)
    table["session_id"] = [f"s{row % 9}" for row in range(len(table))]
    table.to_csv(tmp_path / "in.csv", index=False)
    (tmp_path / "out.yaml").rename(tmp_path / "in.yaml")
    command = ("replay", str(tmp_path / "in"))
    trace = run(tmp_path, ONE, "--instances", "4", "--routing", "session", command=command)
    assert (trace.requests.groupby("session_id")["instance"].nunique() == 1).all()
    assert trace.column("instance").nunique() > 1


def shared_prefixes(tmp_path: Path) -> tuple[str, ...]:
    """Return a command that replays requests of six prefix groups."""
    run(tmp_path, ONE, "--arrival-scaling", "none")
    table = pd.read_csv(tmp_path / "out.csv", dtype=str)
    table["prefix_group"] = [f"g{row * row // 5 % 6}" for row in range(len(table))]
    table["prefix_length"] = "320"
    table.to_csv(tmp_path / "in.csv", index=False)
    (tmp_path / "out.yaml").rename(tmp_path / "in.yaml")
    return ("replay", str(tmp_path / "in"))


def test_every_decision_is_written_with_what_the_router_saw(tmp_path: Path) -> None:
    """The scores explain the choice, and what is in flight is what the trace says."""
    command = shared_prefixes(tmp_path)
    options = ("--instances", "3", "--routing", "least-loaded", "--decisions")
    trace = run(tmp_path, ONE, *options, str(tmp_path / "d.jsonl"), command=command)
    rows = trace.requests.set_index("request_id")
    decisions = [json.loads(line) for line in (tmp_path / "d.jsonl").read_text().splitlines()]
    assert sorted(each["request_id"] for each in decisions) == sorted(rows.index)
    for each in decisions:
        assert each["instance"] == rows.loc[each["request_id"], "instance"]
        assert each["time_us"] == rows.loc[each["request_id"], "send_time_us"]
        scores = {candidate["instance"]: candidate["score"] for candidate in each["candidates"]}
        assert scores[each["instance"]] == max(scores.values())
        assert each["regret"] == 0.0
        ordered = sorted(scores.values(), reverse=True)
        assert all(1 + ordered.index(one["score"]) == one["rank"] for one in each["candidates"])
        for candidate in each["candidates"]:
            there = rows[rows["instance"] == candidate["instance"]]
            sent = (there["send_time_us"] < each["time_us"]).sum()
            answered = (there["last_token_time_us"] <= each["time_us"]).sum()
            assert candidate["num_in_flight"] == -candidate["score"] == sent - answered
            assert 0 <= candidate["num_running"] + candidate["num_waiting"] <= candidate["num_in_flight"] + 1


def test_a_policy_without_scores_regrets_the_load_that_it_did_not_look_at(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = shared_prefixes(tmp_path)
    options = ("--instances", "3", "--routing", "random", "--decisions", str(tmp_path / "d.jsonl"), "--json")
    capsys.readouterr()
    run(tmp_path, ONE, *options, command=command)
    told = json.loads(capsys.readouterr().out)["regret"]
    decisions = [json.loads(line) for line in (tmp_path / "d.jsonl").read_text().splitlines()]
    for each in decisions:
        in_flight = {one["instance"]: one["num_in_flight"] for one in each["candidates"]}
        assert each["regret"] == in_flight[each["instance"]] - min(in_flight.values())
    regrets = [each["regret"] for each in decisions]
    assert told["unit"] == "requests in flight"
    assert told["mean"] == pytest.approx(sum(regrets) / len(regrets))
    assert told["max"] == max(regrets) > 0
    assert told["best_frac"] == pytest.approx(regrets.count(0) / len(regrets))


def test_decisions_in_parquet_are_those_in_json(tmp_path: Path) -> None:
    command = shared_prefixes(tmp_path)
    for policy in ("weighted", "round-robin"):
        options = ("--instances", "2", "--routing", policy, "--decisions")
        run(tmp_path, ONE, *options, str(tmp_path / "d.jsonl"), command=command)
        run(tmp_path, ONE, *options, str(tmp_path / "d.parquet"), command=command)
        lines = [json.loads(line) for line in (tmp_path / "d.jsonl").read_text().splitlines()]
        rows = pq.read_table(tmp_path / "d.parquet").to_pylist()
        for row in rows:
            for candidate in row["candidates"]:
                candidate["kv_usage"] = round(candidate["kv_usage"], 6)
        assert rows == lines
        has_scores = [candidate["score"] is not None for row in rows for candidate in row["candidates"]]
        assert all(has_scores) if policy == "weighted" else not any(has_scores)


def test_a_counterfactual_is_the_run_with_that_one_decision_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Round robin decides the same for all others, so the run is that of a policy that knows the one exception."""
    monkeypatch.setenv("VTWIN_ALLOW_CODE", "1")
    command = shared_prefixes(tmp_path)
    capsys.readouterr()
    options = ("--instances", "2", "--json")
    before = run(tmp_path, ONE, *options, "--counterfactual", "4", command=command)
    found = document(capsys)["counterfactuals"]
    assert len(found) == 4
    assert [each["time_us"] for each in found] == sorted(each["time_us"] for each in found)
    rows = before.requests["request_id"].tolist()
    for each in found:
        assert {each["instance"], each["alternative"]} == {"0", "1"}
        assert (each["score"], each["num_moved"]) == (None, 0)
        policy = tmp_path / "exception.py"
        place = rows.index(each["request_id"])
        policy.write_text(
            f"def choose(fleet, request, time_us):\n"
            f"    usual = {before.column('instance').astype(int).tolist()}[request.number]\n"
            f"    return 1 - usual if request.number == {place} else usual\n"
        )
        after = run(tmp_path, ONE, *options, "--routing", "exception.py:choose", command=command)
        capsys.readouterr()
        for name, column in (("ttft_us", "first_chunk_time_us"), ("e2e_us", "last_token_time_us")):
            change = (after.column(column) - before.column(column)).to_numpy(np.float64)
            assert each["request"][name] == change[place]
            assert each["all"][name] == pytest.approx(change.mean())
    assert any(each["all"]["e2e_us"] != 0 for each in found)


def test_prefix_routing_finds_more_in_the_caches_than_round_robin(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = shared_prefixes(tmp_path)
    capsys.readouterr()
    hits = {}
    for policy in ("round-robin", "weighted", "cache-aware"):
        scorers = ", scorers: {prefix-affinity: 3, queue-depth: 2, kv-utilization: 2}"
        routing = f"{{policy: {policy}{scorers if policy == 'weighted' else ''}}}"
        run(tmp_path, f"{ONE}cluster: {{instances: 3, routing: {routing}}}\n", "--json", command=command)
        hits[policy] = document(capsys)["prefix_hit_frac"]
    assert hits["round-robin"] < hits["weighted"]
    assert hits["round-robin"] < hits["cache-aware"]


def test_a_round_is_sent_its_think_time_after_the_answer_to_the_one_before_it(tmp_path: Path) -> None:
    command = ("run", *WORKLOAD[2:], "--concurrency", "5", "--rounds", "4", "--think-time", "300ms")
    trace = run(tmp_path, ONE, "--instances", "2", "--routing", "session", command=command)
    rows = trace.requests.sort_values(["session_id", "round_index"])
    by_session = rows.groupby("session_id")
    gaps = rows["send_time_us"] - by_session["last_token_time_us"].shift()
    assert set(gaps.dropna()) == {300_000}
    assert len(gaps.dropna()) == 60
    assert (by_session["instance"].nunique() == 1).all()
    begin, end = by_session["send_time_us"].min(), by_session["last_token_time_us"].max()
    assert max(((begin <= time) & (end > time)).sum() for time in begin) == 5
    assert (trace.column("num_cached_tokens")[trace.column("round_index") > 0] > 0).any()


def test_a_wave_is_sent_when_all_of_the_one_before_it_are_answered(tmp_path: Path) -> None:
    trace = run(tmp_path, ONE, "--instances", "2", command=("run", "--batch", "6", "--waves", "5"))
    sent = trace.column("send_time_us").to_numpy(np.int64).reshape(5, 6)
    answered = trace.column("last_token_time_us").to_numpy(np.int64).reshape(5, 6)
    assert (sent == sent[:, :1]).all()
    assert sent[1:, 0].tolist() == answered[:-1].max(axis=1).tolist()
