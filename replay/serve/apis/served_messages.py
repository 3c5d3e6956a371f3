"""Anthropic's Messages API, served: a body as a chat's, and an answer in blocks.

Source: vLLM 0.32 ``vllm/entrypoints/anthropic``, which ignores fields that the API has not.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from lazy_dataclasses import dataclass
from typing import Final

from replay.serve.protocol import Body, Job, PartReader, Refusal, chat_tokens, integer, kind_of, parse_chat
from replay.serve.replies import TokenUsage, named_event
from replay.serve.tokens import Tokens
from replay.serve.twin import Generation

MESSAGES_PATH: Final = "/v1/messages"
_KEPT: Final = ("stream", "tools", "tool_choice")
"""Fields that have the same name and meaning in both APIs, or are refused in both."""


def parse_message(body: Body, *, read_part: PartReader | None = None) -> Job:
    """Return the job of a /v1/messages body. Raises Refusal."""
    if integer(body, "max_tokens") is None:
        raise Refusal("max_tokens: got nothing, expected an integer", param="max_tokens")
    chat: dict[str, object] = {name: body[name] for name in _KEPT if name in body}
    chat |= {
        "max_tokens": body["max_tokens"],
        "stop": body.get("stop_sequences"),
        "messages": _messages(body),
    }
    config = body.get("output_config")
    form = config.get("format") if isinstance(config, dict) else None
    if form is not None:
        chat["response_format"] = {"type": "json_schema", "json_schema": form}
    return parse_chat(chat, read_part=read_part)


def message_tokens(body: Body, *, read_part: PartReader | None = None) -> Tokens:
    """Return the prompt of a body that asks for its tokens' number alone. Raises Refusal."""
    return chat_tokens({"messages": _messages(body)}, read_part=read_part)


def _messages(body: Body) -> list[object]:
    """Return the chat API's messages, the system's text before the others."""
    said, system = body.get("messages"), body.get("system")
    if not isinstance(said, list) or not said:
        raise Refusal(f"messages: got {kind_of(said)}, expected a list of messages", param="messages")
    first = [] if not system else [{"role": "system", "content": _content(system)}]
    return [
        *first,
        *(
            {**each, "content": _content(each.get("content"))} if isinstance(each, dict) else each
            for each in said
        ),
    ]


def _content(content: object) -> object:
    return [_part(part) for part in content] if isinstance(content, list) else content


def _part(part: object) -> object:
    """Return a block as the chat API has it; one that it does not know stays what it is."""
    source = part.get("source") if isinstance(part, dict) and part.get("type") == "image" else None
    if not isinstance(source, dict):
        return part
    if source.get("type") == "base64":
        url: object = f"data:{source.get('media_type')};base64,{source.get('data')}"
    else:
        url = source.get("url")
    return {"type": "image_url", "image_url": {"url": url}}


def message_error(refusal: Refusal) -> dict[str, object]:
    """Return a refusal in the API's form."""
    return {"type": "error", "error": {"type": refusal.kind, "message": refusal.message}}


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageReply:
    """One message's constants: its id and model."""

    id: str
    model: str

    def answered(
        self, _: Job, generations: Sequence[Generation], usage: TokenUsage, *, metrics: object = None
    ) -> bytes:
        """Return the body of a message that is not streamed."""
        answer = generations[0].answer
        content = [{"type": "text", "text": answer.text(0, len(answer.texts))}]
        body = self._message(content) | _end(generations[0]) | {"usage": _usage(usage)}
        return json.dumps(body if metrics is None else body | {"metrics": metrics}).encode()

    def fresh(self, _: Job, __: int, generation: Generation) -> list[bytes]:
        """Return the events for the tokens that are ready and not sent; the first of them open the message."""
        opening: list[bytes] = []
        if generation.num_sent == 0:
            begun = TokenUsage(
                prompt_tokens=generation.num_prompt_tokens, completion_tokens=0, cached_tokens=None
            )
            start = self._message([]) | {"stop_reason": None, "stop_sequence": None, "usage": _usage(begun)}
            block = {"type": "text", "text": ""}
            opening = [
                named_event({"type": "message_start", "message": start}),
                named_event({"type": "content_block_start", "index": 0, "content_block": block}),
            ]
        text = generation.answer.text(generation.num_sent, generation.num_ready)
        delta = {"type": "text_delta", "text": text}
        return [*opening, named_event({"type": "content_block_delta", "index": 0, "delta": delta})]

    def last(
        self, _: Job, generations: Sequence[Generation], usage: TokenUsage, *, metrics: object = None
    ) -> list[bytes]:
        """Return the events that end the stream; the API has no place for ``metrics``."""
        ended = {"type": "message_delta", "delta": _end(generations[0]), "usage": _usage(usage)}
        return [
            named_event({"type": "content_block_stop", "index": 0}),
            named_event(ended if metrics is None else ended | {"metrics": metrics}),
            named_event({"type": "message_stop"}),
        ]

    def broken(self, refusal: Refusal) -> bytes:
        """Return the event that says within a stream why it ends."""
        return named_event(message_error(refusal))

    def _message(self, content: Sequence[object]) -> dict[str, object]:
        constant = {"id": self.id, "type": "message", "role": "assistant", "model": self.model}
        return {**constant, "content": list(content)}


def _end(generation: Generation) -> dict[str, object]:
    """Return why an answer ended."""
    answer = generation.answer
    if answer.stop_reason is not None:
        return {"stop_reason": "stop_sequence", "stop_sequence": answer.stop_reason}
    why = "max_tokens" if answer.finish_reason == "length" else "end_turn"
    return {"stop_reason": why, "stop_sequence": None}


def _usage(usage: TokenUsage) -> dict[str, object]:
    """Return the counts: new tokens of the prompt apart from those read from the prefix cache."""
    cached = usage.cached_tokens or 0
    read = {"cache_read_input_tokens": cached} if cached else {}
    return {
        "input_tokens": usage.prompt_tokens - cached,
        "output_tokens": usage.completion_tokens,
        **read,
    }
