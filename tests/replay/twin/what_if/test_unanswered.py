"""What a twin cannot answer is told wherever a setting can be given: run, capacity, sweep, tune, their JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import vtwin
from replay.tuning.candidates import candidates_of
from replay.twin.config_read import load_config
from replay.twin.keys.overlay import parse_settings, variants_of
from traces import ConfigError

FITTED = """\
engine:
  {max_num_seqs: 16, max_num_batched_tokens: 256, num_gpu_blocks: 400, max_model_len: 300, async_scheduling: false}
latency:
  model: extended
  coefficients: {alpha0: 500, alpha1: 2, alpha2: 0, beta0: 3000, beta1: 10, beta2: 20, beta3: 0.01}
hardware: H100
"""
PHYSICS = """\
engine: {max_num_seqs: 16, max_model_len: 2048}
latency: {model: physics, model_config: Qwen/Qwen3-0.6B}
hardware: {gpu: H100}
"""
LOAD = ("--rate", "40", "--num-requests", "30", "--prompt-tokens", "40", "--output-tokens", "9")
GRAPHS = "engine.max_cudagraph_capture_size"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fitted.yaml").write_text(FITTED)
    (tmp_path / "physics.yaml").write_text(PHYSICS)
    return tmp_path


def unanswered(file: str, *texts: str) -> list[tuple[str, ...]]:
    """Return the keys without an answer of each variant."""
    return [
        load_config(file, settings=settings).unanswered_keys
        for settings in variants_of(parse_settings(texts))
    ]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("text", "of_fitted", "of_physics"),
    [
        ("hardware.gpu=L40S,H100", ["hardware.gpu", ""], ["", ""]),
        ("hardware.gpu=h100-sxm", [""], [""]),
        ("hardware={gpu: L40S}", ["hardware.gpu"], [""]),
        ("latency.kv_cache_dtype=fp8,auto", ["latency.kv_cache_dtype", ""], ["", ""]),
        ("latency.model_config=Qwen/Qwen3-1.7B", ["latency.model_config"], [""]),
        ("latency.dtype=float32", ["latency.dtype"], [""]),
        ("hardware.tp=2,1", ["hardware.tp", ""], ["", ""]),
        ("hardware.gpu_memory_utilization=0.5", ["hardware.gpu_memory_utilization"], [""]),
        ("latency.table=t.json", ["latency.table"], ["latency.table"]),
        ("engine.num_gpu_blocks=200", [""], [""]),
        ("engine.max_num_seqs=4", [""], [""]),
        ("latency.coefficients.alpha0=5", [""], [""]),
        ("seed=3", [""], [""]),
        ("engine.max_cudagraph_capture_size=64", [GRAPHS], [""]),
        ("engine.kv_offload_threshold=0.5", ["engine.kv_offload_threshold"], ["engine.kv_offload_threshold"]),
        ("cluster.instances=2", [""], [""]),
    ],
)  # fmt: skip
def test_what_has_no_answer_depends_on_the_twin(
    text: str, of_fitted: list[str], of_physics: list[str]
) -> None:
    for file, expected in (("fitted.yaml", of_fitted), ("physics.yaml", of_physics)):
        assert unanswered(file, text) == [(key,) if key else () for key in expected]


@pytest.mark.usefixtures("folder")
def test_drafts_that_cost_nothing_are_no_answer_until_somebody_says_what_they_cost() -> None:
    drafts = ("engine.num_speculative_tokens=3", "engine.synthetic_acceptance_rates=[0.6]")
    for file in ("fitted.yaml", "physics.yaml"):
        assert unanswered(file, *drafts) == [("engine.num_speculative_tokens",)]
        assert unanswered(file, *drafts, "engine.draft_us=50") == [()]
        assert unanswered(file, *drafts, "engine.draft_us=0") == [()]
    (twin,) = [load_config("fitted.yaml", settings=each) for each in variants_of(parse_settings(drafts))]
    assert "draft_us is not given" in twin.notes[-1]


def test_drafts_of_the_file_itself_are_told_where_nothing_was_measured(folder: Path) -> None:
    said = "engine: {num_speculative_tokens: 3, synthetic_acceptance_rates: [0.6], "
    for file, is_told in (("physics.yaml", True), ("fitted.yaml", False)):
        path = folder / file
        path.write_text(path.read_text().replace("engine: {", said))
        assert any("draft_us" in note for note in load_config(path).notes) is is_told


@pytest.mark.usefixtures("folder")
def test_a_pool_s_own_hardware_is_judged_by_its_own_step_times(folder: Path) -> None:
    physics = "latency: {model: physics, model_config: Qwen/Qwen3-0.6B}"
    pools = f"cluster: {{pools: [{{name: a, instances: 1}}, {{name: b, instances: 1, {physics}}}]}}\n"
    (folder / "fitted.yaml").write_text(FITTED + pools)
    assert unanswered("fitted.yaml", "cluster.pools[0].hardware.gpu=L40S") == [("hardware.gpu",)]
    assert unanswered("fitted.yaml", "cluster.pools[1].hardware.gpu=L40S") == [()]


def test_peak_times_that_are_written_out_leave_the_hardware_unread(folder: Path) -> None:
    peak = (
        "{matmul: 0.01, weights: 100, head_matmul: 0.01, head_weights: 10, prefill_pair: 0.001, decode_entry: 0.001, "
        "kv_entry: 0.001, kv_write: 0.001, activation: 0.001, num_layers: 3}"
    )
    path = folder / "physics.yaml"
    path.write_text(PHYSICS.replace("0.6B}", f"0.6B, peak: {peak}}}"))
    assert unanswered("physics.yaml", "hardware.gpu=L40S") == [("hardware.gpu",)]


@pytest.mark.usefixtures("folder")
def test_run_stars_the_variant_and_json_has_the_key_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["run", "--config", "fitted.yaml", *LOAD, "--set", "hardware.gpu=L40S,H100"]
    assert vtwin.main(command) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].split() == ["gpu", "L40S", "*", "H100"]
    assert any(line.startswith("* no answer here") and "hardware.gpu" in line for line in out)
    assert vtwin.main([*command, "--json"]) == 0
    found: Any = json.loads(capsys.readouterr().out)["variants"]
    assert [[each["key"] for each in one["unanswered"]] for one in found] == [["hardware.gpu"], []]
    assert "coefficients" in found[0]["unanswered"][0]["reason"]
    assert vtwin.main([*command[:-1], "hardware.gpu=L40S", "--json"]) == 0
    assert [each["key"] for each in json.loads(capsys.readouterr().out)["unanswered"]] == ["hardware.gpu"]


@pytest.mark.usefixtures("folder")
def test_capacity_says_it_too(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["capacity", "--config", "fitted.yaml", "--slo", "ttft_p99=200ms", "--num-requests", "60"]
    lengths = ["--prompt-tokens", "40", "--output-tokens", "9"]
    assert vtwin.main([*command, *lengths, "--set", "hardware.tp=1,2"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0].split() == ["tp", "1", "2", "*"]
    assert "* no answer here" in out
    assert vtwin.main([*command, *lengths, "--set", "hardware.tp=2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["unanswered"][0]["key"] == "hardware.tp"
    assert vtwin.main([*command, *lengths, "--set", "hardware.tp=2"]) == 0
    assert capsys.readouterr().out.startswith("*           no answer here to hardware.tp")


def test_a_sweep_s_rows_have_it_and_its_front_leaves_such_settings_out(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "grid.yaml").write_text(
        "config: fitted.yaml\nset: {hardware.gpu: [L40S, H100], engine.max_num_seqs: [2, 16]}\n"
        "workloads: {a: {rate: 40, num_requests: 30, prompt_tokens: 40, output_tokens: 9}}\n"
    )
    command = ["sweep", "grid.yaml", "--jobs", "1", "--output", "t.parquet", "--report", "t.html"]
    assert vtwin.main(command) == 0
    table = pd.read_parquet("t.parquet")
    is_told = dict(zip(table["hardware.gpu"], table["unanswered"].fillna(""), strict=True))
    assert is_told == {"L40S": "hardware.gpu", "H100": ""}
    out = capsys.readouterr().out
    assert "no answer here to hardware.gpu: 2 of 4 settings are left out" in out
    assert "L40S" not in out
    assert "no answer here to hardware.gpu" in (folder / "t.html").read_text()


@pytest.mark.usefixtures("folder")
def test_tune_tries_no_server_that_it_cannot_judge() -> None:
    found = candidates_of(Path("fitted.yaml"), None, ["hardware.gpu=L40S,H100", "engine.max_num_seqs=8,16"])
    assert found.unanswered
    assert all("gpu=L40S" in name for name, _ in found.unanswered)
    assert {each.twin.num_gpus.get("H100") for each in found.tried} == {1}
    axes = ["hardware.gpu=L40S,H100", "engine.max_num_seqs=16", "engine.max_num_batched_tokens=256"]
    with pytest.raises(ConfigError, match=r"hardware\.gpu: no answer here"):
        candidates_of(Path("fitted.yaml"), None, [*axes, "engine.enable_chunked_prefill=true"])
