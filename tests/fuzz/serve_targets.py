"""What clients send to ``vtwin serve``: any request is answered soon, and with no fault of the server."""

from __future__ import annotations

import asyncio
import json

import aiohttp
from hypothesis import strategies as st

from observe.kinds import transcriptions
from observe.media.drawn_sounds import wav
from observe.senders.request_kinds import BOUNDARY, KINDS
from replay.serve.chat_parts import part_reader
from replay.serve.request_limits import RequestLimits
from sim import Blackbox
from tests.fuzz.target import Target, damaged
from tests.replay.hostile_bodies import KEYS, POSTED, hostile
from tests.replay.serve.test_serve import served

_QUICK = Blackbox(alpha0=0, alpha1=0, alpha2=0, beta0=1, beta1=0, beta2=0)

_BODIES = (
    b'{"prompt": "a b", "max_tokens": 3, "stream": true, "stream_options": {"include_usage": true}}',
    b'{"prompt": [[1, 2], [3]], "max_tokens": 2, "stop": ["x"], "priority": 0, "cache_salt": "s"}',
    b'{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}], "max_completion_tokens": 2}',
    b'{"tokens": [97, 98], "prompt": "a", "response_format": {"type": "json_object"}, "return_token_ids": true}',
    b'{"input": [{"role": "user", "content": [{"type": "input_text", "text": "a"}]}], "max_output_tokens": 2}',
    b'{"messages": [{"role": "user", "content": "a"}], "system": "b", "max_tokens": 2, "stream": true}',
    b'{"input": ["a", "b"], "query": "q", "documents": ["a"], "text_1": "q", "text_2": "a", "dimensions": 3}',
)

_SECONDS = 0.001
_FORMS = tuple(
    transcriptions.body("transcriptions", wav(0.004, key=(1,)), {"model": "vtwin", "stream": streams})
    for streams in (True, False)
)
_TOKENS = tuple(json.dumps(key).encode() for key in KEYS)


async def _sent(client: aiohttp.ClientSession, path: str, body: bytes, headers: dict[str, str]) -> None:
    method = "GET" if path.startswith(("/v1/models", "/load", "/metrics")) else "POST"
    try:
        async with client.request(method, path, data=body, headers=headers) as response:
            await response.read()
            assert response.status < 500, (path, response.status)
    except (ValueError, aiohttp.ClientError):  # the client does not send it, or the connection was ended
        pass


async def _whole(path: str, body: bytes, headers: dict[str, str]) -> None:
    limits = RequestLimits(read_part=part_reader(None, _SECONDS))
    async with served(latency=_QUICK, engine={"max_model_len": 256}, limits=limits) as (_, client):
        await _sent(client, path, body, headers)
        async with client.get("/health") as response:
            assert response.status == 200


def _body(data: bytes) -> None:
    """Any bytes, as the body of every kind of request."""
    path = POSTED[len(data) % len(POSTED)]
    asyncio.run(_whole(path, data, {"Content-Type": "application/json"}))


def _form(data: bytes) -> None:
    """Any bytes, as a form with a sound."""
    kind = KINDS["transcriptions"]
    asyncio.run(_whole(kind.path, data, {"Content-Type": kind.content_type}))


def _seeded(data: bytes) -> None:
    """A request with odd fields and headers."""
    each = hostile(int.from_bytes(data))
    asyncio.run(_whole(each.path, each.body, each.headers))


TARGETS = [
    Target("serve-body", damaged(_BODIES, tokens=_TOKENS), _body, num_in_suite=15),
    Target(
        "serve-form",
        damaged(_FORMS, tokens=(BOUNDARY.encode(), b"--", b'name="file"')),
        _form,
        num_in_suite=10,
    ),
    Target("serve-request", st.binary(min_size=4, max_size=4), _seeded, num_in_suite=15),
]
