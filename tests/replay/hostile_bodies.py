"""Requests that no client should send, by a seed: for the suite and for the fuzz targets."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass

POSTED = (
    *("/v1/completions", "/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"),
    *(
        "/v1/completions/render",
        "/v1/responses",
        "/v1/messages",
        "/v1/messages/count_tokens",
        "/v1/audio/transcriptions",
    ),
    *("/v1/embeddings", "/pooling", "/classify", "/v1/rerank", "/score"),
)
PATHS = (*POSTED, "/v1/models/vtwin", "/v1/models/%FF%00", "/v1/models", "/load", "/metrics")

HEADERS = (
    *("X-Session-Id", "X-Request-Id", "x-gateway-inference-objective", "x-gateway-inference-fairness-id"),
    *("Authorization", "Content-Type", "Content-Encoding", "Accept"),
)

ODD = (
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        3,
        2**31,
        2**63,
        -(2**70),
        10**400,
        0.5,
        1e308,
        float("inf"),
        float("nan"),
    ),
    *("", "a", "a b c", "\ud800", "é", "\x00", "x" * 5000, "json_object", [], {}, [[]], [None], [1, "a"]),
    *([1, 2, 3], [[1], [2, 3]], ["a", "b"], [2**60], [-1], ["a"] * 400, {"type": "json_object"}, {"a": {}}),
    *([{"role": "user", "content": "hi"}], [{"role": "\udfff", "content": None}], [{"role": 1}], [{}]),
    *([{"role": "user", "content": [{"type": "image", "source": {"type": "base64"}}, 5]}], {"format": {}}),
    *({"include_usage": 1}, {"include_usage": True}, [{"role": "user", "content": [{"text": "x"}]}]),
)

KEYS = (
    *("prompt", "messages", "max_tokens", "max_completion_tokens", "min_tokens", "stream", "stream_options"),
    *("stop", "ignore_eos", "priority", "cache_salt", "model", "n", "best_of", "echo", "logprobs", "suffix"),
    *("response_format", "structured_outputs", "return_token_ids", "tokens", "tools", "temperature"),
    *("input", "instructions", "max_output_tokens", "text", "system", "stop_sequences", "output_config"),
    *("query", "documents", "text_1", "text_2", "top_n", "encoding_format", "dimensions"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hostile:
    """One request."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


def hostile(seed: int) -> Hostile:
    """Return the request of a seed."""
    rng = random.Random(seed)
    headers = {"Content-Type": "application/json"}
    for name in rng.sample(HEADERS, rng.choice((0, 0, 1, 3))):
        value = rng.choice(("", "a", "\udcff\udcfe", "é", "gzip", "deflate", "a" * 3000, "Bearer \udcff"))
        headers[name] = value
    path = rng.choice(PATHS)
    return Hostile(
        method="GET" if path.startswith(("/v1/models", "/load", "/metrics")) else "POST",
        path=path,
        headers=headers,
        body=_body(rng),
    )


def _body(rng: random.Random) -> bytes:
    kind = rng.randrange(8)
    if kind == 0:
        return rng.choice((b"[", b'{"prompt":', b'{"a":')) * rng.choice((1, 900, 5000, 60_000))
    if kind == 1:
        return rng.randbytes(rng.choice((0, 1, 40, 3000)))
    fields: dict[str, object] = {
        "prompt": "a b",
        "messages": [{"role": "user", "content": "a"}],
        "tokens": [97],
        "max_tokens": 3,
        "input": "a",
        "query": "q",
        "documents": ["a", "b"],
        "text_1": "a",
        "text_2": ["a"],
        "dimensions": 4,
    }
    for key in rng.sample(KEYS, rng.randrange(5)):
        fields[key] = rng.choice(ODD)
    raw = json.dumps(fields).encode()
    if kind == 2:
        at = rng.randrange(len(raw))
        return raw[:at] + rng.randbytes(rng.randrange(4)) + raw[at + rng.randrange(3) :]
    if kind == 3:
        deep = rng.choice((50, 400, 940, 2000))
        return raw[:-1] + b', "x": ' + b"[" * deep + b"]" * deep + b"}"
    return raw
