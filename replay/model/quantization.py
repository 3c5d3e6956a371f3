"""What a config.json's ``quantization_config`` means: bytes per weight, and what the products are computed in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from replay.model.config_json import ModelFields
from replay.model.shape import MatmulKind, Precision

Parts = Mapping[str, Precision]
"""Precisions of the parts of a model: ``attention``, ``mlp`` and ``experts``."""

PARTS: Mapping[str, tuple[str, ...]] = {
    "attention": ("self_attn", "attention", "linear_attn", ".attn"),
    "mlp": ("mlp", "shared_expert"),
    "experts": ("experts",),
}
"""Pieces of module names that tell which part an exception of the quantization is about."""

FP16_SCALE_BYTES = 2.0
DEFAULT_GROUP = 128
"""Weights that share a scale, where the file does not say."""
MXFP4_BYTES = 0.5 + 1 / 32
"""Four bits, and an 8-bit scale for 32 weights (OCP Microscaling Formats 1.0)."""
NVFP4_BYTES = 0.5 + 1 / 16
"""Four bits, and an 8-bit scale for 16 weights."""

FP8 = Precision(name="fp8", bytes_per_weight=1.0, matmul="fp8")
FP4_EXPERTS = Precision(name="mxfp4", bytes_per_weight=MXFP4_BYTES, matmul="fp8")
"""DeepSeek-V4's experts: weights of 4 bits, activations in fp8 (vllm 0.32.0 models/deepseek_v4/quant_config.py)."""
MIXED = "MIXED_PRECISION"
METHODS = ("fp8", "fbgemm_fp8", "compressed-tensors", "modelopt", "mxfp4", "gptq", "awq", "bitsandbytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantization:
    """What a checkpoint is kept in: per part a precision, and whether it asks for an fp8 KV cache.

    ``spared``: names of modules that are kept as they were.
    """

    parts: Parts
    has_fp8_kv_cache: bool = False
    spared: tuple[str, ...] = ()


def read_quantization(config: ModelFields, *, dtype: Precision) -> Quantization:
    """Return the precision of each part; ``dtype`` where nothing is said. Raises ConfigError on an unknown method."""
    section = config.mapping("quantization_config")
    if section is None:
        return Quantization(parts=dict.fromkeys(PARTS, dtype))
    method = str(section.values.get("quant_method") or "").lower()
    algorithm = str(section.values.get("quant_algo") or "").upper()
    if not method and not algorithm:  # an empty name stands for no quantization
        return Quantization(parts=dict.fromkeys(PARTS, dtype))
    method = method or "modelopt"
    is_modelopt = method.startswith("modelopt")
    if method not in METHODS and not is_modelopt:
        section.fail("quant_method", got=repr(method), expected="a method that is known", nearest=METHODS)
    if method == "mxfp4":
        experts = Precision(name="mxfp4", bytes_per_weight=MXFP4_BYTES, matmul="16bit")
        return Quantization(parts={"attention": dtype, "mlp": dtype, "experts": experts})
    kv_scheme = section.mapping("kv_cache_scheme")
    kv_algorithm = str(section.values.get("kv_cache_quant_algo") or "").upper()
    has_fp8_kv = kv_scheme is not None or (is_modelopt and kv_algorithm == "FP8")
    spared = (
        *section.texts("ignore"),
        *section.texts("modules_to_not_convert"),
        *section.texts("exclude_modules"),
    )
    if algorithm == MIXED:
        parts = _mixed(section, method, dtype=dtype)
        return Quantization(parts=parts, has_fp8_kv_cache=has_fp8_kv, spared=spared)
    precision = _precision(section, method, dtype=dtype)
    parts = {part: dtype if _is_spared(part, spared) else precision for part in PARTS}
    if method == "fp8" and config.text("expert_dtype") == "fp4":
        parts["experts"] = FP4_EXPERTS
    return Quantization(parts=parts, has_fp8_kv_cache=has_fp8_kv, spared=spared)


def _mixed(section: ModelFields, method: str, *, dtype: Precision) -> dict[str, Precision]:
    """Return the precision of each part by the layers that are listed, the first of each; others by the method."""
    layers = section.mapping("quantized_layers")
    listed = {} if layers is None else {name: layers.mapping(name) for name in layers.section.nodes}
    rest = FP8 if method == "fp8" else dtype
    parts = {}
    for part in PARTS:
        named = [each for name, each in listed.items() if each is not None and _is_spared(part, [name])]
        parts[part] = _algorithm(str(named[0].values.get("quant_algo") or ""), dtype=dtype) if named else rest
    return parts


def _algorithm(name: str, *, dtype: Precision) -> Precision:
    """Return the precision of one of modelopt's algorithms; W4A16 is multiplied in 16 bits."""
    if "FP4" in name.upper():
        matmul: MatmulKind = "16bit" if "A16" in name.upper() else "fp4"
        return Precision(name="nvfp4", bytes_per_weight=NVFP4_BYTES, matmul=matmul)
    return FP8 if "FP8" in name.upper() else dtype


def _precision(section: ModelFields, method: str, *, dtype: Precision) -> Precision:
    """Return what the quantized weights are kept and multiplied in."""
    if method in ("fp8", "fbgemm_fp8"):
        return FP8
    if method in ("gptq", "awq"):
        return _weight_only(section.integer("bits") or 4, section.integer("group_size"))
    if method == "bitsandbytes":
        return _weight_only(8 if section.flag("load_in_8bit") else 4, 64)
    if method == "compressed-tensors":
        return _compressed(section, dtype=dtype)
    return _algorithm(section.text("quant_algo") or "FP8", dtype=dtype)


def _compressed(section: ModelFields, *, dtype: Precision) -> Precision:
    """Return the precision of compressed-tensors' first group: bits, kind, and whether activations are cut, too."""
    if (section.text("format") or "").startswith("mxfp4"):
        return Precision(name="mxfp4", bytes_per_weight=MXFP4_BYTES, matmul="16bit")
    groups = section.mapping("config_groups")
    first = next(iter(groups.mappings()), None) if groups is not None else None
    weights = first.mapping("weights") if first is not None else None
    if first is None or weights is None:
        return dtype
    bits = weights.integer("num_bits") or 8
    activations = first.mapping("input_activations")
    is_float = weights.text("type") == "float"
    if bits == 8 and activations is not None:
        return FP8 if is_float else Precision(name="int8", bytes_per_weight=1.0, matmul="int8")
    if bits == 4 and is_float:
        matmul = "16bit" if activations is None else "fp4"
        return Precision(name="nvfp4", bytes_per_weight=NVFP4_BYTES, matmul=matmul)  # type: ignore[arg-type]
    return _weight_only(bits, weights.integer("group_size"))


def _weight_only(bits: int, group_size: int | None) -> Precision:
    """Return integers with a 16-bit scale per group, multiplied in 16 bits."""
    group = group_size if group_size and group_size > 0 else DEFAULT_GROUP
    return Precision(name=f"int{bits}", bytes_per_weight=bits / 8 + FP16_SCALE_BYTES / group, matmul="16bit")


def _is_spared(part: str, names: Sequence[str]) -> bool:
    """Return whether the exceptions name this part of every layer; routers and the LM head are no part of it."""
    layers = [name for name in names if "gate" not in name.rsplit(".", 1)[-1] and "lm_head" not in name]
    if part == "experts":
        return any("experts" in name and "shared" not in name for name in layers)
    if part == "mlp":
        return any("shared_expert" in name or ("mlp" in name and "expert" not in name) for name in layers)
    return any(piece in name for name in layers for piece in PARTS[part])
