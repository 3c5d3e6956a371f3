"""The HTTP side of the receiver, as the OTLP specification has it: POST /v1/traces."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Final

from aiohttp import web
from aiohttp.web_protocol import RequestPayloadError

from observe.receive.body import (
    CONTENT_TYPE,
    UNAVAILABLE,
    Kind,
    NotTaken,
    answer,
    check_packing,
    failure,
    kind_of,
    spans_of_body,
    too_large,
)
from observe.receive.time_windows import Windows
from traces import TraceError
from traces.strict.tell import tell

MOST_POSTS: Final = 32
"""The most posts at a time, whose bodies are in memory. Further senders try again, as OTLP specifies."""
BODY_PATIENCE_S: Final = 30.0
"""The time for a whole body: a sender that stops half way occupies a place that others wait for."""
_RETRY_AFTER: Final = {"Retry-After": "5"}


@dataclass(slots=True, kw_only=True)
class SpanReceiver:
    """State shared by the handlers. ``reading``: one body at a time is read, as its spans take ten times its memory."""

    windows: Windows
    max_body_bytes: int
    num_posts: int = 0
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)


SITE = web.AppKey("site", SpanReceiver)


def make_app(site: SpanReceiver) -> web.Application:
    """Return the application around a receiver's files."""
    app = web.Application(client_max_size=site.max_body_bytes)
    app[SITE] = site
    app.add_routes([web.post("/v1/traces", _traces)])
    return app


async def _traces(request: web.Request) -> web.Response:
    """Receive spans; those answered with 200 are on the disk."""
    site = request.app[SITE]
    kind: Kind = "json"
    site.num_posts += 1
    try:
        kind = kind_of(request.content_type)
        check_packing(request.headers.get("Content-Encoding", "").strip().lower())
        _check_crowd(site)
        body = await _taken(request, site, kind)
    except NotTaken as refusal:
        headers = _RETRY_AFTER if refusal.code == UNAVAILABLE else None
        response = web.Response(
            body=failure(kind, refusal),
            status=refusal.status,
            content_type=CONTENT_TYPE[kind],
            headers=headers,
        )
        if refusal.status == 413:
            response.force_close()
        return response
    finally:
        site.num_posts -= 1
    return web.Response(body=body, content_type=CONTENT_TYPE[kind])


def _check_crowd(site: SpanReceiver) -> None:
    """Raise NotTaken if too many posts are in progress."""
    if site.num_posts > MOST_POSTS:
        raise NotTaken(503, f"more than {MOST_POSTS} posts at a time, expected a later try", UNAVAILABLE)


async def _taken(request: web.Request, site: SpanReceiver, kind: Kind) -> bytes:
    """Return the answer to a post whose spans are on the disk. Raises NotTaken."""
    raw = await _read(request, site)
    packed = request.headers.get("Content-Encoding", "").strip().lower() == "gzip"
    async with site.reading:
        spans = await asyncio.to_thread(spans_of_body, raw, kind, packed=packed, most=site.max_body_bytes)
        try:
            rejected = await asyncio.to_thread(site.windows.take, spans)
        except (OSError, TraceError) as fault:
            tell(f"receive: {fault}; the sender is asked to try again")
            raise NotTaken(503, "the disk refuses, expected a later try", UNAVAILABLE) from fault
    why = "; ".join(f"{number:,} spans {reason}" for reason, number in sorted(rejected.items()))
    return answer(kind, rejected=rejected.total(), why=why)


async def _read(request: web.Request, site: SpanReceiver) -> bytes:
    """Return the body. Raises NotTaken for one that is too long, does not come, or is not what its headers say."""
    try:
        async with asyncio.timeout(BODY_PATIENCE_S):
            return await request.read()
    except web.HTTPRequestEntityTooLarge as fault:
        raise too_large(site.max_body_bytes) from fault
    except TimeoutError as fault:
        raise NotTaken(408, f"body: got no end within {BODY_PATIENCE_S:g} s") from fault
    except RequestPayloadError as fault:
        raise NotTaken(400, "body: got bytes that its headers do not explain") from fault
