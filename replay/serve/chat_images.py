"""Images of a chat: how many tokens each is, by its size. The server looks at the size alone."""

from __future__ import annotations

import base64
import binascii
import io
import zlib
from typing import Final

import numpy as np

from replay.serve.protocol import PartReader, Refusal
from replay.serve.tokens import NUM_IDS, Tokens

MOST_PIXELS: Final = 1 << 28
"""Of an image: more would be tokens beyond any context."""
_IDS_APART: Final = 1 << 20
"""Ids from one image's first to another's: so many tokens are its own."""


class UnreadableImageError(ValueError):
    """A part that is no image whose size can be read; the message says what it is."""


def part_reader(side: int) -> PartReader:
    """Return what reads the images of chats: a token is a square of ``side`` pixels."""

    def read(part: object) -> Tokens:
        if not isinstance(part, dict) or part.get("type") != "image_url":
            what = "text or images"
            raise Refusal(f"messages: got content that is not {what}, expected {what}", param="messages")
        try:
            return image_tokens(part, side=side)
        except UnreadableImageError as fault:
            raise Refusal(f"messages: {fault}", param="messages") from fault

    return read


def image_tokens(part: object, *, side: int) -> Tokens:
    """Return the tokens of an ``image_url`` part: one a square of ``side`` pixels, alike for the same image.

    Raises UnreadableImageError for an image that is not in the request, or has no size that Pillow knows.
    """
    holder = part.get("image_url") if isinstance(part, dict) else None
    url = holder.get("url") if isinstance(holder, dict) else holder
    if not isinstance(url, str) or not url.startswith("data:") or "," not in url:
        raise UnreadableImageError("got an image that is not in the request, expected a data: URL")
    try:
        content = base64.b64decode(url.partition(",")[2], validate=True)
    except binascii.Error:
        raise UnreadableImageError("got an image that is not base64, expected a data: URL") from None
    width, height = _size(content)
    if width * height > MOST_PIXELS:
        raise UnreadableImageError(
            f"got an image of {width} x {height} pixels, expected at most {MOST_PIXELS:,}"
        )
    number = max(round(width / side), 1) * max(round(height / side), 1)
    first = zlib.crc32(content) * _IDS_APART
    return (first + np.arange(number, dtype=np.int64)) % NUM_IDS


def _size(content: bytes) -> tuple[int, int]:
    """Return width and height in pixels; nothing of the picture is decoded. Raises UnreadableImageError."""
    try:
        from PIL import Image
    except ImportError:
        raise UnreadableImageError(
            "got an image and no Pillow library, expected the extra vtwin[images]"
        ) from None
    try:
        with Image.open(io.BytesIO(content)) as picture:
            width, height = picture.size
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError, Warning) as fault:
        raise UnreadableImageError(
            f"got no image ({type(fault).__name__}), expected PNG, JPEG or WebP"
        ) from fault
    return width, height
