"""Prompts of several inputs: each is drawn apart, and together they are as long as the request says."""

from __future__ import annotations

from collections.abc import Sequence
from lazy_dataclasses import dataclass, replace
from typing import Final

from observe.plan.prompts import OWN, Part, Prompts, Segment, key_of, num_tokens

MOST_QUERY_TOKENS: Final = 32
"""The longest query: of a short pair it is half."""


@dataclass(frozen=True, slots=True)
class BatchedPrompts:
    """Makes the inputs of one request. ``num_inputs``: how many; ``in_pairs``: a query, and a document for each."""

    single: Prompts
    num_inputs: int
    in_pairs: bool

    @property
    def source(self) -> str:
        """How lengths were made exact, in words, for the header."""
        if self.in_pairs:
            return f"a query and {self.num_inputs} documents a request: {self.single.source}"
        return (
            self.single.source if self.num_inputs == 1 else f"{self.num_inputs} inputs: {self.single.source}"
        )

    def salted(self, salt: int) -> BatchedPrompts:
        """Return the same kind of prompts with other content."""
        return replace(self, single=self.single.salted(salt))

    def render(self, parts: Sequence[Part]) -> bytes:
        """Return the JSON of the inputs: of one the value alone, of several a list; of pairs the query comes first."""
        if self.num_inputs == 1 and not self.in_pairs:
            return self.single.render(parts)
        inputs = [
            [_share(part, place, self.num_inputs) for part in parts] for place in range(self.num_inputs)
        ]
        if not self.in_pairs:
            return _listed([self.single.render(each) for each in inputs])
        query = min(MOST_QUERY_TOKENS, max(num_tokens(inputs[0]) // 2, 1))
        first = Segment(OWN, key_of(f"query {_own_key(parts)}"), query)
        documents = [self.single.render(_shorter(each, query)) for each in inputs]
        return _listed([self.single.render([first]), *documents])


def _listed(values: Sequence[bytes]) -> bytes:
    return b"[" + b",".join(values) + b"]"


def _own_key(parts: Sequence[Part]) -> int:
    return next((part.key for part in parts if isinstance(part, Segment) and part.kind == OWN), 0)


def _share(part: Part, place: int, number: int) -> Part:
    """Return a part of one input of ``number``: shared content is alike in all, a request's own is not."""
    if not isinstance(part, Segment) or number == 1:
        return part  # several inputs have no blocks (``as_inputs``)
    key = part.key if part.kind != OWN or place == 0 else key_of(f"{part.key} {place}")
    return Segment(part.kind, key, part.length // number)


def _shorter(parts: Sequence[Part], tokens: int) -> list[Part]:
    """Return the parts without so many tokens of the last one, which keeps one."""
    *before, last = parts
    if not isinstance(last, Segment):
        return list(parts)
    return [*before, Segment(last.kind, last.key, max(last.length - tokens, 1))]
