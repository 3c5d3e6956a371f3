"""Drawn pictures: squares of colour, of the size that makes their number of tokens, alone or as frames of a video."""

from __future__ import annotations

import base64
import io
import math
from functools import lru_cache
from typing import Final, Literal

import numpy as np

_PATCHES: Final = 16
"""Squares of colour a side: a picture that packs well, and is another one for each key."""
_KEPT: Final = 64
FRAMES_OF_A_TOKEN: Final = 2
"""Frames that Qwen2-VL and its successors take together (``temporal_patch_size`` of their processors)."""


def squares(num_tokens: int) -> tuple[int, int]:
    """Return width and height, in squares, of a picture of nearly that many tokens, no long strip."""
    height = max(math.isqrt(num_tokens), 1)
    best = min(
        range(-(-height * 3 // 5), height + 1),
        key=lambda rows: (abs(round(num_tokens / rows) * rows - num_tokens), height - rows),
    )
    return max(round(num_tokens / best), 1), best


def image_url(num_tokens: int, *, side: int, key: tuple[int, ...]) -> str:
    """Return a picture of so many squares of ``side`` pixels as a data URL of a PNG; ``key``: equal pictures share."""
    return "data:image/png;base64," + _drawn(*_pixels(num_tokens, side), "PNG", key)


def video_url(num_tokens: int, *, side: int, num_frames: int, key: tuple[int, ...]) -> str:
    """Return a video of nearly so many tokens as a data URL of JPEG frames, as vLLM takes them: one behind the other.

    Source: ``VideoMediaIO.load_base64`` of vLLM 0.32 (vllm/multimodal/media/video.py).
    """
    of_each = max(round(num_tokens * FRAMES_OF_A_TOKEN / num_frames), 1)
    size = _pixels(of_each, side)
    frames = (_drawn(*size, "JPEG", (*key, number)) for number in range(num_frames))
    return "data:video/jpeg;base64," + ",".join(frames)


def _pixels(num_tokens: int, side: int) -> tuple[int, int]:
    width, height = squares(num_tokens)
    return width * side, height * side


@lru_cache(maxsize=_KEPT)
def _drawn(width: int, height: int, kind: Literal["PNG", "JPEG"], key: tuple[int, ...]) -> str:
    """Return a picture's file in base64."""
    from PIL import Image

    colours = np.random.default_rng(key).integers(0, 256, (_PATCHES, _PATCHES, 3), dtype=np.uint8)
    picture, file = Image.fromarray(colours), io.BytesIO()
    picture.resize((width, height), Image.Resampling.NEAREST).save(file, kind)
    return base64.b64encode(file.getvalue()).decode()
