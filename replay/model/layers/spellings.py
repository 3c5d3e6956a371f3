"""Fields as transformers writes them, in the spelling of the models' own files: a file saved again reads the same.

The classes that do it are transformers' ``configuration_*.py`` of each model type (5.17).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from replay.model.config_json import ModelFields
from replay.model.layers.older_spellings import (
    bloom,
    dbrx,
    falcon,
    gpt,
    hunyuan_moe,
    jamba,
    longcat,
    mamba,
    mamba2,
    mpt,
)

LINEAR, FULL, SLIDING = "linear_attention", "full_attention", "sliding_attention"
NEMOTRON_BLOCKS = {LINEAR: "mamba", FULL: "attention"}
RATIOS = {"heavily_compressed_attention": 128, "compressed_sparse_attention": 4, SLIDING: 0}

Fields = Mapping[str, object]


def respelled(text: ModelFields, model_type: str) -> ModelFields:
    """Return the fields, those of the model's own file added where only transformers' are there."""
    spell = SPELLINGS.get(model_type)
    return text if spell is None else text.completed(spell(text))


def _kimi(text: ModelFields) -> Fields:
    kinds = text.texts("layer_types")
    if not kinds or "linear_attn_config" in text:
        return {}
    return {
        "linear_attn_config": {
            "kda_layers": [number + 1 for number, kind in enumerate(kinds) if kind == LINEAR],
            "num_heads": text.needed("linear_num_heads"),
            "head_dim": text.needed("linear_head_dim"),
            "short_conv_kernel_size": text.needed("linear_conv_kernel_dim"),
        }
    }


def _mimo(text: ModelFields) -> Fields:
    found: dict[str, object] = {}
    if "hybrid_layer_pattern" not in text and "layer_types" in text:
        found["hybrid_layer_pattern"] = [int(kind == SLIDING) for kind in text.texts("layer_types")]
        found["swa_num_key_value_heads"] = 2 * text.needed("num_key_value_heads")  # modeling_mimo_v2_flash.py
    if "moe_layer_freq" not in text and "mlp_layer_types" in text:
        found["moe_layer_freq"] = [int(kind == "sparse") for kind in text.texts("mlp_layer_types")]
    return found


def _deepseek_v4(text: ModelFields) -> Fields:
    kinds = text.texts("layer_types")
    if not kinds or "compress_ratios" in text or any(kind not in RATIOS for kind in kinds):
        return {}
    hashed = sum(kind == "hash_moe" for kind in text.texts("mlp_layer_types"))
    return {"compress_ratios": [RATIOS[kind] for kind in kinds], "num_hash_layers": hashed}


SPELLINGS: Mapping[str, Callable[[ModelFields], Fields]] = {
    "kimi_linear": _kimi,
    "mimo_v2_flash": _mimo,
    "deepseek_v4": _deepseek_v4,
    "gpt2": gpt,
    "gptj": gpt,
    "gpt_bigcode": gpt,
    "bloom": bloom,
    "falcon": falcon,
    "dbrx": dbrx,
    "mpt": mpt,
    "hunyuan_v1_moe": hunyuan_moe,
    "mamba": mamba,
    "falcon_mamba": mamba,
    "mamba2": mamba2,
    "jamba": jamba,
    "longcat_flash": longcat,
}
"""By model type."""
