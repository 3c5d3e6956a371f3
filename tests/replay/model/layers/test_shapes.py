"""What the layers of known config.json files are read as, whole, beside what was read before (``shapes.jsonl``).

The numbers' own oracles are elsewhere: parameters and caches of vLLM's models (``families.json``), published sizes.
This says which of a model's numbers a change has moved.
``python -m tests.replay.model.layers.test_shapes`` writes it anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from replay.model import ModelShape, read_model_config
from replay.model.layers.drafter import mtp_drafter
from replay.model.layers.groups_of_layers import cached_layers, dealt
from tests.replay.model.layers.test_kinds_of_layers import changed
from tests.replay.model.test_families import RECORDED, name_of, shape_of

KNOWN = Path(__file__).with_name("shapes.jsonl")
OF_LAYERS = (
    *("experts", "num_moe_layers", "num_plain_mlps", "plain_width", "other_parameters", "lookup_parameters"),
    *("residual_streams", "not_timed", "left_out", "mixers", "mtp", "audio_parameters"),
)
SHIPPED = (
    *(
        "Qwen3.5-397B-A17B",
        "MiMo-V2-Flash",
        "DeepSeek-V3",
        "DeepSeek-V3.2",
        "DeepSeek-V4-Pro",
        "gemma-2-2b-it",
    ),
    *(
        "gemma-3-4b-it",
        "gemma-4-26B-A4B",
        "Llama-4-Scout-17B-16E-Instruct",
        "DeepSeek-V4-Flash-NVFP4",
        "gpt-oss-20b",
    ),
    *("NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16", "Step-3.7-Flash"),
    *("Nemotron-H-56B-Base-8K", "GLM-5", "GLM-5.2"),
)


V3, V4, FLASH, MIMO, NANO, GEMMA4, STEP = (
    "deepseek-ai/DeepSeek-V3",
    "deepseek-ai/DeepSeek-V4-Pro",
    "nvidia/DeepSeek-V4-Flash-NVFP4",
    "XiaomiMiMo/MiMo-V2-Flash",
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
    "google/gemma-4-26B-A4B",
    "stepfun-ai/Step-3.7-Flash",
)
KIMI_HEADS = {"kda_layers": [1, 2, 3, 5], "num_heads": 8, "head_dim": 64}
NAS_HEADS = {"n_heads_in_group": 4}
OTHERWISE: tuple[tuple[str, tuple[str, ...], dict[str, object]], ...] = (
    (V4, ("hc_mult",), {"num_hash_layers": 3}),
    (FLASH, (), {"num_hidden_layers": 4, "compress_ratios": [0, 1, 4, 128]}),
    (V3, (), {"num_nextn_predict_layers": 2, "first_k_dense_replace": 0}),
    (MIMO, ("swa_head_dim", "swa_v_head_dim", "swa_num_attention_heads"), {"num_nextn_predict_layers": 2}),
    (GEMMA4, ("enable_moe_block", "num_global_key_value_heads", "global_head_dim"), {}),
    (GEMMA4, (), {"num_kv_shared_layers": 6, "use_double_wide_mlp": True, "hidden_size_per_layer_input": 32}),
    (GEMMA4, (), {"attention_k_eq_v": False, "enable_moe_block": True}),
    ("qwen3_next", ("layer_types", "linear_conv_kernel_dim"), {"full_attention_interval": 3}),
    ("qwen3_next", ("layer_types",), {"attn_output_gate": False, "mamba_ssm_dtype": "float32"}),
    (NANO, ("conv_kernel",), {"moe_latent_size": 512, "mamba_ssm_cache_dtype": "bfloat16"}),
    (V3 + ".2", ("q_lora_rank",), {}),
    (V3 + ".2", (), {"index_topk_freq": 4, "index_skip_topk_offset": 3}),
    ("kimi_linear", ("layer_types",), {"linear_attn_config": KIMI_HEADS, "mla_use_output_gate": True}),
    (
        "kimi_linear",
        ("layer_types",),
        {
            "linear_attn_config": KIMI_HEADS | {"use_full_rank_gate": True, "gate_lower_bound": -5},
            "routed_expert_hidden_size": 512,
            "first_k_dense_replace": 2,
        },
    ),
    (STEP, (), {"use_head_wise_attn_gate": True, "num_sliding_attention_heads": 96}),
    (
        STEP,
        (),
        {
            "attention_other_setting": {
                "num_attention_heads": 96,
                "num_attention_groups": 4,
                "attention_type": "full_attention",
            }
        },
    ),
    (STEP, ("first_k_dense_replace",), {"moe_layers_enum": "3, 4,5 7 45"}),
    (
        "llama",
        (),
        {
            "model_type": "nemotron-nas",
            "num_hidden_layers": 3,
            "hidden_size": 1000,
            "num_attention_heads": 8,
            "head_dim": 128,
            "block_configs": [
                {"attention": NAS_HEADS, "ffn": {"ffn_mult": 2.625}},
                {"attention": {"no_op": True}, "ffn": {"ffn_mult": 1.3}},
                {"attention": {"n_heads_in_group": 8}, "ffn": {"no_op": True}},
                {"attention": NAS_HEADS, "ffn": {"ffn_mult": 1.0}},
            ],
        },
    ),
    ("longcat_flash", (), {"n_routed_experts": 100, "zero_expert_num": 200, "moe_topk": 1}),
    ("longcat_flash", ("zero_expert_num",), {}),
    ("llama", (), {"model_type": "qwen", "intermediate_size": 1001}),
    ("gpt2", (), {"n_inner": 1000}),
    ("gpt_bigcode", (), {"multi_query": False}),
    ("bloom", ("n_layer",), {"num_hidden_layers": 3}),
    ("falcon", (), {"new_decoder_architecture": False, "multi_query": False}),
    ("falcon", (), {"new_decoder_architecture": False, "multi_query": True}),
    ("falcon", (), {"new_decoder_architecture": True, "num_kv_heads": 4}),
    ("dbrx", ("attn_config",), {}),
    ("mpt", ("expansion_ratio",), {"attn_config": {"kv_n_heads": 2}}),
    ("mpt", ("attn_config",), {"expansion_ratio": 3}),
    ("hunyuan_v1_moe", ("moe_intermediate_size",), {"moe_topk": [2] * 40, "num_shared_expert": 0}),
    ("mamba", ("intermediate_size",), {"expand": 3, "time_step_rank": 7}),
    ("mamba", ("intermediate_size", "expand"), {"time_step_rank": "auto", "hidden_size": 1001}),
    ("jamba", (), {"num_experts": 1, "num_experts_per_tok": 1, "mamba_dt_rank": 9}),
    ("jamba", ("attn_layer_offset", "expert_layer_offset", "mamba_expand"), {"mamba_dt_rank": "auto"}),
    ("zamba2", (), {"adapter_rank": 16, "use_shared_attention_adapter": True, "num_mem_blocks": 3}),
    ("zamba2", ("attention_head_dim", "attention_hidden_size", "mamba_expand", "num_mem_blocks"), {}),
    ("zamba2", (), {"layers_block_type": ["hybrid", "mamba", "hybrid"] * 18, "adapter_rank": 5}),
    ("falcon_h1", ("mamba_d_ssm",), {"mamba_expand": 3}),
    ("granitemoehybrid", ("mamba_expand",), {"num_local_experts": 0, "shared_intermediate_size": 1000}),
    ("lfm2", (), {"block_ffn_dim_multiplier": 1.3, "block_multiple_of": 100, "intermediate_size": 1000}),
    ("lfm2", ("block_ffn_dim_multiplier", "block_multiple_of"), {"conv_dim": 100}),
    ("lfm2", (), {"block_auto_adjust_ff_dim": False, "layer_types": ["conv", "full_attention"] * 20}),
    ("qwen3_moe", (), {"decoder_sparse_step": 3, "mlp_only_layers": [2, 8]}),
    ("ernie4_5_moe", (), {"moe_layer_start_index": 2, "moe_layer_end_index": 3, "moe_layer_interval": 1}),
    ("deepseek_v3", (), {"moe_layer_freq": 2, "first_k_dense_replace": 1}),
    ("afmoe", ("layer_types", "global_attn_every_n_layers"), {}),
    ("afmoe", ("layer_types",), {"global_attn_every_n_layers": 3, "use_attn_output_gate": False}),
    (
        "laguna",
        ("layer_types", "mlp_layer_types"),
        {"gating": "per-head", "num_attention_heads_per_layer": None},
    ),
    ("laguna", (), {"gating": False}),
    ("muse_glimmer_text", ("layer_types",), {"no_rope_layers": [1] * 60}),
    ("cohere2_moe", ("layer_types",), {"first_k_dense_replace": 3, "prefix_dense_sliding_window_pattern": 2}),
    ("cohere2_moe", ("layer_types",), {"sliding_window_pattern": 3}),
    ("HuggingFaceTB/SmolLM3-3B", ("layer_types",), {"use_sliding_window": True, "sliding_window": 512}),
    (
        "HuggingFaceTB/SmolLM3-3B",
        ("layer_types", "no_rope_layers"),
        {"use_sliding_window": True, "sliding_window": 512},
    ),
    ("minimax_m3_vl_text", (), {"moe_layer_freq": [0, 1, 1] * 30}),
)
"""Models whose file says it otherwise: the model, fields that are not there, and others."""


def told(value: Any) -> Any:  # noqa: ANN401 - any field of a shape
    """Return a value as JSON has it, fields that are as by default left out."""
    if is_dataclass(value):
        known = {each.name: (getattr(value, each.name), each.default) for each in fields(value)}
        return {name: told(own) for name, (own, usual) in known.items() if own != usual}
    return [told(each) for each in value] if isinstance(value, list | tuple) else value


def layers_of(shape: ModelShape) -> dict[str, Any]:
    found = told(shape)
    return {key: found[key] for key in OF_LAYERS if key in found}


def line_of(name: str, shape: ModelShape) -> dict[str, Any]:
    drafter = mtp_drafter(shape)
    drafts = {} if drafter is None else {"a draft of 2 GPUs": layers_of(drafter.one_draft(2))}
    return {"model": name, **layers_of(shape), **drafts, **kept_of(shape)}


def kept_of(shape: ModelShape) -> dict[str, Any]:
    """Return what layers of several kinds keep on one of two GPUs, those that draft behind them, and their groups."""
    if shape.is_compressed or (len(shape.mixers) == 1 and shape.mtp is None):
        return {}
    drafting = () if shape.mtp is None else (shape.mtp.mixer,)
    kept = cached_layers(shape, tp=2, num_lookahead=len(drafting), appended=drafting)
    groups = dealt(kept, block_size=16)
    return {"kept": told(kept), "block_size": groups.block_size, "groups": told(groups.groups)}


def read_again() -> Iterator[dict[str, Any]]:
    with TemporaryDirectory() as folder:
        for case in RECORDED:
            yield line_of(name_of(case), shape_of(case, Path(folder)))
        for name, without, fields_of in OTHERWISE:
            yield line_of(f"{name} otherwise", changed(Path(folder), name, without=without, **fields_of))
    for name in SHIPPED:
        yield line_of(name, read_model_config(name))


def test_layers_are_read_as_before() -> None:
    known = [json.loads(line) for line in KNOWN.read_text().splitlines()]
    for before, now in zip(known, read_again(), strict=True):
        assert json.loads(json.dumps(now)) == before


if __name__ == "__main__":
    KNOWN.write_text("".join(json.dumps(each) + "\n" for each in read_again()))
