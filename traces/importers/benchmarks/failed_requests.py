"""Failed requests in a load generator's results: how long their answers were to be."""

from __future__ import annotations

from collections.abc import Sequence


def only_length(outputs: Sequence[int | None], ok: Sequence[bool]) -> int | None:
    """Return the output that every answered request has, None where they differ or none was answered.

    Load generators ask each request for a length and let no answer end before it: equal lengths are the length asked.
    """
    lengths = [length for length, fine in zip(outputs, ok, strict=True) if fine]
    only = lengths[0] if lengths else None
    if not isinstance(only, int) or isinstance(only, bool) or only < 1:
        return None
    return only if all(length == only for length in lengths) else None


def assumed_length(tokens: int) -> str:
    """Return the note for failed requests that are taken to have been asked for the length that all others have."""
    return f"a failed request counts as one that asked for {tokens:,} output tokens, as every answer has"
