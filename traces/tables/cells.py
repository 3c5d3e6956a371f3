"""A column's cells as numpy's arrays: their values, and which of them are known.

Light on purpose (numpy alone): code that every command runs reads cells, and only code that needs a frame imports
pandas.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import repeat
from lazy_dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from traces.schema import DType

NUMPY_DTYPE: Final[Mapping[DType, type]] = {
    "string": object,
    "int": np.int64,
    "float": np.float64,
    "bool": np.bool_,
}
EMPTY: Final[Mapping[DType, Any]] = {"string": None, "int": 0, "float": np.nan, "bool": False}
"""The placeholders in ``Cells.values`` for unknown cells."""
_PLAIN: Final[Mapping[DType, frozenset[type]]] = {
    "string": frozenset({str}),
    "int": frozenset({int}),
    "float": frozenset({float, int}),
    "bool": frozenset({bool}),
}
"""Python's types whose values only need to be put into an array."""
_FITTING: Final[Mapping[DType, str]] = {"int": "iu", "float": "fiu", "bool": "b"}
"""Kinds of numpy's dtypes whose values fit as they are."""
_OF_KIND: Final[Mapping[str, DType]] = {"O": "string", "i": "int", "f": "float", "b": "bool"}


class UnfitColumn(ValueError):  # noqa: N818 - a reader tells it as an error of its file
    """Values that do not fit TraceV2's dtype of their column."""


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """The cells of one column, of dtype int64, float64, bool, or object for text.

    ``values`` is 0, NaN, False or None where ``is_known`` is False. Treat both as read-only: they are shared.
    """

    values: NDArray[Any]
    is_known: NDArray[np.bool_]

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.values)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Numpy's dtype of the values."""
        return self.values.dtype

    def filled(self, value: object) -> NDArray[Any]:
        """Return the values, ``value`` where none is known."""
        if self.is_known.all():
            return self.values
        return np.where(self.is_known, self.values, np.asarray(value, dtype=self.values.dtype))

    def floats(self) -> NDArray[np.float64]:
        """Return numbers as float64, NaN where none is known."""
        return np.where(self.is_known, self.values, np.nan).astype(np.float64, copy=False)

    def known(self) -> NDArray[Any]:
        """Return the known values, in their order."""
        return self.values[self.is_known]

    def codes(self) -> tuple[NDArray[np.int64], list[Any]]:
        """Return each row's value as its place in the list of distinct ones, -1 where none is known, and the list.

        The list is in the order in which values first come.
        """
        if not self.is_known.any():
            return np.full(len(self.values), -1, np.int64), []
        values = self.values.tolist()
        code_of = {value: code for code, value in enumerate(dict.fromkeys(self.known().tolist()))}
        codes = np.fromiter(map(code_of.get, values, repeat(-1)), np.int64, count=len(values))
        codes[~self.is_known] = -1
        return codes, list(code_of)

    def ranks(self) -> NDArray[np.int64]:
        """Return each row's value as its place among the distinct ones in ascending order, -1 where none is known."""
        codes, values = self.codes()
        place_of = {value: place for place, value in enumerate(sorted(values))}
        return np.array([*(place_of[value] for value in values), -1], dtype=np.int64)[codes]

    def num_distinct(self) -> int:
        """Return how many different values are known."""
        return len(set(self.known().tolist()))

    def where(self, keep: NDArray[np.bool_]) -> Cells:
        """Return the cells, empty where ``keep`` is False."""
        return cells_where(self.values, self.is_known & keep)

    def or_else(self, other: Cells) -> Cells:
        """Return the cells, where they are empty those of ``other``, which has the same dtype."""
        values = np.where(self.is_known, self.values, other.values)
        return Cells(values, self.is_known | other.is_known)

    def plus(self, other: Cells) -> Cells:
        """Return the sums of numbers, empty where either is."""
        return cells_where(self.values + other.values, self.is_known & other.is_known)

    def replaced(self, rows: NDArray[Any], other: Cells) -> Cells:
        """Return the cells with those of ``other`` at these rows."""
        values, is_known = self.values.copy(), self.is_known.copy()
        values[rows], is_known[rows] = other.values, other.is_known
        return Cells(values, is_known)

    def take(self, rows: NDArray[Any]) -> Cells:
        """Return the cells of these rows: their numbers, or a bool for each."""
        return Cells(self.values[rows], self.is_known[rows])


@lru_cache(maxsize=4)
def no_cells(dtype: DType, num_rows: int) -> Cells:
    """Return a column of empty cells, the same to all who ask: it cannot be written to."""
    values: NDArray[Any] = np.full(num_rows, EMPTY[dtype], dtype=NUMPY_DTYPE[dtype])
    is_known = np.zeros(num_rows, dtype=np.bool_)
    values.flags.writeable = is_known.flags.writeable = False
    return Cells(values, is_known)


def all_known(values: NDArray[Any]) -> Cells:
    """Return these values as cells, each of them known. ``values``: int64, float64, bool, or object for text."""
    return Cells(values, np.ones(len(values), dtype=np.bool_))


def cells_where(values: NDArray[Any], is_known: NDArray[np.bool_]) -> Cells:
    """Return integers, floats, bools or text (object) as cells, empty where ``is_known`` is False."""
    dtype = _OF_KIND[values.dtype.kind]
    whole: NDArray[Any] = values.astype(NUMPY_DTYPE[dtype], copy=False)
    if is_known.all():
        return Cells(whole, is_known)
    return Cells(np.where(is_known, whole, np.array(EMPTY[dtype], dtype=whole.dtype)), is_known)


def plain_cells(values: object, dtype: DType) -> Cells | None:
    """Return an array or a list as cells of ``dtype`` where it holds that and nothing else, None where it may not.

    In a list, None is an empty cell; so is NaN among floats.
    """
    if isinstance(values, Cells):
        return values if values.dtype == NUMPY_DTYPE[dtype] else None
    if isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype != object:
        return _of_array(values, dtype)
    if isinstance(values, np.ndarray) and values.ndim == 1:
        values = values.tolist()
    return _of_list(values, dtype) if isinstance(values, list) else None


def text_cells(texts: Sequence[str | None]) -> Cells:
    """Return texts as cells, None an empty one."""
    values = np.array(texts, dtype=object)
    return Cells(values, np.array([text is not None for text in texts], dtype=np.bool_))


def _of_array(values: NDArray[Any], dtype: DType) -> Cells | None:
    wanted = NUMPY_DTYPE[dtype]
    if dtype == "string" or values.dtype.kind not in _FITTING[dtype] or not np.can_cast(values.dtype, wanted):
        return None
    found: NDArray[Any] = values.astype(wanted, copy=False)
    return Cells(found, ~np.isnan(found)) if dtype == "float" else all_known(found)


def _of_list(values: Sequence[Any], dtype: DType) -> Cells | None:
    kinds = set(map(type, values))
    if not kinds - {type(None)} <= _PLAIN[dtype]:
        return None
    if dtype == "string":
        return text_cells(values) if _is_unicode([text for text in values if text is not None]) else None
    is_known = np.array([value is not None for value in values], dtype=np.bool_)
    try:
        filled: NDArray[Any] = np.array(
            [EMPTY[dtype] if value is None else value for value in values], NUMPY_DTYPE[dtype]
        )
    except OverflowError:
        return None
    return Cells(filled, is_known & ~np.isnan(filled) if dtype == "float" else is_known)


def _is_unicode(texts: list[str]) -> bool:
    """Return whether texts can be written: half of a surrogate pair cannot."""
    joined = "".join(texts)
    if joined.isascii():
        return True
    try:
        joined.encode()
    except UnicodeEncodeError:
        return False
    return True
