"""A Hugging Face config.json as a ``ModelShape``: attention, MLP, experts, windows, precisions."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from replay.model.config_json import ModelFields, read_model_fields, shown
from replay.model.context_length import max_model_len
from replay.model.families import (
    FAMILIES,
    LANGUAGE_MODELS,
    NO_SERVERS,
    NOT_MODELLED,
    TELLING_FIELDS,
    UNKNOWN_TELLING,
    WRITES_TEXT,
    Family,
)
from replay.model.kernels.latent_kernels import served_on
from replay.model.layers.hybrids import HYBRIDS
from replay.model.layers.layer_windows import windowed_layers
from replay.model.layers.mtp import mtp_layers
from replay.model.layers.read_experts import read_experts
from replay.model.layers.read_layers import Layers
from replay.model.layers.spellings import respelled
from replay.model.quantized.online import AUTO, with_online
from replay.model.quantized.quantization import Quantization, read_quantization
from replay.model.quantized.quantized_modules import Module, contents_of, modules_of
from replay.model.shape import Attention, Experts, Mixer, ModelShape, Precision
from replay.model.shipped_models import model_name, shipped_config, shipped_models
from replay.model.vision.audio_tower import AUDIO, audio_parameters
from replay.model.vision.read_tower import is_mm_prefix_lm, read_tower
from traces import ConfigError
from traces.strict.whole_file import is_a_file

DTYPE_BYTES: Mapping[str, int] = {"bfloat16": 2, "float16": 2, "float32": 4}
KV_DTYPE_BYTES: Mapping[str, float] = {
    **dict.fromkeys(("bfloat16", "float16"), 2.0),
    **dict.fromkeys(("fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc", "fp8_ds_mla"), 1.0),
    **dict.fromkeys(("nvfp4", "nvfp4_4over6"), 0.5 + 1 / 16),
}
"""Bytes of a number in the KV cache, its part of a scale included (vllm 0.32.0 config/cache.py: CacheDType)."""
DENSE_SIZES = ("intermediate_size_mlp", "dense_intermediate_size", "prefix_dense_intermediate_size")
"""Fields with the size of layers without experts, where ``intermediate_size`` is an expert's."""
QUANTIZATION = "quantization_config"
BLOCK_TYPES, PATTERN = "layers_block_type", "hybrid_override_pattern"
"""A list, or a text, that says how many layers there are, too (Nemotron 3)."""
COUNTED_BY_LIST = frozenset({"nemotron_h"})
"""Models of which transformers does not read ``num_hidden_layers`` beside it (configuration_nemotron_h.py)."""
OVERRIDES, READ_OVERRIDES = "per_layer_config", frozenset({"gemma4_text", "gemma4_unified_text"})
"""What transformers writes of layers that differ from the others, and the families in which it is read."""


def read_model_config(
    path: str | Path,
    *,
    kv_cache_dtype: str = "auto",
    mamba_ssm_cache_dtype: str = "auto",
    dtype: str = "auto",
    quantization: str = AUTO,
) -> ModelShape:
    """Return the model that a config.json describes, or one that ships with vtwin by its Hugging Face name.

    ``kv_cache_dtype``, ``mamba_ssm_cache_dtype``, ``dtype`` and ``quantization`` as vLLM's flags: auto takes what the
    checkpoint says.
    Raises ConfigError, one line that names the file, the field and the nearest thing that would do.
    """
    file = find_config(path)
    fields = read_model_fields(file)
    _refuse_no_server(fields)
    return shape_from(
        _with_quantization_beside(fields, file),
        name=model_name(file),
        kv_cache_dtype=kv_cache_dtype,
        mamba_ssm_cache_dtype=mamba_ssm_cache_dtype,
        dtype=dtype,
        quantization=quantization,
    )


def _refuse_no_server(fields: ModelFields) -> None:
    """Raise ConfigError on a model that writes no text."""
    for name in fields.texts("architectures"):
        if any(part in name for part in NO_SERVERS) and not name.endswith(WRITES_TEXT):
            fields.fail(
                "architectures",
                got=repr(name),
                expected="a model that writes text: it embeds, judges or drafts",
            )


def find_config(path: str | Path) -> Path:
    """Return the file of a config.json, or of a model that ships. Raises ConfigError with the nearest names."""
    file = Path(path)
    if not is_a_file(file):
        file = shipped_config(str(path)) or file
    if not is_a_file(file):
        known = shipped_models()
        near = difflib.get_close_matches(str(path), known, n=3, cutoff=0.6)
        names = f"nearest: {', '.join(near)}" if near else f"there are: {', '.join(known)}"
        got = f"nothing at {path}"
        if not str(path):  # a variable that is not set: the name of no model
            got, names = "an empty name", f"such as {known[0]}"
        raise ConfigError(
            f"model config: got {got}, expected the path of a Hugging Face config.json (the file of that name in the "
            f"model's folder), or a model that ships ({names})"
        )
    return file


def _with_quantization_beside(fields: ModelFields, file: Path) -> ModelFields:
    """Return a config.json's fields with the quantization of NVIDIA's file beside it, where it has none itself.

    ``hf_quant_config.json``, or ``NAME.hf_quant.json`` beside ``NAME.json`` (vllm 0.32.0 config/model.py reads it so).
    """
    text = fields.mapping("text_config")
    if QUANTIZATION in fields or (text is not None and QUANTIZATION in text):
        return fields
    for beside in (file.with_name("hf_quant_config.json"), file.with_name(f"{file.stem}.hf_quant.json")):
        if is_a_file(beside):
            said = read_model_fields(beside).mapping("quantization")
            found = {} if said is None else dict(said.values)
            return (
                fields.completed({QUANTIZATION: {"quant_method": "modelopt", **found}}) if found else fields
            )
    return fields


def shape_from(
    fields: ModelFields,
    *,
    name: str,
    kv_cache_dtype: str = "auto",
    mamba_ssm_cache_dtype: str = "auto",
    dtype: str = "auto",
    quantization: str = AUTO,
) -> ModelShape:
    """Return the shape that the fields of a config.json describe."""
    fields = fields.thinker
    shape = _decoder_from(
        fields, name=name, kv_cache_dtype=kv_cache_dtype, dtype=dtype, quantization=quantization
    )
    tower, unknown = read_tower(fields)
    audio, unheard = audio_parameters(fields)
    shape = replace(
        shape,
        kv_cache_dtype=kv_cache_dtype,
        mixers=_with_states_in(shape.mixers, mamba_ssm_cache_dtype),
        vision=tower,
        audio_parameters=audio,
        is_mm_prefix_lm=is_mm_prefix_lm(fields),
        left_out=(*_left_out(fields, unknown=unknown, unheard=unheard), *shape.left_out),
    )
    return served_on(shape, None)


def _decoder_from(
    fields: ModelFields, *, name: str, kv_cache_dtype: str, dtype: str, quantization: str
) -> ModelShape:
    """Return the language model that they describe."""
    said, model_type = _language_model(fields)
    family = _family(said, model_type)
    text = _spelled_out(said, family, model_type)
    dtype = _dtype(text, fields, asked=dtype)
    plain = Precision(name=dtype, bytes_per_weight=DTYPE_BYTES[dtype], matmul="16bit")
    hidden, num_layers = text.needed("hidden_size"), text.needed("num_hidden_layers")
    attention = _attention(text, family)
    layers = _layers(text, model_type, family, attention, num_layers=num_layers)
    num_moe_layers, experts = read_experts(
        text,
        num_layers=num_layers,
        number_of=layers.num_moe_layers,
        has_shared_expert=family.has_shared_expert,
    )
    num_plain = num_layers - num_moe_layers if layers.num_plain_mlps is None else layers.num_plain_mlps
    dense_size = _dense_size(text, is_needed=num_plain > 0 and layers.plain_width is None)
    modules = _modules(text, layers, (num_layers, num_moe_layers, num_plain), attention, experts, dense_size)
    quantized = _quantized(text, fields, plain, modules, asked=quantization)
    return ModelShape(
        name=name,
        model_type=model_type,
        hidden_size=hidden,
        num_layers=num_layers,
        vocab_size=text.needed("vocab_size"),
        max_model_len=max_model_len(text),
        intermediate_size=dense_size,
        attention=layers.attention or attention,
        mixers=layers.mixers,
        mtp=mtp_layers(text, model_type, layers.mixers, experts=experts, spared=quantized.spared),
        num_plain_mlps=layers.num_plain_mlps,
        plain_width=layers.plain_width,
        other_parameters=layers.other_parameters,
        lookup_parameters=layers.lookup_parameters,
        residual_streams=layers.residual_streams,
        not_timed=layers.not_timed,
        **_precisions(quantized),
        dtype=dtype,
        dtype_bytes=DTYPE_BYTES[dtype],
        kv_dtype_bytes=_kv_dtype_bytes(text, dtype, quantized, layers, asked=kv_cache_dtype),
        is_gated=family.is_gated,
        is_tied=_is_tied(text, fields, family),
        num_moe_layers=num_moe_layers,
        experts=experts,
        left_out=layers.left_out,
        qk_norm=family.qk_norm,
    )


def _modules(
    text: ModelFields,
    layers: Layers,
    numbers: tuple[int, int, int],
    attention: Attention,
    experts: Experts | None,
    dense_size: int,
) -> list[Module]:
    """Return the products of all layers. ``numbers``: of layers, of those with experts, of those with an MLP."""
    contents = contents_of(text, numbers, only=layers.only)
    hidden = text.needed("hidden_size")
    return modules_of(
        contents, attention, experts, hidden_size=hidden, dense_size=dense_size, states=layers.states
    )


def _quantized(
    text: ModelFields, fields: ModelFields, plain: Precision, modules: list[Module], *, asked: str
) -> Quantization:
    """Return what the weights are kept in; ``asked``: ``--quantization``."""
    holder = text if QUANTIZATION in text else fields
    found = read_quantization(holder, dtype=plain, modules=modules)
    return with_online(found, asked, section=holder.mapping(QUANTIZATION))


def _precisions(quantized: Quantization) -> dict[str, Any]:
    """Return what a shape says of its weights' precisions, by its fields."""
    parts = quantized.parts
    return {
        "attention_precision": parts["attention"],
        "mlp_precision": parts["mlp"],
        "expert_precision": parts["experts"],
        "products": quantized.products,
    }


def _spelled_out(text: ModelFields, family: Family, model_type: str) -> ModelFields:
    """Return a family's fields under their usual names, with what it leaves unsaid."""
    number = len(text.items(BLOCK_TYPES)) or len(text.text(PATTERN) or "")
    kinds = {"num_hidden_layers": number} if number else {}
    if model_type in COUNTED_BY_LIST:
        text = text.replaced(kinds)
    return respelled(text.completed({**family.fields, **kinds}), model_type)


def _with_states_in(mixers: tuple[Mixer, ...], dtype: str) -> tuple[Mixer, ...]:
    """Return the layers with their states in ``--mamba-ssm-cache-dtype``; auto: as they are. Raises ConfigError."""
    if dtype == "auto":
        return mixers
    if dtype not in DTYPE_BYTES:
        raise ConfigError(
            f"mamba_ssm_cache_dtype: got {dtype!r}, expected auto, float32, float16 or bfloat16, as vLLM's flag"
        )
    return tuple(
        replace(each, state=replace(each.state, dtype_bytes=DTYPE_BYTES[dtype])) if each.state else each
        for each in mixers
    )


def _is_tied(text: ModelFields, fields: ModelFields, family: Family) -> bool:
    """Return whether the LM head is the embedding."""
    said = (text.flag("tie_word_embeddings"), fields.flag("tie_word_embeddings"))
    return next((each for each in said if each is not None), family.is_tied)


def _dense_size(text: ModelFields, *, is_needed: bool) -> int:
    """Return the width of an MLP, the widest where each layer has its own; 0 where the file has none."""
    widths = text.integers("intermediate_size") if text.is_list("intermediate_size") else ()
    if widths:
        return max(widths)
    size = text.integer(*DENSE_SIZES) or text.integer("intermediate_size", "ffn_dim")
    return text.needed("intermediate_size") if is_needed and not size else size or 0


def _kv_dtype_bytes(
    text: ModelFields, dtype: str, quantized: Quantization, layers: Layers, *, asked: str
) -> float:
    """Return the bytes of a number in the KV cache. Raises ConfigError where the layers keep fp8 and nothing else."""
    if asked not in ("auto", *KV_DTYPE_BYTES):
        raise ConfigError(
            f"kv_cache_dtype: got {asked!r}, expected auto, {', '.join(KV_DTYPE_BYTES)}; of vLLM's others it is not "
            "known here what a number takes"
        )
    if asked == "auto" and (quantized.has_fp8_kv_cache or layers.has_fp8_kv_cache):
        return 1.0
    found = DTYPE_BYTES[dtype] if asked == "auto" else KV_DTYPE_BYTES[asked]
    if layers.has_fp8_kv_cache and found != 1:
        name = text.text("model_type")
        text.fail("model_type", got=f"{name!r} with a KV cache in {asked}", expected="fp8 or auto")
    return float(found)


def _left_out(fields: ModelFields, *, unknown: str, unheard: str) -> tuple[str, ...]:
    """Return what of a config.json is not counted; ``unknown``, ``unheard``: why its towers are not known."""
    told = []
    if unknown:
        told.append(f"{unknown}: neither its weights nor its work are counted, the language model's are")
    if unheard:
        told.append(f"{unheard}: neither its weights nor its work are counted, the language model's are")
    elif fields.values.get(AUDIO):
        told.append(f"{AUDIO}: its work is not counted, its weights are")
    return tuple(told)


def _language_model(fields: ModelFields) -> tuple[ModelFields, str]:
    """Return what a file says of its language model, and its ``model_type``, that of the whole where it has none."""
    said = fields.language_model
    model_type = "" if said.values.get("model_type") == "" else said.text("model_type") or ""
    if not model_type and said is not fields:
        model_type = _type_by_whole(fields)
        said = said.replaced({"model_type": model_type})
    return said, model_type


def _type_by_whole(fields: ModelFields) -> str:
    """Return what a language model is called whose part of the file does not say it, by what the whole is called."""
    whole = fields.text("model_type") or ""
    names = (f"{whole}_text", LANGUAGE_MODELS.get(whole, ""), whole)
    return next((name for name in names if name in FAMILIES or name in NOT_MODELLED), whole)


def _family(text: ModelFields, model_type: str) -> Family:
    """Return what is known of an architecture. Raises ConfigError that names what it has and is not modelled."""
    feature = NOT_MODELLED.get(model_type)
    telling = TELLING_FIELDS if model_type in FAMILIES else {**TELLING_FIELDS, **UNKNOWN_TELLING}
    telling = {} if model_type in HYBRIDS else telling
    field = "model_type" if feature else next((key for key in telling if text.values.get(key)), None)
    if field is not None:
        got = repr(model_type) if feature else shown(text.values[field])
        text.fail(
            field,
            got=f"{got}: {feature or telling[field]}",
            expected="layers that are known; with engine.kv_cache_groups and num_gpu_blocks written out, and the "
            "coefficients of latency.model blackbox, no config.json is needed",
        )
    if text.values.get(OVERRIDES) and model_type not in READ_OVERRIDES:
        text.fail(
            OVERRIDES, got=shown(text.values[OVERRIDES]), expected="layers that are alike in this family"
        )
    if model_type not in FAMILIES:
        text.fail(
            "model_type",
            got=repr(model_type),
            expected="an architecture that is known, or latency.model blackbox with coefficients, and "
            "engine.kv_cache_groups where its layers keep unlike",
            nearest=FAMILIES,
        )
    return FAMILIES[model_type]


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


def _layers(
    text: ModelFields, model_type: str, family: Family, attention: Attention, *, num_layers: int
) -> Layers:
    """Return the layers by kind, by the family's own fields where it has any."""
    read = HYBRIDS.get(model_type)
    if read is not None:
        return read(text, attention, num_layers)
    return Layers(mixers=windowed_layers(text, family, attention, num_layers=num_layers))


def _attention(text: ModelFields, family: Family) -> Attention:
    hidden, heads = text.needed("hidden_size"), text.needed("num_attention_heads")
    rank = text.integer("kv_lora_rank") or 0
    if rank:
        rope = text.needed("qk_rope_head_dim")
        return Attention(
            num_heads=heads,
            num_kv_heads=heads,
            head_dim=text.needed("qk_nope_head_dim") + rope,
            v_head_dim=text.needed("v_head_dim"),
            q_latent_rank=text.integer("q_lora_rank") or 0,
            kv_latent_rank=rank,
            rope_head_dim=rope,
            keeps_latent=family.keeps_latent,
        )
    head_dim = text.integer("head_dim", "attention_head_dim") or hidden // heads
    if head_dim == 0:
        text.fail("hidden_size", got=f"{hidden}", expected=f"at least one number for each of {heads} heads")
    kv_heads = text.integer("num_key_value_heads", "num_attention_groups") or heads
    v_head_dim = text.integer("v_head_dim") or head_dim
    return Attention(num_heads=heads, num_kv_heads=kv_heads, head_dim=head_dim, v_head_dim=v_head_dim)
