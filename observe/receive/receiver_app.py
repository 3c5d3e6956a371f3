"""The HTTP side of the receiver, as the OTLP specification has it: POST /v1/traces."""

from __future__ import annotations

import asyncio
from lazy_dataclasses import dataclass, field
from typing import Final

from aiohttp import web
from aiohttp.web_protocol import RequestPayloadError

from observe.receive.body import (
    CONTENT_TYPE,
    INTERNAL,
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
from observe.receive.lost_posts import LostPosts
from observe.receive.time_windows import Windows
from traces import TraceError

MOST_POSTS: Final = 32
"""The most posts at a time whose whole bodies are in memory. Further senders try again, as OTLP specifies."""
MOST_COMING: Final = 512
"""The most bodies that are on their way. Where one more begins, or their bytes take the memory of ``MOST_POSTS`` whole
bodies, the one that has been coming for longest has to try again: half a body closes the receiver to nobody."""
BODY_PATIENCE_S: Final = 30.0
"""The time for a whole body."""
_RETRY_AFTER: Final = {"Retry-After": "5"}


@dataclass(slots=True, eq=False)
class _Coming:
    """A body on its way: how many bytes have come, and what ends the wait for the rest."""

    patience: asyncio.Timeout
    num_bytes: int = 0
    has_to_go: bool = False


@dataclass(slots=True, kw_only=True)
class SpanReceiver:
    """State shared by the handlers. ``reading``: one body at a time is read, as its spans take ten times its memory.

    ``coming``: the bodies on their way, the one that began first first.
    """

    windows: Windows
    max_body_bytes: int
    num_posts: int = 0
    lost: LostPosts = field(default_factory=LostPosts)
    coming: dict[_Coming, None] = field(default_factory=dict)
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)


SITE = web.AppKey("site", SpanReceiver)


def make_app(site: SpanReceiver) -> web.Application:
    """Return the application around a receiver's files."""
    app = web.Application(client_max_size=site.max_body_bytes)
    app[SITE] = site
    app.add_routes([web.post("/v1/traces", _traces)])
    return app


async def _traces(request: web.Request) -> web.Response:
    """Receive spans; those answered with 200 are on the disk. Every failure is an answer."""
    site = request.app[SITE]
    kind: Kind = "json"
    try:
        kind = kind_of(request.content_type)
        check_packing(request.headers.get("Content-Encoding", "").strip().lower())
        body = await _taken(request, site, kind)
    except NotTaken as refusal:
        return _refused(kind, refusal)
    except Exception as fault:
        site.lost.add("a post was lost", f"{type(fault).__name__}: {fault}")
        return _refused(kind, NotTaken(500, "a fault of the receiver", INTERNAL))
    return web.Response(body=body, content_type=CONTENT_TYPE[kind])


def _refused(kind: Kind, refusal: NotTaken) -> web.Response:
    """Return the answer to a post that is not taken; a sender in the middle of its body is cut off."""
    response = web.Response(
        body=failure(kind, refusal),
        status=refusal.status,
        content_type=CONTENT_TYPE[kind],
        headers=_RETRY_AFTER if refusal.code == UNAVAILABLE else None,
    )
    if refusal.status in (408, 413, 503):
        response.force_close()
    return response


async def _taken(request: web.Request, site: SpanReceiver, kind: Kind) -> bytes:
    """Return the answer to a post whose spans are on the disk. Raises NotTaken."""
    raw = await _read(request, site)
    if site.num_posts >= MOST_POSTS:
        raise NotTaken(503, f"more than {MOST_POSTS} posts at a time, expected a later try", UNAVAILABLE)
    site.num_posts += 1
    try:
        return await _kept(raw, request, site, kind)
    finally:
        site.num_posts -= 1


async def _kept(raw: bytes, request: web.Request, site: SpanReceiver, kind: Kind) -> bytes:
    """Return the answer to a body whose spans are on the disk. Raises NotTaken."""
    packed = request.headers.get("Content-Encoding", "").strip().lower() == "gzip"
    async with site.reading:
        spans = await asyncio.to_thread(spans_of_body, raw, kind, packed=packed, most=site.max_body_bytes)
        try:
            rejected = await asyncio.to_thread(site.windows.take, spans)
        except (OSError, TraceError) as fault:
            site.lost.add("the sender is asked to try again", f"{fault}")
            raise NotTaken(503, "the disk refuses, expected a later try", UNAVAILABLE) from fault
    why = "; ".join(f"{number:,} spans {reason}" for reason, number in sorted(rejected.items()))
    return answer(kind, rejected=rejected.total(), why=why)


async def _read(request: web.Request, site: SpanReceiver) -> bytes:
    """Return the body. Raises NotTaken for one that is too long, does not come, or is not what its headers say."""
    coming: _Coming | None = None
    try:
        async with asyncio.timeout(BODY_PATIENCE_S) as patience:
            coming = _Coming(patience)
            site.coming[coming] = None
            return await _whole_body(request, site, coming)
    except TimeoutError as fault:
        if coming is not None and coming.has_to_go:
            raise NotTaken(503, "body: got no end, and others wait", UNAVAILABLE) from fault
        raise NotTaken(408, f"body: got no end within {BODY_PATIENCE_S:g} s") from fault
    except RequestPayloadError as fault:
        raise NotTaken(400, "body: got bytes that its headers do not explain") from fault
    finally:
        if coming is not None:
            site.coming.pop(coming, None)


async def _whole_body(request: web.Request, site: SpanReceiver, coming: _Coming) -> bytes:
    """Return the body once its end has come. Raises NotTaken for one that is too long."""
    _make_room(site)
    parts: list[bytes] = []
    async for part in request.content.iter_any():
        parts.append(part)
        coming.num_bytes += len(part)
        if coming.num_bytes > site.max_body_bytes:
            raise too_large(site.max_body_bytes)
        _make_room(site)
    return b"".join(parts)


def _make_room(site: SpanReceiver) -> None:
    """Send off the bodies that have been coming for longest while too many, or too much of them, are on their way."""
    while len(site.coming) > 1 and (
        len(site.coming) > MOST_COMING
        or sum(each.num_bytes for each in site.coming) > MOST_POSTS * site.max_body_bytes
    ):
        oldest = next(iter(site.coming))
        del site.coming[oldest]
        oldest.has_to_go = True
        oldest.patience.reschedule(0)
