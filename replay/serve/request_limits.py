"""Limits of one request, so that none can hold up the others; reading and planning its body within them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from lazy_dataclasses import dataclass
from typing import TypeVar

from aiohttp import web
from aiohttp.web_protocol import RequestPayloadError

from replay.serve.protocol import Answer, Job, PartReader, Refusal, plan_answer
from sim import UNBOUNDED, EngineConfig, HeldBlocks
from traces.strict.arguments import Count, check_fields

Parsed = TypeVar("Parsed")

LARGE_BODY = 1 << 16
"""Bytes: a longer body is parsed in a thread, while the event loop goes on; a shorter one takes less than a ms."""

LARGE_ANSWERS = 1 << 13
"""Tokens: as many answers are planned in a thread, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLimits:
    """The limits of one request: bytes of its body, prompts, and tokens of all its prompts and answers together.

    ``read_part``: what reads the parts of a chat that are no text; None: they are refused.
    """

    max_body_bytes: int = 16 * 2**20
    max_prompts: int = 128
    max_request_tokens: int = 2**20
    read_part: PartReader | None = None

    def __post_init__(self) -> None:
        """Check the numbers. Raises ConfigError."""
        check_fields(self, max_body_bytes=Count(1), max_prompts=Count(1), max_request_tokens=Count(1))


async def parsed_body(
    request: web.Request, parse: Callable[[bytes], Parsed], *, limits: RequestLimits
) -> Parsed:
    """Return a request's body, parsed by ``parse``. Raises Refusal."""
    try:
        raw = await request.read()
    except web.HTTPRequestEntityTooLarge as error:
        message = f"body: got more than {limits.max_body_bytes:,} bytes (--max-body-bytes)"
        raise Refusal(message, status=413, kind="RequestEntityTooLarge", closes=True) from error
    except RequestPayloadError as error:
        raise Refusal(
            f"body: got bytes that its headers do not explain ({_reason(error)})", closes=True
        ) from error
    if len(raw) <= LARGE_BODY:
        return parse(raw)
    return await asyncio.to_thread(parse, raw)


def _reason(error: RequestPayloadError) -> str:
    return " ".join(str(error).split())


async def planned_answers(job: Job, *, max_model_len: int, limits: RequestLimits) -> list[Answer]:
    """Return the answer to each prompt of a job. Raises Refusal where they are too many or too long."""
    check_prompts(job, limits)
    longest = max_model_len if job.max_tokens is None else job.max_tokens
    if len(job.prompts) * min(longest, max_model_len) <= LARGE_ANSWERS:
        return _planned(job, max_model_len, limits)
    return await asyncio.to_thread(_planned, job, max_model_len, limits)


def check_prompts(job: Job, limits: RequestLimits) -> None:
    """Raise Refusal where a job has too many prompts."""
    if len(job.prompts) > limits.max_prompts:
        message = f"prompt: got {len(job.prompts):,} prompts, expected at most {limits.max_prompts:,} (--max-prompts)"
        raise Refusal(message, param="prompt")


def _planned(job: Job, max_model_len: int, limits: RequestLimits) -> list[Answer]:
    answers: list[Answer] = []
    num_tokens = sum(map(len, job.prompts))
    for prompt in job.prompts:
        _check_tokens(num_tokens, limits)
        answers.append(plan_answer(job, prompt, max_model_len=max_model_len))
        num_tokens += len(answers[-1].tokens)
    _check_tokens(num_tokens, limits)
    return answers


def _check_tokens(num_tokens: int, limits: RequestLimits) -> None:
    if num_tokens > limits.max_request_tokens:
        message = (
            f"prompt, max_tokens: got a request of {num_tokens:,} tokens or more, expected at most "
            f"{limits.max_request_tokens:,} (--max-request-tokens)"
        )
        raise Refusal(message, param="prompt")


def check_kv(job: Job, answers: Sequence[Answer], engines: Sequence[EngineConfig]) -> None:
    """Raise Refusal if a request needs more KV blocks than an engine has: it would wait without end.

    vLLM does not start where a request of max_model_len tokens would not fit, so it has no such answer.
    """
    for engine in engines:
        if engine.num_gpu_blocks == UNBOUNDED:
            continue
        usable, held = engine.num_gpu_blocks - 1, HeldBlocks.of(engine)  # block 0 is the null block
        for prompt, answer in zip(job.prompts, answers, strict=True):
            stored = len(prompt) + len(answer.texts) - 1  # the last token is never stored
            if held.fullest(min(stored, engine.max_model_len)) > usable:
                message = (
                    f"This server's KV cache holds {held.longest(usable):,} tokens. However, your request needs "
                    f"{stored:,} of them ({len(prompt):,} in the prompt, {len(answer.texts):,} in the answer)."
                )
                raise Refusal(message, param="max_tokens")
