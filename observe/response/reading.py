"""A response as it is recorded: times, counts, outcome."""

from __future__ import annotations

from lazy_dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTimings:
    """vLLM's per-request metrics (``--enable-per-request-metrics``), in ms as given; None where not sent."""

    queue_ms: float | None = None
    prefill_ms: float | None = None
    decode_ms: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The server's answer, for a prompt that builds on it: its text, and its token ids if it returned them."""

    text: str
    token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One response. Stamps are whatever clock the blobs were stamped with; a time without its event is None.

    ``event_stamps`` and ``event_tokens``: one entry per event, ``[DONE]`` excluded; tokens are 0 for an event that
    carried nothing and None for one whose tokens were not counted. ``fault``: why the stream cannot be taken as a whole
    answer, or None. ``streamed`` false: one event that is the whole answer, so that the time of its first token is not
    known. ``reply``: None unless it was requested. ``unusable``: names of fields with impossible values.

    ``content_first_since``: the earliest time at which the first event with text may have come, where its read
    brought several: it has the stamp of the last of them. ``num_token_reads``: the reads that the events with text
    came in, ``first_chunk_tokens``: the tokens of the first of these reads, ``first_by_text`` by its share of the
    text. ``reasoning_tokens``: as the server counts them, else of the events that hold reasoning alone;
    ``hidden_tokens``: those that were not streamed. ``counted_from``: where ``output_tokens`` is from: the server's
    usage, the requested number that a finish reason says was reached, or one token an event. ``unread_keys``: keys of
    deltas with something in them that nobody reads. ``visible_first``: when the first text came that is no reasoning.
    ``num_tool_calls``: how many tools it called. ``has_ended``: the stream said that the answer is over.
    """

    event_stamps: list[int]
    event_tokens: list[int | None]
    num_token_chunks: int
    content_first: int | None
    last_token: int | None
    output_tokens: int | None
    server_input_tokens: int | None
    cached_input_tokens: int | None
    counted_by_event: bool
    finish_reason: str | None
    system_fingerprint: str | None
    timings: ServerTimings
    fault: str | None
    streamed: bool = True
    reply: Reply | None = None
    unusable: tuple[str, ...] = ()
    num_token_reads: int = 0
    content_first_since: int | None = None
    first_chunk_tokens: int | None = None
    first_by_text: bool = False
    reasoning_tokens: int | None = None
    hidden_tokens: int | None = None
    counted_from: Literal["usage", "max_tokens", "events"] | None = None
    unread_keys: tuple[str, ...] = ()
    visible_first: int | None = None
    num_tool_calls: int = 0
    has_ended: bool = False
