"""Failed requests in a load generator's results: what they were to have, and which of them cannot be kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

NO_PROMPT: Final = "that failed, of unknown prompt length,"


def untimed(number: int) -> dict[str, int]:
    """Return ``Source.left_out`` for failed requests without a time of sending; empty for none."""
    return {"that failed, of unknown time,": number} if number else {}


def left_out(number: int) -> dict[str, int]:
    """Return ``Source.left_out`` for failed requests without a prompt's length; empty for none."""
    return {NO_PROMPT: number} if number else {}


def only_length(outputs: Sequence[int | None], ok: Sequence[bool]) -> int | None:
    """Return the output that every answered request has, None where they differ or none was answered.

    Load generators ask each request for a length and let no answer end before it: equal lengths are the length asked.
    """
    lengths = {length for length, fine in zip(outputs, ok, strict=True) if fine}
    only = lengths.pop() if len(lengths) == 1 else None
    return only if isinstance(only, int) and not isinstance(only, bool) and only >= 1 else None


def assumed_length(tokens: int) -> str:
    """Return the note for failed requests that are taken to have been asked for the length that all others have."""
    return f"a failed request counts as one that asked for {tokens:,} output tokens, as every answer has"
