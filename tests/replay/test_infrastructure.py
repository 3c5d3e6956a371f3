"""Scaling, nodes, failures and retries from TWIN.yaml to the JSON, the trace and the terminal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from replay import load_config
from replay.twin.config_write import dump_config
from traces.errors import ConfigError
from traces.files.read import read_trace
from vtwin import main

TWIN = """
engine: {max_num_seqs: 8, num_gpu_blocks: 400, max_model_len: 4096}
latency: {model: blackbox, coefficients: {alpha0: 500, alpha1: 0, alpha2: 3, beta0: 6000, beta1: 20, beta2: 30}}
cluster:
  instances: 1
  routing: {policy: least-loaded}
  cost_per_gpu_hour: 3600
  gpus_per_instance: 2
  startup: {loading_us: 1500000, warm_up_us: 500000}
  autoscaler:
    {policy: target, target: 6, max_instances: 4, interval_us: 1000000, down_window_us: 3000000, drain: requeue}
  node_pools:
    - {name: gpus, gpus_per_node: 4, max_nodes: 2, provisioning_us: 1000000}
  failures: {schedule: [{at_us: 6000000, instance: 0, down_us: 1000000}]}
  retries: {max_attempts: 2, on: [lost], backoff_us: 1000}
"""


@pytest.fixture
def twin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "twin.yaml"
    path.write_text(TWIN)
    return path


def test_a_fleet_that_scales_fails_and_retries_says_so_everywhere(
    twin: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    load = ["--rate", "40", "--num-requests", "600", "--prompt-tokens", "200", "--output-tokens", "40"]
    assert main(["run", "--config", str(twin), *load, "--json", "--output", "out"]) == 0
    found = json.loads(capsys.readouterr().out)
    parts, retries = found["infrastructure"], found["retries"]
    pool = parts["pools"][0]
    assert pool["instances_most"] > 1
    assert parts["scaling"][0]["instances_before"] == 1
    assert parts["num_failures"] == 1
    assert parts["gpu_hours"] == pytest.approx(sum(each["gpu_hours"] for each in found["instances"]))
    assert parts["cost"] == pytest.approx(3600 * parts["gpu_hours"])
    assert 0 < parts["node_pools"][0]["node_hours"] <= 2 * found["duration_us"] / 3.6e9
    assert sum(found["num_by_exit"].values()) == 600
    assert retries["num_attempts"] == 600 + retries["num_requests_retried"]
    assert sum(retries["num_attempts_by_exit"].values()) == retries["num_attempts"]
    assert retries["num_attempts_by_exit"]["lost"] >= retries["num_requests_retried"] > 0
    trace = read_trace("out")
    again = trace.column("attempt") > 1
    assert again.sum() == retries["num_requests_retried"]
    assert (trace.column("send_time_us") >= trace.column("arrival_time_us") + 1000)[again].all()
    assert main(["run", "--config", str(twin), *load, "--output", "out", "--overwrite"]) == 0
    text = capsys.readouterr().out
    for start in ("GPU-hours", "nodes ", "instances ", "failures", "retries"):
        assert f"\n{start}" in text


def test_what_is_read_is_written_and_read_again(twin: Path) -> None:
    config = load_config(twin, allows_cluster=True)
    twin.write_text(dump_config(config))
    assert load_config(twin, allows_cluster=True).cluster == config.cluster


REFUSED: dict[str, tuple[str, str]] = {
    "autoscaler: {policy: target, max_instances: 2}": (
        "cluster.autoscaler.target",
        "got None with policy target, expected a number",
    ),
    "autoscaler: {}": ("cluster.autoscaler.max_instances", "got nothing, expected an integer >= 1"),
    "autoscaler: {max_instance: 2}": ("cluster.autoscaler.max_instance", "did you mean"),
    "autoscaler: {policy: schedule, schedule: [{at_us: 5}]}": (
        "cluster.autoscaler.schedule[0].instances",
        "got nothing",
    ),
    "autoscaler: {max_instances: 2, min_instances: 0}": (
        "cluster.autoscaler.min_instances",
        "got 0 without flow_control",
    ),
    "failures: {schedule: [{at_us: 1, instance: 3}]}": (
        "cluster.failures.schedule.instance",
        "got 3, expected a number below 1",
    ),
    "retries: {on: [refused]}": ("cluster.retries.on", "got 'refused', expected some of rejected"),
    "node_pools: [{gpus_per_node: 4}]": ("cluster.node_pools[0].name", "got nothing"),
    "gpus_per_instance: 16\n  node_pools: [{name: a}]": (
        "cluster.gpus_per_instance",
        "got 16, expected at most the 8 GPUs",
    ),
}


@pytest.mark.parametrize("cluster", REFUSED)
def test_what_cannot_be_is_refused_in_one_line(cluster: str, twin: Path) -> None:
    twin.write_text(TWIN.partition("  instances")[0] + f"  {cluster}\n")
    with pytest.raises(ConfigError) as error:
        load_config(twin, allows_cluster=True)
    where, what = REFUSED[cluster]
    assert str(error.value).startswith(f"{where}: ")
    assert what in str(error.value)
    assert "\n" not in str(error.value)
