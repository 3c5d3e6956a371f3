"""OpenAI's transcriptions: a form with a sound in, text out, in the chat API's chunks.

Source: vLLM 0.32 ``vllm/entrypoints/speech_to_text/transcription``, a form (RFC 7578);
nothing there holds an answer to its length. OpenAI's reference has events of its own (``transcript.text``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from observe.senders.request_kinds import BOUNDARY

if TYPE_CHECKING:
    from observe.senders.request_kinds import AsCompletion
    from traces.workload import Api

_KEPT: Final = ("model", "max_completion_tokens", "temperature", "stream")
"""Fields that have the same name and meaning in both APIs; the length's is this API's own."""
_STREAM_OPTIONS: Final = {
    "include_usage": "stream_include_usage",
    "continuous_usage_stats": "stream_continuous_usage_stats",
}
"""The form's flat names of what a completion has in ``stream_options``."""
_FIELD: Final = b'--%b\r\nContent-Disposition: form-data; name="%b"\r\n\r\n%b\r\n'
_FILE: Final = (
    b'--%b\r\nContent-Disposition: form-data; name="file"; filename="sound.wav"\r\n'
    b"Content-Type: audio/wav\r\n\r\n"
)


def body(_: Api, prompt: bytes, fields: Mapping[str, object]) -> bytes:
    """Return the form of one request. ``prompt``: a WAV file."""
    asked = {name: fields[name] for name in _KEPT if name in fields}
    options = fields.get("stream_options")
    if isinstance(options, dict):
        asked |= {flat: options[name] for name, flat in _STREAM_OPTIONS.items() if name in options}
    boundary = BOUNDARY.encode()
    parts = [_FIELD % (boundary, name.encode(), _text(value)) for name, value in asked.items()]
    return b"".join((*parts, _FILE % boundary, prompt, b"\r\n--", boundary, b"--\r\n"))


def _text(value: object) -> bytes:
    return (str(value).lower() if isinstance(value, bool) else str(value)).encode()


def as_completion(_: Api, __: int) -> AsCompletion:
    """Return the reader of events, and of answers in one piece."""
    return read


def read(event: dict[str, Any]) -> dict[str, Any] | str:
    """Return an event, or a whole answer, as the chat API's, as vLLM's chunks are; no prompt's tokens.

    vLLM adds those of the audio to the decoder's prompt, which for some models holds them already.
    """
    kind = event.get("type")
    if kind == "transcript.text.delta":
        return {"choices": [{"delta": {"content": event.get("delta")}}]}
    if kind == "transcript.text.done":
        return {"finish_reason": "stop"} | _usage(event)
    text = event.get("text")
    if isinstance(text, str) and "choices" not in event:
        return {"choices": [{"text": text, "finish_reason": "stop"}]} | _usage(event)
    return event | _usage(event)


def _usage(holder: Mapping[str, object]) -> dict[str, Any]:
    """Return the answer's tokens; nothing where the sound's seconds alone are stated, as by vLLM's whole answers."""
    usage = holder.get("usage")
    if not isinstance(usage, dict):
        return {}
    theirs = next((name for name in ("completion_tokens", "output_tokens") if name in usage), None)
    return {"usage": {} if theirs is None else {"completion_tokens": usage[theirs]}}
