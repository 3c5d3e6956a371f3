"""What a twin was fitted on comes back from its file, and every answer says where a question's server is another."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from replay.twin.config_read import load_config
from replay.twin.config_write import dump_config
from replay.twin.fitted import AskedServer, FittedLoad, FittedOn, outside_note, ways_out
from traces import ConfigError

TWIN = """\
vllm_version: "0.24.0"
engine: {max_num_seqs: 64, max_num_batched_tokens: 2048, num_gpu_blocks: 4000, max_model_len: 8192}
hardware: {gpu: H100}
latency:
  model: blackbox
  model_config: meta-llama/Llama-3.1-8B
  coefficients: {alpha0: 9000, alpha1: 1, alpha2: 0, beta0: 6000, beta1: 20, beta2: 30}
"""
ON = FittedOn(
    model="meta-llama/Llama-3.1-8B",
    gpu="H100",
    num_gpus=1,
    tp=1,
    vllm_version="0.24.0",
    flags={"max_num_seqs": 64, "max_num_batched_tokens": 2048, "async_scheduling": True, "dtype": "auto"},
    noise={"e2e": 0.03},
    loads=(FittedLoad(name="a: b", role="held out", num_requests=9, rate_per_s=1.5, e2e=0.02),),
)


def written(tmp_path: Path, on: FittedOn = ON, *, text: str = TWIN) -> Path:
    path = tmp_path / "twin.yaml"
    path.write_text(text + "\n".join(on.lines()) + "\n")
    return path


def test_it_comes_back_from_a_file_and_from_what_a_fit_writes(tmp_path: Path) -> None:
    twin = load_config(written(tmp_path))
    assert twin.fitted_on == ON
    assert twin.notes == ()
    again = tmp_path / "again.yaml"
    again.write_text(dump_config(twin))
    assert load_config(again).fitted_on == ON
    assert load_config(again) == twin


def test_a_twin_without_it_reads_as_before(tmp_path: Path) -> None:
    path = tmp_path / "twin.yaml"
    path.write_text(TWIN)
    twin = load_config(path)
    assert (twin.fitted_on, twin.outside_server) == (None, None)
    assert FittedOn().lines() == []


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("hardware.gpu=H200", "GPU H200, fitted on H100"),
        ("hardware.tp=2", "tp 2, fitted on 1"),
        ("vllm_version=0.32.0", "vLLM 0.32.0, fitted on 0.24.0"),
        ("latency.model_config=Qwen/Qwen3-8B", "model Qwen/Qwen3-8B, fitted on meta-llama/Llama-3.1-8B"),
        ("engine.async_scheduling=false", "async_scheduling false, fitted with true"),
        ("latency.dtype=float16", "dtype float16, fitted with auto"),
        (
            "engine.max_num_batched_tokens=8192",
            "steps of up to 8192 tokens (max_num_batched_tokens), fitted with 2048",
        ),
    ],
)
def test_another_server_is_told_before_every_answer(tmp_path: Path, setting: str, told: str) -> None:
    twin = load_config(written(tmp_path), settings=[setting])
    assert twin.notes[0] == f"outside what the twin was fitted on: {told}"


@pytest.mark.parametrize(
    "setting",
    [
        "hardware.gpu=H100-SXM",
        "vllm_version=0.24.1",
        "engine.max_num_seqs=512",
        "engine.num_gpu_blocks=9000",
        "engine.max_num_batched_tokens=1024",
        "engine.max_num_batched_tokens=2100",
        "latency.dtype=auto",
    ],
)
def test_what_the_engine_simulates_and_other_spellings_stay_inside(tmp_path: Path, setting: str) -> None:
    assert load_config(written(tmp_path), settings=[setting]).outside_server is None


def test_a_server_that_is_changed_in_code_is_seen_too(tmp_path: Path) -> None:
    twin = load_config(written(tmp_path))
    other = replace(twin, engine=replace(twin.engine, async_scheduling=False))
    assert (
        other.outside_server
        == "outside what the twin was fitted on: async_scheduling false, fitted with true"
    )


def test_what_the_file_does_not_tell_leaves_a_question_but_warns_of_no_run() -> None:
    untold, asked = FittedOn(model="m"), AskedServer(model="org/m", gpu="H100", vllm_version="0.24.0")
    assert ways_out(untold, asked) == [
        "GPU H100: the file does not say which GPU it was fitted on",
        "vLLM 0.24.0: the file does not say which vLLM it was fitted on",
    ]
    assert outside_note(untold, asked) is None
    assert outside_note(None, asked) is None


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("    tp: 0", "latency.fitted_on.tp: got 0, expected an integer >= 1"),
        ("    flags: {max_seqs: 1}", "latency.fitted_on.flags.max_seqs: unknown key"),
        ("    noise: {e2e: -1}", "latency.fitted_on.noise.e2e: got -1, expected a number >= 0"),
        (
            "    loads: [{role: fitted}]",
            "latency.fitted_on.loads[0].name: got nothing, expected the run's name",
        ),
        (
            "    loads: [{name: a, role: true}]",
            "latency.fitted_on.loads[0].role: got true, expected one of fitted, held out, half",
        ),
        (
            "    loads: [{name: a, role: other}]",
            "latency.fitted_on.loads[0].role: got other, expected one of",
        ),
        ("    loads: 3", "latency.fitted_on.loads: got 3, expected a list"),
    ],
)
def test_a_broken_one_is_refused_in_a_line(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "twin.yaml"
    path.write_text(f"{TWIN}  fitted_on:\n{line}\n")
    with pytest.raises(ConfigError) as error:
        load_config(path)
    assert message in str(error.value).replace('"', "")
