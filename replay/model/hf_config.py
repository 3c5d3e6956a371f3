"""A Hugging Face config.json as a ``ModelShape``: attention, MLP, experts, windows, precisions."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from replay.model.config_json import ModelFields, read_model_fields
from replay.model.quantization import read_quantization
from replay.model.shape import Attention, Experts, ModelShape, Precision
from traces.errors import ConfigError

SHIPPED = Path(__file__).with_name("configs")

Windows = Literal["field", "flag", "alternate", "pattern", "chunked"]
"""Where the windowed layers are said when ``layer_types`` is absent: a ``sliding_window`` is for all layers (field),
only with ``use_sliding_window`` (flag), for every second (alternate), for all but every n-th (pattern), or is called
``attention_chunk_size`` and spares the layers without rotary embedding (chunked)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """What a ``model_type`` says that its config.json does not."""

    is_gated: bool = True
    is_tied: bool = False
    windows: Windows = "field"
    has_shared_expert: bool = False


FAMILIES: Mapping[str, Family] = {
    "llama": Family(),
    "mistral": Family(),
    "qwen2": Family(windows="flag"),
    "qwen3": Family(windows="flag"),
    "granite": Family(),
    "phi3": Family(),
    "smollm3": Family(windows="flag", is_tied=True),
    "olmo2": Family(),
    "glm4": Family(),
    "internlm2": Family(),
    "cohere": Family(is_tied=True),
    "cohere2": Family(is_tied=True, windows="pattern"),
    "gemma": Family(is_tied=True),
    "gemma2": Family(is_tied=True, windows="alternate"),
    "gemma3_text": Family(is_tied=True, windows="pattern"),
    "starcoder2": Family(is_gated=False, is_tied=True),
    "gpt_neox": Family(is_gated=False),
    "mixtral": Family(),
    "qwen2_moe": Family(windows="flag"),
    "qwen3_moe": Family(windows="flag"),
    "olmoe": Family(),
    "phimoe": Family(),
    "granitemoe": Family(),
    "gpt_oss": Family(windows="alternate"),
    "minimax_m2": Family(),
    "glm4_moe": Family(),
    "deepseek_v2": Family(),
    "deepseek_v3": Family(),
    "kimi_k2": Family(),
    "llama4_text": Family(windows="chunked", has_shared_expert=True),
}
"""Architectures that are understood. State-space and linear-attention layers are not: their state does not grow with
the context, which neither the KV capacity nor the roofline here knows."""

SAME_ARCHITECTURE: Mapping[str, str] = {
    "meta-llama/Llama-3.1-8B-Instruct": "meta-llama/Llama-3.1-8B",
    "meta-llama/Meta-Llama-3.1-8B-Instruct": "meta-llama/Llama-3.1-8B",
    "meta-llama/Meta-Llama-3.1-8B": "meta-llama/Llama-3.1-8B",
    "meta-llama/Llama-3.1-70B-Instruct": "meta-llama/Llama-3.1-70B",
    "meta-llama/Meta-Llama-3.1-70B-Instruct": "meta-llama/Llama-3.1-70B",
    "meta-llama/Meta-Llama-3.1-70B": "meta-llama/Llama-3.1-70B",
    "meta-llama/Llama-3.3-70B-Instruct": "meta-llama/Llama-3.1-70B",
    "meta-llama/Llama-2-7b-chat-hf": "meta-llama/Llama-2-7b-hf",
    "meta-llama/Llama-2-70b-chat-hf": "meta-llama/Llama-2-70b-hf",
    "mistralai/Mixtral-8x7B-v0.1": "mistralai/Mixtral-8x7B-Instruct-v0.1",
    "deepseek-ai/DeepSeek-R1": "deepseek-ai/DeepSeek-V3",
}
"""Models that differ from one that ships in their weights' values only: tuned for chats, or under an earlier name."""

DTYPE_BYTES: Mapping[str, int] = {"bfloat16": 2, "float16": 2, "float32": 4}
FULL_LAYER, WINDOWED_LAYERS = "full_attention", ("sliding_attention", "chunked_attention")


def read_model_config(path: str | Path, *, kv_cache_dtype: str = "auto", dtype: str = "auto") -> ModelShape:
    """Return the model that a config.json describes, or one that ships with vtwin by its Hugging Face name.

    ``kv_cache_dtype`` and ``dtype`` as vLLM's flags: auto takes what the checkpoint says. Raises ConfigError, one line
    that names the file, the field and the nearest thing that would do.
    """
    file = Path(path)
    if not file.is_file():
        file = shipped_config(str(path)) or file
    if not file.is_file():
        known = shipped_models()
        near = difflib.get_close_matches(str(path), known, n=3, cutoff=0.6)
        names = f"nearest: {', '.join(near)}" if near else f"there are: {', '.join(known)}"
        hint = f", or a model that ships ({names})"
        raise ConfigError(f"model config: got nothing at {path}, expected a Hugging Face config.json{hint}")
    return shape_from(read_model_fields(file), name=_name(file), kv_cache_dtype=kv_cache_dtype, dtype=dtype)


def shipped_models() -> list[str]:
    """Return the Hugging Face names of the models whose config.json ships."""
    return sorted(_name(file) for file in SHIPPED.glob("*.json"))


def shipped_config(name: str) -> Path | None:
    """Return the file of a model that ships, by its name with or without its organisation, letter case aside.

    A model of the same architecture (``SAME_ARCHITECTURE``) finds it, too.
    """
    wanted = name.lower()
    for other, base in SAME_ARCHITECTURE.items():
        if wanted in (other.lower(), other.lower().split("/")[-1]):
            wanted = base.lower()
    for file in sorted(SHIPPED.glob("*.json")):
        full = _name(file).lower()
        if wanted in (full, full.split("/")[-1]):
            return file
    return None


def shape_from(
    fields: ModelFields, *, name: str, kv_cache_dtype: str = "auto", dtype: str = "auto"
) -> ModelShape:
    """Return the shape that the fields of a config.json describe."""
    text = fields.mapping("text_config") or fields  # a multimodal model: its language model
    model_type = text.text("model_type") or ""
    family = FAMILIES.get(model_type)
    if family is None:
        text.fail(
            "model_type",
            got=repr(model_type),
            expected="an architecture that is known, or latency.model blackbox with coefficients",
            nearest=FAMILIES,
        )
    dtype = _dtype(text, fields, asked=dtype)
    plain = Precision(name=dtype, bytes_per_weight=DTYPE_BYTES[dtype], matmul="16bit")
    quantized = read_quantization(text if "quantization_config" in text else fields, dtype=plain)
    num_layers = text.needed("num_hidden_layers")
    num_moe_layers, experts = _experts(text, family, num_layers=num_layers)
    num_windowed, window = _windows(text, family, num_layers=num_layers)
    tied = fields.flag("tie_word_embeddings") if text is not fields else None
    tied = text.flag("tie_word_embeddings") if text.flag("tie_word_embeddings") is not None else tied
    has_fp8_kv = kv_cache_dtype.startswith("fp8") or (kv_cache_dtype == "auto" and quantized.has_fp8_kv_cache)
    dense_size = text.integer("intermediate_size_mlp") or text.integer("intermediate_size", "ffn_dim")
    if num_moe_layers < num_layers and not dense_size:
        dense_size = text.needed("intermediate_size")
    return ModelShape(
        name=name,
        model_type=model_type,
        hidden_size=text.needed("hidden_size"),
        num_layers=num_layers,
        vocab_size=text.needed("vocab_size"),
        max_position_embeddings=text.integer("max_position_embeddings") or 0,
        intermediate_size=dense_size or 0,
        attention=_attention(text),
        attention_precision=quantized.parts["attention"],
        mlp_precision=quantized.parts["mlp"],
        expert_precision=quantized.parts["experts"],
        dtype=dtype,
        dtype_bytes=DTYPE_BYTES[dtype],
        kv_dtype_bytes=1.0 if has_fp8_kv else float(DTYPE_BYTES[dtype]),
        is_gated=family.is_gated,
        is_tied=family.is_tied if tied is None else tied,
        num_moe_layers=num_moe_layers,
        experts=experts,
        num_windowed_layers=num_windowed,
        window=window,
    )


def _dtype(text: ModelFields, fields: ModelFields, *, asked: str) -> str:
    """Return what activations are computed in; vLLM computes float32 checkpoints in 16 bits."""
    found = (
        asked if asked != "auto" else text.text("torch_dtype", "dtype") or fields.text("torch_dtype", "dtype")
    )
    plain = (found or "bfloat16").removeprefix("torch.")
    plain = {"half": "float16", "float": "float32"}.get(plain, plain)
    if plain not in DTYPE_BYTES:
        text.fail("torch_dtype", got=repr(found), expected="a type that is known", nearest=DTYPE_BYTES)
    return "float16" if plain == "float32" and asked == "auto" else plain


def _attention(text: ModelFields) -> Attention:
    hidden, heads = text.needed("hidden_size"), text.needed("num_attention_heads")
    rank = text.integer("kv_lora_rank") or 0
    if rank:
        rope = text.needed("qk_rope_head_dim")
        return Attention(
            num_heads=heads,
            num_kv_heads=heads,
            head_dim=text.needed("qk_nope_head_dim") + rope,
            v_head_dim=text.needed("v_head_dim"),
            q_lora_rank=text.integer("q_lora_rank") or 0,
            kv_lora_rank=rank,
            rope_head_dim=rope,
        )
    head_dim = text.integer("head_dim") or hidden // heads
    kv_heads = text.integer("num_key_value_heads") or heads
    return Attention(num_heads=heads, num_kv_heads=kv_heads, head_dim=head_dim, v_head_dim=head_dim)


def _experts(text: ModelFields, family: Family, *, num_layers: int) -> tuple[int, Experts | None]:
    """Return how many layers have experts, and what they are."""
    number = text.integer("n_routed_experts", "num_local_experts", "num_experts") or 0
    if number == 0:
        return 0, None
    size = text.integer("moe_intermediate_size") or text.needed("intermediate_size")
    shared = (text.integer("n_shared_experts") or 0) * size
    shared += text.integer("shared_expert_intermediate_size", "shared_intermediate_size") or 0
    experts = Experts(
        num_experts=number,
        num_per_token=text.needed("num_experts_per_tok", "num_experts_per_token"),
        intermediate_size=size,
        shared_size=size if family.has_shared_expert else shared,
    )
    return _num_moe_layers(text, num_layers=num_layers), experts


def _num_moe_layers(text: ModelFields, *, num_layers: int) -> int:
    """Return how many layers have experts: all, or from one on, every n-th, or those not listed as plain."""
    listed = text.items("moe_layers")
    if listed:
        return len(listed)
    first = text.integer("first_k_dense_replace") or 0
    every = text.integer("moe_layer_freq", "decoder_sparse_step", "interleave_moe_layer_step") or 1
    plain = {int(str(layer)) for layer in text.items("mlp_only_layers")}
    starts_at_zero = text.integer("moe_layer_freq") is not None
    layers = (n if starts_at_zero else n + 1 for n in range(num_layers) if n >= first and n not in plain)
    return sum(number % every == 0 for number in layers)


def _windows(text: ModelFields, family: Family, *, num_layers: int) -> tuple[int, int]:
    """Return how many layers are windowed, and how many tokens the window holds."""
    window = text.integer("attention_chunk_size" if family.windows == "chunked" else "sliding_window") or 0
    kinds = text.texts("layer_types")
    for kind in kinds:
        if kind != FULL_LAYER and kind not in WINDOWED_LAYERS:
            text.fail(
                "layer_types", got=repr(kind), expected="attention", nearest=(FULL_LAYER, *WINDOWED_LAYERS)
            )
    if window == 0 or (not kinds and family.windows == "flag" and not text.flag("use_sliding_window")):
        return 0, 0
    if kinds:
        return sum(kind in WINDOWED_LAYERS for kind in kinds[:num_layers]), window
    return _num_windowed(text, family, num_layers=num_layers), window


def _num_windowed(text: ModelFields, family: Family, *, num_layers: int) -> int:
    """Return how many layers are windowed by the family's own way of saying it."""
    if family.windows == "flag":
        return num_layers - min(num_layers, text.integer("max_window_layers") or 0)
    if family.windows == "alternate":
        return (num_layers + 1) // 2
    if family.windows == "pattern":
        every = text.integer("sliding_window_pattern", "_sliding_window_pattern") or 1
        return num_layers - num_layers // every
    if family.windows == "chunked":
        rotary = text.items("no_rope_layers")
        return sum(bool(layer) for layer in rotary) if rotary else num_layers - num_layers // 4
    return num_layers


def _name(file: Path) -> str:
    """Return a model's name from its file: a shipped one's, else that of the folder it lies in."""
    if file.parent == SHIPPED:
        return file.stem.replace("--", "/")
    return file.resolve().parent.name if file.stem == "config" else file.stem
