"""OpenAI's Responses API, served: a body as a chat's, and an answer in items and events by type.

Source: vLLM 0.32 ``vllm/entrypoints/openai/responses``: ``protocol.py``, ``streaming_events.py``.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from lazy_dataclasses import dataclass, field
from typing import Final

from replay.serve.protocol import Body, Job, PartReader, Refusal, kind_of, parse_chat
from replay.serve.replies import TokenUsage, named_event
from replay.serve.twin import Generation

_KEPT: Final = (
    "stream",
    "ignore_eos",
    "priority",
    "cache_salt",
    "structured_outputs",
    "tools",
    "tool_choice",
)
"""Fields that have the same name and meaning in both APIs."""
_NOT_EMULATED: Final = ("previous_response_id", "background", "conversation", "prompt", "reasoning")
_TEXTS: Final = ("input_text", "output_text", "text")


def parse_response(body: Body, *, read_part: PartReader | None = None) -> Job:
    """Return the job of a /v1/responses body. Raises Refusal."""
    for name in _NOT_EMULATED:
        if body.get(name):
            raise Refusal(f"{name}: expected none: this server does not emulate it", param=name)
    chat: dict[str, object] = {name: body[name] for name in _KEPT if name in body}
    chat["max_completion_tokens"] = body.get("max_output_tokens")
    chat["response_format"] = _format(body.get("text"))
    chat["messages"] = _messages(body)
    return parse_chat(chat, read_part=read_part)


def _format(text: object) -> object:
    """Return the chat API's form of an answer."""
    form = text.get("format") if isinstance(text, dict) else None
    if isinstance(form, dict) and form.get("type") == "json_schema":
        return {"type": "json_schema", "json_schema": form}
    return form


def _messages(body: Body) -> list[object]:
    said, told = body.get("input"), body.get("instructions")
    if isinstance(said, str):
        items: list[object] = [{"role": "user", "content": said}]
    elif isinstance(said, list) and said:
        items = [_message(item) for item in said]
    else:
        raise Refusal(f"input: got {kind_of(said)}, expected text or a list of messages", param="input")
    return [{"role": "system", "content": told}, *items] if isinstance(told, str) and told else items


def _message(item: object) -> object:
    if not isinstance(item, dict) or item.get("type", "message") != "message":
        raise Refusal("input: got an item that is no message, expected messages", param="input")
    content = item.get("content")
    return {**item, "content": [_part(part) for part in content] if isinstance(content, list) else content}


def _part(part: object) -> object:
    """Return a part of a message as the chat API has it; one that it does not know stays what it is."""
    if not isinstance(part, dict):
        return part
    if part.get("type") in _TEXTS:
        return {"type": "text", "text": part.get("text")}
    return {**part, "type": "image_url"} if part.get("type") == "input_image" else part


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseReply:
    """One response's constants: its id, model and creation time (Unix seconds); its events are numbered."""

    id: str
    model: str
    created: int
    numbers: itertools.count[int] = field(default_factory=itertools.count)

    def answered(
        self, job: Job, generations: Sequence[Generation], usage: TokenUsage, *, metrics: object = None
    ) -> bytes:
        """Return the body of a response that is not streamed."""
        return json.dumps(self._ended(job, generations[0], usage, metrics)).encode()

    def fresh(self, job: Job, _: int, generation: Generation) -> list[bytes]:
        """Return the events for the tokens that are ready and not sent; the first of them open the response."""
        opening: list[bytes] = []
        if generation.num_sent == 0:
            begun = self._response(job, status="in_progress", output=[])
            opening = [
                self._event("response.created", response=begun),
                self._event("response.in_progress", response=begun),
                self._event("response.output_item.added", item=self._item(None), output_index=0),
                self._event("response.content_part.added", part=_text(""), **self._place),
            ]
        text = generation.answer.text(generation.num_sent, generation.num_ready)
        return [*opening, self._event("response.output_text.delta", delta=text, logprobs=[], **self._place)]

    def last(
        self, job: Job, generations: Sequence[Generation], usage: TokenUsage, *, metrics: object = None
    ) -> list[bytes]:
        """Return the events that end the stream."""
        text = _whole_text(generations[0])
        return [
            self._event("response.output_text.done", text=text, logprobs=[], **self._place),
            self._event("response.content_part.done", part=_text(text), **self._place),
            self._event("response.output_item.done", item=self._item(text), output_index=0),
            self._event("response.completed", response=self._ended(job, generations[0], usage, metrics)),
        ]

    def broken(self, refusal: Refusal) -> bytes:
        """Return the event that says within a stream why it ends."""
        return self._event("error", code=refusal.kind, message=refusal.message, param=refusal.param)

    @property
    def _place(self) -> dict[str, object]:
        return {"item_id": self._item_id, "output_index": 0, "content_index": 0}

    @property
    def _item_id(self) -> str:
        return self.id.replace("resp_", "msg_", 1)

    def _event(self, kind: str, **fields: object) -> bytes:
        return named_event({"type": kind, "sequence_number": next(self.numbers), **fields})

    def _item(self, text: str | None) -> dict[str, object]:
        """Return the message that the answer is; None: it has just begun."""
        return {
            "id": self._item_id,
            "type": "message",
            "role": "assistant",
            "status": "in_progress" if text is None else "completed",
            "content": [] if text is None else [_text(text)],
        }

    def _ended(
        self, job: Job, generation: Generation, usage: TokenUsage, metrics: object
    ) -> dict[str, object]:
        is_cut = generation.answer.finish_reason == "length"
        response = self._response(
            job,
            status="incomplete" if is_cut else "completed",
            output=[self._item(_whole_text(generation))],
        )
        response["incomplete_details"] = {"reason": "max_output_tokens"} if is_cut else None
        response["usage"] = {
            "input_tokens": usage.prompt_tokens,
            "input_tokens_details": {"cached_tokens": usage.cached_tokens or 0, "cache_write_tokens": 0},
            "output_tokens": usage.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        }
        return response if metrics is None else response | {"metrics": metrics}

    def _response(
        self, job: Job, *, status: str, output: Sequence[Mapping[str, object]]
    ) -> dict[str, object]:
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "model": self.model,
            "status": status,
            "output": list(output),
            "incomplete_details": None,
            "max_output_tokens": job.max_tokens,
            "usage": None,
            **_DEFAULTS,
        }


_DEFAULTS: Final[Mapping[str, object]] = {
    "background": False,
    "parallel_tool_calls": True,
    "service_tier": "auto",
    "temperature": 1.0,
    "tool_choice": "auto",
    "tools": [],
    "top_p": 1.0,
    "truncation": "disabled",
}
"""What a response says again of a request that did not ask for it."""


def _text(text: str) -> dict[str, object]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _whole_text(generation: Generation) -> str:
    return generation.answer.text(0, len(generation.answer.texts))
