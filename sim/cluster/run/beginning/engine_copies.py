"""Engines that begin alike, copies of one side by side in memory: one made by itself takes a millisecond."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.cluster.draws import first_noise_draw
from sim.engine.initial_state import Room
from sim.engine.state import State, columns
from sim.paged_memory import CACHE_LINE, untouched

MOST_BYTES_NEAR = 1 << 14
"""Larger arrays that begin empty lie apart: most stay so, and between others' they would spread these over memory."""


def _bytes_of(array: Any) -> NDArray[np.uint8]:  # noqa: ANN401 - an array of numbers or of records
    """Return an array's bytes."""
    return np.frombuffer(array.tobytes(), np.uint8)


def _side_by_side(own: Sequence[tuple[int, Any]], num: int) -> list[tuple[int, Any]]:
    """Return ``num`` copies of each of one engine's arrays, an engine's all together, with their places in it."""
    if not own:
        return []
    starts = np.cumsum([0, *(-(-array.nbytes // CACHE_LINE) * CACHE_LINE for _, array in own)])
    memory = untouched(num * int(starts[-1]), np.dtype(np.uint8)).reshape(num, -1)
    rows = []
    for start, (place, array) in zip(starts.tolist(), own, strict=False):
        begun = _bytes_of(array)
        if begun.any():  # zeros are there, in pages that nobody has touched
            memory[:, start : start + array.nbytes] = begun
        shape, strides = (num, *array.shape), (memory.strides[0], *array.strides)
        of_all = np.ndarray(shape, array.dtype, memory.data, start, strides)
        rows.append((place, of_all.view(type(array))))
    return rows


def copies_of(states: Sequence[State], rooms: Sequence[Room]) -> list[State]:
    """Return an engine for each of ``rooms`` that begins as the last of ``states`` does.

    What the last two share, all share.
    """
    if not rooms:
        return []
    first, second = states[-2:]
    own = [
        (place, array)
        for place, (name, shared, array) in enumerate(zip(State._fields, first, second, strict=True))
        if array is not shared and array.size > 0 and name not in Room._fields
    ]
    is_near = [array.nbytes <= MOST_BYTES_NEAR or _bytes_of(array).any() for _, array in own]
    near = [each for each, is_one in zip(own, is_near, strict=True) if is_one]
    others = [each for each, is_one in zip(own, is_near, strict=True) if not is_one]
    rows = _side_by_side(near, len(rooms)) + _side_by_side(others, len(rooms))
    copies, fields, row_of = [], list(second), np.ndarray.__getitem__
    from_room = [
        (place, Room._fields.index(name)) for place, name in enumerate(State._fields) if name in Room._fields
    ]
    for i, room in enumerate(rooms):
        for place, of_all in rows:
            fields[place] = row_of(of_all, i)
        for place, of_room in from_room:
            fields[place] = room[of_room]
        copies.append(State._make(fields))
        columns(copies[i].engine)["settings"]["first_noise_draw"] = first_noise_draw(len(states) + i)
    return copies
