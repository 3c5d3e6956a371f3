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


def untouched(length: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return ``length`` zeros of a dtype in pages of their own, none of which is there before it is written."""
    size = length * dtype.itemsize
    if size == 0:
        return np.zeros(0, dtype)
    pages = mmap.mmap(-1, size)  # of no file
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        pages.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(pages, dtype, count=length)


def untouched_records(num: int, length: int, dtype: np.dtype[Any]) -> list[Records]:
    """Return ``num`` arrays of ``length`` zeroed records or more, each at the start of a cache line, side by side."""
    length = -(-length // CACHE_LINE) * CACHE_LINE
    rows = untouched(num * length, dtype).view(np.recarray)
    return [rows[i * length : (i + 1) * length] for i in range(num)]
