"""What a step takes at the peak follows from the model's and the GPU's published numbers."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import vtwin
from replay.model import expected_coefficients, find_gpu, read_model_config
from replay.model.model_peak import peak_times
from sim import Extended

MODELS = (
    "meta-llama/Llama-3.1-8B",
    "openai/gpt-oss-120b",
    "deepseek-ai/DeepSeek-V3",
    "Qwen/Qwen3-235B-A22B-FP8",
)


def test_a_dense_model_in_16_bits_saturates_where_compute_and_bandwidth_meet() -> None:
    gpu = find_gpu("H100")
    at_peak = peak_times(read_model_config("meta-llama/Llama-2-70b-hf"), gpu, tp=4)
    ridge = gpu.flops_per_us("16bit") / gpu.bytes_per_us()
    assert at_peak.saturation_batch() == math.ceil(ridge)
    assert at_peak.matmul + at_peak.head_matmul == pytest.approx(2 * 68.71e9 / 4 / 989.4e6, rel=1e-3)
    assert at_peak.weights + at_peak.head_weights == pytest.approx(2 * 68.71e9 / 4 / 3352e3, rel=1e-3)


def test_a_step_touches_as_many_experts_as_drawing_them_would() -> None:
    at_peak = peak_times(read_model_config("Qwen/Qwen3-30B-A3B-Instruct-2507"), find_gpu("H100"))
    rng = np.random.default_rng(1)
    for tokens in (1, 7, 40):
        drawn = [
            len({e for _ in range(tokens) for e in rng.choice(128, 8, replace=False)}) / 128
            for _ in range(200)
        ]
        assert at_peak.experts_touched_frac_of(tokens) == pytest.approx(np.mean(drawn), rel=0.02)
    assert at_peak.experts_touched_frac_of(1) == pytest.approx(8 / 128)


@pytest.mark.parametrize("model", MODELS)
def test_more_gpus_take_no_longer_for_anything_but_talking(model: str) -> None:
    one, eight = (peak_times(read_model_config(model), find_gpu("H200"), tp=tp) for tp in (1, 8))
    for name in (
        "matmul",
        "weights",
        "expert_matmul",
        "expert_weights",
        "prefill_pair",
        "decode_entry",
        "kv_entry",
    ):
        assert getattr(eight, name) <= getattr(one, name)
    assert one.all_reduce == 0 < eight.all_reduce


@pytest.mark.parametrize("model", MODELS)
def test_priors_are_coefficients_that_extended_takes(model: str) -> None:
    priors = expected_coefficients(read_model_config(model), find_gpu("H200"), tp=8)
    assert set(priors) == {"floor", "beta1", "beta3", "beta4"}
    Extended(**{name: prior.value for name, prior in priors.items()})
    for prior in priors.values():
        assert prior.value > 0
        assert 0 < prior.relative_width <= 2
        assert model in prior.source


def test_priors_of_a_known_server_are_near_what_was_fitted_to_it() -> None:
    priors = expected_coefficients(read_model_config("meta-llama/Llama-3.1-8B"), find_gpu("RTX4090"))
    assert priors["beta1"].value == pytest.approx(2 * 6.98e9 / (165.2e6 * 0.65), rel=0.01)
    assert priors["floor"].value == pytest.approx(15.0e9 / (1008e3 * 0.8), rel=0.01)


def test_model_info_prints_weights_blocks_and_the_roofline(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["model", "info", "--model-config", "Llama-2-70b-hf", "--gpu", "H100", "--tp", "4"]
    limits = ["--max-num-batched-tokens", "2048", "--max-num-seqs", "256"]
    assert vtwin.main([*asked, "--vllm-version", "0.15.1", *limits]) == 0
    printed = capsys.readouterr().out
    for text in (
        "69.0 B parameters",
        "32.12 GiB",
        "80.0 KiB",
        "31,381 of 16 tokens",
        "B_sat",
        "296 tokens",
        "*",
    ):
        assert text in printed
    assert vtwin.main([*asked, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["saturation_batch_size"] == 296
    assert said["priors"]["beta1"]["value"] > 0


def test_model_info_refuses_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert vtwin.main(["model", "info", "--model-config", "Llama-2-70b-hf", "--gpu", "H1000"]) == 2
    assert "nearest: H100" in capsys.readouterr().err
