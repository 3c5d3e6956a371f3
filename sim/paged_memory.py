"""Memory that is allocated page by page as it is written: for logs that are created at their greatest length.

A thousand engines have a thousand logs, most of them nearly empty. Zeros from numpy's allocator are written at once
where it uses memory again, and large ones come in pages of 2 MB.
"""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
from numpy.typing import NDArray

Records = Any  # numpy.recarray; its fields are typed by its dtype, which mypy cannot follow

CACHE_LINE = 64
"""Bytes."""


LARGE_PAGE = 1 << 21
"""Bytes of the pages that a processor finds faster, of most processors."""

_OF_NO_FILE: dict[str, Any] = (
    {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_ANONYMOUS") else {}
)
"""Memory that no other process sees: a page of it is there in half the time of one that may be shared."""


def untouched(length: int, dtype: np.dtype[Any], *, is_dense: bool = False) -> NDArray[Any]:
    """Return ``length`` zeros of a dtype in pages of their own, none of which is there before it is written.

    ``is_dense``: nearly all of it will be written, so that its pages may be large.
    """
    size = length * dtype.itemsize
    if size == 0:
        return np.zeros(0, dtype)
    pages = mmap.mmap(-1, size + LARGE_PAGE * is_dense, **_OF_NO_FILE)
    advice = "MADV_HUGEPAGE" if is_dense else "MADV_NOHUGEPAGE"
    if hasattr(mmap, advice):
        pages.madvise(getattr(mmap, advice))
    start = -np.frombuffer(pages, np.uint8).ctypes.data % LARGE_PAGE if is_dense else 0
    return np.frombuffer(pages, dtype, count=length, offset=start)


def untouched_records(num: int, length: int, dtype: np.dtype[Any]) -> list[Records]:
    """Return ``num`` arrays of ``length`` zeroed records or more, each at the start of a cache line, side by side."""
    length = -(-length // CACHE_LINE) * CACHE_LINE
    rows = untouched(num * length, dtype).view(np.recarray)
    return [rows[i * length : (i + 1) * length] for i in range(num)]
