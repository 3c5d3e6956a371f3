"""Values that a server states; an impossible value counts as unknown."""

from __future__ import annotations

import math
from collections.abc import Mapping

MOST_TOKENS = (1 << 31) - 1
"""More tokens than any context: vLLM counts them in 32 bits."""

_LONGEST_MS = 1e10
"""116 days."""

_LONGEST_TEXT = 200


def token_count(value: object) -> int | None:
    """Return a number of tokens, None if it is negative, not an integer, or more than a context can hold."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_TOKENS:
        return value
    return None


def milliseconds(value: object) -> float | None:
    """Return a time in ms, None if it is negative, infinite, or beyond any run."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if 0 <= value <= _LONGEST_MS and math.isfinite(value) else None


def token_ids(value: object) -> tuple[int, ...] | None:
    """Return token ids, None if the value is not a list of them."""
    if not isinstance(value, list):
        return None
    ids = tuple(token_count(each) for each in value)
    return None if None in ids else ids  # type: ignore[return-value]  # mypy does not narrow by ``in``


def short_text(value: object) -> str | None:
    """Return a text that fits on a line as it is, None for any other."""
    fits = isinstance(value, str) and 0 < len(value) <= _LONGEST_TEXT and value.isprintable()
    return value if fits else None  # type: ignore[return-value]  # as above


def stated(holder: Mapping[str, object], name: str) -> bool:
    """Return whether a field is there and not null."""
    return holder.get(name) is not None
