"""What operator tables call the precisions of a model's weights."""

from __future__ import annotations


def table_precisions(name: str, *, of_experts: bool = False) -> tuple[str, ...]:
    """Return the names that tables of measured kernels have for a precision, the likeliest first.

    Checkpoints with fp8 experts scale them by block (DeepSeek-V3, Qwen3, MiniMax); the kernels for experts with one
    scale take several times as long, those for dense products about the same.
    """
    if name.startswith("fp8"):
        return ("fp8_block", "fp8") if of_experts else ("fp8", "fp8_block")
    if "mxfp4" in name:
        return ("w4a16_mxfp4", "int4_wo")
    if "4" in name:
        return ("int4_wo",)
    return ("bfloat16",)
