"""Engines that begin alike, copies of one side by side in memory: one made by itself takes a millisecond."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.cluster.cluster_config import Pool
from sim.cluster.draws import first_noise_draw
from sim.engine.initial_state import Room
from sim.engine.state import State, columns
from sim.paged_memory import CACHE_LINE, untouched
from sim.requests import Int64s

MOST_BYTES_NEAR = 12 << 10
"""Larger arrays that begin empty lie apart: most stay so, and between others' they would spread these over memory."""

RING = "blocks"
"""The KV blocks in a ring of free ones, which an engine that counts them does not need (``counted_engines``)."""


def _bytes_of(array: Any) -> NDArray[np.uint8]:  # noqa: ANN401 - an array of numbers or of records
    """Return an array's bytes."""
    return np.frombuffer(array.tobytes(), np.uint8)


def _side_by_side(own: Sequence[tuple[int, Any]], num: int, *, are_begun: bool) -> list[tuple[int, Any]]:
    """Return ``num`` copies of each of one engine's arrays, an engine's all together, with their places in it.

    ``are_begun``: with what they contain, in pages that are used to the full; else zeros in pages that nobody has
    touched.
    """
    if not own:
        return []
    starts = np.cumsum([0, *(-(-array.nbytes // CACHE_LINE) * CACHE_LINE for _, array in own)])
    memory = untouched(num * int(starts[-1]), np.dtype(np.uint8), is_dense=are_begun).reshape(num, -1)
    rows = []
    for start, (place, array) in zip(starts.tolist(), own, strict=False):
        if are_begun:
            memory[:, start : start + array.nbytes] = _bytes_of(array)
        shape, strides = (num, *array.shape), (memory.strides[0], *array.strides)
        of_all = np.ndarray(shape, array.dtype, memory.data, start, strides)
        rows.append((place, of_all.view(type(array))))
    return rows


def copies_of(states: Sequence[State], rooms: Sequence[Room], *, lays_rings: bool) -> list[State]:
    """Return an engine for each of ``rooms`` that begins as the last of ``states`` does.

    What the last two share, all share. ``lays_rings``: else their blocks are all zeros (``lay_rings``).
    """
    if not rooms:
        return []
    first, second = states[-2:]
    own = [
        (place, name, array)
        for place, (name, shared, array) in enumerate(zip(State._fields, first, second, strict=True))
        if array is not shared and array.size > 0 and name not in Room._fields
    ]
    near: list[tuple[int, Any]] = []
    others: list[tuple[int, Any]] = []
    for place, name, array in own:
        has_content = (lays_rings or name != RING) and _bytes_of(array).any()
        is_near = has_content or array.nbytes <= MOST_BYTES_NEAR
        (near if is_near else others).append((place, array))
    rows = _side_by_side(near, len(rooms), are_begun=True)
    rows += _side_by_side(others, len(rooms), are_begun=False)
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


def lay_rings(states: Sequence[State], pools: Sequence[Pool], counted_addresses: Int64s) -> None:
    """Give all engines that hand their blocks out, and have none yet, the ring that the first of their pool has."""
    ends = np.cumsum([pool.num_slots for pool in pools]).tolist()
    for first, end in zip([0, *ends], ends, strict=False):
        ring = getattr(states[first], RING)
        for number in range(first + 2, end):
            blocks = getattr(states[number], RING)
            if counted_addresses[number] == 0 and columns(blocks)["next_free"][0] == 0:
                blocks[:] = ring
