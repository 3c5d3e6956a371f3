"""What a config.json's ``quantization_config`` means: bytes per weight, and what the products are computed in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from lazy_dataclasses import dataclass, replace

from replay.model.config_json import ModelFields
from replay.model.quantized.quantized_modules import PARTS, Module, Names, Parts, parts_of, products_of
from replay.model.shape import MatmulKind, Precision, Products

FP16_SCALE_BYTES = 2.0
DEFAULT_GROUP = 128
"""Weights that share a scale, where the file does not say."""
MXFP4_BYTES = 0.5 + 1 / 32
"""Four bits, and an 8-bit scale for 32 weights (OCP Microscaling Formats 1.0)."""
NVFP4_BYTES = 0.5 + 1 / 16
"""Four bits, and an 8-bit scale for 16 weights."""

HEAD = Module(part="head", layer=-1, names=("lm_head",), weights=1, product="lm_head")
"""vLLM quantizes it only where a file says so of it by name."""

FP8 = Precision(name="fp8", bytes_per_weight=1.0, matmul="fp8")
FP4_EXPERTS = Precision(name="mxfp4", bytes_per_weight=MXFP4_BYTES, matmul="fp8")
"""DeepSeek-V4's experts: weights of 4 bits, activations in fp8 (vllm 0.32.0 models/deepseek_v4/quant_config.py)."""
KV_SCHEME = "kv_cache_scheme"
MIXED = "MIXED_PRECISION"
SPARED = ("ignore", "modules_to_not_convert", "exclude_modules", "ignored_layers")
"""Keys under which files name what is kept as it was."""
CLASSES = ("Linear", "Attention", "Embedding", "LMHead", "lm_head")
"""How the classes end that compressed-tensors' targets may name (vllm 0.32.0 compressed_tensors/utils.py)."""
METHODS = ("fp8", "fbgemm_fp8", "compressed-tensors", "modelopt", "mxfp4", "gptq", "awq", "bitsandbytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantization:
    """What a checkpoint is kept in: per part a precision, and whether it asks for an fp8 KV cache.

    ``spared``: names of modules that are kept as they were. ``products``: by operator, precisions and their shares of
    its weights.
    """

    parts: Parts
    products: Products = ()
    has_fp8_kv_cache: bool = False
    spared: tuple[str, ...] = ()


def read_quantization(
    config: ModelFields, *, dtype: Precision, modules: Sequence[Module] = ()
) -> Quantization:
    """Return the precision of each part; ``dtype`` where nothing is said. Raises ConfigError on an unknown method.

    ``modules``: of the model, which the names of a file are about.
    """
    section = config.mapping("quantization_config")
    plain = Quantization(parts=dict.fromkeys(PARTS, dtype))
    if section is None:
        return plain
    method = str(section.values.get("quant_method") or "").lower()
    algorithm = str(section.values.get("quant_algo") or "").upper()
    if not method and not algorithm:  # an empty name stands for no quantization
        return plain
    method = method or "modelopt"
    is_modelopt = method.startswith("modelopt")
    if method not in METHODS and not is_modelopt:
        section.fail("quant_method", got=repr(method), expected="a method that is known", nearest=METHODS)
    if method == "mxfp4":
        experts = Precision(name="mxfp4", bytes_per_weight=MXFP4_BYTES, matmul="16bit")
        return Quantization(parts={"attention": dtype, "mlp": dtype, "experts": experts})
    is_fp8 = _has_fp8_kv_cache(section, is_modelopt=is_modelopt)
    spared = (*(name for key in SPARED for name in section.texts(key)), *_unquantized(section))
    kept_in, usual = _kept_in(section, method, spared=spared, dtype=dtype)
    parts, products = dict(parts_of(modules, kept_in, otherwise=usual)), products_of(modules, kept_in)
    if method == "fp8" and algorithm != MIXED and config.text("expert_dtype") == "fp4":
        parts["experts"] = FP4_EXPERTS
        products = tuple(each for each in products if each[0] != "moe")
    head = kept_in(HEAD)
    if head is not usual:
        products = (*products, (HEAD.product, ((head, 1.0),)))
    return Quantization(parts=parts, products=products, has_fp8_kv_cache=is_fp8, spared=spared)


def _has_fp8_kv_cache(section: ModelFields, *, is_modelopt: bool) -> bool:
    """Return whether a file asks for a KV cache in fp8: as an object with bits, or by name. Raises ConfigError."""
    scheme = section.values.get(KV_SCHEME)
    if isinstance(scheme, str):
        name = scheme.upper()
        if name and name != "NONE" and not name.startswith("FP8"):
            section.fail(KV_SCHEME, got=repr(scheme), expected="FP8, none, or an object with num_bits")
        return name.startswith("FP8")
    algorithm = str(section.values.get("kv_cache_quant_algo") or "").upper()
    return section.mapping(KV_SCHEME) is not None or (is_modelopt and algorithm == "FP8")


def _unquantized(section: ModelFields) -> list[str]:
    """Return what GPTQ's ``dynamic`` leaves as it was: regular expressions behind ``-:``."""
    rules = section.mapping("dynamic")
    return (
        [] if rules is None else [f"re:{rule[2:]}" for rule in rules.section.nodes if rule.startswith("-:")]
    )


def _kept_in(
    section: ModelFields, method: str, *, spared: Sequence[str], dtype: Precision
) -> tuple[Callable[[Module], Precision], Precision]:
    """Return what tells a module's precision, as it is spared, else as it is named, else as all are; and the last."""
    kept = Names(((name, dtype) for name in spared), where="quantization_config")
    if str(section.values.get("quant_algo") or "").upper() == MIXED:
        named = Names(_listed(section, dtype=dtype), where="quantized_layers")
        usual = _in_blocks(section, "weight_block_size") if method == "fp8" else dtype
        if method == "fp8":  # what modelopt's file spares stays as the fp8 checkpoint has it
            kept = Names((), where="")
    elif method == "compressed-tensors":
        groups = _groups(section, dtype=dtype)
        named = Names(((name, each) for names, each in groups for name in names), where="config_groups")
        usual = next((each for names, each in groups if not names), dtype)
    else:
        named, usual = Names((), where=""), _precision(section, method)

    def kept_in(module: Module) -> Precision:
        return kept.of(module) or named.of(module) or usual

    return kept_in, usual


def _listed(section: ModelFields, *, dtype: Precision) -> list[tuple[str, Precision]]:
    """Return the modules that modelopt lists one by one, with their precisions."""
    layers = section.mapping("quantized_layers")
    listed = {} if layers is None else {name: layers.mapping(name) for name in layers.section.nodes}
    return [
        (name, _algorithm(str(each.values.get("quant_algo") or ""), dtype=dtype))
        for name, each in listed.items()
        if each is not None
    ]


def _algorithm(name: str, *, dtype: Precision) -> Precision:
    """Return the precision of one of modelopt's algorithms; W4A16 is multiplied in 16 bits."""
    if "AWQ" in name.upper():
        return _weight_only(4, None)
    if "FP4" in name.upper():
        matmul: MatmulKind = "16bit" if "A16" in name.upper() else "fp4"
        return Precision(name="nvfp4", bytes_per_weight=NVFP4_BYTES, matmul=matmul)
    return FP8 if "FP8" in name.upper() else dtype


def _precision(section: ModelFields, method: str) -> Precision:
    """Return what the quantized weights are kept and multiplied in."""
    if method in ("fp8", "fbgemm_fp8"):
        return _in_blocks(section, "weight_block_size")
    if method in ("gptq", "awq"):
        return _weight_only(section.integer("bits") or 4, section.integer("group_size"))
    if method == "bitsandbytes":
        return _weight_only(8 if section.flag("load_in_8bit") else 4, 64)
    return _algorithm(section.text("quant_algo") or "FP8", dtype=FP8)


def _in_blocks(section: ModelFields, key: str) -> Precision:
    """Return FP8, with the side of the squares that share a scale where the file gives it under ``key``."""
    sides = section.integers(key)
    return replace(FP8, block=sides[0]) if sides and sides[0] > 0 else FP8


def _groups(section: ModelFields, *, dtype: Precision) -> list[tuple[tuple[str, ...], Precision]]:
    """Return compressed-tensors' groups: names of modules, none where they are all (a class of layers), and how."""
    section_format = section.text("format") or ""
    groups = section.mapping("config_groups")
    found = []
    for group in () if groups is None else groups.mappings():
        targets = group.texts("targets")
        classes = [name for name in targets if "." not in name and not name.startswith("re:")]
        _check_classes(group, classes)
        if classes and not any(name.endswith("Linear") for name in classes) and len(classes) == len(targets):
            continue  # keys and values, or embeddings: no product of a layer
        precision = _compressed(group, group.text("format") or section_format, dtype=dtype)
        found.append((() if classes else targets, precision))
    if groups is None or not groups.section.nodes:
        return [((), _compressed(section, section_format, dtype=dtype))]
    return found


def _check_classes(group: ModelFields, classes: Sequence[str]) -> None:
    """Raise ConfigError on a class of layers that vLLM's models do not have."""
    for name in classes:
        if not name.endswith(CLASSES):
            expected = "names of modules (with a dot, or behind re:), or a class of layers: Linear, Attention"
            group.fail("targets", got=repr(name), expected=expected)


def _compressed(group: ModelFields, written: str, *, dtype: Precision) -> Precision:
    """Return the precision of a group: bits, kind, and whether activations are cut, too. ``written``: its format."""
    if written.startswith("mxfp4"):
        return Precision(name="mxfp4", bytes_per_weight=MXFP4_BYTES, matmul="16bit")
    weights = group.mapping("weights")
    if weights is None:
        return dtype
    bits = weights.integer("num_bits") or 8
    activations = group.mapping("input_activations")
    is_float = weights.text("type") == "float"
    if bits == 8 and activations is not None:
        return (
            _in_blocks(weights, "block_structure")
            if is_float
            else Precision(name="int8", bytes_per_weight=1.0, matmul="int8")
        )
    if bits == 4 and is_float:
        matmul: MatmulKind = "16bit" if activations is None else "fp4"
        return Precision(name="nvfp4", bytes_per_weight=NVFP4_BYTES, matmul=matmul)
    return _weight_only(bits, weights.integer("group_size"))


def _weight_only(bits: int, group_size: int | None) -> Precision:
    """Return integers with a 16-bit scale per group, multiplied in 16 bits."""
    group = group_size if group_size and group_size > 0 else DEFAULT_GROUP
    return Precision(name=f"int{bits}", bytes_per_weight=bits / 8 + FP16_SCALE_BYTES / group, matmul="16bit")
