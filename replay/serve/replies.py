"""Response bodies and stream events of the OpenAI API, as bytes. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from lazy_dataclasses import dataclass
from typing import Protocol

from replay.serve.protocol import Answer, Job, Refusal
from replay.serve.tokens import Tokens
from replay.serve.twin import Generation

DONE = b"data: [DONE]\n\n"


_dumps = partial(json.dumps, separators=(",", ":"))


def named_event(event: Mapping[str, object]) -> bytes:
    """Return an event of a stream whose events have names: that of its type."""
    return b"event: %b\ndata: %b\n\n" % (str(event["type"]).encode(), _json(event))


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


class WholeReply(Protocol):
    """How an API words an answer in one piece."""

    def answered(
        self, job: Job, generations: Sequence[Generation], usage: TokenUsage, /, *, metrics: object
    ) -> bytes:
        """Return the body; ``metrics``: the engine's times, None where they are not asked for."""


class StreamedReply(WholeReply, Protocol):
    """How an API words an answer that may be streamed."""

    def fresh(self, job: Job, index: int, generation: Generation, /) -> list[bytes]:
        """Return the events for the tokens of answer ``index`` that are ready and not sent."""

    def last(
        self, job: Job, generations: Sequence[Generation], usage: TokenUsage, /, *, metrics: object
    ) -> list[bytes]:
        """Return the events that end the stream."""

    def broken(self, refusal: Refusal, /) -> bytes:
        """Return the events that say within a stream why it ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyHead:
    """One response's constants: its id, model, creation time (Unix seconds) and kind."""

    id: str
    model: str
    created: int
    chat: bool

    def answered(
        self, job: Job, generations: Sequence[Generation], usage: TokenUsage, *, metrics: object = None
    ) -> bytes:
        """Return the body of the answers to a job that is not streamed."""
        answers = [generation.answer for generation in generations]
        prompts = job.prompts if job.return_token_ids else None
        return self.whole(answers, usage, metrics=metrics, prompts=prompts)

    def fresh(self, job: Job, index: int, generation: Generation) -> list[bytes]:
        """Return the events for the tokens of one answer that are ready and not sent."""
        answer, ready = generation.answer, generation.num_ready
        usage = None
        if job.continuous_usage:
            usage = TokenUsage(
                prompt_tokens=generation.num_prompt_tokens, completion_tokens=ready, cached_tokens=None
            )
        is_first = generation.num_sent == 0
        prompt = job.prompts[index] if job.return_token_ids and is_first else None
        opening = [self.role(index, usage, prompt=prompt)] if self.chat and is_first else []
        chunk = self.chunk(
            index,
            answer.text(generation.num_sent, ready),
            ends=answer if generation.is_finished else None,
            usage=usage,
            null_usage=job.include_usage,
            tokens=answer.tokens[generation.num_sent : ready] if job.return_token_ids else None,
            prompt=None if self.chat else prompt,
        )
        return [*opening, chunk]

    def last(
        self, job: Job, _: Sequence[Generation], usage: TokenUsage, *, metrics: object = None
    ) -> list[bytes]:
        """Return the events that end the stream: usage where it was asked for."""
        return [*([self.usage(usage, metrics=metrics)] if job.include_usage else []), DONE]

    def broken(self, refusal: Refusal) -> bytes:
        """Return the events that say within a stream why it ends."""
        return b"data: " + _json(refusal.body()) + b"\n\n" + DONE

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
