"""What a run says of operators and of the second KV tier, and how a server's own settings of it are read."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import vtwin
from replay.twin.config_read import load_config
from replay.twin.start.from_serve import start_from_serve, twin_text
from replay.twin.twin_config import TwinConfig
from traces import Header, make_trace, read_trace, write_trace
from traces.errors import ConfigError

ROOFLINE = """\
engine: {max_num_seqs: 8, max_num_batched_tokens: 2048, num_gpu_blocks: 150, ENGINE}
hardware: {gpu: H100, HARDWARE}
latency: {model: roofline, model_config: Qwen/Qwen3-8B}
"""
BLACKBOX = """\
engine: {max_num_seqs: 8}
latency: {model: blackbox, coefficients: {alpha0: 0, alpha1: 0, alpha2: 0, beta0: 5000, beta1: 1, beta2: 1}}
"""
PER_TOKEN = 36 * 2 * 8 * 128 * 2  # layers, keys and values, heads, width, bytes


def loaded(folder: Path, *, engine: str = "block_size: 16", hardware: str = "tp: 1") -> TwinConfig:
    (folder / "twin.yaml").write_text(ROOFLINE.replace("ENGINE", engine).replace("HARDWARE", hardware))
    return load_config(folder / "twin.yaml")


def again_and_again() -> None:
    """Write a trace of three prefixes that come back in turn and do not fit together."""
    n = 12
    columns = {
        "request_id": [str(i) for i in range(n)],
        "arrival_time_us": np.arange(n) * 3_000_000,
        "input_tokens": [16] * n,
        "output_tokens": [4] * n,
        "prefix_group": [f"g{i % 3}" for i in range(n)],
        "prefix_length": [1600] * n,
    }
    write_trace(make_trace(Header(mode="generated"), columns), "w")


def shown(capsys: pytest.CaptureFixture[str], *options: str) -> str:
    capsys.readouterr()
    assert vtwin.main(["replay", "w", "--config", "twin.yaml", "--output", "s", "--overwrite", *options]) == 0
    return capsys.readouterr().out


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


# the second tier


def test_a_size_in_gib_and_a_rate_in_gb_per_s_are_the_engines_blocks_and_tokens(tmp_path: Path) -> None:
    blis = "kv_offloading: blis"
    twin = loaded(tmp_path, engine=blis, hardware="kv_offloading_size: 4, kv_offload_gb_per_s: 50")
    assert twin.engine.num_cpu_blocks == 4 * 2**30 // (PER_TOKEN * 16)
    assert twin.engine.kv_transfer_bandwidth == pytest.approx(50e3 / PER_TOKEN)
    assert twin.engine.kv_offload_threshold == 0.0
    # of both GPUs together: as many blocks, each GPU moves half of one
    two = loaded(tmp_path, engine=blis, hardware="tp: 2, kv_offloading_size: 4, kv_offload_gb_per_s: 50")
    assert two.engine.num_cpu_blocks == twin.engine.num_cpu_blocks
    assert two.engine.kv_transfer_bandwidth == pytest.approx(2 * twin.engine.kv_transfer_bandwidth)
    kept = loaded(tmp_path, engine="kv_offload_threshold: 0.5", hardware="kv_offloading_size: 4")
    assert kept.engine.kv_offload_threshold == 0.5
    assert any("25 GB/s to each GPU (assumed: kv_offload_gb_per_s)" in note for note in kept.notes)


def test_the_rules_are_vllm_s_own_where_they_can_be_had(tmp_path: Path) -> None:
    size = "kv_offloading_size: 4, kv_offload_gb_per_s: 50"
    twin = loaded(tmp_path, hardware=size)
    assert twin.engine.kv_offloading == "native"
    assert twin.engine.kv_load_us_per_block == pytest.approx(PER_TOKEN * 16 / 50e3)
    assert any("as vLLM does it" in note for note in twin.notes)
    of_peer = loaded(tmp_path, engine="kv_offload_threshold: 0.5", hardware=size)
    assert of_peer.engine.kv_offloading == "blis"
    with pytest.raises(
        ConfigError, match="native cannot be combined with pipeline_parallel_size 2, expected 1"
    ):
        loaded(tmp_path, engine="kv_offloading: native, pipeline_parallel_size: 2", hardware=size)


@pytest.mark.parametrize(
    ("engine", "hardware", "message"),
    [
        ("num_cpu_blocks: 7", "kv_offloading_size: 4", "cannot be combined with engine.num_cpu_blocks"),
        ("block_size: 16", "kv_offloading_size: 0.0001", "expected at least one block of"),
        (
            "block_size: 16",
            "kv_offloading_size: -1",
            "kv_offloading_size: got -1, expected a number of GiB >= 0",
        ),
    ],
)
def test_a_tier_that_cannot_be_is_refused(tmp_path: Path, engine: str, hardware: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        loaded(tmp_path, engine=engine, hardware=hardware)


def test_a_size_of_0_is_no_tier(tmp_path: Path) -> None:
    assert loaded(tmp_path, hardware="kv_offloading_size: 0").engine.num_cpu_blocks == 0


def test_a_tier_without_a_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "twin.yaml").write_text(f"hardware: {{gpu: H100, kv_offloading_size: 4}}\n{BLACKBOX}")
    with pytest.raises(ConfigError, match="got no latency"):
        load_config(tmp_path / "twin.yaml")


def test_the_flag_of_a_server_is_the_twins(tmp_path: Path) -> None:
    start = start_from_serve("vllm serve Qwen/Qwen3-8B --kv-offloading-size 4 --num-gpu-blocks-override 100")
    (tmp_path / "twin.yaml").write_text(twin_text(start, gpu="H100")[0])
    assert load_config(tmp_path / "twin.yaml").engine.num_cpu_blocks == 4 * 2**30 // (PER_TOKEN * 16)


def test_what_left_and_came_back_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    again_and_again()
    loaded(tmp_path, hardware="kv_offloading_size: 4")
    document = json.loads(shown(capsys, "--json"))
    tier = document["kv_offload"]
    assert min(tier["num_offloaded_blocks"], tier["num_reloaded_blocks"]) > 0
    assert tier["hit_frac"] == pytest.approx(tier["num_reloaded_blocks"] * 16 / (12 * 1616))
    assert tier["loaded_bytes"] == tier["num_reloaded_blocks"] * 16 * PER_TOKEN
    rows = read_trace(tmp_path / "s")
    loaded_tokens = rows.cells("num_loaded_tokens").floats()
    assert loaded_tokens.sum() == tier["num_reloaded_blocks"] * 16
    assert rows.cells("kv_load_us").floats().sum() == tier["load_wait_us"]
    assert set(rows.cells("cached_from").known()) == {"cpu"}
    assert any("blocks in host memory" in line for line in document["warnings"])
    assert "KV offload  " in shown(capsys)
    loaded(tmp_path)
    without = json.loads(shown(capsys, "--json"))
    assert without["kv_offload"] is None
    assert without["ttft_us"]["mean"] > document["ttft_us"]["mean"]


# operators


def test_the_operators_of_a_run_add_up_to_its_steps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    again_and_again()
    loaded(tmp_path)
    plain = json.loads(shown(capsys, "--json"))
    document = json.loads(shown(capsys, "--json", "--operator-times", "--steps", "steps.jsonl"))
    assert plain.pop("operator_times") is None
    times = document.pop("operator_times")
    assert {**plain, "engine_cpu_s": 0} == {**document, "engine_cpu_s": 0}
    steps = [json.loads(line) for line in Path("steps.jsonl").read_text().splitlines()]
    assert times["step_time_us"] == sum(step["dur"] for step in steps)
    total = sum(each["us"] for each in times["by_operator"].values()) + times["rest_us"]
    assert total == pytest.approx(times["step_time_us"], abs=0.01)
    assert abs(times["rest_us"]) < len(steps)  # rounding alone
    assert times["by_instance"] is None
    for step in steps:
        assert sum(step["operators"].values()) == pytest.approx(step["dur"], abs=0.001)
        assert abs(step["operators"]["rest"]) <= 1  # rounding alone
    for name, took in times["by_operator"].items():
        of_steps = sum(step["operators"].get(name, 0.0) for step in steps)
        assert of_steps == pytest.approx(took["us"], abs=0.001 * len(steps))
    assert "prefill_attention" in shown(capsys, "--operator-times")


POOLS = """\
  pools:
    - {name: p, role: prefill, instances: 2}
    - {name: d, role: decode, instances: 1, hardware: {gpu: A100-80}}
  disaggregation: {decider: always}
"""


@pytest.mark.parametrize("cluster", ["  instances: 3\n", POOLS])
def test_the_operators_of_a_cluster_are_the_sum_of_its_instances(
    cluster: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    again_and_again()
    (tmp_path / "twin.yaml").write_text(
        ROOFLINE.replace("ENGINE", "block_size: 16").replace("HARDWARE", "tp: 1") + "cluster:\n" + cluster
    )
    document = json.loads(shown(capsys, "--json", "--operator-times", "--steps", "steps.jsonl"))
    times = document["operator_times"]
    steps = [json.loads(line) for line in Path("steps.jsonl").read_text().splitlines()]
    assert len(times["by_instance"]) == 3
    assert {step["instance"] for step in steps} == set(times["by_instance"])
    for name, each in times["by_instance"].items():
        own = [step for step in steps if step["instance"] == name]
        assert each["step_time_us"] == sum(step["dur"] for step in own) > 0
        told = sum(took["us"] for took in each["by_operator"].values()) + each["rest_us"]
        assert told == pytest.approx(each["step_time_us"], abs=0.01)
        assert abs(each["rest_us"]) <= len(own)
        for step in own:
            assert sum(step["operators"].values()) == pytest.approx(step["dur"], abs=0.001)
    for name, took in times["by_operator"].items():
        of_each = [each["by_operator"].get(name, {"us": 0.0})["us"] for each in times["by_instance"].values()]
        assert took["us"] == pytest.approx(sum(of_each), abs=0.01)
    assert times["step_time_us"] == sum(each["step_time_us"] for each in times["by_instance"].values())
    (head,) = [line for line in shown(capsys, "--operator-times").splitlines() if "operator" in line]
    assert all(name in head for name in times["by_instance"])


def test_the_means_of_steps_are_those_of_the_steps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of one server and of three; no percentile is above the budget of tokens."""
    again_and_again()
    loaded(tmp_path)
    for more in ((), ("--set", "cluster.instances=3")):
        document = json.loads(shown(capsys, "--json", "--steps", "steps.jsonl", *more))
        found = document["steps"]
        steps = [json.loads(line) for line in Path("steps.jsonl").read_text().splitlines()]
        busy = [step for step in steps if step["sched"]]
        assert found["num_seqs"]["mean"] == pytest.approx(np.mean([len(step["sched"]) for step in busy]))
        assert found["num_prefill_tokens_mean"] == pytest.approx(np.mean([step["P"] for step in busy]))
        assert found["num_decode_tokens_mean"] == pytest.approx(np.mean([step["D"] for step in busy]))
        tokens = [step["P"] + step["D"] for step in busy]
        assert found["num_tokens"]["mean"] == pytest.approx(np.mean(tokens))
        assert found["duration_us"]["mean"] == pytest.approx(np.mean([step["dur"] for step in busy]))
        assert found["num_tokens"]["p99"] <= found["num_tokens"]["max"] <= max(tokens) <= 2048
        for name in ("ttft_us", "tpot_us", "e2e_us"):
            assert document[name]["min"] <= document[name]["p50"] <= document[name]["max"]
            assert document[name]["n"] == 12


def test_a_model_without_operators_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    again_and_again()
    Path("twin.yaml").write_text(BLACKBOX)
    assert vtwin.main(["replay", "w", "--config", "twin.yaml", "--output", "s", "--operator-times"]) == 2
    assert (
        "--operator-times: got latency model blackbox, expected roofline, physics" in capsys.readouterr().err
    )
