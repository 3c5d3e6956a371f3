"""Many engines for compiled code: a table of where each engine's arrays lie, from which a ``State`` is put together.

numba has no list of tuples of arrays that costs nothing to index. Here an engine is a row of addresses and shapes, and
``state_at`` makes the ``State`` of a row: thirty loads, no reference counts, any number of engines of any sizes. Whoever
replaces an array of an engine must call ``point_to`` again, and keep the engines alive while their table is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numba
import numpy as np
from numba.core import cgutils, types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array

from sim.config import EngineConfig
from sim.engine.initial_state import first_state
from sim.engine.state import State
from sim.latency import Blackbox

WORDS = 3
"""Per array: its address, and the lengths of its first two axes."""

Engines = Any
"""int64[num_engines, WORDS * number of arrays]; where nothing is compiled, the list of the states themselves."""


def table_of(states: Sequence[State]) -> Engines:
    """Return the table of engines for compiled code."""
    if numba.config.DISABLE_JIT:
        return list(states)
    table = np.zeros((len(states), WORDS * len(State._fields)), np.int64)
    for engine, state in enumerate(states):
        point_to(table, engine, state)
    return table


def point_to(table: Engines, engine: int, state: State) -> None:
    """Let an engine's row say where the arrays of ``state`` lie."""
    if isinstance(table, list):
        table[engine] = state
        return
    for field, array in enumerate(state):
        shape = (*array.shape, 0)[:2]
        table[engine, WORDS * field : WORDS * (field + 1)] = (array.ctypes.data, *shape)


def _type_of_state() -> types.NamedTuple:
    """Return numba's type of a ``State``, which is the same for every engine."""
    state = first_state(
        EngineConfig(max_num_seqs=1, num_gpu_blocks=2),
        Blackbox(),
        np.zeros(0, np.int64),
        size=(2, 1),
        record="none",
    )
    return numba.typeof(state)


if numba.config.DISABLE_JIT:

    def state_at(table: Engines, engine: int) -> State:
        """Return the state of an engine."""
        state: State = table[engine]
        return state

else:

    @intrinsic
    def state_at(typing_context: Any, table: Any, engine: Any) -> Any:  # type: ignore[misc] # numba's own protocol
        """Return the state of an engine."""
        state_type = _type_of_state()

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            """Write the code that loads the row and fills an array structure per field."""
            rows = make_array(signature.args[0])(context, builder, arguments[0])
            number = context.cast(builder, arguments[1], signature.args[1], types.int64)
            width = cgutils.unpack_tuple(builder, rows.shape)[1]
            row = builder.gep(rows.data, [builder.mul(number, width)])
            arrays = [
                _array_from(context, builder, row, at=WORDS * field, array_type=array_type)
                for field, array_type in enumerate(state_type.types)
            ]
            return context.make_tuple(builder, state_type, arrays)

        return state_type(table, engine), generate


def _array_from(context: Any, builder: Any, row: Any, *, at: int, array_type: Any) -> Any:
    """Return the array whose address and shape stand in ``row`` from word ``at`` on."""
    words = [builder.load(builder.gep(row, [context.get_constant(types.intp, at + k)])) for k in range(WORDS)]
    array = make_array(array_type)(context, builder)
    item_bytes = context.get_abi_sizeof(context.get_data_type(array_type.dtype))
    item = context.get_constant(types.intp, item_bytes)
    shape = words[1 : 1 + array_type.ndim]
    strides = [item] if array_type.ndim == 1 else [builder.mul(words[2], item), item]
    populate_array(
        array,
        data=builder.inttoptr(words[0], array.data.type),
        shape=shape,
        strides=strides,
        itemsize=item,
        meminfo=None,
    )
    return array._getvalue()
