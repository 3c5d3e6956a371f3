"""Transcriptions, served: a form with a WAV file as a prompt of its tokens, and an answer in the chat API's chunks.

Source: vLLM 0.32 ``vllm/entrypoints/speech_to_text/transcription``; forms: RFC 7578 and RFC 2046, section 5.1.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Sequence
from email.message import Message
from lazy_dataclasses import dataclass
from typing import Final

from replay.serve.chat_parts import sound_seconds
from replay.serve.protocol import Body, Job, PartReader, Refusal, job_of
from replay.serve.replies import DONE, TokenUsage
from replay.serve.twin import Generation
from replay.serve.unreadable_part import UnreadablePartError

MOST_PARTS: Final = 64
_FLAGS: Final = {"true": True, "1": True, "false": False, "0": False}
_STREAM_OPTIONS: Final = {
    "stream_include_usage": "include_usage",
    "stream_continuous_usage_stats": "continuous_usage_stats",
}


def form_fields(raw: bytes, *, content_type: str) -> Body:
    """Return the fields of a form by their names: texts, a file's as bytes. Raises Refusal."""
    head = Message()
    head["Content-Type"] = content_type.encode(errors="replace").decode("ascii", "replace")
    boundary = head.get_boundary()
    if head.get_content_type() != "multipart/form-data" or not boundary:
        raise Refusal("Content-Type: expected multipart/form-data with a boundary")
    mark = b"\r\n--" + boundary.encode(errors="replace")
    _, *parts = (b"\r\n" + raw).split(mark, MOST_PARTS + 1)
    if not parts or not parts.pop().startswith(b"--"):
        raise Refusal(f"body: got a form without an end, expected one of at most {MOST_PARTS} parts")
    return dict(_part(part) for part in parts)


def _part(part: bytes) -> tuple[str, str | bytes]:
    """Return a part's name and content."""
    lines, _, content = part.partition(b"\r\n\r\n")
    head = Message()
    for line in lines.decode("ascii", "replace").splitlines():
        header, _, value = line.partition(":")
        if header.strip().lower() == "content-disposition":
            head["Content-Disposition"] = value.strip()
    name = head.get_param("name", header="Content-Disposition")
    if not isinstance(name, str):
        raise Refusal("body: got a part without a name, expected a form")
    if head.get_filename() is not None:
        return name, content
    try:
        return name, content.decode()
    except UnicodeDecodeError as error:
        raise Refusal("body: got text that is not Unicode, expected a form") from error


def parse_transcription(body: Body, *, read_part: PartReader | None) -> tuple[Job, float]:
    """Return the job of a form, and its sound's seconds; ``read_part``: what reads sounds. Raises Refusal."""
    sound = body.get("file")
    if not isinstance(sound, bytes):
        raise Refusal("file: got no file, expected a sound", param="file")
    if read_part is None:
        raise Refusal("file: got a sound, which this server takes with --audio-seconds alone", param="file")
    try:
        seconds = sound_seconds(sound)
        data = base64.b64encode(sound).decode()
        tokens = read_part({"type": "input_audio", "input_audio": {"data": data, "format": "wav"}})
    except UnreadablePartError as fault:
        raise Refusal(f"file: {fault}", param="file") from fault
    except Refusal as refusal:  # of a server that takes images alone
        raise Refusal(
            "file: got a sound, which this server takes with --audio-seconds alone", param="file"
        ) from refusal
    asked: dict[str, object] = {"stream": _flag(body, "stream")}
    options = {theirs: _flag(body, name) for name, theirs in _STREAM_OPTIONS.items()}
    if any(options.values()):
        asked["stream_options"] = options
    if (limit := body.get("max_completion_tokens")) is not None:
        asked["max_completion_tokens"] = _whole_number(limit)
    return job_of(asked, chat=True, prompts=(tokens,), max_tokens=None), seconds


def _flag(body: Body, name: str) -> bool:
    said = str(body.get(name, "false")).lower()
    if said not in _FLAGS:
        raise Refusal(f"{name}: expected true or false", param=name)
    return _FLAGS[said]


def _whole_number(text: object) -> int:
    if not isinstance(text, str) or not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise Refusal("max_completion_tokens: expected an integer", param="max_completion_tokens")
    return int(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptionReply:
    """One answer's constants: its id, model, creation time (Unix seconds), and the sound's ``seconds``."""

    id: str
    model: str
    created: int
    seconds: float

    def answered(
        self, _: Job, generations: Sequence[Generation], __: TokenUsage, *, metrics: object = None
    ) -> bytes:
        """Return the body of an answer in one piece, whose usage states the seconds alone."""
        answer = generations[0].answer
        usage = {"type": "duration", "seconds": math.ceil(self.seconds)}
        body: dict[str, object] = {"text": answer.text(0, len(answer.texts)), "usage": usage}
        return json.dumps(body if metrics is None else body | {"metrics": metrics}).encode()

    def fresh(self, job: Job, _: int, generation: Generation) -> list[bytes]:
        """Return the chunk of the tokens that are ready and not sent."""
        answer, ready = generation.answer, generation.num_ready
        ends = answer if generation.is_finished else None
        choice = {
            "delta": {"content": answer.text(generation.num_sent, ready)},
            "finish_reason": ends.finish_reason if ends else None,
            "stop_reason": ends.stop_reason if ends else None,
        }
        usage = None
        if job.include_usage and job.continuous_usage:
            usage = TokenUsage(
                prompt_tokens=generation.num_prompt_tokens, completion_tokens=ready, cached_tokens=None
            )
        return [self._chunk([choice], usage)]

    def last(
        self, job: Job, _: Sequence[Generation], usage: TokenUsage, *, metrics: object = None
    ) -> list[bytes]:
        """Return the events that end the stream; the API has no place for ``metrics``."""
        closing = {} if metrics is None else {"metrics": metrics}
        return [*([self._chunk([], usage, **closing)] if job.include_usage else []), DONE]

    def broken(self, refusal: Refusal) -> bytes:
        """Return the events that say within a stream why it ends."""
        return b"data: " + json.dumps(refusal.body()).encode() + b"\n\n" + DONE

    def _chunk(self, choices: list[object], usage: TokenUsage | None, **more: object) -> bytes:
        body = {
            "id": self.id,
            "object": "transcription.chunk",
            "created": self.created,
            "model": self.model,
            "choices": choices,
            "usage": None if usage is None else usage.body(),
            **more,
        }
        return b"data: " + json.dumps(body).encode() + b"\n\n"
