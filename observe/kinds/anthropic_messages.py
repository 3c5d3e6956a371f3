"""Anthropic's Messages API: messages in, blocks of text, thinking and calls of tools out.

Source: Anthropic's reference of streaming events; vLLM 0.32 ``vllm/entrypoints/anthropic``, which ignores fields that
the API has not: nothing holds an answer to its length.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import orjson

from observe.kinds.message_parts import with_own_parts

if TYPE_CHECKING:
    from observe.senders.request_kinds import AsCompletion
    from traces.workload import Api

_KEPT: Final = ("model", "max_tokens", "temperature", "stream")
"""Fields that have the same name and meaning in both APIs."""
_CHOICES: Final = {"auto": "auto", "required": "any", "none": "none"}
_FINISH: Final = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "tool_use": "tool_calls",
}
_NAMES: Final = {"text": "content", "thinking": "reasoning"}
"""The chat API's name of a block's text, by the block's type, which is also the key of the text."""


def body(_: Api, prompt: bytes, fields: Mapping[str, object]) -> bytes:
    """Return the JSON of one request: system messages beside the others, tools and schema as the API has them."""
    kept: dict[str, object] = {name: fields[name] for name in _KEPT if name in fields}
    schema = _schema(fields)
    if schema is not None:
        kept["output_config"] = {"format": {"type": "json_schema", "schema": schema}}
    tools = fields.get("tools")
    if isinstance(tools, list):
        kept["tools"] = [_tool(each["function"]) for each in tools]
        kept["tool_choice"] = _choice(fields.get("tool_choice"))
    if b'"system"' in prompt:  # a role, or a text of this word alone
        said = orjson.loads(prompt)
        kept |= {"system": text} if (text := _system(said)) else {}
        prompt = orjson.dumps([message for message in said if message.get("role") != "system"])
    prompt = with_own_parts(prompt, _part)
    return b"".join((orjson.dumps(kept)[:-1], b',"messages":', prompt, b"}"))


def _part(part: Mapping[str, Any]) -> Mapping[str, Any]:
    if part["type"] != "image_url":
        return part
    kind, _, data = part["image_url"]["url"].removeprefix("data:").partition(";base64,")
    return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}


def _schema(fields: Mapping[str, object]) -> object:
    """Return the schema of a guided request, as OpenAI's field or vLLM's own has it, or None."""
    form, own = fields.get("response_format"), fields.get("structured_outputs")
    if isinstance(form, dict):
        return form["json_schema"]["schema"]
    return own.get("json") if isinstance(own, dict) else None


def _tool(function: Mapping[str, object]) -> dict[str, object]:
    said = {"name": function["name"], "input_schema": function.get("parameters") or {"type": "object"}}
    described = function.get("description")
    return said if described is None else said | {"description": described}


def _choice(choice: object) -> dict[str, object]:
    if isinstance(choice, dict):
        return {"type": "tool", "name": choice["function"]["name"]}
    return {"type": _CHOICES.get(str(choice), "auto")}


def _system(messages: list[dict[str, Any]]) -> str:
    texts = [message.get("content") for message in messages if message.get("role") == "system"]
    return "\n".join(text for text in texts if isinstance(text, str))


def as_completion(_: Api, __: int) -> AsCompletion:
    """Return the reader of events, and of answers in one piece."""
    return read


def read(event: dict[str, Any]) -> dict[str, Any] | str:
    """Return an event, or a whole answer, as the chat API's; one without text, usage or end is empty."""
    kind = event.get("type")
    reader = _READERS.get(kind) if isinstance(kind, str) else None
    return {} if reader is None else reader(event)


def _error(event: dict[str, Any]) -> dict[str, Any]:
    error = event.get("error")
    return {"error": error if isinstance(error, dict) else {"message": str(event)}}


def _start(event: dict[str, Any]) -> dict[str, Any]:
    return _usage(event.get("message"))


def _last(event: dict[str, Any]) -> dict[str, Any]:
    delta = event.get("delta")
    return _end(delta if isinstance(delta, dict) else {}) | _usage(event)


def _delta(event: dict[str, Any]) -> dict[str, Any]:
    """Return a piece of a block: its text, its thinking, or the arguments of a call."""
    delta = event.get("delta")
    if not isinstance(delta, dict):
        return {}
    kind = delta.get("type")
    if kind == "input_json_delta":
        return _called(event, {"arguments": delta.get("partial_json")})
    for holder, name in _NAMES.items():
        if kind == f"{holder}_delta":
            return {"choices": [{"delta": {name: delta.get(holder)}}]}
    return {}


def _block(event: dict[str, Any]) -> dict[str, Any]:
    """Return what the begin of a block holds: the name of a tool, or a text that is there at once."""
    block = event.get("content_block")
    if not isinstance(block, dict):
        return {}
    if _is_call(block):
        return _called(event, {"name": str(block.get("name"))})
    name, text = _said(block)
    return {"choices": [{"delta": {name: text}}]} if text else {}


def _is_call(block: Mapping[str, object]) -> bool:
    return str(block.get("type")).endswith("tool_use")


def _said(block: Mapping[str, object]) -> tuple[str, str]:
    """Return the chat API's name of what a block says, and the text; "" of another block."""
    for holder, name in _NAMES.items():
        text = block.get(holder)
        if block.get("type") == holder and isinstance(text, str):
            return name, text
    return "", ""


def _called(event: dict[str, Any], function: dict[str, Any]) -> dict[str, Any]:
    return {"choices": [{"delta": {"tool_calls": [{"index": event.get("index"), "function": function}]}}]}


def _end(holder: Mapping[str, object]) -> dict[str, Any]:
    """Return why an answer ended, nothing where that is not said."""
    reason = holder.get("stop_reason")
    return {} if reason is None else {"finish_reason": _FINISH.get(str(reason), reason)}


def _usage(holder: object) -> dict[str, Any]:
    """Return the usage: the API counts the prompt's tokens apart as new, read from and written to a cache."""
    usage = holder.get("usage") if isinstance(holder, dict) else None
    if not isinstance(usage, dict):
        return {}
    said: dict[str, object] = {"completion_tokens": usage.get("output_tokens")}
    new, cached = usage.get("input_tokens"), usage.get("cache_read_input_tokens")
    parts = [each for each in (new, cached, usage.get("cache_creation_input_tokens")) if each is not None]
    if new is not None and all(type(each) is int and each >= 0 for each in parts):
        said["prompt_tokens"] = sum(parts)
    elif new is not None:
        said["prompt_tokens"] = new  # no count: told as such
    if cached is not None:
        said["prompt_tokens_details"] = {"cached_tokens": cached}
    return {"usage": said}


def _whole(answer: dict[str, Any]) -> dict[str, Any] | str:
    """Return an answer in one piece: its text, its thinking and its calls."""
    blocks = answer.get("content")
    if not isinstance(blocks, list):
        return "content: got none, expected a list of blocks"
    known = [block for block in blocks if isinstance(block, dict)]
    message: dict[str, Any] = {}
    for name, text in map(_said, known):
        if text:
            message[name] = message.get(name, "") + text
    calls = [block for block in known if _is_call(block)]
    if calls:
        message["tool_calls"] = [
            {"index": place, "function": {"name": block.get("name")}} for place, block in enumerate(calls)
        ]
    return {"choices": [{"message": message}]} | _end(answer) | _usage(answer)


_READERS: Final[Mapping[str, Callable[[dict[str, Any]], dict[str, Any] | str]]] = {
    "message": _whole,
    "message_start": _start,
    "content_block_start": _block,
    "content_block_delta": _delta,
    "message_delta": _last,
    "error": _error,
}
"""By an event's type, or a whole answer's; the others say nothing that is measured."""
