"""Scaling, nodes, failures and retries from TWIN.yaml to the JSON, the trace and the terminal."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replay import load_config
from replay.cluster.lives import down_us, num_at, spans_up, spans_with_gpus
from replay.simulation.one_server_page import waits_told
from replay.timeline.watch_engine import Usage
from replay.twin.config_write import dump_config
from sim.cluster.infrastructure.instance_lives import Life
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


def test_a_fleet_s_page_draws_its_size_with_every_change_and_says_what_it_cost(
    twin: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    load = ["--rate", "40", "--num-requests", "600", "--prompt-tokens", "200", "--output-tokens", "40"]
    queue = ["--set", "cluster.flow_control={detector: concurrency, max_concurrency: 4}"]
    assert main(["run", "--config", str(twin), *load, *queue, "--json", "--report", "page.html"]) == 0
    found, page = json.loads(capsys.readouterr().out), Path("page.html").read_text()
    parts, retries = found["infrastructure"], found["retries"]
    dots = {
        name: drawn.count("h0") for name, drawn in re.findall(r'class="dots (size-\w+)" d="([^"]*)"', page)
    }
    assert dots == {"size-scaled": len(parts["scaling"]), "size-failed": 1}
    assert f'<dt>GPU-hours</dt><dd class="value">{parts["gpu_hours"]:.4g}</dd>' in page
    assert f"cost {parts['cost']:,.2f}" in page
    assert f"{retries['num_requests_retried']:,} requests sent again" in page
    assert f"1, down {parts['down_frac']:.1%} of the time" in page
    assert "<dt>gateway&#39;s queue</dt>" in page
    assert "Waiting in the gateway&#39;s queue" in page
    up, most = found["over_time"]["fleet"], parts["pools"][0]["instances_most"]
    assert max(up["num_running"]) <= 8 * most
    heights = re.findall(r"[HV]([\d.]+)", re.findall(r'class="line size-up" d="([^"]*)"', page)[0])
    assert len(heights) >= 2 * (most - 1)


@pytest.mark.parametrize(
    ("most_waiting", "said"), [(1, "Hardly any request waits"), (390, "up to 390 at a time")]
)
def test_a_page_does_not_call_a_burst_that_waits_hardly_any_request(most_waiting: int, said: str) -> None:
    waiting = np.zeros(400)
    waiting[7] = most_waiting
    usage = Usage(
        time_us=np.arange(400.0),
        running=np.full(400, 60.0),
        waiting=waiting,
        kv_frac=None,
        num_seats=64,
        waits_for="none",
    )
    assert said in waits_told(usage)


def test_what_is_read_is_written_and_read_again(twin: Path) -> None:
    config = load_config(twin)
    twin.write_text(dump_config(config))
    assert load_config(twin).cluster == config.cluster


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
        load_config(twin)
    where, what = REFUSED[cluster]
    assert str(error.value).startswith(f"{where}: ")
    assert what in str(error.value)
    assert "\n" not in str(error.value)


@given(st.integers(0, 1 << 30))
def test_an_instance_is_up_or_down_from_when_it_is_ready_until_it_is_gone(seed: int) -> None:
    rng = np.random.default_rng(seed)
    edges = np.sort(rng.integers(0, 1000, 2 * int(rng.integers(0, 4)) + 1)).tolist()
    ready_us, downs = edges[0], list(zip(edges[1::2], edges[2::2], strict=True))
    if downs and rng.random() < 0.5:
        downs[-1] = (downs[-1][0], None)
    stopped_us = int(rng.integers(edges[-1], 1200)) if rng.random() < 0.6 else None
    life = Life(
        instance=0,
        pool=0,
        num_gpus=1,
        ordered_us=0,
        placed_us=0,
        ready_us=ready_us,
        stopped_us=stopped_us,
        downs=downs,
    )
    end_us = 1500
    spans = spans_up(life, end_us)
    up_us = sum(end - start for start, end in spans)
    gone_us = end_us if stopped_us is None else stopped_us
    assert up_us + down_us(life, end_us) == gone_us - ready_us
    moments = np.arange(0.0, 1500.0)
    assert num_at(spans, moments).sum() == up_us
    assert num_at(spans_with_gpus(life, end_us), moments).sum() == gone_us


def test_an_instance_that_is_scaled_in_while_it_is_down_is_down_no_longer() -> None:
    life = Life(
        instance=0,
        pool=0,
        num_gpus=1,
        ordered_us=0,
        placed_us=0,
        ready_us=0,
        stopped_us=700,
        downs=[(600, None)],
    )
    assert down_us(life, 10_000) == 100


SHRINKS = """
engine: {max_num_seqs: 8, num_gpu_blocks: 400, max_model_len: 4096}
latency: {model: blackbox, coefficients: {alpha0: 500, alpha1: 0, alpha2: 3, beta0: 6000, beta1: 20, beta2: 30}}
cluster:
  instances: 2
  autoscaler:
    policy: schedule
    max_instances: 4
    interval_us: 500000
    schedule: [{at_us: 0, instances: 2}, {at_us: 3000000, instances: 1}, {at_us: 900000000, instances: 4}]
  failures: {schedule: [{at_us: 2000000, instance: 1, down_us: 60000000}]}
"""


def test_down_time_and_fairness_are_of_the_instances_that_were_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "twin.yaml"
    path.write_text(SHRINKS)
    load = ["--rate", "20", "--num-requests", "300", "--prompt-tokens", "50", "--output-tokens", "10"]
    assert main(["run", "--config", str(path), *load, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    gpu_s = 3600 * found["infrastructure"]["gpu_hours"]
    assert found["infrastructure"]["num_failures"] == 1
    assert found["infrastructure"]["down_frac"] == pytest.approx(1.0 / gpu_s, rel=1e-3)
    counts = np.array([each["num_requests"] for each in found["instances"]], float)
    assert (counts > 0).tolist() == [True, True, False, False]
    of_counts = counts.sum() ** 2 / (2 * (counts**2).sum())
    assert of_counts < 0.6  # one of them was there for a part of the time
    assert 0.9 < found["jain_fairness"] < 1


def test_a_cost_of_which_a_part_is_unknown_is_none_and_says_what_has_no_price(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "two.yaml"
    start = TWIN[: TWIN.index("cluster:")]
    path.write_text(
        start + "cluster: {pools: [{name: a, instances: 1, cost_per_gpu_hour: 3}, {name: b, instances: 1}]}\n"
    )
    load = ["--config", str(path), "--rate", "40", "--num-requests", "20", "--prompt-tokens", "50"]
    assert main(["run", *load, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["infrastructure"]
    assert found["cost"] is None
    assert found["unpriced"] == ["pool b"]
    assert found["pools"][0]["cost"] > 0
    assert main(["run", *load]) == 0
    assert "cost unknown: no price for pool b" in capsys.readouterr().out


def test_one_wave_waits_for_nothing_and_goes_to_a_cluster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "two.yaml"
    path.write_text(TWIN[: TWIN.index("cluster:")] + "cluster: {instances: 2}\n")
    load = ["--config", str(path), "--batch", "30", "--prompt-tokens", "50", "--output-tokens", "5"]
    found = []
    for more in (["--waves", "1"], ["--waves", "2"]):
        assert main(["run", *load, *more, "--json"]) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert found[0]["num_by_status"] == {"ok": 30}
    assert found[0]["ttft_us"]["p50"] == found[1]["ttft_us"]["p50"]
