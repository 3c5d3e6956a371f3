"""Images of a workload, sent as pictures: drawn squares of colour, of the size that makes their number of tokens.

A model whose tokens are squares of a fixed side (Qwen2-VL 28 pixels, Qwen3-VL 32) makes n tokens of a picture of n
squares. Equal images of a workload are equal pictures, others are not: neither the server's cache of encoded images nor
its prefix cache knows them. They stand behind the prompt's text.
"""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Collection, Mapping
from functools import lru_cache
from lazy_dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import orjson

from traces import ConfigError, image_lists, prompt_tokens

if TYPE_CHECKING:
    from traces import Trace

_PATCHES: Final = 16
"""Squares of colour a side: a picture that packs well, and is another one for each key."""
_KEPT: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureDrawing:
    """How images are drawn: a token is a square of ``side`` pixels; ``salt``: of the run's prompts."""

    side: int
    salt: int


@dataclass(frozen=True, slots=True)
class SentImage:
    """One picture: as many tokens, and the key that equal pictures share."""

    num_tokens: int
    key: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SentImages:
    """The pictures of a plan's rows."""

    of_row: Mapping[int, tuple[SentImage, ...]]
    drawing: PictureDrawing

    def num_tokens(self, row: int) -> int:
        """Return the tokens of a row's pictures."""
        return sum(image.num_tokens for image in self.of_row.get(row, ()))

    def prompt(self, row: int, messages: bytes) -> bytes:
        """Return a row's messages, JSON, with its pictures behind the last one's text."""
        images = self.of_row.get(row)
        if not images:
            return messages
        said = orjson.loads(messages)
        text = {"type": "text", "text": said[-1]["content"]}
        said[-1]["content"] = [text, *(self._part(image) for image in images)]
        return orjson.dumps(said)

    def _part(self, image: SentImage) -> dict[str, object]:
        width, height = squares(image.num_tokens)
        side = self.drawing.side
        url = _data_url(width * side, height * side, image.key, self.drawing.salt)
        return {"type": "image_url", "image_url": {"url": url}}


def squares(num_tokens: int) -> tuple[int, int]:
    """Return width and height, in squares, of a picture of nearly that many tokens, no long strip."""
    height = max(math.isqrt(num_tokens), 1)
    best = min(
        range(-(-height * 3 // 5), height + 1),
        key=lambda rows: (abs(round(num_tokens / rows) * rows - num_tokens), height - rows),
    )
    return max(round(num_tokens / best), 1), best


def images_to_send(trace: Trace, drawing: PictureDrawing, *, without: Collection[int]) -> SentImages:
    """Return the pictures of each row but those of ``without``.

    A row that states its images' tokens alone has one image. Raises ConfigError without the library that draws them.
    """
    try:
        import PIL  # noqa: F401  the extra is asked for before the run
    except ImportError as error:
        raise ConfigError(
            "--image-side: got no Pillow library, expected the extra: pip install 'vtwin[images]'"
        ) from error
    found: dict[int, tuple[SentImage, ...]] = {}
    lists, left_out = image_lists(trace.cells("images")), frozenset(without)
    if lists is not None:
        ends = np.cumsum(lists.counts)
        for row in np.flatnonzero(lists.counts).tolist():
            own = slice(int(ends[row] - lists.counts[row]), int(ends[row]))
            sizes, keys = lists.num_tokens[own].tolist(), lists.content[own].tolist()
            found[row] = tuple(SentImage(size, key) for size, key in zip(sizes, keys, strict=True))
    stated = trace.cells("image_tokens")
    alone = np.flatnonzero(stated.is_known & (stated.values > 0)).tolist()
    first = 0 if lists is None else int(lists.content.max(initial=-1)) + 1
    found |= {row: (SentImage(int(stated.values[row]), first + row),) for row in alone if row not in found}
    kept = {row: images for row, images in found.items() if row not in left_out}
    return SentImages(of_row=kept, drawing=drawing)


def with_sent_images(trace: Trace, images: SentImages) -> Trace:
    """Return the trace with the images that are sent, at their places behind the text; without any that are not."""
    prompts = prompt_tokens(trace).tolist()
    cells: list[str | None] = [None] * len(trace)
    for row, sent in images.of_row.items():
        place = max(prompts[row] - images.num_tokens(row), 1)
        parts = []
        for image in sent:
            parts.append(f"{place}:{image.num_tokens}:{image.key}")
            place += image.num_tokens
        cells[row] = " ".join(parts)
    return trace.with_columns(images=cells)


@lru_cache(maxsize=_KEPT)
def _data_url(width: int, height: int, key: int, salt: int) -> str:
    """Return a picture as a data URL of a PNG."""
    from PIL import Image

    colours = np.random.default_rng([salt, key]).integers(0, 256, (_PATCHES, _PATCHES, 3), dtype=np.uint8)
    picture, file = Image.fromarray(colours), io.BytesIO()
    picture.resize((width, height), Image.Resampling.NEAREST).save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
