"""What numba makes of a table of tuples (``sim/jit/references.py``): references to its rows, and columns in them."""

from __future__ import annotations

import operator
from typing import Any

import numba
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.imputils import lower_getattr, lower_getattr_generic
from numba.core.types.containers import BaseTuple, UniTuple
from numba.core.types.misc import CPointer
from numba.core.typing.templates import AttributeTemplate, infer_getattr
from numba.extending import intrinsic, lower_builtin, models, register_model, type_callable
from numba.np.arrayobj import make_array, populate_array

from sim.jit.object_file import WORD_BYTES, WORDS

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


def reader(hollow: Any, *, gives_columns: bool) -> Any:
    """Return numba's function of (table, row) that gives a reference to a row; ``hollow``: a tuple of the kind."""
    reference = Reference(numba.typeof(hollow), gives_columns=gives_columns)

    @intrinsic  # type: ignore[untyped-decorator] # numba is untyped
    def read(typing_context: Any, table: Any, row: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            rows = make_array(signature.args[0])(context, builder, arguments[0])
            number = context.cast(builder, arguments[1], signature.args[1], types.int64)
            width = cgutils.unpack_tuple(builder, rows.shape)[1]
            return builder.ptrtoint(builder.gep(rows.data, [builder.mul(number, width)]), ir.IntType(64))

        return reference(table, row), generate

    return read


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
