"""A response, read from its blobs and their stamps after it has ended: times, counts, outcome.

Which event moves which time (the definitions are TraceV2's):

* every event but ``[DONE]`` is a chunk: the first and the last of them are recorded as such;
* an event carries output when it has text, reasoning, a refusal or a tool call, or when its own usage says
  that more tokens are out than before (vLLM sends a token that ends within a character as an empty text);
* a role, an empty delta and the closing usage carry nothing and move no latency.

An event is not a token: its tokens are the step of ``usage.completion_tokens`` where the server sends usage
with every event, and unknown (None) where it does not, unless as many events had text as there were tokens.

Without usage, or with one of zeros beside text, an answer that ended for its length has as many tokens as were
requested, and another one a token per event; one event alone says nothing. Reasoning that usage counts and no event
holds was generated before the text, and is no token of its events.

An impossible value (negative, infinite, more tokens than the answer has room for) is unknown, too, and its name is kept
in ``Reading.unusable``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import orjson

from observe.response.delta import (
    called_tools,
    has_reasoning,
    has_text,
    plain_text,
    text_length,
    text_of,
    unread_keys,
)
from observe.response.reading import Reading, Reply, ServerTimings
from observe.response.sse import SseParser
from observe.response.stated_values import milliseconds, short_text, stated, token_count, token_ids
from observe.response.text_reads import TextReads
from observe.senders.request_kinds import AsCompletion
from traces import quoted

if TYPE_CHECKING:
    from observe.response.other_choices import OtherChoices

_loads = orjson.loads
_DONE = b"[DONE]"
_EXCERPT = 200
_QUOTED_FROM = 1 << 12
"""Characters of an answer's beginning that are quoted, and bytes that are examined for that."""


class StreamReader:
    """Reads one streamed response blob by blob, so that the work can be sliced between other work.

    ``with_reply``: also the text, not only its times. ``asked``: the requested tokens, None if unknown. ``hide``
    removes secrets from quoted text. ``as_completion``: how an event of another API is read as a completion's.
    ``num_choices``: answers to the one prompt; tokens are those of all, events with text those of the first.
    """

    def __init__(
        self,
        *,
        streamed: bool = True,
        with_reply: bool = False,
        asked: int | None = None,
        as_completion: AsCompletion | None = None,
        num_choices: int = 1,
        hide: Callable[[str], str] = str,
    ) -> None:
        self.hide = hide
        self._streamed = streamed
        self._with_reply = with_reply
        self._asked = None if asked is None else asked * num_choices
        self._as_completion = as_completion
        self._num_choices = num_choices
        self._others = _others() if num_choices > 1 and streamed else None
        self._num_bytes = 0
        self._unusable: set[str] = set()
        self._usage_fell = False
        self._said: list[str] = []
        self._token_ids: list[int] = []
        self._parser = SseParser()
        self._head = b""  # what the body opened with, for the message when it holds no event
        self._stamps: list[int] = []
        self._tokens: list[int | None] = []
        self._came = TextReads()
        self._unread: set[str] = set()
        self._usage: dict[str, Any] = {}
        self._completion_tokens = 0
        self._finish_reason: str | None = None
        self._fingerprint: str | None = None
        self._timings = ServerTimings()
        self._done = False
        self._calls: set[int] = set()
        self._fault: str | None = None

    def take(self, blob: bytes, stamp: int, *, since: int | None = None) -> int:
        """Read what ``blob``, received at ``stamp``, completes; return the number of events read.

        ``since``: the earliest time at which the first of several events in it may have come, None where not known.
        """
        is_first = self._came.num_events == 0
        self._num_bytes += len(blob)
        if len(self._head) < _EXCERPT:
            self._head += blob[:_EXCERPT]
        payloads = self._parser.feed(blob)
        for payload in payloads:
            self._take_event(payload, stamp)
        if is_first and since is not None and self._came.num_events > 1:
            self._came.first_since = since
        return len(payloads)

    @property
    def num_tokens_so_far(self) -> int:
        """The tokens that have come: as the server counts them, at least one an event with text."""
        return max(self._completion_tokens, self._came.num_events)

    def finish(self, last_stamp: int | None, *, whole: bool, fault: str | None = None) -> Reading:
        """Return what was read; ``whole``: the body was read to its end, so that the end can be judged.

        ``fault``: why it cannot be taken as an answer, where that is known already.
        """
        for payload in self._parser.close():
            self._take_event(payload, last_stamp or 0)
        fault = fault or self._fault
        if fault is None and whole:
            fault = self._fault_at_end()
        output_tokens, counted_from = self._output(is_whole=fault is None)
        reasoning, hidden = self._reasoning()
        if output_tokens is not None and counted_from == "usage" and self._leaves_out(reasoning):
            output_tokens += reasoning or 0
        text = self._came
        of_one = None if output_tokens is None else output_tokens // self._num_choices
        tokens = self._counted_tokens(of_one, hidden)
        first = text.tokens_of_first_read(tokens)
        by_text = None if first is not None else text.tokens_by_text((of_one or 0) - hidden)
        return Reading(
            event_stamps=self._stamps,
            event_tokens=tokens,
            num_token_chunks=text.num_events,
            content_first=self._end_of_all(min, text.first_stamp) if self._streamed else None,
            last_token=self._end_of_all(max, text.last_stamp),
            visible_first=self._visible_first(),
            num_tool_calls=len(self._calls),
            num_token_reads=text.num_reads,
            content_first_since=text.first_since if self._streamed else None,
            first_chunk_tokens=first if by_text is None else by_text,
            first_by_text=by_text is not None,
            reasoning_tokens=text.reasoning_tokens(tokens) if self._is_uncounted(reasoning) else reasoning,
            hidden_tokens=hidden or None,
            output_tokens=output_tokens,
            counted_from=counted_from,
            unread_keys=tuple(sorted(self._unread)),
            server_input_tokens=self._count(self._usage, "prompt_tokens") or None,
            cached_input_tokens=self._count(_object(self._usage, "prompt_tokens_details"), "cached_tokens"),
            counted_by_event=self._is_counted(),
            finish_reason=self._quoted(self._finish_reason),
            system_fingerprint=self._quoted(self._fingerprint),
            timings=self._timings,
            fault=fault,
            streamed=self._streamed,
            reply=self._reply() if self._with_reply else None,
            unusable=tuple(sorted(self._unusable)),
            has_ended=self._has_ended(),
        )

    def _end_of_all(self, which: Callable[[list[int]], int], stamp: int | None) -> int | None:
        """Return the first or last of the stamps of all choices with text; ``stamp``: that of the first choice."""
        known = [stamp, *(() if self._others is None else self._others.stamps)]
        return which([each for each in known if each is not None]) if any(known) else None

    def _visible_first(self) -> int | None:
        """Return when the first text came that is no reasoning; None of an answer in one piece, or without any."""
        number = self._came.first_visible() if self._streamed else None
        return None if number is None else self._stamps[number]

    def _possible_output(self) -> int | None:
        """Return the server's count of tokens, None if it exceeds both the requested number and the answer's bytes."""
        tokens = self._count(self._usage, "completion_tokens")
        if tokens is None or self._asked is None or tokens <= max(self._asked, self._num_bytes):
            return tokens
        self._unusable.add("completion_tokens")
        self._tokens = [0 if each == 0 else None for each in self._tokens]
        return None

    def _output(
        self, *, is_whole: bool
    ) -> tuple[int | None, Literal["usage", "max_tokens", "events"] | None]:
        """Return the answer's tokens, and where they are from; None where that is not known."""
        counted, num_events = self._possible_output(), self._came.num_events
        if counted == 0 and num_events:  # a usage of zeros is none
            counted = None
            self._tokens = [
                None if number in self._came.numbers else 0 for number in range(len(self._tokens))
            ]
        if counted is not None:
            return counted, "usage"
        is_contradicted = "completion_tokens" in self._unusable
        if not is_whole or not num_events or not self._streamed or is_contradicted or self._others:
            return None, None
        if self._finish_reason == "length" and self._asked and num_events <= self._asked:
            return self._asked, "max_tokens"
        if self._finish_reason != "length" and 1 < num_events <= (self._asked or num_events):
            return num_events, "events"
        return None, None

    def _reasoning(self) -> tuple[int | None, int]:
        """Return the reasoning tokens that usage states, and how many of them no event held."""
        stated_tokens = self._count(_object(self._usage, "completion_tokens_details"), "reasoning_tokens")
        is_seen = self._came.has_reasoning or 2 * self._came.silent_tokens >= (stated_tokens or 0)
        return stated_tokens, 0 if is_seen else stated_tokens or 0

    def _is_uncounted(self, stated_reasoning: int | None) -> bool:
        """Return whether usage says nothing of the reasoning, or none of one that came.

        vLLM counts from a start marker in the answer; a template may put it into the prompt (DeepSeek-R1's does).
        """
        return stated_reasoning is None or (stated_reasoning == 0 and self._came.has_reasoning)

    def _leaves_out(self, reasoning: int | None) -> bool:
        """Return whether completion_tokens do not include the reasoning, as some servers count."""
        prompt, completion, total = (
            token_count(self._usage.get(name)) or 0
            for name in ("prompt_tokens", "completion_tokens", "total_tokens")
        )
        return bool(reasoning) and (
            (reasoning or 0) > completion or total == prompt + completion + (reasoning or 0)
        )

    def _count(self, holder: dict[str, Any], name: str) -> int | None:
        count = token_count(holder.get(name))
        if count is None and stated(holder, name):
            self._unusable.add(name)
        return count

    def _milliseconds(self, holder: dict[str, Any], name: str) -> float | None:
        time_ms = milliseconds(holder.get(name))
        if time_ms is None and stated(holder, name):
            self._unusable.add(name)
        return time_ms

    def _reply(self) -> Reply:
        return Reply(text="".join(self._said), token_ids=tuple(self._token_ids))

    def _take_event(self, payload: bytes, stamp: int) -> None:
        if payload == _DONE:
            self._done = True
            return
        event = _parsed(payload)
        if event is None:
            number = len(self._stamps)
            self._fault = (
                self._fault or f"event {number}: got {self._excerpt(payload)}, expected a JSON object"
            )
            return
        self._take_parsed(event, stamp)

    def take_whole(self, answer: dict[str, Any], stamp: int, *, num_bytes: int) -> None:
        """Read an answer in one piece."""
        self._num_bytes = num_bytes
        self._take_parsed(answer, stamp)

    def _take_parsed(self, event: dict[str, Any], stamp: int) -> None:
        if self._as_completion is not None:
            said = self._as_completion(event)
            if isinstance(said, str):
                self._fault = self._fault or self._quoted(said)
                return
            event = said
            self._finish_reason = self._text(event, "finish_reason") or self._finish_reason
        if "error" in event or event.get("object") == "error":
            self._fault = self._fault or self._quoted(error_message(event))
        self._stamps.append(stamp)
        self._tokens.append(self._tokens_of(event, stamp))
        if self._fingerprint is None:
            self._fingerprint = self._text(event, "system_fingerprint")

    def _tokens_of(self, event: dict[str, Any], stamp: int) -> int | None:
        """Process one event's choice and usage; return its tokens: 0 carried nothing, None is not known."""
        usage = event.get("usage")
        step = self._take_usage(event, usage) if isinstance(usage, dict) else None
        choices = event.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(choice, dict):
            return 0
        if self._others is not None and not self._others.is_first(choice, stamp):
            return 0
        self._finish_reason = self._text(choice, "finish_reason") or self._finish_reason
        if self._with_reply:
            self._said.append(text_of(choice))
            self._take_token_ids(choice)
        text = plain_text(choice)
        if text:
            self._came.add(len(self._tokens), stamp, len(text))
            return step
        return self._take_delta(choice, stamp, step)

    def _take_delta(self, choice: dict[str, Any], stamp: int, step: int | None) -> int | None:
        """Process a choice that is not text alone, and whose usage grew by ``step``; return its tokens."""
        self._unread |= unread_keys(choice)
        is_text, is_reasoning = has_text(choice), has_reasoning(choice)
        if is_text:
            self._calls |= called_tools(choice)
        if not step and not is_text and not is_reasoning:
            return 0
        self._came.add(
            len(self._tokens), stamp, text_length(choice), is_reasoning=is_reasoning and not is_text
        )
        self._came.has_reasoning |= is_reasoning
        if not is_text and not is_reasoning:
            self._came.silent.append(len(self._tokens))
            self._came.silent_tokens += step or 0
        return step

    def _text(self, holder: dict[str, Any], name: str) -> str | None:
        text = short_text(holder.get(name))
        if text is None and stated(holder, name):
            self._unusable.add(name)
        return text

    def _take_token_ids(self, choice: dict[str, Any]) -> None:
        ids = token_ids(choice.get("token_ids"))
        if ids is None and stated(choice, "token_ids"):
            self._unusable.add("token_ids")
        self._token_ids += ids or ()

    def _take_usage(self, event: dict[str, Any], usage: dict[str, Any]) -> int | None:
        """Keep the usage; return by how many tokens its output count grew, None if it is missing or fell."""
        self._usage.update(usage)
        if "metrics" in event or "metrics" in usage:
            metrics = _object(event, "metrics") or _object(usage, "metrics")
            self._timings = ServerTimings(
                queue_ms=self._milliseconds(metrics, "queue_time_ms"),
                prefill_ms=self._milliseconds(metrics, "time_to_first_token_ms"),
                decode_ms=self._milliseconds(metrics, "generation_time_ms"),
            )
        total = self._count(usage, "completion_tokens")
        if total is None:
            return None
        before = self._completion_tokens if self._others is None else self._others.before(event, total)
        step = total - before
        self._completion_tokens += step
        if step < 0:  # what the event carried is not known, and nothing was counted rightly before
            self._usage_fell = True
            return None
        return step

    def _is_counted(self) -> bool:
        """Return whether every event that carried output had a count."""
        return None not in self._tokens and self._came.num_events > 0 and not self._usage_fell

    def _counted_tokens(self, output_tokens: int | None, hidden: int) -> list[int | None]:
        """Return each event's tokens; where not all were counted, one each if that makes the sum, else None.

        A count in only some of the events covers several of them: it does not give the tokens of its own event.
        """
        numbers = self._came.numbers
        if self._is_counted():
            first = numbers[0]
            counted = list(self._tokens)
            if (counted[first] or 0) > hidden:  # its count is of all before it, the hidden ones too
                counted[first] = (counted[first] or 0) - hidden
            return counted
        each = 1 if output_tokens is not None and len(numbers) == output_tokens - hidden else None
        return [0 if tokens == 0 else each for tokens in self._tokens]

    def _quoted(self, text: str | None) -> str | None:
        return None if text is None else self.hide(text)

    def _excerpt(self, payload: bytes) -> str:
        text = self.hide(payload[:_QUOTED_FROM].decode("utf-8", "replace"))
        return quoted(text)

    def _has_ended(self) -> bool:
        return bool(self._stamps) and (self._done or self._finish_reason is not None)

    def _fault_at_end(self) -> str | None:
        """Return why a body that was read to its end is not a whole answer, or None."""
        if self._has_ended():
            return None
        if self._stamps:
            return f"stream ended after {len(self._stamps)} events without finish_reason or [DONE]"
        whole = _parsed(self._head)
        said = error_message(whole) if whole is not None else None
        return (
            self._quoted(said)
            or f"body without an event: got {self._excerpt(self._head)}, expected text/event-stream"
        )


def _others() -> OtherChoices:
    from observe.response.other_choices import OtherChoices

    return OtherChoices()


def error_message(answer: dict[str, Any]) -> str | None:
    """Return the message of an error object (OpenAI's nested one, vLLM's older flat one), or None."""
    error = answer.get("error")
    if error is None and answer.get("object") == "error":
        error = answer
    if error is None:
        return None
    if isinstance(error, dict):
        said = error.get("message") or error.get("type") or error
        return f"server said: {said}"
    return f"server said: {error}"


def _parsed(payload: bytes) -> dict[str, Any] | None:
    try:
        value = _loads(payload)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


def _object(holder: dict[str, Any], name: str) -> dict[str, Any]:
    value = holder.get(name)
    return value if isinstance(value, dict) else {}
