"""The HTTP side of the served twin: routes, errors, and answers streamed token by token."""

from __future__ import annotations

import asyncio
import hmac
import itertools
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from importlib.metadata import version
from lazy_dataclasses import dataclass, field

from aiohttp import web

from replay.serve.apis.served_messages import (
    MESSAGES_PATH,
    MessageReply,
    message_error,
    message_tokens,
    parse_message,
)
from replay.serve.apis.served_responses import ResponseReply, parse_response
from replay.serve.apis.served_transcriptions import TranscriptionReply, form_fields, parse_transcription
from replay.serve.apis.served_vectors import VECTOR_APIS, VectorReply
from replay.serve.prometheus import exposition
from replay.serve.protocol import (
    TOO_DEEP,
    Answer,
    Body,
    Job,
    Refusal,
    chat_tokens,
    check_model,
    parse_body,
    parse_chat,
    parse_completion,
    token_ids,
)
from replay.serve.replies import ReplyHead, StreamedReply, TokenUsage, WholeReply
from replay.serve.request_limits import (
    Parsed,
    RequestLimits,
    check_kv,
    check_prompts,
    parsed_body,
    planned_answers,
)
from replay.serve.senders import RequestSender
from replay.serve.tokens import decode, encode, small_ids
from replay.serve.twin import Generation, Twin
from sim import EngineConfig

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(slots=True, kw_only=True)
class Site:
    """What the handlers share. ``engines``: the settings of each; ``may_refuse``: requests may get no answer.

    ``is_fleet``: a cluster was asked for, so /metrics counts its instances.
    """

    engines: tuple[EngineConfig, ...]
    vllm_version: str
    model: str
    twin: Twin
    api_key: str | None
    request_metrics: bool
    created: int
    is_fleet: bool = False
    may_refuse: bool = False
    limits: RequestLimits = field(default_factory=RequestLimits)
    numbers: itertools.count[int] = field(default_factory=itertools.count)

    @property
    def max_model_len(self) -> int:
        """The longest request that every engine takes."""
        return min(engine.max_model_len for engine in self.engines)


SITE = web.AppKey("site", Site)


def make_app(site: Site) -> web.Application:
    """Return the application around one served twin."""
    app = web.Application(middlewares=[_errors, _authorization], client_max_size=site.limits.max_body_bytes)
    app[SITE] = site
    app.add_routes(
        [
            web.get("/health", _health),
            web.get("/version", _version),
            web.get("/metrics", _metrics),
            web.get("/v1/models", _models),
            web.get("/v1/models/{id:.+}", _model),
            web.get("/load", _load),
            web.post("/v1/completions", _completions),
            web.post("/v1/completions/render", _render),
            web.post("/v1/chat/completions", _chat),
            web.post("/v1/responses", _responses),
            web.post(MESSAGES_PATH, _messages),
            web.post(f"{MESSAGES_PATH}/count_tokens", _count_tokens),
            web.post("/v1/audio/transcriptions", _transcriptions),
            *(web.post(path, _vectors) for path in VECTOR_APIS),
            web.post("/tokenize", _tokenize),
            web.post("/detokenize", _detokenize),
        ]
    )
    return app


@web.middleware
async def _errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer with an error in the OpenAI API's form, or in Anthropic's."""
    try:
        return await handler(request)
    except Refusal as refusal:
        is_message = request.path.startswith(MESSAGES_PATH)
        said = message_error(refusal) if is_message else refusal.body()
        response = web.json_response(said, status=refusal.status)
        if refusal.closes:
            response.force_close()
        return response
    except RecursionError:
        return web.json_response(Refusal(TOO_DEEP).body(), status=400)
    except web.HTTPException as error:
        return web.json_response({"detail": error.reason}, status=error.status)


@web.middleware
async def _authorization(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Require the API key if one is set: under /v1 only, as vLLM does."""
    key = request.app[SITE].api_key
    if key is not None and request.path.startswith("/v1"):
        given = request.headers.get("Authorization", "")
        asked = given.encode(errors="surrogateescape")  # bytes that are no UTF-8 included
        if not hmac.compare_digest(asked, f"Bearer {key}".encode()):
            return web.json_response({"error": "Unauthorized"}, status=401)
    return await handler(request)


async def _health(_: web.Request) -> web.Response:
    return web.Response()


async def _version(request: web.Request) -> web.Response:
    body = {"version": request.app[SITE].vllm_version, "vtwin": version("vtwin")}
    return web.json_response(body)


async def _metrics(request: web.Request) -> web.Response:
    site = request.app[SITE]
    page = exposition(
        site.twin.metrics,
        site.twin.views(),
        engines=site.engines,
        model=site.model,
        num_instances=site.twin.num_instances() if site.is_fleet else {},
    )
    headers = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
    return web.Response(body=page.encode(), headers=headers)


async def _load(request: web.Request) -> web.Response:
    """Answer with the number of requests in flight, under vLLM's name."""
    return web.json_response({"server_load": request.app[SITE].twin.num_under_way})


def _card(site: Site) -> dict[str, object]:
    return {
        "id": site.model,
        "object": "model",
        "created": site.created,
        "owned_by": "vtwin",
        "root": site.model,
        "parent": None,
        "max_model_len": site.max_model_len,
    }


async def _models(request: web.Request) -> web.Response:
    return web.json_response({"object": "list", "data": [_card(request.app[SITE])]})


async def _model(request: web.Request) -> web.Response:
    site = request.app[SITE]
    check_model({"model": request.match_info["id"]}, site.model)
    return web.json_response(_card(site))


async def _tokenize(request: web.Request) -> web.Response:
    site = request.app[SITE]

    def tokens_of(raw: bytes) -> list[int]:
        body = parse_body(raw)
        check_model(body, site.model)
        prompt = body.get("prompt")
        if not isinstance(prompt, str) and "messages" not in body:
            raise Refusal("prompt: got no text, expected prompt or messages", param="prompt")
        found = (
            encode(prompt) if isinstance(prompt, str) else chat_tokens(body, read_part=site.limits.read_part)
        )
        numbers: list[int] = found.tolist()
        return numbers

    tokens = await parsed_body(request, tokens_of, limits=site.limits)
    limit = site.max_model_len
    return web.json_response({"count": len(tokens), "max_model_len": limit, "tokens": tokens})


async def _detokenize(request: web.Request) -> web.Response:
    site = request.app[SITE]

    def text_of(raw: bytes) -> str:
        body = parse_body(raw)
        check_model(body, site.model)
        return decode(token_ids(body.get("tokens"), param="tokens").tolist())

    return web.json_response({"prompt": await parsed_body(request, text_of, limits=site.limits)})


async def _asked(
    request: web.Request, parse: Callable[[Body], Parsed], *, read: Callable[[bytes], Body] = parse_body
) -> Parsed:
    """Return what a request's body asks for, JSON unless ``read`` takes another. Raises Refusal."""
    site = request.app[SITE]

    def asked(raw: bytes) -> Parsed:
        body = read(raw)
        check_model(body, site.model)
        return parse(body)

    return await parsed_body(request, asked, limits=site.limits)


async def _completions(request: web.Request) -> web.StreamResponse:
    job = await _asked(request, parse_completion)
    return await _generate(request, job, _chunked(request, "cmpl", chat=False))


async def _render(request: web.Request) -> web.Response:
    """Answer with the token ids of each prompt and generate nothing: token-aware routers request them.

    The keys are those of vLLM 0.32; those that the twin does not have are null. Ids have 32 bits, as routers expect.
    """
    site = request.app[SITE]
    job = await _asked(request, parse_completion)
    check_prompts(job, site.limits)
    absent = dict.fromkeys(("token_offsets", "features", "content_parts", "kv_transfer_params"))
    rendered = [
        {
            "request_id": _reply_id(request, "cmpl-"),
            "token_ids": small_ids(prompt).tolist(),
            **absent,
            "sampling_params": {"max_tokens": job.max_tokens},
            "model": site.model,
            "stream": job.stream,
            "cache_salt": job.cache_salt or None,
            "priority": job.priority,
        }
        for prompt in job.prompts
    ]
    return web.json_response(rendered)


async def _chat(request: web.Request) -> web.StreamResponse:
    parse = partial(parse_chat, read_part=request.app[SITE].limits.read_part)
    return await _generate(request, await _asked(request, parse), _chunked(request, "chatcmpl", chat=True))


def _chunked(request: web.Request, prefix: str, *, chat: bool) -> ReplyHead:
    site, created = request.app[SITE], int(time.time())
    return ReplyHead(id=_reply_id(request, f"{prefix}-"), model=site.model, created=created, chat=chat)


async def _responses(request: web.Request) -> web.StreamResponse:
    site = request.app[SITE]
    job = await _asked(request, partial(parse_response, read_part=site.limits.read_part))
    reply = ResponseReply(id=_reply_id(request, "resp_"), model=site.model, created=int(time.time()))
    return await _generate(request, job, reply)


async def _messages(request: web.Request) -> web.StreamResponse:
    site = request.app[SITE]
    job = await _asked(request, partial(parse_message, read_part=site.limits.read_part))
    return await _generate(request, job, MessageReply(id=_reply_id(request, "msg_"), model=site.model))


async def _count_tokens(request: web.Request) -> web.Response:
    """Answer with the tokens of a message's prompt, as Anthropic's API counts them before it is sent."""
    count = partial(message_tokens, read_part=request.app[SITE].limits.read_part)
    return web.json_response({"input_tokens": len(await _asked(request, count))})


async def _transcriptions(request: web.Request) -> web.StreamResponse:
    site = request.app[SITE]
    job, seconds = await _asked(
        request,
        partial(parse_transcription, read_part=site.limits.read_part),
        read=partial(form_fields, content_type=request.headers.get("Content-Type", "")),
    )
    head = _reply_id(request, "transcribe-")
    reply = TranscriptionReply(id=head, model=site.model, created=int(time.time()), seconds=seconds)
    return await _generate(request, job, reply)


async def _vectors(request: web.Request) -> web.StreamResponse:
    """Answer an embedding, a class or a score: the prefill of each input, and what it ends with."""
    site, api = request.app[SITE], VECTOR_APIS[request.path]
    job, shape = await _asked(request, lambda body: api.parse(body, site.limits.read_part))
    head = _reply_id(request, f"{api.prefix}-")
    reply = VectorReply(id=head, model=site.model, created=int(time.time()), api=api, shape=shape)
    return await _under_way(request, job, partial(_whole, site, job, reply))


async def _generate(request: web.Request, job: Job, reply: StreamedReply) -> web.StreamResponse:
    """Start the job's generations and answer, in a stream where it asks for one."""
    way = (
        partial(_stream, request, job, reply)
        if job.stream
        else partial(_whole, request.app[SITE], job, reply)
    )
    return await _under_way(request, job, way)


async def _under_way(
    request: web.Request, job: Job, answer: Callable[[Sequence[Generation]], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Start the job's generations, answer, and abort what is unfinished if the client goes away."""
    site = request.app[SITE]
    if job.priority and all(engine.scheduling_policy == "fcfs" for engine in site.engines):
        message = f"priority: got {job.priority}, expected 0: the scheduling policy is fcfs"
        raise Refusal(message, param="priority")
    answers = await planned_answers(job, max_model_len=site.max_model_len, limits=site.limits)
    check_kv(job, answers, site.engines)
    generations = _started(site, job, answers, client_of(request))
    try:
        return await answer(generations)
    finally:
        for generation in generations:
            site.twin.drop(generation)


def client_of(request: web.Request) -> RequestSender:
    """Return the client's headers: its session, and those that llm-d's gateway reads."""
    return RequestSender(
        session=request.headers.get("X-Session-Id", ""),
        slo_class=request.headers.get("x-gateway-inference-objective", ""),
        tenant=request.headers.get("x-gateway-inference-fairness-id", ""),
    )


def _started(site: Site, job: Job, answers: Sequence[Answer], client: RequestSender) -> list[Generation]:
    """Start a job's generations."""
    changed = asyncio.Event()
    return [
        site.twin.start(
            prompt,
            answer,
            changed=changed,
            priority=job.priority,
            salt=job.cache_salt,
            guided=job.guided,
            client=client,
        )
        for prompt, answer in zip(job.prompts, answers, strict=True)
    ]


def _reply_id(request: web.Request, prefix: str) -> str:
    """Return the response's id: the client's X-Request-Id, else a number, behind vLLM's prefix."""
    return prefix + (request.headers.get("X-Request-Id") or f"{next(request.app[SITE].numbers):08x}")


async def _change(generations: Sequence[Generation]) -> None:
    """Wait until one of the generations has changed. Raises Refusal if one will not be answered."""
    changed = generations[0].changed
    await changed.wait()
    changed.clear()
    for generation in generations:
        if generation.refusal is not None:
            raise generation.refusal


async def _whole(site: Site, job: Job, reply: WholeReply, generations: Sequence[Generation]) -> web.Response:
    """Return the answer when its last token is due."""
    while not all(generation.is_finished for generation in generations):
        await _change(generations)
    usage, metrics = _final_usage(site, generations), _request_metrics(site, generations)
    body = reply.answered(job, generations, usage, metrics=metrics)
    for generation in generations:
        site.twin.mark_sent(generation)
    return web.Response(body=body, content_type="application/json")


async def _stream(
    request: web.Request, job: Job, reply: StreamedReply, generations: Sequence[Generation]
) -> web.StreamResponse:
    """Send each token as an event when it is due; tokens that wait for the socket share one, as in vLLM.

    Where a gateway may refuse, the headers wait for the first token: a refusal has a status of its own.
    """
    site = request.app[SITE]
    if site.may_refuse:
        await _change(generations)
        generations[0].changed.set()
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
    await response.prepare(request)
    num_open = len(generations)
    while num_open:
        try:
            await _change(generations)
        except Refusal as refusal:
            await response.write(reply.broken(refusal))
            break
        events = []
        for index, generation in enumerate(generations):
            if generation.num_ready > generation.num_sent:
                events += reply.fresh(job, index, generation)
                site.twin.mark_sent(generation)
                num_open -= generation.is_finished
        if not num_open:
            usage, metrics = _final_usage(site, generations), _request_metrics(site, generations)
            events += reply.last(job, generations, usage, metrics=metrics)
        await response.write(b"".join(events))
    await response.write_eof()
    return response


def _final_usage(site: Site, generations: Sequence[Generation]) -> TokenUsage:
    return TokenUsage(
        prompt_tokens=sum(generation.num_prompt_tokens for generation in generations),
        completion_tokens=sum(generation.num_ready for generation in generations),
        cached_tokens=sum(site.twin.timing(generation).num_cached_tokens for generation in generations),
    )


def _request_metrics(site: Site, generations: Sequence[Generation]) -> dict[str, float] | None:
    """Return vLLM's per-request metrics (milliseconds), for one generation and where they are asked for.

    ``time_to_first_token_ms`` starts when the request is scheduled, as vLLM's does.
    """
    if not site.request_metrics or len(generations) != 1:
        return None
    timing, num_tokens = site.twin.timing(generations[0]), generations[0].num_ready
    whole_us = timing.prefill_us + timing.decode_us
    return {
        "queue_time_ms": timing.queue_us / 1e3,
        "time_to_first_token_ms": timing.prefill_us / 1e3,
        "generation_time_ms": timing.decode_us / 1e3,
        **({"mean_itl_ms": timing.decode_us / 1e3 / (num_tokens - 1)} if num_tokens > 1 else {}),
        **({"tokens_per_second": num_tokens / whole_us * 1e6} if whole_us else {}),
    }
