"""Conversations in other tools' records: which request is which turn, and what a turn's prompt repeats.

A prompt at least as long as the prompt and the answer before it holds both: that is how a chat is sent. No record says
it, so a note tells what was taken for shared. A session of which one prompt is shorter shares nothing that is known.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from lazy_dataclasses import dataclass
from typing import Final

NOT_KNOWN: Final = "what rounds share is not known"
"""Begins every note on turns whose prompts do not show what they repeat."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One request: its conversation and place in it, None where it has none; lengths in tokens, None where unknown.

    ``sent_us``, ``answered_us``: when it was sent and its answer was there, None where unknown.
    """

    conversation: str | None
    turn: int | None
    prompt: int | None
    output: int | None
    sent_us: int | None = None
    answered_us: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversations:
    """Columns of a trace, a cell per request, and what a reader should know of them.

    ``has_any``: whether any conversation has several turns; the columns are all None otherwise.
    """

    session: list[str | None]
    round_index: list[int | None]
    new_input_tokens: list[int | None]
    think_time_us: list[int | None]
    notes: tuple[str, ...]
    has_any: bool

    def columns(self) -> dict[str, object]:
        """Return them by TraceV2's names; empty without conversations."""
        if not self.has_any:
            return {}
        new, think = self.new_input_tokens, self.think_time_us
        return {
            "session_id": self.session,
            "round_index": self.round_index,
            "new_input_tokens": new if any(each is not None for each in new) else None,
            "think_time_us": think if any(each is not None for each in think) else None,
        }


def conversations_of(turns: Sequence[Turn]) -> Conversations:
    """Return the conversations of these requests, in their order; a conversation of one turn is none.

    Turns count from 0 by their place in the record, whatever number the first has. A turn that comes a second time is
    of another conversation, held after the same script: the k-th of each turn belong together. Think times are from
    the answer before to the next turn, where all of a conversation show them.
    """
    members = _members(turns)
    session: list[str | None] = [None] * len(turns)
    places: list[int | None] = [None] * len(turns)
    new: list[int | None] = [None] * len(turns)
    think: list[int | None] = [None] * len(turns)
    growing = apart = 0
    for name, rows in members.items():
        if len(rows) < 2:
            continue
        rows.sort(key=lambda row: (turns[row].turn or 0, row))
        for place, row in enumerate(rows):
            session[row], places[row] = name, place
        for row, pause in zip(rows, _pauses([turns[row] for row in rows]), strict=True):
            think[row] = pause
        added = _added([turns[row] for row in rows])
        if added is None:
            apart += 1
            continue
        growing += 1
        for row, tokens in zip(rows, added, strict=True):
            new[row] = tokens
    return Conversations(
        session=session,
        round_index=places,
        new_input_tokens=new,
        think_time_us=think,
        notes=_notes(growing, apart),
        has_any=bool(growing or apart),
    )


def _members(turns: Sequence[Turn]) -> dict[str, list[int]]:
    """Return the rows of each conversation, by name; of one that was held several times, each time's by itself."""
    named: dict[str, list[int]] = {}
    times: dict[tuple[str, int], int] = {}
    for row, each in enumerate(turns):
        if each.conversation is None:
            continue
        again = 0
        if each.turn is not None:
            again = times.get((each.conversation, each.turn), 0)
            times[each.conversation, each.turn] = again + 1
        named.setdefault(each.conversation if not again else f"{each.conversation}~{again + 1}", []).append(
            row
        )
    return named


def _pauses(turns: list[Turn]) -> list[int | None]:
    """Return the pause before each turn but the first; none at all where one is not known, or is below 0."""
    pauses: list[int | None] = [None]
    for before, each in itertools.pairwise(turns):
        if before.answered_us is None or each.sent_us is None or each.sent_us < before.answered_us:
            return [None] * len(turns)
        pauses.append(each.sent_us - before.answered_us)
    return pauses


def _added(turns: list[Turn]) -> list[int | None] | None:
    """Return the tokens that each turn adds to those before it; None where one does not hold what came before."""
    added: list[int | None] = []
    before: int | None = 0
    for each in turns:
        if each.prompt is None or before is None or each.prompt < before:
            return None
        added.append(each.prompt - before)
        before = None if each.output is None else each.prompt + each.output
    return added


def _notes(growing: int, apart: int) -> tuple[str, ...]:
    notes = []
    if growing:
        notes.append(
            f"{_conversations(growing)}: each prompt is taken to hold the prompt and the answer before it, as it "
            "is long enough for both"
        )
    if apart:
        notes.append(
            f"{_conversations(apart)}: {NOT_KNOWN} (a later prompt is shorter than the prompt and the answer before "
            "it, or a length is unknown); each prompt counts as new, so prefix hits are too few"
        )
    return tuple(notes)


def _conversations(number: int) -> str:
    return f"{number:,} conversation{'s' if number > 1 else ''} of several turns"
