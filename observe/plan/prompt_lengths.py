"""Prompts of an exact length on this server: token ids, or text whose tokens are counted before the run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import orjson

from observe.plan.prompts import COMMON_WORDS, Prompts, TokenPrompts, WordPrompts
from observe.plan.request_body import COMPLETION_LIMIT, BodyShape
from observe.response.stated_values import token_count
from observe.senders.request_kinds import KINDS, AsCompletion
from observe.server.http_client import ServerClient, WholeAnswer
from traces import ConfigError
from traces.workload import Api

if TYPE_CHECKING:
    from observe.plan.local_tokenizer import LocalTokenizer

_ANCHOR = "A"
"""Begins every text: a first word has no space before it, and may make other tokens than later."""

_CHUNK = 8
_ENOUGH_WORDS = 32


async def make_prompts(
    client: ServerClient,
    *,
    api: Api,
    model: str,
    salt: int,
    token_ids: bool = True,
    tokenizer: LocalTokenizer | None = None,
) -> tuple[Prompts, str | None]:
    """Return a maker of prompts of exact, or nearly exact, length on this server, and a note on it.

    Text is counted by the server's ``/tokenize``, else by ``tokenizer``, else by a ratio of tokens to words, measured
    with two requests of one token. Raises ConfigError for a tokenizer that is not the served model's.
    """
    if KINDS[api].takes_token_ids and token_ids:
        return TokenPrompts(salt), None
    counter = _Tokenizer(client, api=api, model=model)
    exact = await _exact_words(counter, salt=salt)
    if exact is not None:
        return exact, None
    if tokenizer is not None:
        local, note = await _local_counter(client, tokenizer, api=api, model=model)
        exact = await _exact_words(local, salt=salt)
        if exact is not None:
            return exact, note
    return await _estimated_words(client, api=api, model=model, salt=salt)


class _Counter(Protocol):
    """Counts tokens, by ``source``; ``chat``: of a message."""

    chat: bool
    source: str

    async def tokens(self, words: list[str]) -> tuple[int, list[int]] | None:
        """Return how many tokens anchor and words make, and which if known; None where it cannot."""


class _Tokenizer:
    """Counts the tokens of a text, its message's template included, by the server's ``/tokenize``."""

    source = "the server's /tokenize"

    def __init__(self, client: ServerClient, *, api: Api, model: str) -> None:
        self._client = client
        self._model = model
        self.chat = KINDS[api].has_messages

    async def tokens(self, words: list[str]) -> tuple[int, list[int]] | None:
        """Return how many tokens anchor and words make, and which; None: the server cannot."""
        text = " ".join((_ANCHOR, *words))
        asked: dict[str, object] = {"model": self._model}
        asked |= {"messages": [{"role": "user", "content": text}]} if self.chat else {"prompt": text}
        answer = await self._client.post("/tokenize", orjson.dumps(asked))
        if answer.status != 200:
            return None
        said = answer.json()
        count, tokens = token_count(said.get("count")), said.get("tokens")
        if count is None:
            return None
        return count, tokens if isinstance(tokens, list) else []


class _LocalCounter:
    """Counts by a tokenizer on this machine, ``around`` tokens of the server's own beside the text's."""

    def __init__(self, tokenizer: LocalTokenizer, *, chat: bool, around: int) -> None:
        self._tokenizer = tokenizer
        self._around = around
        self.chat = chat
        self.source = f"the tokenizer {tokenizer.path.name}, {around} tokens around the text"

    async def tokens(self, words: list[str]) -> tuple[int, list[int]] | None:
        """Return how many tokens anchor and words make; which ones the server puts around them is unknown."""
        return self._around + self._tokenizer.count(" ".join((_ANCHOR, *words))), []


async def _local_counter(
    client: ServerClient, tokenizer: LocalTokenizer, *, api: Api, model: str
) -> tuple[_LocalCounter, str | None]:
    """Return the counter that agrees with what the server counts for two texts.

    Raises ConfigError if tokenizer and server disagree on the difference between the two texts.
    """
    around: set[int] = set()
    for num_words in (20, 220):
        counted = await _prompt_tokens(client, num_words, api=api, model=model)
        if counted is None:
            note = "the server does not report prompt tokens: the tokens its chat template adds are unknown"
            return _LocalCounter(tokenizer, chat=KINDS[api].has_messages, around=0), note
        around.add(counted - tokenizer.count(_sample_text(num_words)))
    if len(around) > 1 or min(around) < 0:
        raise ConfigError(
            f"--tokenizer: got a tokenizer whose counts differ from the server's, expected that of {model} "
            f"({tokenizer.path})"
        )
    return _LocalCounter(tokenizer, chat=KINDS[api].has_messages, around=around.pop()), None


async def _exact_words(counter: _Counter, *, salt: int) -> WordPrompts | None:
    """Return prompts of words of one token each, checked at three lengths; None if that is not possible."""
    bare = await counter.tokens([])
    if bare is None:
        return None
    overhead, empty_tokens = bare
    words: list[str] = []
    for start in range(0, len(COMMON_WORDS), _CHUNK):
        chunk = list(COMMON_WORDS[start : start + _CHUNK])
        counted = await counter.tokens(chunk)
        if counted is not None and counted[0] == overhead + len(chunk):
            words += chunk
    if len(words) < _ENOUGH_WORDS:
        return None
    first, second = await counter.tokens(words[:1]), await counter.tokens(words[1:2])
    lead = _common_prefix(first[1], second[1]) if first and second and empty_tokens else overhead
    for length in (3, 100, 1000):
        picked = (words * (length // len(words) + 1))[:length]
        counted = await counter.tokens(picked)
        if counted is None or counted[0] != overhead + length:
            return None
    return WordPrompts(
        salt=salt,
        words=tuple(words),
        anchor=_ANCHOR,
        tokens_per_word=1.0,
        overhead=overhead,
        lead=min(lead, overhead),
        chat=counter.chat,
        source=f"words of one token each, by {counter.source}",
    )


async def _estimated_words(
    client: ServerClient, *, api: Api, model: str, salt: int
) -> tuple[WordPrompts, str | None]:
    """Return prompts by a words-to-tokens ratio, measured with two requests of one token: no word, and each once.

    Words are drawn evenly, so the ratio is the mean of all; the tokens without any are what the server adds.
    """
    num_words = len(COMMON_WORDS)
    none, many = [await _prompt_tokens(client, words, api=api, model=model) for words in (0, num_words)]
    note = None
    if none is None or many is None or many <= none:
        ratio, overhead = 1.0, 0
        note = "the server does not report prompt tokens: one token per word is assumed"
    else:
        ratio, overhead = (many - none) / num_words, none
    prompts = WordPrompts(
        salt=salt,
        words=COMMON_WORDS,
        anchor=_ANCHOR,
        tokens_per_word=ratio,
        overhead=overhead,
        lead=overhead,
        chat=KINDS[api].has_messages,
        source=f"words, {ratio:.3g} tokens each ({'assumed' if note else 'measured'}): approximate",
    )
    return prompts, note


async def _prompt_tokens(client: ServerClient, num_words: int, *, api: Api, model: str) -> int | None:
    """Return the server's count for that many words after the anchor, or None if it does not report it."""
    text, kind = _sample_text(num_words), KINDS[api]
    prompt = orjson.dumps([{"role": "user", "content": text}] if kind.has_messages else text)
    for limit_name in (kind.limit_name, COMPLETION_LIMIT):
        shape = BodyShape(
            api=api, model=model, streaming=False, ignore_eos=False, min_tokens=False, limit_name=limit_name
        )
        body = shape.body(prompt, max_tokens=1, model=None, priority=None)
        answer = await client.post(kind.path, body)
        if answer.status not in (400, 422) or COMPLETION_LIMIT not in answer.excerpt():
            break
    client.refuse(kind.path, answer)
    return _usage(answer, shape.as_completion)


def _sample_text(num_words: int) -> str:
    repeats = num_words // len(COMMON_WORDS) + 1
    return " ".join((_ANCHOR, *(COMMON_WORDS * repeats)[:num_words]))


def _usage(answer: WholeAnswer, as_completion: AsCompletion | None) -> int | None:
    said = answer.json() if as_completion is None else as_completion(answer.json())
    usage = said.get("usage") if isinstance(said, dict) else None
    return token_count(usage.get("prompt_tokens")) if isinstance(usage, dict) else None


def _common_prefix(first: list[int], second: list[int]) -> int:
    length = 0
    for one, other in zip(first, second, strict=False):
        if one != other:
            break
        length += 1
    return length
