"""The largest quantities: beyond them a number is a mistake, or wraps."""

from __future__ import annotations

from typing import Final

MOST_TOKENS: Final = 1 << 30
"""The most tokens of a request's prompt, and of its output: their sum fits in an int32."""

MOST_US: Final = 1 << 53
"""The latest time, 285 years: a double still resolves single microseconds. Unix times are a fifth of it."""

MOST_S: Final = MOST_US / 1_000_000


MOST_REQUESTS: Final = 50_000_000
"""The most requests of a load, which are drawn into memory at once."""
