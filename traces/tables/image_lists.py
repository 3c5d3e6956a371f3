"""The column ``images``: which images a prompt shows, and where.

A cell has ``position:tokens`` or ``position:tokens:content`` of each image, separated by spaces, by position. Equal
contents are the same image; without one, it is an image that is shown nowhere else.
"""

from __future__ import annotations

from lazy_dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from traces.strict.limits import MOST_TOKENS
from traces.tables.cells import Cells, all_known
from traces.tables.problems import Finding, finding
from traces.tables.session_tree import column_of
from traces.tables.table import Table

Int64s = NDArray[np.int64]

MOST_DIGITS = len(str(MOST_TOKENS))
"""Python cannot convert a text of thousands of digits into a number."""
EXPECTED = "position:tokens or position:tokens:content, separated by spaces"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageLists:
    """The images of n prompts, one prompt's behind the other's, int64. ``counts``: how many each prompt has.

    ``content``: dense integers; equal means the same image.
    """

    counts: Int64s
    position: Int64s
    num_tokens: Int64s
    content: Int64s


def image_lists(cells: Cells) -> ImageLists | None:
    """Return the images in a column's cells, None if there are none; the cells must pass ``image_findings``."""
    rows = np.flatnonzero(cells.is_known)
    lists = [str(text).split() for text in cells.values[rows].tolist()]
    parts = [image.split(":", 2) for images in lists for image in images]
    if not parts:
        return None
    counts = np.zeros(len(cells.is_known), np.int64)
    counts[rows] = [len(images) for images in lists]
    names: dict[str | int, int] = {}
    content = [names.setdefault(part[2] if len(part) > 2 else i, len(names)) for i, part in enumerate(parts)]
    return ImageLists(
        counts=counts,
        position=np.array([int(part[0]) for part in parts], np.int64),
        num_tokens=np.array([int(part[1]) for part in parts], np.int64),
        content=np.array(content, np.int64),
    )


def image_findings(requests: Table, *, file: str) -> list[Finding]:
    """Return cells that are not a list of images, whose images overlap or exceed the prompt, or differ in size."""
    if "images" not in requests:
        return []
    own = requests["input_tokens"].values + requests["prefix_length"].values
    prompt = column_of(requests, "server_input_tokens").or_else(all_known(own)).values
    texts = requests["images"].filled("")
    sizes: dict[str, int] = {}
    faults: dict[int, str] = {}
    for row in np.flatnonzero(requests["images"].is_known).tolist():
        fault = _fault(texts[row], int(prompt[row]), sizes)
        if fault is not None:
            faults[row] = fault
    bad = np.zeros(len(prompt), np.bool_)
    bad[list(faults)] = True
    return finding(file, "images", bad=bad, message=faults.__getitem__)


def _fault(text: str, prompt: int, sizes: dict[str, int]) -> str | None:
    """Return the fault of a prompt's list; ``sizes``: the tokens of each content so far, to which it adds."""
    end = 0
    for image in text.split():
        first, _, rest = image.partition(":")
        size, _, content = rest.partition(":")
        if not (_is_number(first) and _is_number(size)) or int(size) < 1 or image.endswith(":"):
            return f"got {image!r}, expected {EXPECTED}"
        position, num_tokens = int(first), int(size)
        if position < end:
            return (
                f"got {image!r} behind an image up to {end}, expected images by position that do not overlap"
            )
        end = position + num_tokens
        if end > prompt:
            return f"got {image!r}, expected images within the prompt's {prompt} tokens"
        if content and sizes.setdefault(content, num_tokens) != num_tokens:
            return f"got {image!r}, expected {sizes[content]} tokens, as {content!r} has elsewhere"
    return None


def _is_number(text: str) -> bool:
    """Return whether a text is a number of tokens."""
    return text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS and int(text) <= MOST_TOKENS


def scaled_images(text: str | None, factor: float, most: int) -> str | None:
    """Return a prompt's list of images with positions and sizes times a factor, those within ``most`` tokens alone."""
    if text is None:
        return None
    kept = []
    for image in text.split():
        first, size, *content = image.split(":", 2)
        position, num_tokens = int(int(first) * factor), int(int(size) * factor)
        if num_tokens > 0 and position + num_tokens <= most:
            kept.append(":".join([str(position), str(num_tokens), *content]))
    return " ".join(kept) or None
