"""A span, independent of its encoding."""

from __future__ import annotations

from collections.abc import Mapping
from lazy_dataclasses import dataclass
from typing import Final, TypeAlias

Value: TypeAlias = str | int | float | bool | None

TOKENS_IN: Final = (
    *("gen_ai.usage.prompt_tokens", "gen_ai.usage.input_tokens"),
    *("llm.token_count.prompt", "llm.usage.prompt_tokens"),
)
TOKENS_OUT: Final = (
    *("gen_ai.usage.completion_tokens", "gen_ai.usage.output_tokens"),
    *("llm.token_count.completion", "llm.usage.completion_tokens"),
)
CACHED: Final = (
    *("gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_read_input_tokens"),
    "llm.token_count.prompt_details.cache_read",
)
MODEL: Final = ("gen_ai.response.model", "gen_ai.request.model", "llm.model_name")
REQUEST_ID: Final = ("gen_ai.request.id",)
CONVERSATION: Final = (
    *("gen_ai.conversation.id", "session.id"),
    *("traceloop.association.properties.session_id", "langfuse.session.id"),
)
OPERATION: Final = "gen_ai.operation.name"
REQUEST_KIND: Final = "llm.request.type"
"""OpenLLMetry's (traceloop's) name of an operation."""
SPAN_KIND: Final = "openinference.span.kind"
"""OpenInference's (Phoenix's) kind of span: LLM is one request, AGENT and CHAIN add up several."""
FINISH: Final = "gen_ai.response.finish_reasons"
ERROR: Final = "error.type"
MAX_TOKENS: Final = "gen_ai.request.max_tokens"
TTFT: Final = ("gen_ai.latency.time_to_first_token", "gen_ai.response.time_to_first_chunk")
E2E: Final = "gen_ai.latency.e2e"
QUEUE: Final = "gen_ai.latency.time_in_queue"
PREFILL: Final = "gen_ai.latency.time_in_model_prefill"
DECODE: Final = "gen_ai.latency.time_in_model_decode"

_HEX: Final = frozenset("0123456789abcdef")

WANTED: Final = frozenset(
    {
        *(*TOKENS_IN, *TOKENS_OUT, *CACHED, *MODEL, *REQUEST_ID, *TTFT, *CONVERSATION),
        *(OPERATION, REQUEST_KIND, SPAN_KIND, FINISH, ERROR, MAX_TOKENS, E2E, QUEUE, PREFILL, DECODE),
    }
)
"""The attributes that are read: by vLLM's names, those of the semantic conventions for generative AI, and those of
OpenInference and OpenLLMetry. Texts of prompts and answers (``gen_ai.prompt``, ``llm.input_messages``, events) are none
of them: they are passed over where they stand."""


TRACE_ID_BYTES: Final = 16
SPAN_ID_BYTES: Final = 8


def hex_id(value: object, num_bytes: int) -> str:
    """Return an id in lower-case hex, given as bytes or as hex; empty for anything that has not ``num_bytes`` bytes."""
    if isinstance(value, bytes):
        return value.hex() if len(value) == num_bytes else ""
    if not isinstance(value, str) or len(value) != 2 * num_bytes:
        return ""
    text = value.lower()
    return text if _HEX.issuperset(text) else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The values read from a span. Ids are lower-case hex, empty if missing; times are Unix times in ns, 0: none.

    ``attributes``: those of ``WANTED`` alone; of a list its first element.
    """

    trace_id: str
    span_id: str
    name: str
    start_ns: int
    end_ns: int
    has_failed: bool
    message: str
    attributes: Mapping[str, Value]
