"""Fitness: the weighted score of a run's figures, by the description's own numbers and as a user asks for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import vtwin
from replay.cluster.fitness import fitness, parse_weights
from traces import ConfigError

SUMMARY = {
    "request_throughput": 100.0,
    "output_token_throughput": None,
    "ttft_us": {"mean": 50_000.0, "p50": 1000.0, "p99": None},
    "e2e_us": {"mean": 1.0, "p50": 1.0, "p99": 999_000.0},
}
TWIN = """\
engine: {max_num_seqs: 8, max_num_batched_tokens: 512, num_gpu_blocks: 400, async_scheduling: false}
latency: {model: blackbox, coefficients: {alpha0: 0, alpha1: 0, alpha2: 0, beta0: 6000, beta1: 10, beta2: 20}}
"""


def test_figures_become_scores_as_the_description_says() -> None:
    """A TTFT of 50 ms is 1 / 51; a throughput as high as its reference, or a latency of 1 ms, is one half."""
    found = fitness(
        SUMMARY, {"mean_ttft": 1.0, "throughput": 2.0, "p50_ttft": 1.0, "p99_e2e": 1.0, "tokens_per_sec": 9.0}
    )
    scores = {name: term["score"] for name, term in found["terms"].items()}
    assert scores["mean_ttft"] == pytest.approx(0.0196, abs=5e-5)
    assert scores["throughput"] == scores["p50_ttft"] == 0.5
    assert scores["p99_e2e"] == pytest.approx(0.001)
    assert scores["tokens_per_sec"] == 0.0
    assert found["score"] == pytest.approx(1 / 51 + 2 * 0.5 + 0.5 + 0.001)


@pytest.mark.parametrize(
    "text", ["speed=1", "throughput", "throughput=-1", "throughput=x", "throughput=1,throughput=2"]
)
def test_what_is_no_weight_is_told(text: str) -> None:
    with pytest.raises(ConfigError, match="--fitness-weights"):
        parse_weights(text)


def test_policies_are_ranked_side_by_side_and_a_run_says_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "twin.yaml").write_text(TWIN)
    run = [
        "run",
        "--config",
        str(tmp_path / "twin.yaml"),
        "--rate",
        "20",
        "--num-requests",
        "60",
        "--output-tokens",
        "40",
    ]
    weights = ["--fitness-weights", "throughput=0.5,p99_ttft=0.5"]
    assert vtwin.main([*run, *weights, "--json"]) == 0
    alone = json.loads(capsys.readouterr().out)
    assert alone["fitness"]["terms"]["p99_ttft"]["value"] == alone["ttft_us"]["p99"]
    assert vtwin.main([*run, *weights, "--set", "engine.max_num_seqs=2,8", "--json"]) == 0
    few, many = (each["fitness"]["score"] for each in json.loads(capsys.readouterr().out)["variants"])
    assert few < many == alone["fitness"]["score"]
    assert vtwin.main([*run, *weights]) == 0
    assert "fitness     " in capsys.readouterr().out
