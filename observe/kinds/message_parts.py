"""The parts of messages, as the chat API has them, in the words of another API."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import orjson


def with_own_parts(prompt: bytes, own: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> bytes:
    """Return messages, JSON, each part of theirs as ``own`` says it; without pictures they are as they were."""
    if b'"image_url"' not in prompt:
        return prompt
    said = orjson.loads(prompt)
    for message in said:
        if isinstance(message["content"], list):
            message["content"] = [own(part) for part in message["content"]]
    return orjson.dumps(said)
