"""What importers say of a file, in the same words: rows left out by reason, names of strangers, rounds that share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

SHARE_UNKNOWN: Final = (
    "what rounds share is not known: the file does not say whether a prompt holds the rounds before it, "
    "so hits of the prefix cache between them are not simulated"
)
"""Of a file of conversations without block hashes or new tokens."""

MOST_NAME: Final = 500
"""Characters of a stranger's name or message that are kept."""
_SHOWN: Final = 6
"""Kinds that a note counts by name."""


def left_out(*reasons: tuple[int, str, str]) -> dict[str, int]:
    """Return the rows left out, by reason; ``reasons``: how many, in the words for one and for several."""
    return {one if number == 1 else many: number for number, one, many in reasons if number}


def cut(text: object) -> str | None:
    """Return a stranger's text, cut to ``MOST_NAME`` characters; None for anything else and for no text."""
    return text[:MOST_NAME] if isinstance(text, str) and text else None


def counted_kinds(names: Iterable[object]) -> str:
    """Return how often each name occurs, the most frequent first: ``API log 3, Conversation log 1``."""
    counts = Counter(str(name)[:60] for name in names)
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


def of(mapping: object, *keys: str) -> object:
    """Return the value under these keys, one below the other; None where one is missing."""
    value = mapping
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value
