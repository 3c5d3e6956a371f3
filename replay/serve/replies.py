"""Response bodies and stream events of the OpenAI API, as bytes. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from lazy_dataclasses import dataclass

from replay.serve.protocol import Answer, Refusal
from replay.serve.tokens import Tokens

DONE = b"data: [DONE]\n\n"


_dumps = partial(json.dumps, separators=(",", ":"))


def _json(body: Mapping[str, object]) -> bytes:
    return _dumps(body).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenUsage:
    """Token counts of a response; ``cached_tokens`` of the prompts, None before it is known."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int | None

    def body(self) -> dict[str, object]:
        """Return the ``usage`` object."""
        details = None if self.cached_tokens is None else {"cached_tokens": self.cached_tokens}
        return {
            "prompt_tokens": self.prompt_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "completion_tokens": self.completion_tokens,
            "prompt_tokens_details": details,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyHead:
    """One response's constants: its id, model, creation time (Unix seconds) and kind."""

    id: str
    model: str
    created: int
    chat: bool

    def whole(
        self,
        choices: Sequence[Answer],
        usage: TokenUsage,
        *,
        metrics: object = None,
        prompts: Sequence[Tokens] | None = None,
    ) -> bytes:
        """Return the body of a response that is not streamed; with ``prompts`` it names every token by its id."""
        body: dict[str, object] = {
            **self._head("chat.completion" if self.chat else "text_completion"),
            "choices": [self._choice(i, answer) for i, answer in enumerate(choices)],
            "usage": usage.body(),
        }
        for choice, answer, prompt in zip(body["choices"], choices, prompts or (), strict=False):  # type: ignore[call-overload]
            choice["token_ids"] = answer.tokens.tolist()
            (body if self.chat else choice)["prompt_token_ids"] = prompt.tolist()
        if metrics is not None:
            body["metrics"] = metrics
        return _json(body)

    def role(self, index: int, usage: TokenUsage | None, *, prompt: Tokens | None = None) -> bytes:
        """Return the event that opens a chat's stream; ``prompt``: whose ids it names."""
        return self._event(index, {"delta": {"role": "assistant", "content": ""}}, usage=usage, prompt=prompt)

    def chunk(
        self,
        index: int,
        text: str,
        *,
        ends: Answer | None = None,
        usage: TokenUsage | None = None,
        null_usage: bool = False,
        tokens: Tokens | None = None,
        prompt: Tokens | None = None,
    ) -> bytes:
        """Return the event that carries ``text``; ``ends`` is the answer when these are its last tokens.

        ``null_usage``: say ``"usage": null``, as the events before a final usage event do. ``tokens``, ``prompt``:
        the ids to name, of the text and of the prompt.
        """
        said: dict[str, object] = {"delta": {"content": text}} if self.chat else {"text": text}
        if tokens is not None:
            said["token_ids"] = tokens.tolist()
        return self._event(index, said, ends=ends, usage=usage, null_usage=null_usage, prompt=prompt)

    def usage(self, usage: TokenUsage, *, metrics: object = None) -> bytes:
        """Return the event without choices that closes a stream with usage."""
        body: dict[str, object] = {**self._head(self._chunk_kind), "choices": [], "usage": usage.body()}
        if metrics is not None:
            body["metrics"] = metrics
        return b"data: " + _json(body) + b"\n\n"

    @property
    def _chunk_kind(self) -> str:
        return "chat.completion.chunk" if self.chat else "text_completion"

    def _head(self, kind: str) -> dict[str, object]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}

    def _event(
        self,
        index: int,
        said: dict[str, object],
        *,
        ends: Answer | None = None,
        usage: TokenUsage | None = None,
        null_usage: bool = False,
        prompt: Tokens | None = None,
    ) -> bytes:
        choice = {
            "index": index,
            **said,
            "logprobs": None,
            "finish_reason": ends.finish_reason if ends else None,
            "stop_reason": ends.stop_reason if ends else None,
        }
        body: dict[str, object] = {**self._head(self._chunk_kind), "choices": [choice]}
        if (
            prompt is not None
        ):  # where vLLM names them: a chat's beside the choices, a completion's in its choice
            (body if self.chat else choice)["prompt_token_ids"] = prompt.tolist()
        if usage is not None:
            body["usage"] = usage.body()
        elif null_usage:
            body["usage"] = None
        return b"data: " + _json(body) + b"\n\n"

    def _choice(self, index: int, answer: Answer) -> dict[str, object]:
        text = answer.text(0, len(answer.texts))
        said: dict[str, object] = (
            {"message": {"role": "assistant", "content": text}} if self.chat else {"text": text}
        )
        ends = {"finish_reason": answer.finish_reason, "stop_reason": answer.stop_reason}
        return {"index": index, **said, "logprobs": None, **ends}


def refused(refusal: Refusal) -> bytes:
    """Return the event that says within a stream why it ends."""
    return b"data: " + _json(refusal.body()) + b"\n\n"
