"""Prefill and decode pools from TWIN.yaml to the trace, the JSON and the decisions."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from replay.twin.config_read import load_config
from replay.twin.config_write import dump_config
from replay.twin.twin_config import TwinConfig
from sim.cluster.routing.routing_policies import LeastLoaded
from sim.cluster.transfer.disaggregation_config import Disaggregation
from traces import read_trace
from vtwin import main

SERVER = """\
engine: {max_num_seqs: 16, max_num_batched_tokens: 512, num_gpu_blocks: 900, max_model_len: 4096}
latency: {model: blackbox, coefficients: {alpha0: 0, alpha1: 0, alpha2: 0, beta0: 5000, beta1: 20, beta2: 31}}
"""
POOLS = """\
cluster:
  pools:
    - {name: p, role: prefill, instances: 2, engine: {max_num_batched_tokens: 2048}}
    - {name: d, role: decode, instances: 2}
    - {name: s}
  disaggregation: {kv_bytes_per_token: 131072, prefill_routing: {policy: least-loaded}}
"""


def load(tmp_path: Path, text: str = SERVER + POOLS) -> TwinConfig:
    path = tmp_path / "twin.yaml"
    path.write_text(text)
    return load_config(path)


Run = Callable[..., str]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Return what runs a command and gives its output."""

    def answer(*arguments: str) -> str:
        capsys.readouterr()
        assert main(list(arguments)) == 0
        return capsys.readouterr().out

    return answer


@pytest.fixture
def answered(tmp_path: Path, run: Run) -> dict[str, Any]:
    """Return the document of a run that wrote its trace and its decisions beside it."""
    load(tmp_path)
    text = run(
        *("run", "--config", str(tmp_path / "twin.yaml"), "--rate", "12", "--num-requests", "80"),
        *("--prompt-tokens", "400", "--output-tokens", "20", "--output", str(tmp_path / "out"), "--json"),
        *("--decisions", str(tmp_path / "decisions.jsonl")),
    )
    document: dict[str, Any] = json.loads(text)
    return document


def test_what_the_file_says_is_read_and_written_back(tmp_path: Path) -> None:
    config = load(tmp_path)
    assert config.cluster.role_of == ("prefill", "prefill", "decode", "decode", "shared")
    assert config.cluster.disaggregation == Disaggregation(kv_bytes_per_token=131072)
    assert config.cluster.prefill_routing == LeastLoaded()
    assert [pool.engine.max_num_batched_tokens for pool in config.cluster.pools] == [2048, 512, 512]
    assert load(tmp_path, dump_config(config)) == config


def test_transfers_that_failures_cut_off_are_in_the_json_and_where_failures_are_told(
    tmp_path: Path, run: Run
) -> None:
    pools = POOLS.replace("    - {name: s}\n", "").replace(
        "kv_bytes_per_token: 131072,", "kv_bytes_per_token: 131072, kv_bandwidth_gbps: 0.1,"
    )
    failures = "  failures: {schedule: [{at_us: 700000, instance: 0, down_us: 90000}]}\n"
    load(tmp_path, SERVER + pools + failures)
    command = ("run", "--config", str(tmp_path / "twin.yaml"), "--rate", "12", "--num-requests", "20")
    command += ("--prompt-tokens", "400", "--output-tokens", "5")
    parts = json.loads(run(*command, "--json"))["disaggregation"]
    assert parts["num_cut_off"] > 0
    assert parts["num_transfers"] + parts["num_cut_off"] <= parts["num_requests"]
    assert f"the time, {parts['num_cut_off']} transfers of KV cut off" in run(*command)


def test_the_bytes_of_a_token_are_the_model_s(tmp_path: Path) -> None:
    text = SERVER.replace("model: blackbox", "model: blackbox, model_config: meta-llama/Llama-3.1-8B")
    config = load(tmp_path, text + "cluster: {pools: [{role: prefill, name: p}, {role: decode, name: d}]}\n")
    assert config.cluster.disaggregation is not None
    # 32 layers, 8 heads of 128, keys and values, two bytes each
    assert config.cluster.disaggregation.kv_bytes_per_token == 32 * 8 * 128 * 2 * 2


def test_the_trace_says_who_computed_each_prompt_and_when_its_kv_moved(
    tmp_path: Path, answered: dict[str, Any]
) -> None:
    trace = read_trace(tmp_path / "out")
    prefill, instance = trace.column("prefill_instance"), trace.column("instance")
    is_split = prefill.notna().to_numpy()
    assert set(prefill[is_split]) == {"p/0", "p/1"}
    assert set(instance[is_split]) == {"d/0", "d/1"}
    assert set(instance[~is_split]) == {"s/0"}
    times = [
        trace.column(name)[is_split].to_numpy(np.int64)
        for name in (
            "arrival_time_us",
            "prefill_end_time_us",
            "kv_transfer_start_time_us",
            "kv_transfer_end_time_us",
            "content_first_time_us",
        )
    ]
    assert (np.diff(times, axis=0) >= 0).all()
    assert trace.column("kv_transfer_end_time_us")[~is_split].isna().all()
    assert answered["disaggregation"]["num_transfers"] == int(is_split.sum())


def test_the_json_has_the_parts_of_the_first_token_and_every_instance(answered: dict[str, Any]) -> None:
    parts = answered["disaggregation"]
    assert parts["decider"] == "always"
    assert parts["num_requests"] == parts["num_transfers"] > 40
    means = [parts[name]["mean"] for name in ("prefill_us", "transfer_wait_us", "transfer_us", "join_us")]
    instances = {each["name"]: each for each in answered["instances"]}
    assert list(instances) == ["p/0", "p/1", "d/0", "d/1", "s/0"]
    split = [instances[name] for name in ("d/0", "d/1")]
    num = sum(each["num_ok"] for each in split)
    assert sum(means) == pytest.approx(sum(each["ttft_mean_us"] * each["num_ok"] for each in split) / num)
    assert instances["p/0"]["num_requests"] + instances["p/1"]["num_requests"] == parts["num_requests"]
    assert instances["p/0"]["output_tokens"] == 0
    assert instances["p/0"]["busy_frac"] > 0
    assert 0 < parts["bandwidth_gb_per_s"] <= 25


def test_both_decisions_are_written_each_with_its_own_candidates(
    tmp_path: Path, answered: dict[str, Any], run: Run
) -> None:
    lines = [json.loads(line) for line in (tmp_path / "decisions.jsonl").read_text().splitlines()]
    by_stage = {stage: [line for line in lines if line["stage"] == stage] for stage in ("decode", "prefill")}
    assert len(by_stage["decode"]) == 80
    assert len(by_stage["prefill"]) == answered["disaggregation"]["num_requests"]
    names = {stage: {each["instance"] for each in some[0]["candidates"]} for stage, some in by_stage.items()}
    assert names == {"decode": {"d/0", "d/1", "s/0"}, "prefill": {"p/0", "p/1"}}
    assert all(each["score"] is not None for each in by_stage["prefill"][0]["candidates"])
    assert all(each["score"] is None for each in by_stage["decode"][0]["candidates"])  # in turn
    run(
        *("replay", str(tmp_path / "out"), "--config", str(tmp_path / "twin.yaml")),
        *("--decisions", str(tmp_path / "decisions.parquet"), "--output", str(tmp_path / "again")),
    )
    table = pq.read_table(tmp_path / "decisions.parquet").to_pylist()
    for row in table:
        for each in row["candidates"]:
            each["kv_usage"] = round(each["kv_usage"], 6)  # as the lines have it
    assert table == lines


def test_a_counterfactual_changes_who_decodes(tmp_path: Path, answered: dict[str, Any], run: Run) -> None:
    text = run(
        *("replay", str(tmp_path / "out"), "--config", str(tmp_path / "twin.yaml"), "--json"),
        *("--counterfactual", "5", "--output", str(tmp_path / "again")),
    )
    document = json.loads(text)
    others = {each["alternative"] for each in document["counterfactuals"]}
    assert len(document["counterfactuals"]) == 5
    assert others <= {"d/0", "d/1", "s/0"}
    assert document["num_requests"] == answered["num_requests"]


def test_the_terminal_shows_the_parts(tmp_path: Path, answered: dict[str, Any], run: Run) -> None:
    out = run(
        "replay",
        str(tmp_path / "out"),
        "--config",
        str(tmp_path / "twin.yaml"),
        "--output",
        str(tmp_path / "again"),
    )
    assert f"prefill     {answered['disaggregation']['num_requests']} prompts computed elsewhere" in out
    assert "wait for blocks" in out
