"""Fields as transformers writes them, in the spelling of the models' own files: a file saved again reads the same.

The classes that do it are transformers' ``configuration_*.py`` of each model type (5.17).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from replay.model.config_json import ModelFields

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


def _gpt2(text: ModelFields) -> Fields:
    """GPT-2's own names (configuration_gpt2.py: attribute_map); an MLP is four times as wide as the rest."""
    hidden = text.needed("n_embd", "hidden_size")
    return {
        "hidden_size": hidden,
        "num_hidden_layers": text.needed("n_layer", "num_hidden_layers"),
        "num_attention_heads": text.needed("n_head", "num_attention_heads"),
        "max_position_embeddings": text.needed("n_positions", "max_position_embeddings"),
        "intermediate_size": text.integer("n_inner") or 4 * hidden,
    }


SPELLINGS: Mapping[str, Callable[[ModelFields], Fields]] = {
    "kimi_linear": _kimi,
    "mimo_v2_flash": _mimo,
    "deepseek_v4": _deepseek_v4,
    "gpt2": _gpt2,
}
"""By model type."""
