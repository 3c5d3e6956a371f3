"""``--quantization`` of a checkpoint in 16 bits: what vLLM cuts as it loads, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from replay.model.gpu_memory import weight_bytes
from replay.model.hf_config import read_model_config
from replay.twin.config_read import load_config
from traces import ConfigError

DENSE, EXPERTS, FP8_FILE = "Qwen/Qwen3-32B", "Qwen/Qwen3-30B-A3B", "Qwen/Qwen3-235B-A22B-FP8"


@pytest.mark.parametrize(
    ("method", "kept"),
    [
        ("fp8_per_tensor", ("fp8", "fp8", "fp8")),
        ("mxfp8", ("mxfp8", "mxfp8", "mxfp8")),
        ("int8_per_channel_weight_only", ("bfloat16", "bfloat16", "int8")),
        ("nvfp4_per_token", ("bfloat16", "bfloat16", "nvfp4")),
    ],
)
def test_each_method_cuts_the_products_that_it_is_for(method: str, kept: tuple[str, str, str]) -> None:
    shape = read_model_config(EXPERTS, quantization=method)
    parts = (shape.attention_precision, shape.mlp_precision, shape.expert_precision)
    assert tuple(str(part) for part in parts) == kept


def test_products_are_halved_and_the_embedding_and_the_head_are_not() -> None:
    plain, cut = read_model_config(DENSE), read_model_config(DENSE, quantization="fp8_per_tensor")
    wide = 2.0 * plain.vocab_size * plain.hidden_size * 2
    assert weight_bytes(cut, tp=1) == pytest.approx((weight_bytes(plain, tp=1) + wide) / 2, rel=1e-3)


def test_a_quantized_file_takes_its_own_method_and_no_other() -> None:
    assert read_model_config(FP8_FILE, quantization="fp8") == read_model_config(FP8_FILE)
    with pytest.raises(
        ConfigError, match=r"^quantization: got 'mxfp8', expected auto or 'fp8', the quant_method"
    ):
        read_model_config(FP8_FILE, quantization="mxfp8")
    with pytest.raises(
        ConfigError, match=r"^quantization: got 'awq', expected auto, or of a checkpoint in 16 bits"
    ):
        read_model_config(DENSE, quantization="awq")


def test_fp8_is_taken_up_to_030_and_then_has_another_name(tmp_path: Path) -> None:
    path = tmp_path / "twin.yaml"
    text = "hardware: {gpu: H200, tp: TP}\nlatency: {model: auto, model_config: MODEL, quantization: fp8}\n"
    path.write_text('vllm_version: "0.30.0"\n' + text.replace("MODEL", DENSE).replace("TP", "1"))
    found = load_config(path)
    path.write_text(path.read_text().replace(", quantization: fp8", ""))
    assert found.engine.num_gpu_blocks > 1.3 * load_config(path).engine.num_gpu_blocks
    path.write_text(text.replace("MODEL", FP8_FILE).replace("TP", "4"))
    load_config(path)
    path.write_text(text.replace("MODEL", DENSE).replace("TP", "1"))
    with pytest.raises(ConfigError, match=r"latency\.quantization: got fp8 .*expected fp8_per_tensor"):
        load_config(path)


def test_methods_are_compared_by_their_whole_names_and_by_what_vllm_also_calls_them() -> None:
    with pytest.raises(ConfigError, match=r"^quantization: got 'fp8_per_block', expected auto or 'fp8'"):
        read_model_config(FP8_FILE, quantization="fp8_per_block")
    experts = "openai/gpt-oss-120b"
    assert read_model_config(experts, quantization="gpt_oss_mxfp4") == read_model_config(experts)
