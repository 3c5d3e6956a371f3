"""The JSON body of a request: the fields of every body apart from its prompt."""

from __future__ import annotations

from collections.abc import Mapping
from lazy_dataclasses import dataclass, field

import orjson

from observe.senders.request_kinds import KINDS, AsCompletion
from traces.workload import Api

COMPLETION_LIMIT = "max_completion_tokens"
"""OpenAI's newer name of ``max_tokens`` in its chat API; some servers refuse the old one and name this one."""


VECTOR_TOKENS = 256
"""An embedding has as much room as an answer of so many tokens has: 1 MiB, some 40,000 numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyShape:
    """The fields of every body apart from its prompt, without those that a server does not accept (``negotiate``).

    ``row_models``: models and LoRA adapters that a row of the trace may ask for in place of ``model``. ``ignore_eos``
    and ``min_tokens`` hold the output to its length. ``limit_name``: the field of that length; some servers take
    ``max_completion_tokens`` alone. ``guided``: further fields of a guided request, ``extra`` of every one.
    ``num_inputs``: results of an answer that generates nothing; ``num_choices``: answers to the prompt of another.
    """

    api: Api
    model: str
    row_models: frozenset[str] = frozenset()
    ignore_eos: bool = True
    min_tokens: bool = True
    continuous_usage: bool = True
    streaming: bool = True
    limit_name: str = "max_tokens"
    num_inputs: int = 1
    num_choices: int = 1
    guided: Mapping[str, object] = field(default_factory=dict)
    extra: Mapping[str, object] = field(default_factory=dict)

    def longest_answer(self, max_tokens: int) -> int:
        """Return the tokens that a whole answer may have; one that generates nothing counts as the room of a vector."""
        if KINDS[self.api].generates:
            return max_tokens * self.num_choices
        return VECTOR_TOKENS * self.num_inputs

    @property
    def as_completion(self) -> AsCompletion | None:
        """How an answer is read as a completion, None where it is one."""
        own = KINDS[self.api].own()
        return None if own is None else own.as_completion(self.api, self.num_inputs)

    def body(
        self,
        prompt: bytes,
        *,
        max_tokens: int,
        model: str | None,
        priority: int | None,
        return_token_ids: bool = False,
        is_guided: bool = False,
    ) -> bytes:
        """Return the JSON of one request; ``prompt`` is JSON already.

        A guided output ends where its schema ends: nothing else holds it to a length.
        """
        fields: dict[str, object] = {"model": model if model in self.row_models else self.model}
        rest: dict[str, object] = {
            self.limit_name: max_tokens,
            "temperature": 0,
            "stream": self.streaming,
        }
        if self.min_tokens and not is_guided:
            rest["min_tokens"] = max_tokens
        if self.ignore_eos and not is_guided:
            rest["ignore_eos"] = True
        if self.streaming:
            usage = {"include_usage": True}
            rest["stream_options"] = usage | (
                {"continuous_usage_stats": True} if self.continuous_usage else {}
            )
        if priority is not None:
            rest["priority"] = priority
        if return_token_ids:
            rest["return_token_ids"] = True
        if is_guided:
            rest |= self.guided
        if self.num_choices > 1:
            rest |= {"n": self.num_choices, "temperature": 1}  # vLLM refuses several that would all be alike
        if (own := KINDS[self.api].own()) is not None:
            return own.body(self.api, prompt, fields | rest | dict(self.extra))
        name = b'"messages":' if KINDS[self.api].has_messages else b'"prompt":'
        head, tail = orjson.dumps(fields), orjson.dumps(rest | dict(self.extra))
        return b"".join((head[:-1], b",", name, prompt, b",", tail[1:]))
