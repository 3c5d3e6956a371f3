"""How many tokens texts have: by the server, by a tokenizer on this machine, or by their characters."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

import orjson

from observe.response.stated_values import token_count

if TYPE_CHECKING:
    from observe.plan.local_tokenizer import LocalTokenizer
    from observe.server.http_client import ServerClient
    from observe.texts.data_set import Message

CHARACTERS_PER_TOKEN: Final = 4
"""English under usual tokenizers: a guess."""
_AT_ONCE: Final = 8


class TokenCounts(Protocol):
    """Counts tokens; ``source`` says how, for the header."""

    source: str

    async def of_messages(self, messages: Sequence[Message]) -> int | None:
        """Return the tokens of a prompt; None where it could not be counted."""

    async def of_text(self, text: str) -> int | None:
        """Return the tokens of an answer; None where it could not be counted."""


class ServerCounts:
    """Counts by the server's ``/tokenize``: a chat's template is counted with it."""

    source = "the server's /tokenize"

    def __init__(self, client: ServerClient, *, chat: bool, model: str) -> None:
        self._client = client
        self._model = model
        self._chat = chat
        self._free = asyncio.Semaphore(_AT_ONCE)

    async def of_messages(self, messages: Sequence[Message]) -> int | None:
        """Return the tokens of a prompt."""
        if not self._chat:
            return await self.of_text(joined(messages))
        return await self._ask({"messages": as_json(messages)})

    async def of_text(self, text: str) -> int | None:
        """Return the tokens of an answer."""
        return await self._ask({"prompt": text})

    async def _ask(self, asked: dict[str, object]) -> int | None:
        async with self._free:
            answer = await self._client.post("/tokenize", orjson.dumps({"model": self._model, **asked}))
        return token_count(answer.json().get("count")) if answer.status == 200 else None


class LocalCounts:
    """Counts by a tokenizer on this machine, a chat's template left out."""

    def __init__(self, tokenizer: LocalTokenizer) -> None:
        self._tokenizer = tokenizer
        self.source = f"the tokenizer {tokenizer.path.name}, the template left out"

    async def of_messages(self, messages: Sequence[Message]) -> int | None:
        """Return the tokens of a prompt."""
        return self._tokenizer.count(joined(messages))

    async def of_text(self, text: str) -> int | None:
        """Return the tokens of an answer."""
        return self._tokenizer.count(text)


class GuessedCounts:
    """Guesses by the number of characters."""

    source = f"{CHARACTERS_PER_TOKEN} characters a token, a guess"

    async def of_messages(self, messages: Sequence[Message]) -> int | None:
        """Return the guessed tokens of a prompt."""
        return await self.of_text(joined(messages))

    async def of_text(self, text: str) -> int | None:
        """Return the guessed tokens of an answer."""
        return max(round(len(text) / CHARACTERS_PER_TOKEN), 1)


async def choose_counts(
    client: ServerClient, *, chat: bool, model: str, tokenizer: LocalTokenizer | None
) -> TokenCounts:
    """Return the best way to count: the server's own, else ``tokenizer``, else a guess."""
    by_server = ServerCounts(client, chat=chat, model=model)
    if await by_server.of_text("A") is not None:
        return by_server
    return GuessedCounts() if tokenizer is None else LocalCounts(tokenizer)


def joined(messages: Sequence[Message]) -> str:
    """Return messages as one text, as the completions API takes it."""
    return "\n\n".join(message.content for message in messages)


def as_json(messages: Sequence[Message]) -> list[dict[str, str]]:
    """Return messages as the chat API takes them."""
    return [{"role": message.role, "content": message.content} for message in messages]
