"""Tuples of arrays by reference: compiled code sees what Python put there, at the place that the table says."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import numba
import numpy as np
import pytest
from numba.core import imputils, types
from numba.core.typing import templates
from numba.np import arrayobj

from sim.engine.state import records
from sim.jit.linking import INTERNAL, Outer
from sim.jit.reference_types import Column
from sim.jit.references import point_to, reader_of, table_of

pytestmark = pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled without the JIT")

PAIR = np.dtype([("first", np.int32), ("second", np.float64)], align=True)


class Inside(NamedTuple):
    floats: np.ndarray[Any, Any]
    pairs: Any


class Some(NamedTuple):
    small: np.ndarray[Any, Any]
    square: np.ndarray[Any, Any]
    inside: Inside
    empty: np.ndarray[Any, Any]


some_at = reader_of(Some, gives_columns=True)
arrays_at = reader_of(Some, gives_columns=False)


def some(length: int) -> Some:
    pairs = records(length, PAIR)
    pairs["first"], pairs["second"] = np.arange(length), 0.5 * np.arange(length)
    return Some(
        small=np.arange(length, dtype=np.uint32),
        square=np.arange(3 * length, dtype=np.int32).reshape(length, 3),
        inside=Inside(floats=np.linspace(0, 1, length), pairs=pairs),
        empty=np.zeros(0, np.int64),
    )


def compiled(function: Callable[..., Any], **options: Any) -> Any:
    return numba.njit(pipeline_class=Outer, error_model="numpy", **options)(function)


def test_columns_give_what_the_arrays_of_their_row_hold() -> None:
    @compiled
    def sums(table: Any, row: int) -> Any:
        s = some_at(table, row)
        small, square, second = 0, 0, 0.0
        for i in range(len(s.small)):
            small += s.small[i]
            second += s.inside.pairs[i].second + s.inside.floats[i]
            for j in range(s.square.shape[1]):
                square += s.square[i, j]
        return small, square, second, len(s.square), len(s.empty), s.inside.pairs.shape[0]

    tuples = [some(4), some(9)]
    table = table_of(tuples)
    for row, each in enumerate(tuples):
        second = (each.inside.pairs["second"] + each.inside.floats).sum()
        n = len(each.small)
        assert sums(table, row) == (each.small.sum(), each.square.sum(), pytest.approx(second), n, 0, n)


def test_what_a_column_takes_stands_in_the_array_and_a_record_is_copied() -> None:
    @compiled
    def change(table: Any) -> None:
        s = some_at(table, 0)
        s.small[1] = 70
        s.small[2] += 5
        s.square[2, 1] = -8
        s.inside.floats[0] = 3
        s.inside.pairs[0] = s.inside.pairs[3]
        s.inside.pairs[3].first = 11

    s, expected = some(4), some(4)
    change(table_of([s]))
    expected.small[1:3] = 70, 7
    expected.square[2, 1] = -8
    expected.inside.floats[0] = 3
    expected.inside.pairs[0] = expected.inside.pairs[3]
    expected.inside.pairs["first"][3] = 11
    for ours, theirs in zip((*s[:2], *s.inside), (*expected[:2], *expected.inside), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_column_gives_int64_whatever_it_holds() -> None:
    @compiled
    def differ(table: Any) -> int:
        s = some_at(table, 0)
        return int(s.small[0] - s.small[1])

    assert differ(table_of([some(2)])) == -1
    (kind,) = {Column(numba.typeof(some(2).small)).dtype, Column(numba.typeof(some(2).square)).dtype}
    assert kind == types.int64


def test_a_reference_gives_whole_arrays_where_it_is_to() -> None:
    @compiled
    def sums(table: Any) -> Any:
        s = arrays_at(table, 0)
        return s.square[1:].sum(), s.inside.floats.max(), s.small[-1]

    s = some(5)
    assert sums(table_of([s])) == (s.square[1:].sum(), 1.0, 4)


def test_inner_functions_hand_a_reference_on() -> None:
    @numba.njit(**INTERNAL)
    def add(s: Any, at: int, number: int) -> None:
        s.small[at] += number

    @compiled
    def add_twice(table: Any) -> None:
        s = some_at(table, 0)
        add(s, 0, 4)
        add(s, s.small[1], s.small[0])

    s = some(2)
    add_twice(table_of([s]))
    assert s.small.tolist() == [4, 5]


@numba.njit(pipeline_class=Outer)  # type: ignore[untyped-decorator] # numba is untyped
def first_of(table: Any) -> int:
    return int(some_at(table, 0).small[0])


def test_a_row_stands_for_other_arrays_once_it_is_told_so() -> None:
    before = some(3)
    after = before._replace(small=np.array([9], np.uint32))
    table = table_of([before])
    assert first_of(table) == 0
    point_to(table, 0, after, before=before)
    assert first_of(table) == 9
    np.testing.assert_array_equal(table, table_of([after]))
    point_to(table, 0, before)
    np.testing.assert_array_equal(table, table_of([before]))


@pytest.mark.parametrize(
    "small",
    [
        np.arange(6, dtype=np.uint32)[::-1],
        np.arange(6, dtype=np.uint32)[::2],
        np.arange(3, dtype=np.int64),
        np.zeros((3, 1), np.uint32),
    ],
)
def test_an_array_that_compiled_code_would_misread_is_refused(small: Any) -> None:
    s = some(3)
    table = table_of([s])
    with pytest.raises(TypeError, match="expected uint32, 1 axes, in order"):
        point_to(table, 0, s._replace(small=small))
    with pytest.raises(TypeError, match="expected uint32, 1 axes, in order"):
        table_of([s._replace(small=small)])


@pytest.mark.parametrize("at", [(-1, 0), (3, 0), (0, -1), (0, 3)])
def test_an_index_outside_is_found_where_numba_checks_bounds(at: tuple[int, int]) -> None:
    """As it is with ``NUMBA_BOUNDSCHECK=1``."""

    def get(table: Any, i: int, j: int) -> int:
        return int(some_at(table, 0).square[i, j])

    def put(table: Any, i: int, j: int) -> None:
        some_at(table, 0).square[i, j] = 0

    table = table_of([some(3)])
    for function in (get, put):
        checked = compiled(function, boundscheck=True)
        checked(table, 2, 2)
        with pytest.raises(IndexError, match="outside"):
            checked(table, *at)


def test_numba_has_what_is_relied_on() -> None:
    """Where this fails, ``sim/jit/reference_types.py`` does not fit this numba."""
    context = numba.core.registry.cpu_target.target_context
    for name in ("unpack_value", "pack_value", "cast", "make_tuple", "get_abi_sizeof", "enable_boundscheck"):
        assert hasattr(context, name), name
    assert hasattr(context.call_conv, "return_user_exc")
    taken = set(inspect.signature(arrayobj.populate_array).parameters)
    assert {"array", "data", "shape", "strides", "itemsize", "meminfo"} <= taken
    for module, name in (
        (imputils, "lower_getattr"),
        (imputils, "lower_getattr_generic"),
        (templates, "AttributeTemplate"),
        (templates, "infer_getattr"),
        (arrayobj, "make_array"),
    ):
        assert callable(getattr(module, name)), name
    known = numba.core.registry.cpu_target.typing_context.resolve_value_type(operator.getitem)
    assert isinstance(known, types.Function)
