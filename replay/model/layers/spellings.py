"""Fields as transformers writes them, in the spelling of the models' own files: a file saved again reads the same.

The classes that do it are transformers' ``configuration_*.py`` of each model type (5.17).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from replay.model.config_json import ModelFields
from replay.model.layers.layer_windows import rotary_layers
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
    qwen,
)

LINEAR, FULL, SLIDING = "linear_attention", "full_attention", "sliding_attention"
FOURTH, GEMMA_4 = 4, 6
"""One layer in so many sees everything, where a file does not say it."""
NEMOTRON_BLOCKS = {LINEAR: "mamba", FULL: "attention"}
RATIOS = {"heavily_compressed_attention": 128, "compressed_sparse_attention": 4, SLIDING: 0}

Fields = Mapping[str, object]


def respelled(text: ModelFields, model_type: str) -> ModelFields:
    """Return the fields, those of the model's own file added where only transformers' are there."""
    if model_type == "qwen":
        return text.replaced(qwen(text))
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


def _afmoe(text: ModelFields) -> Fields:
    every = text.needed("global_attn_every_n_layers") if "global_attn_every_n_layers" in text else FOURTH
    return _with_full(text, lambda n: (n + 1) % every == 0)


def _muse_glimmer(text: ModelFields) -> Fields:
    """``transformers_utils/configs/muse_glimmer.py`` of vllm 0.32.0: the last layer and every fourth before it."""
    rotary, last = text.items("no_rope_layers"), text.needed("num_hidden_layers") - 1
    if rotary and len(rotary) <= last:
        text.fail(
            "no_rope_layers", got=f"{len(rotary)} numbers", expected=f"one for each of {last + 1} layers"
        )
    return _with_full(text, lambda n: not rotary[n] if rotary else (last - n) % FOURTH == 0)


def _full_first(text: ModelFields) -> Fields:
    """Granite's and CWM's models with windows: full layers are the first and every fourth behind it."""
    return _with_full(text, lambda n: n % FOURTH == 0)


def _cohere2_moe(text: ModelFields) -> Fields:
    """Layers without experts, the first ones, have a pattern of their own."""
    first = text.integer("first_k_dense_replace") or 0
    ahead = text.integer("prefix_dense_sliding_window_pattern") or 1
    behind = text.integer("sliding_window_pattern") or FOURTH
    return _with_full(text, lambda n: (n + 1) % ahead == 0 if n < first else (n - first + 1) % behind == 0)


def _smollm3(text: ModelFields) -> Fields:
    """With ``use_sliding_window``, the layers without rotary embeddings have a window."""
    rotary = rotary_layers(text, text.needed("num_hidden_layers"))
    has_windows = text.flag("use_sliding_window") and "sliding_window" in text
    return _with_full(text, lambda n: rotary[n] or not has_windows)


def _with_full(text: ModelFields, is_full: Callable[[int], object]) -> Fields:
    """Return ``layer_types`` of windows and full layers."""
    number = text.needed("num_hidden_layers")
    return {"layer_types": [FULL if is_full(n) else SLIDING for n in range(number)]}


def _gemma(every: int) -> Callable[[ModelFields], Fields]:
    """Gemma 3n and 4: every so-many-th layer sees everything; of Gemma 4 the last one, too."""

    def spell(text: ModelFields) -> Fields:
        last = text.needed("num_hidden_layers") - 1 if every == GEMMA_4 else None
        return _with_full(text, lambda n: (n + 1) % every == 0 or n == last)

    return spell


def _granite_hybrid(text: ModelFields) -> Fields:
    """Mamba-2 in every layer."""
    return {"layer_types": [LINEAR] * text.needed("num_hidden_layers")}


def _lfm2(text: ModelFields) -> Fields:
    """``full_attn_idxs``: the layers with attention, from 0; all where it is absent."""
    number = text.needed("num_hidden_layers")
    full = text.integers("full_attn_idxs") if "full_attn_idxs" in text else range(number)
    return {"layer_types": [FULL if n in full else "conv" for n in range(number)]}


def _laguna(text: ModelFields) -> Fields:
    """Experts in every layer but the first."""
    return {"mlp_layer_types": ["dense"] + ["sparse"] * (text.needed("num_hidden_layers") - 1)}


SPELLINGS: Mapping[str, Callable[[ModelFields], Fields]] = {
    "kimi_linear": _kimi,
    "mimo_v2_flash": _mimo,
    "mimo_v2": _mimo,
    "deepseek_v4": _deepseek_v4,
    "afmoe": _afmoe,
    "muse_glimmer_text": _muse_glimmer,
    "granite_swa": _full_first,
    "granitemoe_swa": _full_first,
    "cwm": _full_first,
    "cohere2_moe": _cohere2_moe,
    "smollm3": _smollm3,
    "laguna": _laguna,
    "gemma3n_text": _gemma(5),
    "gemma4_text": _gemma(GEMMA_4),
    "gemma4_unified_text": _gemma(GEMMA_4),
    "granitemoehybrid": _granite_hybrid,
    "lfm2": _lfm2,
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
"""What reads a model's layers, by model type."""
