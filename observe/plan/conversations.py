"""Sessions: which requests wait for which, and prompts that grow by the server's real answers.

Requests of one ``session_id`` are sent in the order of ``round_index``, the next one a think time after the answer to
the last, and not before its own time where it has one. A round with ``new_input_tokens`` builds on the one before: its
prompt is that one's, the server's answer, and this many new tokens. So a prefix cache gets the prompts that it would
get from the server's real users; on the completions API token for token, if the server returns its token ids (vLLM:
``return_token_ids``).
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import orjson

from observe.plan.chains import is_token_ids
from observe.plan.prompts import OWN, Segment
from observe.senders.request_kinds import KINDS

if TYPE_CHECKING:
    from observe.plan.prompts import Prompts
    from observe.plan.request_body import BodyShape
    from observe.plan.send_plan import SendPlan
    from observe.response.reading import Reply
    from observe.server.http_client import ServerClient


def extended_prompt(prompt: bytes, reply: Reply, added: bytes) -> bytes:
    """Return ``prompt`` with its answer and the addition of the next round; JSON values of the same kind.

    Token ids and text are joined; of messages the answer becomes the assistant's.
    """
    if prompt.startswith(b'"'):
        return b"".join((prompt[:-1], orjson.dumps(reply.text)[1:-1], b" ", added[1:]))
    if prompt.startswith(b"[{"):
        said = orjson.dumps({"role": "assistant", "content": reply.text})
        return b"".join((prompt[:-1], b",", said, b",", added[1:]))
    said = b"".join(b",%d" % token for token in reply.token_ids)
    return b"".join((prompt[:-1], said, b",", added[1:]))


class Conversation:
    """One session in progress: what its next prompt builds on."""

    def __init__(self, plan: SendPlan) -> None:
        self._plan = plan
        self._prompt = b""
        self._num_tokens = 0

    def next_body(self, row: int, reply: Reply | None) -> tuple[bytes, int | None]:
        """Return the body of ``row`` after ``reply``, and its prompt's tokens where they can be counted."""
        before = self._plan.extends_row.get(row)
        if before is None or reply is None:
            self._prompt = b""
            return self._plan.take_body(row), None
        if not self._prompt:
            self._prompt = self._plan.prompt(before)
            self._num_tokens = self._plan.num_prompt_tokens(before)
        self._prompt = extended_prompt(self._prompt, reply, self._plan.prompt(row))
        self._num_tokens += len(reply.token_ids) + self._plan.num_prompt_tokens(row)
        counted = self._num_tokens if is_token_ids(self._prompt) else None
        return self._plan.body_with(row, self._prompt), counted


class Replies:
    """Answers that a next round waits for, handed over when they have been read; None for a failed one."""

    def __init__(self) -> None:
        self._read: dict[int, asyncio.Future[Reply | None]] = {}

    def put(self, row: int, reply: Reply | None) -> None:
        """Hand over the answer to ``row``."""
        future = self._future(row)
        if not future.done():
            future.set_result(reply)

    async def of(self, row: int) -> Reply | None:
        """Return the answer to ``row`` once it has been read; each can be taken once."""
        try:
            return await self._future(row)
        finally:
            self._read.pop(row, None)

    def _future(self, row: int) -> asyncio.Future[Reply | None]:
        if row not in self._read:
            self._read[row] = asyncio.get_running_loop().create_future()
        return self._read[row]


async def returns_token_ids(client: ServerClient, shape: BodyShape, *, prompts: Prompts) -> bool:
    """Request one token; return whether the answer has its id. Raises ServerError on 401, 403, 5xx, or no answer."""
    whole = replace(shape, streaming=False)
    prompt = prompts.render([Segment(OWN, 1 << 62, 16)])
    body = whole.body(prompt, max_tokens=1, model=None, priority=None, return_token_ids=True)
    answer = await client.post(KINDS[shape.api].path, body)
    client.refuse(KINDS[shape.api].path, answer)
    choices = answer.json().get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else {}
    return isinstance(choice, dict) and bool(choice.get("token_ids"))
