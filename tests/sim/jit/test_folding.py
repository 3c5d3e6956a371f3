"""A function folded for known attributes answers as before wherever the attributes have these values."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.jit.compile import phase
from sim.jit.folding import folded
from sim.jit.linking import Outer
from sim.jit.variants import CompiledVariant
from tests.examples import examples

LIMIT, NOTHING = 3, -1
KNOWN = {"has_images": 0, "stages": 1}


Settings = SimpleNamespace
Function = Callable[..., object]


def as_it_is(called: object) -> object:
    return called


def names_in(function: Function) -> set[str]:
    """Return the globals and attributes that a function's code names."""
    return set(function.__code__.co_names)


def look_at_images(number: int) -> int:
    return number


def look_at_stages(number: int) -> int:
    return number


def count(number: int) -> int:
    return number


def by_branches(settings: Settings, number: int) -> int:
    if settings.has_images:
        return look_at_images(number)
    if settings.stages > 1 and count(number):
        return look_at_stages(number)
    if number > LIMIT:
        number += count(1)
    while settings.has_images and number > 0:
        number -= look_at_images(1)
    return number if not settings.has_images else look_at_images(number)


def by_names(settings: Settings, number: int) -> int:
    passes_over = settings.has_images or settings.stages > 1
    may_skip, rest = passes_over or settings.has_images, number
    while rest > 0:
        rest -= 1
        if may_skip and look_at_images(rest):
            continue
        if not may_skip:
            return rest
        look_at_stages(rest)
    return NOTHING


def by_order(settings: Settings, number: int) -> bool:
    """What is asked before a known answer is still asked: it may change something."""
    return bool(count(number) and settings.has_images)


def by_more_stores(settings: Settings, number: int) -> int:
    kept = 0
    for each in range(number):
        if each > LIMIT:
            kept = each
    return kept + number * settings.stages


SETTINGS = SimpleNamespace(has_images=0, stages=1, other=7)


@pytest.mark.parametrize("function", [by_branches, by_names, by_order, by_more_stores])
@pytest.mark.parametrize("number", [-2, 0, 1, 3, 4, 9])
def test_a_folded_function_returns_the_same(function: Function, number: int) -> None:
    assert folded(function, KNOWN, as_it_is)(SETTINGS, number) == function(SETTINGS, number)


@pytest.mark.parametrize("function", [by_branches, by_names])
def test_what_cannot_be_reached_is_not_named_any_more(function: Function) -> None:
    assert names_in(function) & {"look_at_images", "look_at_stages"}
    assert not names_in(folded(function, KNOWN, as_it_is)) & {"look_at_images", "look_at_stages"}


def test_what_is_asked_before_a_known_answer_is_still_asked() -> None:
    assert "count" in names_in(folded(by_order, KNOWN, as_it_is))


def test_what_is_known_is_taken_for_the_attribute_whatever_it_is() -> None:
    """So whoever folds must look that it is so (``sim/engine/plain_run.py``)."""
    settings = SimpleNamespace(has_images=1, stages=4)
    assert folded(by_branches, KNOWN, as_it_is)(settings, 9) == by_branches(SETTINGS, 9)
    assert by_branches(settings, 9) == 9


def test_lines_keep_their_numbers() -> None:
    code = folded(by_names, KNOWN, as_it_is).__code__
    lines = {line for *_, line in code.co_lines() if line}
    source, first = inspect.getsourcelines(by_names)
    assert code.co_filename == __file__
    assert code.co_firstlineno == first
    assert {first + place for place, text in enumerate(source) if "rest -= 1" in text} <= lines


def test_a_function_with_captured_variables_is_returned_as_it_is() -> None:
    step = 2

    def captured(settings: Settings) -> int:
        return step + int(settings.has_images)

    assert folded(captured, KNOWN, as_it_is) is captured


# -- expressions without end --------------------------------------------------------------------------------------


def _joined(parts: tuple[str, str, str]) -> str:
    left, operator, right = parts
    return f"({left} {operator} {right})"


# over ``s.a`` and ``s.b``, which are known, ``s.x`` and ``n``, which are not
LEAVES = st.sampled_from(["s.a", "s.b", "s.x", "n", "0", "1", "2", "tick(n)", "tick(1)", "tick(0)"])
EXPRESSIONS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.tuples(
            inner, st.sampled_from(["and", "or", "+", "-", "*", "|", "&", "<", "<=", "==", "!="]), inner
        ).map(_joined),
        inner.map(lambda text: f"(not {text})"),
        st.tuples(inner, inner, inner).map(lambda parts: f"({parts[0]} if {parts[1]} else {parts[2]})"),
    ),
    max_leaves=12,
)

PROGRAM = """
def program(s, n):
    first = {0}
    if {1}:
        second = {2}
    elif first:
        return {3}
    else:
        second = 5
        while {4}:
            tick(2)
            n -= 1
            if n < -3:
                break
    third, fourth = s.a, {5}
    if third or fourth:
        tick(3)
    return first, second, fourth, n
"""


@examples(300)
@given(st.tuples(*[EXPRESSIONS] * 6), st.integers(-1, 1), st.integers(0, 2), st.integers(-2, 2))
def test_any_program_answers_and_asks_the_same(texts: tuple[str, ...], a: int, b: int, n: int) -> None:
    """The same result, and the same calls in the same order."""
    import linecache

    source = PROGRAM.format(*texts)
    name = "<a program that was drawn>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    calls: list[int] = []

    def tick(number: int) -> int:
        calls.append(number)
        return number

    made: dict[str, Any] = {"tick": tick}
    exec(compile(source, name, "exec"), made)  # noqa: S102 - drawn above
    program, settings = made["program"], SimpleNamespace(a=a, b=b, x=2)
    expected, asked = program(settings, n), list(calls)
    calls.clear()
    assert folded(program, {"a": a, "b": b}, as_it_is)(settings, n) == expected
    assert calls == asked


# -- variants of compiled functions -------------------------------------------------------------------------------

Things = np.recarray[Any, Any]
THING = np.dtype([("has_images", np.int64), ("stages", np.int64)], align=True)


@phase
def inner(things: Things, number: int) -> int:
    if things[0].has_images:
        return number + 100
    return number


@numba.njit(pipeline_class=Outer)
def outer(things: Things, number: int) -> int:
    return inner(things, number) + things[0].stages


@pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled without the JIT")
def test_a_variant_s_functions_call_each_other() -> None:
    """The compiled variant takes the attribute for 0 also where the inner function asks."""
    variant = CompiledVariant("small", KNOWN)
    small = numba.njit(pipeline_class=variant.outer)(variant.named(outer.py_func))
    things = np.zeros(1, THING).view(np.recarray)
    things[0].has_images, things[0].stages = 1, 1
    assert outer(things, 5) == 106
    assert small(things, 5) == 6
    assert variant.named(outer.py_func).__qualname__ == "outer_small"
