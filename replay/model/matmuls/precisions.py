"""What operator tables call the precisions of a model's weights."""

from __future__ import annotations

from replay.model.shape import Precision


def table_precisions(precision: Precision, *, of_experts: bool = False) -> tuple[str, ...]:
    """Return the names that tables of measured kernels have for a precision, the likeliest first.

    Checkpoints with fp8 experts scale them by block (DeepSeek-V3, Qwen3, MiniMax); the kernels for experts with one
    scale take several times as long, those for dense products about the same, whose rows by block were measured without
    a CUDA graph (60 µs and more of launches for few tokens; aiconfigurator's collect_gemm.py). Where 4-bit floats were
    not measured, 4-bit integers are next: GPUs without 4-bit products run both by Marlin's kernels, in 16 bits.
    """
    name = precision.name
    if name.startswith("fp8"):
        return ("fp8_block", "fp8") if of_experts else ("fp8", "fp8_block")
    if "mxfp4" in name:
        others = ("w4a16_mxfp4", "int4_wo")
        return ("w4a8_mxfp4_mxfp8", *others) if precision.matmul == "fp8" else others
    if "4" in name:
        return ("nvfp4", "int4_wo") if precision.matmul == "fp4" else ("int4_wo",)
    return ("bfloat16",)
