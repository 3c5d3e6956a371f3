"""A fleet's answer says where its engines work beyond what their twin was fitted on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import vtwin

TWIN = """\
vllm_version: "0.24.0"
engine: {max_num_seqs: 64, max_num_batched_tokens: 2048, num_gpu_blocks: 8000, max_model_len: 8192}
hardware: {gpu: GPU}
latency:
  model: blackbox
  coefficients: {alpha0: 9000, alpha1: 1, alpha2: 0, beta0: 6000, beta1: 20, beta2: 30}
  fitted_range:
    {rate_per_s: [1, RATE], prompt_tokens: [10, PROMPTS], output_tokens: [1, 4000], concurrency: [1, RUNNING]}
  fitted_on: {model: m, gpu: H100, tp: 1, vllm_version: "0.24.0"}
"""


def notes(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    *,
    gpu: str,
    rate: int,
    prompts: int,
    running: int = 64,
    words: str = "size --rate 10 --no-verify",
) -> list[str]:
    (tmp_path / "cdf.json").write_text("[[1024, 0.5], [2048, 0.9], [4096, 1.0]]")
    text = TWIN.replace("GPU", gpu).replace("RATE", str(rate)).replace("PROMPTS", str(prompts))
    (tmp_path / "twin.yaml").write_text(text.replace("RUNNING", str(running)))
    (tmp_path / "pools.yaml").write_text("pools: [{name: all, profile: twin.yaml}]")
    asked = ["fleet", *words.split(), "--workload", str(tmp_path / "cdf.json"), "--slo", "ttft_p99=900ms"]
    if "pools" not in words:
        asked += ["--profile", str(tmp_path / "twin.yaml")]
    assert vtwin.main([*asked, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["notes"]
    return [each for each in found if "the fit" in each or "fitted" in each]


def test_lengths_rates_and_the_server_are_held_against_the_fit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = notes(tmp_path, capsys, gpu="H200", rate=2, prompts=1000)
    assert told[0] == "twin: outside what the twin was fitted on: GPU H200, fitted on H100"
    assert told[1].startswith("twin: extrapolated beyond the fit: prompts by a factor 3.1 (")
    assert told[2].startswith("twin: extrapolated beyond the fit, on each engine: load by a factor ")
    assert len(told) == 3


def test_inside_of_the_fit_nothing_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert notes(tmp_path, capsys, gpu="H100", rate=20, prompts=4000) == []


@pytest.mark.parametrize(
    "words",
    [
        "size --rate 10 --no-verify",
        "size --rate 10 --num-requests 1000",
        "size --rate 5,10",
        "size --rate 10 --layout split",
        "size --rate 10 --layout disagg --no-verify",
        "size pools.yaml --rate 10 --no-verify",
        "routers --rate 10 --split 1100 --no-verify --num-requests 1000",
        "flex --rate 10",
        "reserve --diurnal 10:5 --burst-price 3",
    ],
)
def test_every_fleet_question_says_by_one_rule_that_engines_run_more_at_once_than_the_fit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    told = notes(tmp_path, capsys, gpu="H100", rate=20, prompts=4000, running=2, words=words)
    (beyond,) = (each for each in told if each.startswith("twin: extrapolated"))
    assert ": concurrency by a factor " in beyond
    assert beyond.endswith(" running, fitted up to 2)")
    assert notes(tmp_path, capsys, gpu="H100", rate=20, prompts=4000, words=words) == []
