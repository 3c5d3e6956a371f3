"""Embeddings, poolings, classes, ranks and scores, served: each input is a prefill of its own, as in vLLM.

Source of fields: vLLM 0.32 ``vllm/entrypoints/pooling``. What comes out means nothing; it follows from the input alone.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Mapping, Sequence
from lazy_dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from replay.serve.protocol import (
    Body,
    Job,
    PartReader,
    Refusal,
    chat_tokens,
    integer,
    job_of,
    kind_of,
    prompts_of,
)
from replay.serve.replies import TokenUsage
from replay.serve.tokens import WORDS, Tokens, answer, encode
from replay.serve.twin import Generation

EMBEDDING_SIZE: Final = 1024
"""Numbers of an embedding where ``dimensions`` asks for no other."""
MOST_DIMENSIONS: Final = 1 << 16
MOST_NUMBERS: Final = 1 << 20
"""Of all embeddings of an answer together."""
LABELS: Final = ("LABEL_0", "LABEL_1")
_TRUNCATES: Final = ("truncate_prompt_tokens", "max_tokens_per_query", "max_tokens_per_doc")
_PAIRS: Final = (("queries", "documents"), ("queries", "items"), ("data_1", "data_2"), ("text_1", "text_2"))
"""The names that a score's two sides may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorShape:
    """What of an answer a request decides. ``documents``: texts that are ranked, of which ``top_n`` are told."""

    encoding: str = "float"
    dimensions: int = EMBEDDING_SIZE
    documents: tuple[str, ...] = ()
    top_n: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorReply:
    """One answer's constants: its id, model, creation time (Unix seconds) and kind."""

    id: str
    model: str
    created: int
    api: VectorApi
    shape: VectorShape

    def answered(
        self, job: Job, _: Sequence[Generation], usage: TokenUsage, *, metrics: object = None
    ) -> bytes:
        """Return the body: a result an input."""
        results = self.api.results(job.prompts, self.shape)
        counts = {"prompt_tokens": usage.prompt_tokens, "total_tokens": usage.prompt_tokens}
        head: dict[str, object] = {"id": self.id, "model": self.model, "usage": counts}
        if self.api.holder == "data":
            head |= {"object": "list", "created": self.created}
        if metrics is not None:
            head["metrics"] = metrics
        listed = b",".join(results)
        return b"".join(
            (json.dumps(head).encode()[:-1], b',"%b":[' % self.api.holder.encode(), listed, b"]}")
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorApi:
    """One API. ``prefix``: of its ids; ``holder``: the key of its results; ``results``: their JSON, by the prompts."""

    prefix: str
    parse: Callable[[Body, PartReader | None], tuple[Job, VectorShape]]
    results: Callable[[Sequence[Tokens], VectorShape], list[bytes]]
    holder: str = "data"


def _prefills(body: Body, prompts: tuple[Tokens, ...], shape: VectorShape) -> tuple[Job, VectorShape]:
    """Return a job whose answers are over with their first token. Raises Refusal."""
    for name in _TRUNCATES:
        if integer(body, name):
            raise Refusal(f"{name}: got {body[name]}, expected none: this server cuts no inputs", param=name)
    if len(prompts) * shape.dimensions > MOST_NUMBERS:
        got = f"{len(prompts):,} inputs of {shape.dimensions:,} numbers"
        message = f"dimensions: got {got}, expected at most {MOST_NUMBERS:,} in all"
        raise Refusal(message, param="dimensions")
    asked = {name: body[name] for name in ("priority", "cache_salt") if name in body}
    return job_of(asked | {"ignore_eos": True}, chat=False, prompts=prompts, max_tokens=1), shape


def _inputs(body: Body, read_part: PartReader | None) -> tuple[Tokens, ...]:
    if "messages" in body:
        return (chat_tokens(body, read_part=read_part),)
    return prompts_of(body, "input")


def parse_embeddings(body: Body, read_part: PartReader | None) -> tuple[Job, VectorShape]:
    """Return the job of embeddings or poolings. Raises Refusal."""
    encoding, size = body.get("encoding_format") or "float", integer(body, "dimensions")
    if encoding not in ("float", "base64"):
        raise Refusal("encoding_format: expected float or base64", param="encoding_format")
    if size is not None and not 1 <= size <= MOST_DIMENSIONS:
        raise Refusal(f"dimensions: expected 1 to {MOST_DIMENSIONS:,}", param="dimensions")
    shape = VectorShape(encoding=str(encoding), dimensions=size or EMBEDDING_SIZE)
    return _prefills(body, _inputs(body, read_part), shape)


def parse_classes(body: Body, read_part: PartReader | None) -> tuple[Job, VectorShape]:
    """Return the job of classes. Raises Refusal."""
    return _prefills(body, _inputs(body, read_part), VectorShape(dimensions=len(LABELS)))


def parse_ranks(body: Body, _: PartReader | None) -> tuple[Job, VectorShape]:
    """Return the job of ranks: each document behind the query. Raises Refusal."""
    query, documents = _texts(body, "query"), _texts(body, "documents")
    if len(query) != 1:
        raise Refusal(f"query: got {len(query)} texts, expected one", param="query")
    top_n = integer(body, "top_n") or 0
    if top_n < 0:
        raise Refusal(f"top_n: got {top_n}, expected at least 0", param="top_n")
    shape = VectorShape(dimensions=1, documents=tuple(documents), top_n=top_n)
    return _prefills(body, _paired(query, documents), shape)


def parse_scores(body: Body, _: PartReader | None) -> tuple[Job, VectorShape]:
    """Return the job of scores: one text with each other, or texts two by two. Raises Refusal."""
    names = next((pair for pair in _PAIRS if all(name in body for name in pair)), _PAIRS[-1])
    first, second = (_texts(body, name) for name in names)
    if len(first) not in (1, len(second)):
        message = f"{names[0]}: got {len(first)} texts, expected 1 or {len(second)}, as many as {names[1]}"
        raise Refusal(message, param=names[0])
    return _prefills(body, _paired(first, second), VectorShape(dimensions=1))


def _texts(body: Body, name: str) -> list[str]:
    said = body.get(name)
    texts = [said] if isinstance(said, str) else said
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
        raise Refusal(f"{name}: got {kind_of(said)}, expected a text or a list of texts", param=name)
    return texts


def _paired(first: Sequence[str], second: Sequence[str]) -> tuple[Tokens, ...]:
    before = [encode(text) for text in first] * (len(second) if len(first) == 1 else 1)
    return tuple(np.concatenate([one, encode(text)]) for one, text in zip(before, second, strict=True))


def _table(size: int) -> NDArray[np.float64]:
    """Return the numbers that a vector of ``size`` is drawn from, of nearly length 1 in all."""
    centred = np.arange(len(WORDS), dtype=np.float64) - (len(WORDS) - 1) / 2
    numbers: NDArray[np.float64] = centred / (centred.std() * math.sqrt(size))
    return numbers


def _vectors(prompts: Sequence[Tokens], shape: VectorShape) -> list[bytes]:
    """Return the JSON of a vector a prompt: a list of numbers, or float32 in base64."""
    table = _table(shape.dimensions)
    drawn = [answer(prompt, shape.dimensions) for prompt in prompts]
    if shape.encoding == "base64":
        return [b'"%b"' % base64.b64encode(table.astype("<f4")[numbers].tobytes()) for numbers in drawn]
    texts = np.array([f"{value: .8f}," for value in table], "S")  # of one width: a vector is one gather
    return [b"[" + texts[numbers].tobytes()[:-1] + b"]" for numbers in drawn]


def _score(prompt: Tokens) -> float:
    """Return a number between 0 and 1."""
    return float((answer(prompt, 1)[0] + 0.5) / len(WORDS))


def _embeddings(prompts: Sequence[Tokens], shape: VectorShape) -> list[bytes]:
    return [
        b'{"index":%d,"object":"embedding","embedding":%b}' % (place, vector)
        for place, vector in enumerate(_vectors(prompts, shape))
    ]


def _poolings(prompts: Sequence[Tokens], shape: VectorShape) -> list[bytes]:
    return [
        b'{"index":%d,"object":"pooling","data":%b}' % (place, vector)
        for place, vector in enumerate(_vectors(prompts, shape))
    ]


def _classes(prompts: Sequence[Tokens], _: VectorShape) -> list[bytes]:
    scores = [_score(prompt) for prompt in prompts]
    return [
        _json(index=place, label=LABELS[score < 0.5], probs=[score, 1 - score], num_classes=len(LABELS))
        for place, score in enumerate(scores)
    ]


def _ranks(prompts: Sequence[Tokens], shape: VectorShape) -> list[bytes]:
    """Return the documents from the best, at most ``top_n`` of them."""
    scores = [_score(prompt) for prompt in prompts]
    order = sorted(range(len(scores)), key=lambda place: -scores[place])
    return [
        _json(index=place, document={"text": shape.documents[place]}, relevance_score=scores[place])
        for place in order[: shape.top_n or None]
    ]


def _scores(prompts: Sequence[Tokens], _: VectorShape) -> list[bytes]:
    return [_json(index=place, object="score", score=_score(prompt)) for place, prompt in enumerate(prompts)]


def _json(**fields: object) -> bytes:
    return json.dumps(fields).encode()


_EMBEDDINGS: Final = VectorApi(prefix="embd", parse=parse_embeddings, results=_embeddings)
_RANKS: Final = VectorApi(prefix="rerank", parse=parse_ranks, results=_ranks, holder="results")
_SCORES: Final = VectorApi(prefix="score", parse=parse_scores, results=_scores)
VECTOR_APIS: Final[Mapping[str, VectorApi]] = {
    "/v1/embeddings": _EMBEDDINGS,
    "/pooling": VectorApi(prefix="pool", parse=parse_embeddings, results=_poolings),
    "/classify": VectorApi(prefix="classify", parse=parse_classes, results=_classes),
    **dict.fromkeys(("/rerank", "/v1/rerank", "/v2/rerank"), _RANKS),
    **dict.fromkeys(("/score", "/v1/score"), _SCORES),
}
"""By their paths, which are vLLM's."""
