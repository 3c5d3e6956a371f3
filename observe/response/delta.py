"""What one event's choice holds: text, reasoning, calls, and keys that nobody reads."""

from __future__ import annotations

from typing import Any

_TEXT = ("content", "refusal")
_REASONING = ("reasoning_content", "reasoning", "reasoning_details", "thinking_blocks")
"""As vLLM and DeepSeek, vLLM and OpenRouter, OpenRouter, and LiteLLM (after Anthropic) name them."""
_PLAIN = frozenset({"content", "role"})
_REASONING_KEYS = frozenset(_REASONING)
_CALLS = ("tool_calls", "function_call")
_WITHOUT_TEXT = frozenset(
    {"role", "name", "id", "token_ids", "logprobs", "annotations", "provider_specific_fields"}
)
_KNOWN = _WITHOUT_TEXT | {*_TEXT, *_REASONING, *_CALLS}
_TEXT_OR_CALLS = (*_TEXT, *_CALLS)
_SAID = ("text", "summary", "thinking", "content")
_LONGEST_KEY = 40


def plain_text(choice: dict[str, Any]) -> str | None:
    """Return a choice's text where it holds nothing else, as nearly every event does; else None."""
    text = choice.get("text")
    if text is None:
        delta = choice.get("delta")
        if not isinstance(delta, dict) or (len(delta) > 1 and not delta.keys() <= _PLAIN):
            return None
        text = delta.get("content")
    return text if isinstance(text, str) else None


def has_text(choice: dict[str, Any]) -> bool:
    """Return whether a choice holds text, a refusal or a piece of a tool call."""
    if choice.get("text"):
        return True
    delta = _delta(choice)
    return bool(delta.get("content")) or any(delta.get(name) for name in _TEXT_OR_CALLS)


def has_reasoning(choice: dict[str, Any]) -> bool:
    """Return whether a choice holds reasoning that can be read; encrypted or redacted blocks are none."""
    delta = _delta(choice)
    return not _REASONING_KEYS.isdisjoint(delta) and any(
        _says_something(delta.get(name)) for name in _REASONING
    )


def called_tools(choice: dict[str, Any]) -> set[int]:
    """Return the numbers of the tool calls that a choice begins or continues."""
    delta = _delta(choice)
    calls = delta.get("tool_calls")
    if not isinstance(calls, list):
        return {0} if delta.get("function_call") else set()
    numbers = [call.get("index") if isinstance(call, dict) else None for call in calls]
    return {each if isinstance(each, int) else place for place, each in enumerate(numbers)}


def text_of(choice: dict[str, Any]) -> str:
    """Return the text of a choice of either API, without its reasoning, which clients do not send back."""
    delta = choice.get("delta") or choice.get("message")
    text = delta.get("content") if isinstance(delta, dict) else choice.get("text")
    return text if isinstance(text, str) else ""


def text_length(choice: dict[str, Any]) -> int:
    """Return the characters of a choice's text and reasoning, where these are plain texts."""
    delta = _delta(choice)
    said = (choice.get("text"), *(delta.get(name) for name in ("content", "reasoning_content", "reasoning")))
    return max(len(each) if isinstance(each, str) else 0 for each in said)


def unread_keys(choice: dict[str, Any]) -> set[str]:
    """Return the keys of a delta that hold something and that nothing here reads."""
    delta = _delta(choice)
    if delta.keys() <= _KNOWN:
        return set()
    return {
        key[:_LONGEST_KEY]
        for key, value in delta.items()
        if key not in _KNOWN and value and isinstance(key, str) and key.isprintable()
    }


def _says_something(value: object) -> bool:
    """Return whether a text, or any block of a list, says something."""
    if isinstance(value, list):
        return any(
            any(block.get(name) for name in _SAID) if isinstance(block, dict) else bool(block)
            for block in value
        )
    return bool(value)


def _delta(choice: dict[str, Any]) -> dict[str, Any]:
    delta = choice.get("delta") or choice.get("message")
    return delta if isinstance(delta, dict) else {}
