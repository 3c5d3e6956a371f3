"""How many squares an image has, by its size alone: nothing of the picture is decoded."""

from __future__ import annotations

import io
from typing import Final

from replay.serve.unreadable_part import UnreadablePartError

MOST_PIXELS: Final = 1 << 28
"""Of an image: more would be tokens beyond any context."""


def squares_of(content: bytes, side: int) -> int:
    """Return the number of squares of ``side`` pixels of an image's file, at least one.

    Raises UnreadablePartError for what is no image that Pillow knows, or too large a one.
    """
    width, height = _size(content)
    if width * height > MOST_PIXELS:
        raise UnreadablePartError(
            f"got an image of {width} x {height} pixels, expected at most {MOST_PIXELS:,}"
        )
    return max(round(width / side), 1) * max(round(height / side), 1)


def _size(content: bytes) -> tuple[int, int]:
    """Return width and height in pixels."""
    try:
        from PIL import Image
    except ImportError:
        raise UnreadablePartError(
            "got an image and no Pillow library, expected the extra vtwin[images]"
        ) from None
    try:
        with Image.open(io.BytesIO(content)) as picture:
            width, height = picture.size
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError, Warning) as fault:
        raise UnreadablePartError(
            f"got no image ({type(fault).__name__}), expected PNG, JPEG or WebP"
        ) from fault
    return width, height
