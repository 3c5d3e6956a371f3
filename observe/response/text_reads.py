"""The events of one answer that carried text, and the reads that they came in."""

from __future__ import annotations

from collections.abc import Sequence
from lazy_dataclasses import dataclass, field

from traces import SAME_READ_US

_SAME_READ_NS = SAME_READ_US * 1000
CLEARLY = 3
"""A first event whose text is this many times as long as the others' holds several tokens, not a long one."""


@dataclass(slots=True, kw_only=True)
class TextReads:
    """The events so far. ``numbers``: their places among all events; stamps in ns.

    ``silent``: events without any text, whose ``silent_tokens`` usage alone counts. ``first_since``: where the first
    event's read brought further ones, the earliest time at which it may have come; None where its stamp is its own.
    """

    numbers: list[int] = field(default_factory=list)
    first_stamp: int | None = None
    last_stamp: int | None = None
    num_reads: int = 0
    num_in_first_read: int = 0
    has_reasoning: bool = False
    silent_tokens: int = 0
    silent: list[int] = field(default_factory=list)
    first_since: int | None = None
    _reasoning: list[int] = field(default_factory=list)
    _first_length: int = 0
    _length: int = 0

    @property
    def num_events(self) -> int:
        """How many events carried text."""
        return len(self.numbers)

    def add(self, number: int, stamp: int, length: int, *, is_reasoning: bool = False) -> None:
        """Take the event of this place, which came at ``stamp`` with a text of ``length`` characters.

        ``is_reasoning``: it holds nothing else.
        """
        last = self.last_stamp
        if last is None:
            self.first_stamp = stamp
            self.num_reads = 1
        elif stamp - last > _SAME_READ_NS:
            self.num_reads += 1
        self.last_stamp = stamp
        self.numbers.append(number)
        self._length += length
        if self.num_reads == 1:
            self.num_in_first_read += 1
            self._first_length += length
        if is_reasoning:
            self._reasoning.append(number)

    def first_visible(self) -> int | None:
        """Return the place of the first event with text that is no reasoning; None where there is none."""
        unseen = {*self._reasoning, *self.silent}
        return next((number for number in self.numbers if number not in unseen), None)

    def tokens_of_first_read(self, tokens: Sequence[int | None]) -> int | None:
        """Return the tokens of the events in the first read; None where one is not counted, or there is no event."""
        return _total(tokens, self.numbers[: self.num_in_first_read])

    def tokens_by_text(self, num_tokens: int) -> int | None:
        """Return the tokens of the first read by its share of the text; None where that is not clearly a larger one.

        For answers of fewer events than tokens whose events are not counted.
        """
        others = self.num_events - self.num_in_first_read
        if others < 1 or not self.num_events < num_tokens or not self._length:
            return None
        if self._first_length * others < CLEARLY * self.num_in_first_read * (
            self._length - self._first_length
        ):
            return None
        share = round(num_tokens * self._first_length / self._length)
        return min(max(share, self.num_in_first_read), num_tokens - others)

    def reasoning_tokens(self, tokens: Sequence[int | None]) -> int | None:
        """Return the tokens of the events that hold reasoning alone; None where there is none, or one not counted."""
        return _total(tokens, self._reasoning)


def _total(tokens: Sequence[int | None], numbers: Sequence[int]) -> int | None:
    counts = [tokens[number] for number in numbers]
    return sum(count or 0 for count in counts) if counts and None not in counts else None
