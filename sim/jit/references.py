"""Tuples of arrays that compiled code finds through a table: an engine's ``State``, a cluster's ``World``.

numba hands a tuple over array by array: a function that takes a ``State`` would have 340 parameters, most of which it
only passes on, and most of the time to compile it would go into them. It has no list of tuples that costs nothing to
index either. Here a tuple is a row of a table: address and shape of each array. ``reader_of`` makes the function that
gives a reference to a row, one word. Its attributes are put together from the row when they are asked for: columns,
which know an address and give or take single values, or whole arrays. No reference counts, any number of tuples of any
sizes. Code that replaces an array must call ``point_to`` again, and keep the tuples alive while their table is used.

A column's index is not checked: an index below zero is outside, where an array would count from its end. With
``NUMBA_BOUNDSCHECK=1`` an index outside raises IndexError. All integers that a column gives are int64, whatever they
are stored as, so a function is compiled for one kind of integer.

What numba makes of it is in ``sim/jit/reference_types.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any

import numpy as np

from sim.jit.lazily import Intrinsic
from sim.jit.numba_settings import IS_PLAIN_PYTHON
from sim.jit.object_file import WORDS

Table = Any
"""int64[num rows, WORDS * number of arrays]; where nothing is compiled, the list of the tuples themselves."""

_HOLLOW: dict[type, Any] = {}
"""A tuple of each kind with empty arrays; known before anything is compiled for it."""

_LAYOUTS: dict[type, list[tuple[np.dtype[Any], int]]] = {}
"""For each kind of tuple, the dtype of each array and its number of axes: what compiled code takes them for."""


def table_of(tuples: Sequence[Any], *, even: Sequence[range] = ()) -> Table:
    """Return the table of tuples of one kind, at least one.

    ``even``: rows of tuples whose arrays lie at even distances, each as far behind the same one of the row before.
    """
    if IS_PLAIN_PYTHON:
        return list(tuples)
    kind = type(tuples[0])
    if kind not in _LAYOUTS:
        _HOLLOW[kind] = _hollow(tuples[0])
        _LAYOUTS[kind] = [(array.dtype, array.ndim) for array in arrays_of(tuples[0])]
    table = np.zeros((len(tuples), WORDS * len(_LAYOUTS[kind])), np.int64)
    laid, last = {row for rows in even for row in rows[2:]}, None
    for row, each in enumerate(tuples):
        if row not in laid:
            if last is not None:
                table[row] = table[last]  # what both have stays
            point_to(table, row, each, before=None if last is None else tuples[last])
            last = row
    for rows in even:
        _lay_evenly(table, rows, tuples)
    return table


def _lay_evenly(table: Table, rows: range, tuples: Sequence[Any]) -> None:
    """Fill a table's rows behind the first two from these; of the last it is checked that the tuple is there."""
    if len(rows) < 3:
        return
    first, rest = table[rows.start], table[rows.start : rows.stop]
    step = table[rows.start + 1] - first
    rest[:] = np.multiply.outer(np.arange(len(rows)), step) + first
    found = rest[-1].copy()
    point_to(table, rows[-1], tuples[rows[-1]])
    assert (rest[-1] == found).all(), f"rows {rows}: arrays do not lie at even distances"  # noqa: S101 - ours


def point_to(table: Table, row: int, arrays: Any, *, before: Any = None) -> None:
    """Write into a row of the table where these arrays lie.

    ``before``: the tuple that the row stood for until now; an array that was in it at the same place is passed over.
    Raises TypeError where one is not of the layout that compiled code takes it for.
    """
    if isinstance(table, list):
        table[row] = arrays
        return
    known = arrays_of(before) if before is not None else repeat(None)
    layout, words, places = _LAYOUTS[type(arrays)], [], []
    for place, (array, one_before) in enumerate(zip(arrays_of(arrays), known, strict=False)):
        if array is not one_before:
            places.append(place)
            words.append(_words_of(array, *layout[place]))
    if places:
        table[row].reshape(-1, WORDS)[places] = words


def _words_of(array: Any, dtype: np.dtype[Any], num_axes: int) -> tuple[int, int, int]:
    """Return a table's entry for an array; an empty one has address 0, since to look it up costs a microsecond."""
    array = np.ndarray.view(array, np.ndarray)  # of records each attribute takes a microsecond
    if array.dtype != dtype or array.ndim != num_axes or not array.flags.c_contiguous:
        got = f"{array.dtype}, {array.ndim} axes, {'' if array.flags.c_contiguous else 'not '}in order"
        raise TypeError(f"got {got}, expected {dtype}, {num_axes} axes, in order")
    length, width = (*array.shape, 0)[:2]
    return array.ctypes.data if array.size else 0, length, width


def _hollow(arrays: Any) -> Any:
    """Return a tuple of the same kind, and so on inwards, whose arrays have no items."""
    if isinstance(arrays, tuple):
        return type(arrays)(*map(_hollow, arrays))
    return np.empty((0,) * arrays.ndim, arrays.dtype)


def arrays_of(arrays: Any) -> Sequence[Any]:
    """Return the arrays of a tuple of arrays and of such tuples, in order."""
    found: list[Any] = []
    for each in arrays:
        found += arrays_of(each) if isinstance(each, tuple) else (each,)
    return found


def reader_of(kind: type, *, gives_columns: bool) -> Callable[[Table, int], Any]:
    """Return the function that gives a reference to a row, or in plain Python the tuple itself."""
    if IS_PLAIN_PYTHON:
        return lambda table, row: table[row]

    def made() -> Any:
        from sim.jit.reference_types import reader

        return reader(_HOLLOW[kind], gives_columns=gives_columns)

    return Intrinsic(made)
