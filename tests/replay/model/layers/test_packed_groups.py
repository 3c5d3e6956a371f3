"""DeepSeek-V4's groups and blocks, against vLLM's own answers (``packed_groups.json``).

Asked of vllm 0.32.0's ``get_kv_cache_groups``, layout BLHNC, with the caches that models/deepseek_v4 makes for each
layer: first V4-Pro's layers and V4-Flash's, then ratios drawn with a seed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from replay.model.config_json import ModelFields
from replay.model.gpu_memory import Serving, dealt_of
from replay.model.hf_config import read_model_config, shape_from
from replay.model.shape import ModelShape
from traces import ConfigError
from traces.strict.section import read_json_section

RECORDED: list[dict[str, Any]] = json.loads(Path(__file__).with_name("packed_groups.json").read_text())
CONFIG: dict[str, Any] = {
    "model_type": "deepseek_v4",
    "hidden_size": 7168,
    "vocab_size": 129280,
    "max_position_embeddings": 65536,
    "num_attention_heads": 128,
    "num_key_value_heads": 1,
    "head_dim": 512,
    "qk_rope_head_dim": 64,
    "q_lora_rank": 1536,
    "o_lora_rank": 1024,
    "o_groups": 16,
    "index_n_heads": 64,
    "index_head_dim": 128,
    "index_topk": 1024,
    "sliding_window": 128,
    "hc_mult": 4,
    "n_routed_experts": 384,
    "num_experts_per_tok": 6,
    "moe_intermediate_size": 3072,
    "n_shared_experts": 1,
    "quantization_config": {"quant_method": "fp8"},
}


def shape_of(tmp_path: Path, ratios: list[int], **changed: str | int) -> ModelShape:
    path = tmp_path / "config.json"
    path.write_text(
        json.dumps(CONFIG | {"num_hidden_layers": len(ratios), "compress_ratios": ratios} | changed)
    )
    return shape_from(ModelFields(read_json_section(path, expected="a config.json")), name="V4")


@pytest.mark.parametrize("number", range(len(RECORDED)))
def test_groups_and_blocks_are_those_of_vllm(tmp_path: Path, number: int) -> None:
    case = RECORDED[number]
    found = dealt_of(shape_of(tmp_path, case["compress_ratios"]), tp=8, serving=Serving())
    assert [
        [each.group.kind, each.group.window, each.group.block_size or 256, each.num_layers, each.block_bytes]
        for each in found.groups
    ] == case["groups"]
    assert (found.bytes_per_block, found.block_size) == (case["bytes_per_block"], 256)


def test_the_published_number_of_parameters(tmp_path: Path) -> None:
    """1.6 trillion parameters, of which a token passes 49 billion, as DeepSeek says of V4-Pro."""
    shape = shape_of(tmp_path, RECORDED[0]["compress_ratios"])
    assert shape.num_parameters() / 1e12 == pytest.approx(1.6, rel=0.02)
    assert shape.num_active_parameters() / 1e9 == pytest.approx(49, rel=0.01)


def test_a_million_tokens_take_what_deepseek_says(tmp_path: Path) -> None:
    """9.62 GiB in 16 bits, entries and keys of the index, windows left out."""
    shape = shape_of(tmp_path, RECORDED[0]["compress_ratios"])
    values = sum(
        each.num_layers
        * (each.attention.entries_per_token(1) + (each.indexer.head_dim if each.indexer else 0))
        / each.tokens_per_entry
        for each in shape.mixers
        if each.attention
    )
    assert 2 * values * 2**20 / 2**30 == pytest.approx(9.62, abs=0.005)


def test_experts_are_of_four_bits_unless_the_file_says_fp8(tmp_path: Path) -> None:
    assert shape_of(tmp_path, [4, 128]).expert_precision.name == "mxfp4"
    assert shape_of(tmp_path, [4, 128], expert_dtype="fp8").expert_precision.name == "fp8"
    assert shape_of(tmp_path, [4, 128], expert_dtype="fp8").kv_dtype_bytes == 1


def test_other_ratios_and_too_few_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="compress_ratios: got 8, expected ratios of 0, 1, 4 or 128"):
        shape_of(tmp_path, [4, 8])
    for strange in ("²", "4", 4.0, None):
        with pytest.raises(ConfigError, match=r"compress_ratios: got .*, expected ratios of 0, 1, 4 or 128"):
            shape_of(tmp_path, [4, strange])  # type: ignore[list-item] # what a file may have
    with pytest.raises(ConfigError, match="qk_rope_head_dim: got 512, expected a part of head_dim, 512"):
        shape_of(tmp_path, [4], qk_rope_head_dim=512)
    with pytest.raises(
        ConfigError, match="compress_ratios: got 1 ratios, expected 0, 4 or 128 of each of 2 layers"
    ):
        shape_of(tmp_path, [4], num_hidden_layers=2)


def test_one_group_of_all_is_refused(tmp_path: Path) -> None:
    serving = Serving(disable_hybrid_kv_cache_manager=True)
    with pytest.raises(ConfigError, match="disable_hybrid_kv_cache_manager: got true for V4, expected false"):
        dealt_of(shape_of(tmp_path, [4, 128]), tp=1, serving=serving)


def test_a_cache_in_16_bits_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG | {"num_hidden_layers": 2, "compress_ratios": [4, 128]}))
    with pytest.raises(ConfigError, match="'deepseek_v4' with a KV cache in bfloat16, expected fp8 or auto"):
        read_model_config(path, kv_cache_dtype="bfloat16")
