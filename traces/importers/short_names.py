"""Names in other tools' files: ids of requests, sessions and models, kept short enough for every column of a trace."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

MOST_CHARACTERS: Final = 500
"""Of a name; a longer one is data in the wrong place, and would stand in several columns of each row."""


def short_name(name: str) -> str:
    """Return the name, or of a longer one its beginning and a digest, so that different names stay different."""
    if len(name) <= MOST_CHARACTERS:
        return name
    digest = blake2b(name.encode("utf-8", "replace"), digest_size=8).hexdigest()
    return f"{name[: MOST_CHARACTERS - len(digest) - 1]}~{digest}"
