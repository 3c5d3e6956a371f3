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

numba's own arrays are imported where something is compiled: with what they bring they take 50 ms, which a process that
only loads compiled code does without.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import cache
from itertools import repeat
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.imputils import lower_getattr, lower_getattr_generic
from numba.core.types.containers import BaseTuple, UniTuple
from numba.core.types.misc import CPointer
from numba.core.typing.templates import AttributeTemplate, infer_getattr
from numba.extending import intrinsic, lower_builtin, models, register_model, type_callable

WORDS = 3
"""Per array: its address, and the lengths of its first two axes."""

WORD_BYTES = 8

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
    if numba.config.DISABLE_JIT:
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


@cache
def _type_of(kind: type) -> Any:
    """Return numba's type of the tuples of a kind, which takes 4 ms to find: as many as a short run takes."""
    return numba.typeof(_HOLLOW[kind])


def arrays_of(arrays: Any) -> Sequence[Any]:
    """Return the arrays of a tuple of arrays and of such tuples, in order."""
    found: list[Any] = []
    for each in arrays:
        found += arrays_of(each) if isinstance(each, tuple) else (each,)
    return found


# -- references -------------------------------------------------------------------------------------------------


class Reference(types.Type):
    """numba's type of a reference to a row that stands for a tuple; ``gives_columns``: else whole arrays."""

    def __init__(self, tuple_type: Any, *, gives_columns: bool) -> None:
        self.tuple_type, self.gives_columns = tuple_type, gives_columns
        super().__init__(name=f"Reference({tuple_type}, {gives_columns})")

    def type_of_member(self, member: Any) -> Any:
        """Return the type of an attribute for an array, or for a tuple in the tuple."""
        if not isinstance(member, types.Array):
            return Reference(member, gives_columns=self.gives_columns)
        return Column(member) if self.gives_columns else member


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
        return (
            reference.type_of_member(reference.tuple_type.types[fields.index(name)])
            if name in fields
            else None
        )


@lower_getattr_generic(Reference)  # type: ignore[untyped-decorator] # numba is untyped
def _load_field(context: Any, builder: Any, reference: Any, address: Any, name: str) -> Any:
    """Put a column or an array together from the row; of a tuple in it, give a reference to where its arrays stand."""
    members, place = reference.tuple_type.types, reference.tuple_type.fields.index(name)
    at = WORDS * sum(map(_num_arrays, members[:place]))
    if not isinstance(members[place], types.Array):
        return builder.add(address, context.get_constant(types.intp, WORD_BYTES * at))
    words = builder.inttoptr(address, ir.IntType(64).as_pointer())
    words = builder.gep(words, [context.get_constant(types.intp, at)])
    if reference.gives_columns:
        column = cgutils.create_struct_proxy(Column(members[place]))(context, builder)
        column.data = builder.inttoptr(_word(context, builder, words, 0), column.data.type)
        column.words = words
        return column._getvalue()
    return _load_array(context, builder, words, array_type=members[place])


def _num_arrays(type_: Any) -> int:
    """Return how many arrays a type is made of."""
    return 1 if isinstance(type_, types.Array) else sum(map(_num_arrays, type_.types))


def _word(context: Any, builder: Any, words: Any, place: int) -> Any:
    """Return one of an array's words; no compiled code changes any, so they need not be read again after a store."""
    word = builder.load(builder.gep(words, [context.get_constant(types.intp, place)]))
    word.set_metadata("invariant.load", builder.module.add_metadata([]))
    return word


def _load_array(context: Any, builder: Any, words: Any, *, array_type: Any) -> Any:
    """Return the array with these words."""
    from numba.np.arrayobj import make_array, populate_array

    address, *shape = (_word(context, builder, words, place) for place in range(1 + array_type.ndim))
    array = make_array(array_type)(context, builder)
    item = context.get_constant(types.intp, context.get_abi_sizeof(context.get_data_type(array_type.dtype)))
    populate_array(
        array,
        data=builder.inttoptr(address, array.data.type),
        shape=shape,
        strides=[item] if array_type.ndim == 1 else [builder.mul(shape[1], item), item],
        itemsize=item,
        meminfo=None,
    )
    return array._getvalue()


def reader_of(kind: type, *, gives_columns: bool) -> Callable[[Table, int], Any]:
    """Return the function that gives a reference to a row, or in plain Python the tuple itself."""
    if numba.config.DISABLE_JIT:
        return lambda table, row: table[row]

    @intrinsic  # type: ignore[untyped-decorator] # numba is untyped
    def read(typing_context: Any, table: Any, row: Any) -> Any:
        from numba.np.arrayobj import make_array

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            rows = make_array(signature.args[0])(context, builder, arguments[0])
            number = context.cast(builder, arguments[1], signature.args[1], types.int64)
            width = cgutils.unpack_tuple(builder, rows.shape)[1]
            return builder.ptrtoint(builder.gep(rows.data, [builder.mul(number, width)]), ir.IntType(64))

        return Reference(_type_of(kind), gives_columns=gives_columns)(table, row), generate

    reader: Callable[[Table, int], Any] = read
    return reader


# -- columns ----------------------------------------------------------------------------------------------------


class Column(types.Type):
    """numba's type of an array that gives and takes single values, of one axis or two."""

    def __init__(self, array_type: Any) -> None:
        self.stored, self.ndim = array_type.dtype, array_type.ndim
        self.dtype = types.int64 if isinstance(self.stored, types.Integer) else self.stored
        super().__init__(name=f"Column({array_type})")


@register_model(Column)
class _ColumnModel(models.StructModel):  # type: ignore[misc] # numba is untyped
    """A column is where its values lie, and where its words do."""

    def __init__(self, manager: Any, column: Any) -> None:
        members = [("data", CPointer(column.stored)), ("words", CPointer(types.int64))]
        super().__init__(manager, column, members)


@infer_getattr
class _ColumnAttributes(AttributeTemplate):  # type: ignore[misc] # numba is untyped
    """A column has a shape."""

    key = Column

    def resolve_shape(self, column: Any) -> Any:
        """Return the type of a shape."""
        return UniTuple(types.intp, column.ndim)


@type_callable(operator.getitem)  # type: ignore[untyped-decorator] # numba is untyped
def _type_getitem(_context: Any) -> Any:
    return lambda column, _index: column.dtype if isinstance(column, Column) else None


@type_callable(operator.setitem)  # type: ignore[untyped-decorator] # numba is untyped
def _type_setitem(_context: Any) -> Any:
    return lambda column, _index, _value: types.none if isinstance(column, Column) else None


@type_callable(len)  # type: ignore[untyped-decorator] # numba is untyped
def _type_len(_context: Any) -> Any:
    return lambda column: types.intp if isinstance(column, Column) else None


def _place(context: Any, builder: Any, column: Any, value: Any, index_type: Any, index: Any) -> Any:
    """Return where the value with an index lies."""
    parts = cgutils.create_struct_proxy(column)(context, builder, value)
    if isinstance(index_type, BaseTuple):
        kinds, given = index_type.types, cgutils.unpack_tuple(builder, index)
    else:
        kinds, given = (index_type,), (index,)
    numbers = [
        context.cast(builder, each, kind, types.int64) for each, kind in zip(given, kinds, strict=True)
    ]
    if context.enable_boundscheck:
        for axis, number in enumerate(numbers):
            _check(context, builder, number, length=_word(context, builder, parts.words, 1 + axis))
    at = numbers[0]
    if len(numbers) == 2:
        at = builder.add(builder.mul(at, _word(context, builder, parts.words, 2)), numbers[1])
    return builder.gep(parts.data, [at])


def _check(context: Any, builder: Any, number: Any, *, length: Any) -> None:
    """Raise IndexError where a number is below zero or not below a length."""
    with cgutils.if_unlikely(builder, builder.icmp_unsigned(">=", number, length)):
        context.call_conv.return_user_exc(builder, IndexError, ("an index is outside its column",))


@lower_builtin(operator.getitem, Column, types.Any)  # type: ignore[untyped-decorator] # numba is untyped
def _get(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """Load a value; of a record give the place."""
    column, index_type = signature.args
    place = _place(context, builder, column, arguments[0], index_type, arguments[1])
    value = context.unpack_value(builder, column.stored, place)
    return context.cast(builder, value, column.stored, column.dtype)


@lower_builtin(operator.setitem, Column, types.Any, types.Any)  # type: ignore[untyped-decorator] # numba is untyped
def _set(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """Store a value; a record is copied."""
    column, index_type, value_type = signature.args
    place = _place(context, builder, column, arguments[0], index_type, arguments[1])
    value = context.cast(builder, arguments[2], value_type, column.stored)
    context.pack_value(builder, column.stored, value, place)
    return context.get_dummy_value()


@lower_builtin(len, Column)  # type: ignore[untyped-decorator] # numba is untyped
def _length(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """Load the length of the first axis."""
    parts = cgutils.create_struct_proxy(signature.args[0])(context, builder, arguments[0])
    return _word(context, builder, parts.words, 1)


@lower_getattr(Column, "shape")  # type: ignore[untyped-decorator] # numba is untyped
def _shape(context: Any, builder: Any, column: Any, value: Any) -> Any:
    """Load the shape."""
    parts = cgutils.create_struct_proxy(column)(context, builder, value)
    lengths = [_word(context, builder, parts.words, 1 + axis) for axis in range(column.ndim)]
    return context.make_tuple(builder, UniTuple(types.intp, column.ndim), lengths)
