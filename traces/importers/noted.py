"""What importers say of a file, in the same words: rows left out by reason, names of strangers, rounds that share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from traces.errors import cut
from traces.importers.conversation_turns import NOT_KNOWN, Turn, conversations_of
from traces.importers.short_names import short_name

SHARE_UNKNOWN: Final = (
    f"{NOT_KNOWN}: the file does not say whether a prompt holds the rounds before it, "
    "so hits of the prefix cache between them are not simulated"
)
"""The note on a file of conversations without block hashes or new tokens."""

LEFT_OUT: Final = {
    "failed": "without a response",
    "empty": "with a response, without prompt tokens,",
    "unknown": "of unknown length",
    "no_prompt": "that failed, of unknown prompt length,",
    "no_time": "that failed, of unknown time,",
}
"""Why rows are no requests to simulate, as said behind "3 requests"."""
_SHOWN: Final = 6
"""Kinds that a note counts by name."""


def left_out(**reasons: int) -> dict[str, int]:
    """Return ``Source.left_out``: how many rows, by reason, of the reasons of ``LEFT_OUT`` that occurred."""
    return {LEFT_OUT[reason]: number for reason, number in reasons.items() if number}


def name_of(text: object) -> str | None:
    """Return a stranger's name, kept short; None for anything that is no text and for an empty one."""
    return short_name(text) if isinstance(text, str) and text else None


def counted_kinds(names: Iterable[object]) -> str:
    """Return how often each name occurs, the most frequent first: ``API log 3, Conversation log 1``."""
    counts = Counter(cut(str(name)) for name in names)
    shown = ", ".join(f"{name} {number:,}" for name, number in counts.most_common(_SHOWN))
    more = len(counts) - _SHOWN
    return f"{shown} and {more:,} more kinds" if more > 0 else shown


def differing_counts(
    pairs: Iterable[tuple[int | None, int | None]], *, what: str, tool: str
) -> tuple[str, ...]:
    """Return a line where a tool's own counts differ from the server's.

    ``pairs``: (the server's, the tool's) of each request, None where one is not known.
    """
    both = [(server, own) for server, own in pairs if server is not None and own is not None]
    number = sum(server != own for server, own in both)
    if not number:
        return ()
    server_mean, own_mean = (sum(each) / len(both) for each in zip(*both, strict=True))
    return (
        f"{what} are the server's counts; {tool}'s own differ for {number:,} of {len(both):,} requests "
        f"(mean {own_mean:.1f}, the server's {server_mean:.1f})",
    )


def grown(
    sessions: Sequence[str | None], prompts: Sequence[int], outputs: Sequence[int]
) -> tuple[list[int | None] | None, tuple[str, ...]]:
    """Return (what each round adds to those before it, notes) of rows in the order of their times, by their lengths.

    None where no conversation has several rounds, or no prompt is long enough for the rounds before it.
    """
    talks = conversations_of(
        [
            Turn(conversation=name, turn=place, prompt=int(prompt), output=int(output))
            for place, (name, prompt, output) in enumerate(zip(sessions, prompts, outputs, strict=True))
        ]
    )
    new = talks.new_input_tokens
    return (new if any(each is not None for each in new) else None), talks.notes


def of(mapping: object, *keys: str) -> object:
    """Return the value under these keys, one below the other; None where one is missing."""
    value = mapping
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value
