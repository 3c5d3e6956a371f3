"""The request of a span, with its values.

Source of the names: vLLM 0.32 ``v1/engine/output_processor.py: do_tracing`` (one ``llm_request`` a finished request),
OpenTelemetry's semantic conventions for generative AI (``chat MODEL`` and its like, seen from the client),
OpenInference's (github.com/Arize-ai/openinference, spec/semantic_conventions.md) and OpenLLMetry's
(github.com/traceloop/openllmetry, opentelemetry-semantic-conventions-ai).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from lazy_dataclasses import dataclass, field
from typing import Final

from traces.importers.noted import name_of
from traces.importers.otel.span import (
    CACHED,
    CONVERSATION,
    DECODE,
    E2E,
    ERROR,
    FINISH,
    MAX_TOKENS,
    MODEL,
    OPERATION,
    PREFILL,
    QUEUE,
    REQUEST_ID,
    REQUEST_KIND,
    SPAN_KIND,
    TOKENS_IN,
    TOKENS_OUT,
    TTFT,
    Span,
    Value,
)
from traces.strict.limits import MOST_TOKENS

SERVER_SPAN: Final = "llm_request"
GENERATES: Final = ("chat", "text_completion", "generate_content")
"""Operations that are one request to a model; ``invoke_agent`` adds up several, ``embeddings`` generates nothing."""
KINDS: Final = ("chat", "completion")
"""OpenLLMetry's kinds of requests that generate."""
FIRST_NS: Final = 946_684_800 * 10**9
LAST_NS: Final = 7_258_118_400 * 10**9
"""From 2000 to 2200: a clock with another year was not set."""
MOST_LATENCY_S: Final = 1e6
_MOST_DIGITS: Final = 12
_PREFIXES: Final = ("chatcmpl-", "cmpl-")


class LeftOut(StrEnum):
    """Why a span of a request is not a row, in words."""

    NO_ID = "have no span id"
    NO_TOKENS = "have no token counts"
    BAD_TOKENS = "have impossible token counts"
    BAD_TIMES = "have impossible times"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanRequest:
    """A request as its span has it; Unix times in µs, durations in µs, None where the span has no value.

    ``is_server``: reported by the server, whose times do not include the network. ``output_tokens``: None where it
    failed.
    """

    span_id: str
    trace_id: str
    conversation: str | None
    is_server: bool
    start_us: int
    first_token_us: int | None
    last_token_us: int
    input_tokens: int
    output_tokens: int | None
    cached_tokens: int | None
    max_tokens: int | None
    queue_us: int | None
    prefill_us: int | None
    decode_us: int | None
    model: str | None
    x_request_id: str | None
    finish_reason: str | None
    error: str | None


@dataclass(slots=True, kw_only=True)
class Tally:
    """Counts of other spans: of other work, seen before, or not usable as rows."""

    num_requests: int = 0
    num_other: int = 0
    num_repeated: int = 0
    left_out: Counter[LeftOut] = field(default_factory=Counter)

    def notes(self) -> tuple[str, ...]:
        """Return a sentence for each kind that occurred."""
        said = [
            (self.num_other, "are of other work than requests to a model"),
            (self.num_repeated, "came a second time"),
            *((number, str(reason)) for reason, number in sorted(self.left_out.items())),
        ]
        return tuple(f"{number:,} spans {words}: left out" for number, words in said if number)


def request_of(span: Span) -> SpanRequest | LeftOut | None:
    """Return the request of a span, or why it is not usable; None for a span of other work."""
    said = span.attributes
    is_server = span.name == SERVER_SPAN or E2E in said
    if not (is_server or _is_of_a_client(span)):
        return None
    if not span.span_id.strip("0"):
        return LeftOut.NO_ID
    start_us = span.start_ns // 1000
    took_us = _took_us(span)
    if took_us is None or not FIRST_NS <= span.start_ns < LAST_NS:
        return LeftOut.BAD_TIMES
    has_failed = span.has_failed or ERROR in said
    counts = _tokens(span, has_failed=has_failed)
    if isinstance(counts, LeftOut):
        return counts
    first_us = _us(_first(span, TTFT), most_us=took_us)
    return SpanRequest(
        span_id=span.span_id,
        trace_id=span.trace_id if span.trace_id.strip("0") else "",
        conversation=name_of(_first(span, CONVERSATION)),
        is_server=is_server,
        start_us=start_us,
        first_token_us=None if first_us is None else start_us + first_us,
        last_token_us=start_us + took_us,
        input_tokens=counts[0],
        output_tokens=counts[1],
        cached_tokens=_count(_first(span, CACHED), most=counts[0]),
        max_tokens=_count(said.get(MAX_TOKENS)) or None,
        queue_us=_us(said.get(QUEUE)),
        prefill_us=_us(said.get(PREFILL)),
        decode_us=_us(said.get(DECODE)),
        model=name_of(_first(span, MODEL)),
        x_request_id=_x_request_id(name_of(_first(span, REQUEST_ID))),
        finish_reason=name_of(said.get(FINISH)),
        error=(name_of(span.message) or name_of(said.get(ERROR)) or "error") if has_failed else None,
    )


def _is_of_a_client(span: Span) -> bool:
    """Return whether a span is of a request to a model, by its operation, or in older versions by its usage."""
    operation = span.attributes.get(OPERATION)
    kind, request = span.attributes.get(SPAN_KIND), span.attributes.get(REQUEST_KIND)
    if kind is not None:
        return kind == "LLM"
    if operation is not None:
        return operation in GENERATES
    if request is not None:
        return request in KINDS
    return any(name in span.attributes for name in (*TOKENS_IN, *TOKENS_OUT))


def _took_us(span: Span) -> int | None:
    """Return how long the answer took, as the server reports or else from the span's start to its end."""
    told = _us(span.attributes.get(E2E))
    took_us = span.end_ns // 1000 - span.start_ns // 1000
    if told is None and 0 <= took_us <= MOST_LATENCY_S * 1e6:
        return took_us
    return told


def _tokens(span: Span, *, has_failed: bool) -> tuple[int, int | None] | LeftOut:
    """Return the prompt's and the answer's tokens; a request that failed may not know the second."""
    told = [_first(span, TOKENS_IN), _first(span, TOKENS_OUT)]
    if told[0] is None or (told[1] is None and not has_failed):
        return LeftOut.NO_TOKENS
    prompt, answer = map(_count, told)
    if prompt is None or (answer is None and told[1] is not None) or (answer == 0 and not has_failed):
        return LeftOut.BAD_TOKENS
    return prompt, answer


def _first(span: Span, names: Iterable[str]) -> Value:
    """Return the first of these attributes that the span has."""
    return next((span.attributes[name] for name in names if span.attributes.get(name) is not None), None)


def _count(value: Value, *, most: int = MOST_TOKENS) -> int | None:
    if isinstance(value, str) and len(value) <= _MOST_DIGITS and value.isascii() and value.isdigit():
        value = int(value)  # some exporters write every attribute as text
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        return None
    return int(value) if value == int(value) else None


def _us(seconds: Value, *, most_us: int | None = None) -> int | None:
    """Return a duration in µs, None if it is not valid, or longer than the whole."""
    if (
        isinstance(seconds, bool)
        or not isinstance(seconds, int | float)
        or not 0 <= seconds <= MOST_LATENCY_S
    ):
        return None
    us = round(seconds * 1e6)
    return us if most_us is None or us <= most_us else None


def _x_request_id(name: str | None) -> str | None:
    """Return what the client sent in X-Request-Id: vLLM's id without what its endpoints put around it."""
    for prefix in _PREFIXES:
        if name is not None and name.startswith(prefix):
            bare = name.removeprefix(prefix)
            return bare.removesuffix("-0") if prefix == "cmpl-" else bare
    return name
