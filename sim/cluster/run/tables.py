"""Tuples of arrays that compiled code finds through a table: every engine's ``State``, and the ``World`` itself.

numba has no list of tuples that costs nothing to index, and hands a tuple over array by array: a function that takes
the ``World`` would have eight hundred parameters. Here a tuple is a row of addresses and shapes. ``world_at`` and
``engine_at`` give a reference to a row, one word, whose attributes are put together from the row when they are asked
for. ``run_engine`` lets an engine run. No reference counts, any number of engines of any sizes. Whoever replaces an
array must call ``point_to`` again, and keep the tuples alive while their table is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.imputils import lower_getattr_generic
from numba.core.typing.templates import AttributeTemplate, infer_getattr
from numba.extending import intrinsic, models, register_model
from numba.np.arrayobj import make_array, populate_array

from sim.cluster.run.world import World
from sim.compile import phase
from sim.engine.run import run
from sim.engine.state import State
from sim.linking import address_of, call_at

WORDS = 3
"""Per array: its address, and the lengths of its first two axes."""

WORD_BYTES = 8

Table = Any
"""int64[num rows, WORDS * number of arrays]; where nothing is compiled, the list of the tuples themselves."""

_TYPES: dict[type, Any] = {}
"""numba's type of each kind of tuple, which is the same for all of a kind; known before anything is compiled for it."""


def table_of(tuples: Sequence[State | World]) -> Table:
    """Return the table of tuples of one kind, at least one."""
    if numba.config.DISABLE_JIT:
        return list(tuples)
    kind = type(tuples[0])
    if kind not in _TYPES:
        _TYPES[kind] = numba.typeof(tuples[0])  # 4 ms, as many as a short run takes
    table = np.zeros((len(tuples), WORDS * len(list(arrays_of(tuples[0])))), np.int64)
    for row, each in enumerate(tuples):
        point_to(table, row, each)
    return table


def point_to(table: Table, row: int, arrays: State | World) -> None:
    """Let a row of the table say where these arrays lie."""
    if isinstance(table, list):
        table[row] = arrays
        return
    for place, array in enumerate(arrays_of(arrays)):
        shape = (*array.shape, 0)[:2]
        table[row, WORDS * place : WORDS * (place + 1)] = (array.ctypes.data, *shape)


def arrays_of(arrays: Any) -> Iterator[Any]:
    """Yield the arrays of a tuple of arrays and of such tuples, in order."""
    for each in arrays:
        if isinstance(each, tuple):
            yield from arrays_of(each)
        else:
            yield each


class Reference(types.Type):
    """numba's type of a reference to a row that stands for a tuple."""

    def __init__(self, tuple_type: Any) -> None:
        self.tuple_type = tuple_type
        super().__init__(name=f"Reference({tuple_type})")


@register_model(Reference)
class _ReferenceModel(models.PrimitiveModel):  # type: ignore[misc] # numba is untyped
    """A reference is the address of its row."""

    def __init__(self, manager: Any, reference: Any) -> None:
        super().__init__(manager, reference, ir.IntType(64))


@infer_getattr
class _ReferenceAttributes(AttributeTemplate):  # type: ignore[misc] # numba is untyped
    """What types a reference's attributes have: those of the tuple's fields."""

    key = Reference

    def generic_resolve(self, reference: Any, name: str) -> Any:
        """Return the type of a field, None if there is none."""
        fields = reference.tuple_type.fields
        if name not in fields:
            return None
        member = reference.tuple_type.types[fields.index(name)]
        return member if isinstance(member, types.Array) else Reference(member)


@lower_getattr_generic(Reference)  # type: ignore[untyped-decorator] # numba is untyped
def _load_field(context: Any, builder: Any, reference: Any, address: Any, name: str) -> Any:
    """Put an array together from the row; of a tuple in the tuple, give a reference to where its arrays stand."""
    members, place = reference.tuple_type.types, reference.tuple_type.fields.index(name)
    at = sum(map(_num_arrays, members[:place]))
    if not isinstance(members[place], types.Array):
        return builder.add(address, context.get_constant(types.intp, WORD_BYTES * WORDS * at))
    first = builder.inttoptr(address, ir.IntType(64).as_pointer())
    return _load_array(context, builder, first, at=WORDS * at, array_type=members[place])


def _num_arrays(type_: Any) -> int:
    """Return how many arrays a type is made of."""
    return 1 if isinstance(type_, types.Array) else sum(map(_num_arrays, type_.types))


def _reader_of(kind: type) -> Callable[[Table, int], Any]:
    """Return the function that gives a reference to a row, or in plain Python the tuple itself."""
    if numba.config.DISABLE_JIT:
        return lambda table, row: table[row]

    @intrinsic  # type: ignore[untyped-decorator] # numba is untyped
    def read(typing_context: Any, table: Any, row: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            rows = make_array(signature.args[0])(context, builder, arguments[0])
            number = context.cast(builder, arguments[1], signature.args[1], types.int64)
            width = cgutils.unpack_tuple(builder, rows.shape)[1]
            return builder.ptrtoint(builder.gep(rows.data, [builder.mul(number, width)]), ir.IntType(64))

        return Reference(_TYPES[kind])(table, row), generate

    reader: Callable[[Table, int], Any] = read
    return reader


def _load(context: Any, builder: Any, first: Any, *, places: Iterator[int], type_: Any) -> Any:
    """Return an array, or a tuple of them, in the words from ``first`` on, each at the next of ``places``."""
    if isinstance(type_, types.Array):
        return _load_array(context, builder, first, at=WORDS * next(places), array_type=type_)
    members = [_load(context, builder, first, places=places, type_=each) for each in type_.types]
    return context.make_tuple(builder, type_, members)


def _load_array(context: Any, builder: Any, first: Any, *, at: int, array_type: Any) -> Any:
    """Return the array whose address and shape stand ``at`` words behind ``first``."""
    words = [
        builder.load(builder.gep(first, [context.get_constant(types.intp, at + k)])) for k in range(WORDS)
    ]
    array = make_array(array_type)(context, builder)
    item = context.get_constant(types.intp, context.get_abi_sizeof(context.get_data_type(array_type.dtype)))
    populate_array(
        array,
        data=builder.inttoptr(words[0], array.data.type),
        shape=words[1 : 1 + array_type.ndim],
        strides=[item] if array_type.ndim == 1 else [builder.mul(words[2], item), item],
        itemsize=item,
        meminfo=None,
    )
    return array._getvalue()


engine_at = _reader_of(State)
"""(table, engine) to a reference to its ``State``, for who looks at a few fields."""

world_at = _reader_of(World)
"""(table, 0) to a reference to the ``World``."""


# -- running an engine ------------------------------------------------------------------------------------------


@cache
def address_of_run() -> int:
    """Return where the machine code of the engine's ``run`` lies, 0 where nothing is compiled.

    Compiled code calls it there: the engine is compiled once, for those who run one and for those who run many. At
    least one table of engines must have been made. Were ``run`` linked in, numba would optimise it all again.
    """
    if numba.config.DISABLE_JIT:
        return 0
    return address_of(run, _arguments_of_run(), types.int64)


def _arguments_of_run() -> tuple[Any, ...]:
    """Return numba's types of what ``run`` takes."""
    return (_TYPES[State], types.int64, types.boolean)


if numba.config.DISABLE_JIT:

    def run_engine(address: int, table: Table, engine: int, until_us: int, coalesce: int) -> int:
        """Call ``run`` for an engine."""
        return int(run(table[engine], until_us, coalesce != 0))

else:

    @intrinsic  # type: ignore[untyped-decorator] # numba is untyped
    def _run_engine(
        typing_context: Any, address: Any, table: Any, engine: Any, until_us: Any, coalesce: Any
    ) -> Any:
        """Call ``run`` for an engine, at its address."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            run_address, table_given, row, until, coalesces = arguments
            rows = make_array(signature.args[1])(context, builder, table_given)
            width = cgutils.unpack_tuple(builder, rows.shape)[1]
            first = builder.gep(rows.data, [builder.mul(row, width)])
            state = _load(context, builder, first, places=iter(range(1 << 20)), type_=_TYPES[State])
            given = (state, until, cgutils.is_not_null(builder, coalesces))
            return call_at(
                run_address, types.int64, _arguments_of_run(), given, context=context, builder=builder
            )

        return types.int64(types.int64, table, types.int64, types.int64, types.int64), generate

    @phase
    def run_engine(address: int, table: Table, engine: int, until_us: int, coalesce: int) -> int:
        """Call ``run`` for an engine. A call, since putting the arguments together takes some 340 instructions."""
        return _run_engine(address, table, engine, until_us, coalesce)
