"""Requests that are wrong, too large, or malicious: an answer of 4xx each, soon, and nobody else waits for it."""

from __future__ import annotations

import asyncio
import gzip
import json
import time

import aiohttp
import pytest

from replay.serve.request_limits import LARGE_BODY, RequestLimits
from sim import Blackbox
from tests.replay.hostile_bodies import hostile
from tests.replay.serve.test_serve import served

QUICK = Blackbox(alpha0=0, alpha1=0, alpha2=0, beta0=1, beta1=0, beta2=0)

SOON_S = 2.0

NUM_REQUESTS = 200


async def answer(client: aiohttp.ClientSession, path: str, body: bytes, **headers: str) -> tuple[int, str]:
    """Return the status, and the message of the error."""
    async with client.post(path, data=body, headers=headers) as response:
        said = json.loads(await response.text())
        return response.status, said["error"]["message"] if isinstance(said, dict) and "error" in said else ""


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"[" * 100_000, "nested too deeply"),
        (b'{"prompt": "a", "x": ' + b"[" * 900 + b"]" * 900 + b"}", ""),
        (b'{"prompt": "\\ud800"}', "half of a surrogate pair"),
        (b'{"prompt": "a", "cache_salt": "\\uDFFF"}', "half of a surrogate pair"),
        ('{"prompt": "\ud800"}'.encode("utf-16", "surrogatepass"), "half of a surrogate pair"),
        ('{"prompt": "\ud800"}'.encode("utf-32-be", "surrogatepass"), "half of a surrogate pair"),
        ('{"prompt": "\udfff"}'.encode("utf-8", "surrogatepass"), "half of a surrogate pair"),
        ('{"prompt": "\U0001f600"}'.encode("utf-16"), ""),
        (b'{"prompt": "a", "priority": 100000000000000000000}', "priority: expected an integer of 32 bits"),
        (b'{"prompt": "a", "tools": ' + b"[" * 980 + b"]" * 980 + b"}", ""),
        (b'{"prompt": "a", "stop": ' + json.dumps(["x"] * 129).encode() + b"}", "stop: got 129 texts"),
    ],
)
async def test_a_body_that_cannot_be_is_an_error_of_its_client(body: bytes, message: str) -> None:
    async with served(latency=QUICK) as (_, client):
        status, said = await answer(client, "/v1/completions", body)
    assert status == 400 or (not message and status == 200)
    assert message in said


async def test_a_whole_surrogate_pair_is_text() -> None:
    async with served(latency=QUICK) as (_, client):
        assert (await answer(client, "/v1/completions", b'{"prompt": "\\ud83d\\ude00"}'))[0] == 200


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_a_packed_body_is_no_json_whatever_its_size_and_whether_it_is_one(encoding: str) -> None:
    packed = gzip.compress(b'{"prompt": "' + b"a" * 1_000_000 + b'"}')
    async with served(latency=QUICK) as (_, client), asyncio.timeout(SOON_S):
        for body in (packed, b"{}" * 150_000):  # the second would be read without end by what unpacks
            status, said = await answer(client, "/tokenize", body, **{"Content-Encoding": encoding})
            assert status == 400
            assert "not JSON" in said


async def test_a_header_that_is_no_utf8_is_a_wrong_key() -> None:
    async with served(latency=QUICK, api_key="secret") as (_, client):
        response = await client.get("/v1/models", headers={"Authorization": "Bearer \udcff"})
        assert response.status == 401


async def test_a_model_is_found_by_its_name_and_another_is_not() -> None:
    async with served(latency=QUICK, model="org/tiny") as (_, client):
        listed = (await (await client.get("/v1/models")).json())["data"][0]
        one = await (await client.get("/v1/models/org/tiny")).json()
        other = await client.get("/v1/models/tiny")
        assert (other.status, (await other.json())["error"]["code"]) == (404, 404)
    assert one == listed
    assert one["id"] == "org/tiny"


@pytest.mark.parametrize(
    ("limits", "body", "status", "message"),
    [
        (
            RequestLimits(max_body_bytes=100),
            {"prompt": "a" * 200},
            413,
            "more than 100 bytes (--max-body-bytes)",
        ),
        (
            RequestLimits(max_prompts=3),
            {"prompt": ["a"] * 4},
            400,
            "got 4 prompts, expected at most 3 (--max-prompts)",
        ),
        (RequestLimits(max_request_tokens=20), {"prompt": [1] * 21}, 400, "(--max-request-tokens)"),
        (
            RequestLimits(max_request_tokens=20),
            {"prompt": [[1]] * 2, "max_tokens": 10},
            400,
            "22 tokens or more",
        ),
        (RequestLimits(max_request_tokens=20), {"prompt": [1], "max_tokens": 19}, 200, ""),
    ],
)
async def test_what_a_request_may_ask_for_is_limited(
    limits: RequestLimits, body: dict[str, object], status: int, message: str
) -> None:
    async with served(latency=QUICK, limits=limits) as (_, client):
        assert (await answer(client, "/v1/completions", json.dumps(body).encode()))[0] == status
        said = (await answer(client, "/v1/completions", json.dumps(body).encode()))[1]
        assert message in said
        rendered = await answer(client, "/v1/completions/render", json.dumps(body).encode())
        assert rendered[0] == (status if "prompts" in message or status == 413 else 200)


async def test_a_large_body_is_parsed_while_others_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parser waits until somebody else has been answered: on the event loop it would wait for ever."""
    import threading

    from replay.serve import app

    answered, parse = threading.Event(), app.parse_completion

    def slow(body: dict[str, object]) -> object:
        if len(str(body["prompt"])) > LARGE_BODY:
            assert answered.wait(SOON_S)
        return parse(body)

    monkeypatch.setattr(app, "parse_completion", slow)
    async with served(latency=QUICK, engine={"max_model_len": 1 << 17, "num_gpu_blocks": 9000}) as (
        _,
        client,
    ):
        body = json.dumps({"prompt": "a" * (LARGE_BODY + 1), "max_tokens": 1}).encode()
        large = asyncio.create_task(answer(client, "/v1/completions", body))
        await asyncio.sleep(0)
        assert (await answer(client, "/v1/completions", b'{"prompt": "b"}'))[0] == 200
        answered.set()
        assert (await large)[0] == 200


async def test_whatever_is_sent_is_answered_soon_and_with_no_fault_of_the_server() -> None:
    async with served(latency=QUICK, engine={"max_model_len": 256}) as (_, client):
        slowest, seen = 0.0, set()
        for seed in range(NUM_REQUESTS):
            each = hostile(seed)
            began = time.perf_counter()
            try:
                async with client.request(
                    each.method, each.path, data=each.body, headers=each.headers
                ) as response:
                    await asyncio.wait_for(response.read(), SOON_S)
            except (ValueError, aiohttp.InvalidURL):  # the client itself does not send it
                continue
            except aiohttp.ClientPayloadError:
                continue
            slowest = max(slowest, time.perf_counter() - began)
            seen.add(response.status)
            assert response.status < 500, (seed, each)
        assert {200, 400} <= seen
        assert slowest < SOON_S
        assert (await client.get("/health")).status == 200


@pytest.mark.parametrize("is_async", [False, True])
async def test_what_the_kv_cache_can_never_hold_is_refused_and_what_just_fits_runs(is_async: bool) -> None:
    engine = {"num_gpu_blocks": 5, "async_scheduling": is_async}  # 4 blocks of 16 tokens
    async with served(latency=QUICK, engine=engine) as (_, client):
        body = {"prompt": [7] * 40, "ignore_eos": True}
        async with client.post("/v1/completions", json={**body, "max_tokens": 26}) as answer:
            assert answer.status == 400
            assert "holds 64 tokens" in (await answer.json())["error"]["message"]
        timeout = aiohttp.ClientTimeout(total=5)
        async with client.post("/v1/completions", json={**body, "max_tokens": 25}, timeout=timeout) as answer:
            assert (await answer.json())["usage"]["completion_tokens"] == 25
