"""OpenAI's Responses API: messages in, events by type out.

Source: OpenAI's reference of streaming events; vLLM 0.32 ``vllm/entrypoints/openai/responses/protocol.py``, which adds
``ignore_eos``, ``priority`` and ``structured_outputs``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import orjson

from observe.kinds.message_parts import with_own_parts

if TYPE_CHECKING:
    from observe.senders.request_kinds import AsCompletion
    from traces.workload import Api

_KEPT: Final = (
    *("model", "max_output_tokens", "temperature", "stream", "ignore_eos", "priority"),
    *("structured_outputs", "tool_choice"),
)
"""Fields that have the same name and meaning in both APIs; the length's is this API's own."""
_TEXT: Final = {
    "response.output_text.delta": "content",
    "response.refusal.delta": "refusal",
    "response.reasoning_text.delta": "reasoning",
    "response.reasoning_summary_text.delta": "reasoning",
}
_CALL_DELTAS: Final = "_call_arguments.delta"
_ERRORS: Final = ("response.failed", "error")
_ENDS: Final = ("response.completed", "response.incomplete")


def body(_: Api, prompt: bytes, fields: Mapping[str, object]) -> bytes:
    """Return the JSON of one request; its answer is not stored."""
    kept = {name: fields[name] for name in _KEPT if name in fields} | {"store": False}
    form = fields.get("response_format")
    if isinstance(form, dict):
        kept["text"] = {"format": {"type": form["type"], **form["json_schema"]}}
    tools = fields.get("tools")
    if isinstance(tools, list):
        kept["tools"] = [_flat(tool) for tool in tools]
        if isinstance(chosen := fields.get("tool_choice"), dict):
            kept["tool_choice"] = _flat(chosen)
    prompt = with_own_parts(prompt, _part)
    return b"".join((orjson.dumps(kept)[:-1], b',"input":', prompt, b"}"))


def _part(part: Mapping[str, Any]) -> dict[str, Any]:
    if part["type"] == "image_url":
        return {"type": "input_image", "image_url": part["image_url"]["url"], "detail": "auto"}
    return {"type": "input_text", "text": part["text"]}


def _flat(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool, or the choice of one, whose function's fields are its own."""
    return {"type": "function", **tool["function"]}


def as_completion(_: Api, __: int) -> AsCompletion:
    """Return the reader of events, and of answers in one piece."""
    return read


def read(event: dict[str, Any]) -> dict[str, Any] | str:
    """Return an event, or a whole answer, as the chat API's; one without text, usage or end is empty."""
    said = event.get("type")
    kind = said if isinstance(said, str) else ""
    if event.get("object") == "response":
        return _whole(event)
    if kind in _TEXT:
        return _delta({_TEXT[kind]: event.get("delta")})
    if (called := _called(kind, event)) is not None:
        return _delta({"tool_calls": [{"index": event.get("output_index"), "function": called}]})
    response = event.get("response")
    if kind in _ENDS and isinstance(response, dict):
        return _end(response)
    return _error(event, response) if kind in _ERRORS else {}


def _error(event: dict[str, Any], response: object) -> dict[str, Any]:
    """Return what an event says went wrong, as an error of the chat API."""
    holder = response if isinstance(response, dict) else event
    error = holder.get("error")
    return {"error": error if isinstance(error, dict) else {"message": holder.get("message") or str(event)}}


def _delta(delta: dict[str, Any]) -> dict[str, Any]:
    return {"choices": [{"delta": delta}]}


def _called(kind: str, event: dict[str, Any]) -> dict[str, Any] | None:
    """Return the piece of a tool's call that an event holds, or None."""
    if kind.endswith(_CALL_DELTAS):
        return {"arguments": event.get("delta")}
    item = event.get("item")
    is_begun = kind == "response.output_item.added" and _is_call(item)
    return {"name": str(item.get("name"))} if is_begun and isinstance(item, dict) else None


def _is_call(item: object) -> bool:
    return isinstance(item, dict) and str(item.get("type")).endswith("_call")


def _end(response: dict[str, Any], message: Mapping[str, object] | None = None) -> dict[str, Any]:
    """Return why an answer ended, and its usage; with the ``message`` of one that came in one piece."""
    why = response.get("incomplete_details")
    reason = why.get("reason") if isinstance(why, dict) else None
    is_cut = response.get("status") == "incomplete"
    finish = "length" if reason == "max_output_tokens" or (is_cut and reason is None) else reason or "stop"
    said: dict[str, Any] = {"finish_reason": finish}
    if message is not None:
        said["choices"] = [{"message": dict(message)}]
    usage = response.get("usage")
    if isinstance(usage, dict):
        said["usage"] = {
            "prompt_tokens": usage.get("input_tokens"),
            "completion_tokens": usage.get("output_tokens"),
            "total_tokens": usage.get("total_tokens"),
            "prompt_tokens_details": usage.get("input_tokens_details"),
            "completion_tokens_details": usage.get("output_tokens_details"),
        }
    return said


def _whole(response: dict[str, Any]) -> dict[str, Any] | str:
    """Return an answer in one piece: its text, its reasoning and its calls."""
    items = response.get("output")
    if response.get("status") == "failed":
        return _error(response, None)
    if not isinstance(items, list):
        return "output: got none, expected a list of items"
    known = [item for item in items if isinstance(item, dict)]
    calls = [
        {"index": place, "function": {"name": item.get("name")}}
        for place, item in enumerate(known)
        if _is_call(item)
    ]
    message = {
        "content": _texts(known, "message"),
        "reasoning": _texts(known, "reasoning"),
        "tool_calls": calls,
    }
    return _end(response, {name: said for name, said in message.items() if said})


def _texts(items: list[dict[str, Any]], kind: str) -> str:
    """Return the text of the items of a kind."""
    parts = [part for item in items if item.get("type") == kind for part in _list(item.get("content"))]
    return "".join(
        part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)
    )


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
