"""``--quantization`` of a checkpoint in 16 bits: vLLM cuts its weights as it loads them.

Products of attention and MLPs (``linear``) and those of routed experts (``moe``) each have a precision; the embedding,
the LM head, routers and towers stay as they were (vllm 0.32.0 ``config/quantization.py:_ONLINE_SHORTHANDS``).
"""

from __future__ import annotations

from collections.abc import Mapping
from lazy_dataclasses import dataclass, replace

from replay.model.config_json import ModelFields
from replay.model.quantized.quantization import FP8, MXFP4_BYTES, NVFP4_BYTES, Quantization
from replay.model.quantized.quantized_modules import ATTENTION, EXPERTS, MLP
from replay.model.shape import Precision
from traces import ConfigError

AUTO = "auto"
"""What the config.json says."""
FP8_UNTIL = 30
"""The last minor version whose ``fp8`` cuts a checkpoint in 16 bits; 0.31 asks for ``fp8_per_tensor``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Online:
    """What a method makes of both kinds of products; None: they stay in 16 bits."""

    linear: Precision | None
    moe: Precision | None


_MXFP8 = Precision(name="mxfp8", bytes_per_weight=1 + 1 / 32, matmul="fp8")
_MXFP4 = Precision(name="mxfp4", bytes_per_weight=MXFP4_BYTES, matmul="16bit")
_INT8 = Precision(name="int8", bytes_per_weight=1.0, matmul="16bit")
_NVFP4 = Precision(name="nvfp4", bytes_per_weight=NVFP4_BYTES, matmul="fp4")
METHODS: Mapping[str, Online] = {
    **dict.fromkeys(
        ("fp8", "fp8_per_tensor", "fp8_per_block", "fp8_per_channel"), Online(linear=FP8, moe=FP8)
    ),
    "mxfp8": Online(linear=_MXFP8, moe=_MXFP8),
    "mxfp4": Online(linear=_MXFP4, moe=_MXFP4),
    "int8_per_channel_weight_only": Online(linear=None, moe=_INT8),
    "experts_int8": Online(linear=None, moe=_INT8),
    "nvfp4_per_token": Online(linear=None, moe=_NVFP4),
}
"""The methods that need no quantized checkpoint, by the names of vLLM's flag."""
_SPELLED = {
    **dict.fromkeys(("auto_gptq", "gptq_marlin"), "gptq"),
    **dict.fromkeys(("auto_awq", "awq_marlin"), "awq"),
    **{"gpt_oss_mxfp4": "mxfp4", "deepseek_v4_fp8": "fp8"},
    **dict.fromkeys(("modelopt_fp4", "modelopt_mxfp8", "modelopt_mixed"), "modelopt"),
}
"""Other names of a checkpoint's method that vLLM takes."""


def with_online(quantized: Quantization, asked: str, *, section: ModelFields | None) -> Quantization:
    """Return a checkpoint's precisions as ``--quantization`` has them; ``section``: the ``quantization_config`` it has.

    Raises ConfigError where vLLM would refuse the flag: of a method that is not known, or another than the file's.
    """
    if asked == AUTO:
        return quantized
    said = "" if section is None else str(section.values.get("quant_method") or "").lower()
    if section is not None and not said and section.values.get("quant_algo"):
        said = "modelopt"
    if said:
        if _SPELLED.get(asked, asked) != _SPELLED.get(said, said):
            raise ConfigError(
                f"quantization: got {asked!r}, expected auto or {said!r}, the quant_method of the config.json"
            )
        return quantized
    if asked not in METHODS:
        raise ConfigError(
            f"quantization: got {asked!r}, expected auto, or of a checkpoint in 16 bits {', '.join(METHODS)}; all "
            "else needs the config.json of a checkpoint that has it"
        )
    method, parts = METHODS[asked], dict(quantized.parts)
    for part in (ATTENTION, MLP):
        parts[part] = method.linear or parts[part]
    parts[EXPERTS] = method.moe or parts[EXPERTS]
    return replace(quantized, parts=parts, products=())
