"""A model's layers by how they are measured, and the products of each kind in the precision that it is kept in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from replay.model import read_model_config
from replay.model.matmuls import Matmul, kinds_of_layers, needed_matmuls

GATED_NETS = "Qwen/Qwen3.5-397B-A17B"


@pytest.mark.parametrize(
    ("model", "kinds"),
    [
        ("Qwen/Qwen3-8B", [("", "heads", 36)]),
        ("openai/gpt-oss-120b", [("", "heads", 36)]),  # with a window and without, the same heads
        ("deepseek-ai/DeepSeek-V3.2", [("", "module", 61)]),
        (GATED_NETS, [("", "state", 45), ("", "heads", 15)]),
        ("google/gemma-4-26B-A4B", [("window", "heads", 25), ("full", "heads", 5)]),
        ("zai-org/GLM-5.2", [("sparse", "module", 21), ("shared_index", "module", 57)]),
        ("deepseek-ai/DeepSeek-V4-Pro", [("one_of_128", "module", 31), ("one_of_4", "module", 30)]),
    ],
)
def test_layers_that_are_measured_alike_are_one_kind(model: str, kinds: list[tuple[str, str, int]]) -> None:
    found = kinds_of_layers(read_model_config(model))
    assert [(kind.name, kind.how, kind.num_layers) for kind in found] == kinds


def products(path: str | Path, *, tp: int = 1) -> dict[str, Matmul]:
    found = needed_matmuls(read_model_config(path), tp=tp, are_modules_measured=True)
    return {each.operator: each for each in found}


def test_the_products_around_a_recurrence_are_those_of_vllm() -> None:
    """64 heads of values and 16 of keys, 128 wide each: queries, keys, values and a gate; two gates per head."""
    found = products(GATED_NETS, tp=8)
    sizes = {name: (each.n, each.k, each.count) for name, each in found.items()}
    assert sizes["state_in_proj"] == (2 * (16 + 64) * 128 // 8, 4096, 45)
    assert sizes["state_gates_proj"] == (2 * 64 // 8, 4096, 45)
    assert sizes["state_out_proj"] == (4096, 64 * 128 // 8, 45)
    assert sizes["attn_pre_proj"] == ((2 * 32 // 8 + 2) * 256, 4096, 15)  # a gate beside the queries


def test_each_product_has_its_own_precision(tmp_path: Path) -> None:
    """Of a file that keeps one layer of two in 16 bits, and the outputs of attention in all."""
    fields = json.loads(Path("replay/model/configs/Qwen--Qwen3-8B.json").read_text()) | {
        "num_hidden_layers": 2,
        "quantization_config": {
            "quant_method": "fp8",
            "modules_to_not_convert": ["model.layers.0.mlp", "re:.*o_proj"],
        },
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps(fields))
    found = products(path)
    fp8, plain = ("fp8", "fp8_block"), ("bfloat16",)
    assert found["attn_pre_proj"].mix == ((fp8, 1.0),)
    assert found["attn_post_proj"].mix == ((plain, 1.0),)
    assert sorted(found["mlp_up_proj"].mix) == [(plain, 0.5), (fp8, 0.5)]
    assert found["lm_head"].mix == ((plain, 1.0),)


def test_a_head_is_quantized_where_a_file_says_so_of_it_by_name(tmp_path: Path) -> None:
    layers = {"lm_head": {"quant_algo": "NVFP4"}, "model.layers.0.mlp.down_proj": {"quant_algo": "FP8"}}
    section = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers}
    fields = json.loads(Path("replay/model/configs/Qwen--Qwen3-8B.json").read_text())
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**fields, "quantization_config": section}))
    found = products(path)
    assert found["lm_head"].mix == ((("nvfp4", "int4_wo"), 1.0),)
    assert found["mlp_up_proj"].mix == ((("bfloat16",), 1.0),)
