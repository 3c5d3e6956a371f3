"""What operator tables call the precisions of a model's weights."""

from __future__ import annotations


def table_precisions(name: str) -> tuple[str, ...]:
    """Return the names that tables of measured kernels have for a precision, the likeliest first."""
    if name.startswith("fp8"):
        return ("fp8_block", "fp8") if "block" in name else ("fp8", "fp8_block")
    if "mxfp4" in name:
        return ("w4a16_mxfp4", "int4_wo")
    if "4" in name:
        return ("int4_wo",)
    return ("bfloat16",)
