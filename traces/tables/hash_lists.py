"""A column of lists of block hashes, held as the numbers that a file has: text is made where it is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from traces.tables.cells import Cells, text_cells

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Int64s = NDArray[np.int64]


class HashLists(Cells):
    """The cells of ``prefix_hashes`` (text, numbers separated by spaces) whose numbers are at hand.

    ``ids``: int64, those of row r behind those of the row before it. ``counts``: int64 per row; a row without any is
    an empty cell.
    """

    __slots__ = ("_texts", "counts", "ids")

    ids: Int64s
    counts: Int64s
    _texts: NDArray[Any] | None

    def __init__(self, ids: Int64s, counts: Int64s) -> None:
        """Hold the numbers; the cells' own texts are made later."""
        for name, value in (("ids", ids), ("counts", counts), ("is_known", counts > 0), ("_texts", None)):
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.counts)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Numpy's dtype of the values, text's."""
        return np.dtype(object)

    @property
    def values(self) -> NDArray[Any]:
        """The lists as text, None where a row has none."""
        if self._texts is None:
            names, ends = list(map(str, self.ids.tolist())), np.cumsum(self.counts).tolist()
            texts = [
                " ".join(names[end - count : end]) or None
                for end, count in zip(ends, self.counts.tolist(), strict=True)
            ]
            object.__setattr__(self, "_texts", np.array(texts, dtype=object))
        assert self._texts is not None  # noqa: S101 - set above
        return self._texts

    def take(self, rows: NDArray[Any]) -> Cells:
        """Return the cells of these rows: their numbers, or a bool for each."""
        counts = self.counts[rows]
        starts = (np.cumsum(self.counts) - self.counts)[rows]
        return HashLists(self.ids[ranges(starts, counts)], counts)


def hash_lists(lists: Sequence[Sequence[int] | None]) -> Cells:
    """Return lists of integers as cells, held as text where one is beyond int64."""
    counts = np.array([len(ids) if ids else 0 for ids in lists], np.int64)
    try:
        ids = np.fromiter(chain.from_iterable(ids for ids in lists if ids), np.int64, count=int(counts.sum()))
    except OverflowError:
        return text_cells([" ".join(map(str, ids or ())) or None for ids in lists])
    return HashLists(ids, counts)


def ranges(starts: Int64s, lengths: Int64s) -> Int64s:
    """Return start, start + 1, … of each length, one behind the other."""
    ends = np.cumsum(lengths)
    positions = np.arange(int(lengths.sum()), dtype=np.int64) + np.repeat(starts - (ends - lengths), lengths)
    return np.asarray(positions, np.int64)
