"""Which finish reasons say that an answer is not whole."""

from __future__ import annotations

from typing import Final, Literal

_ABORTED: Final = frozenset({"abort", "aborted", "cancelled", "canceled"})
_FAILED: Final = frozenset(
    {
        *("error", "content_filter", "content-filter", "safety", "sensitive", "recitation"),
        *("insufficient_system_resource", "network_error", "timeout", "malformed_function_call"),
    }
)
"""Names that servers give an answer that they ended for another reason than its length or its end: vLLM (abort,
error), OpenAI (content_filter), DeepSeek (insufficient_system_resource), Gemini (safety, recitation) and their like."""


def failure_status(finish_reason: str | None) -> Literal["aborted", "error"] | None:
    """Return the status of an answer that ended so, None for one that is whole (stop, length, tool_calls, …)."""
    reason = (finish_reason or "").strip().lower()
    if reason in _ABORTED:
        return "aborted"
    return "error" if reason in _FAILED else None
