"""Functions that only compiled ones call: kept as intermediate code, and linked with those that Python calls."""

from __future__ import annotations

import ctypes
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from numba import int64
from numba.core import callconv, codegen, compiler, cpu, environment, types
from numba.extending import intrinsic

from sim.jit.code_cache import CodeFolder, NoFolder
from sim.jit.entries import Entry
from sim.jit.lazily import Intrinsic
from sim.jit.linking import INTERNAL, Outer, call_at, for_any_integer

pytestmark = pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled without the JIT")


@numba.njit(forceinline=True, **INTERNAL)
def one_more(number: int) -> int:
    return number + 1


@numba.njit(**INTERNAL)
def twice(number: int) -> int:
    return one_more(number) * 2


@numba.njit(**INTERNAL)
def all_of_them(number: int) -> int:
    return twice(number) + one_more(number) + max(number, 3)


def asked(number: int) -> int:
    return all_of_them(number) + twice(number)


def outer(function: Callable[..., Any]) -> Any:
    """Return a function that Python calls through numba, to look at what it holds."""
    return numba.njit(pipeline_class=Outer)(function)


def entry(function: Callable[..., Any], folder: Path | None = None) -> Entry:
    """Return a function that Python calls, loaded from a folder or compiled."""
    return Entry(function, None, lambda: [NoFolder() if folder is None else CodeFolder(folder)])


def results_of(compiled: Any) -> Any:
    """Call a function and return what numba knows of it, one for each signature."""
    compiled(3)
    return compiled.overloads.values()


def library_of(compiled: Any) -> Any:
    """Return the library of the one signature that was compiled."""
    (result,) = compiled.overloads.values()
    return result.library


def test_an_outer_function_holds_what_it_calls_and_what_those_call() -> None:
    compiled = outer(asked)
    assert [compiled(number) for number in (0, 3, 10)] == [
        (2 + 1 + 3) + 2,
        (8 + 4 + 3) + 8,
        (22 + 11 + 10) + 22,
    ]


def test_an_inner_function_is_neither_optimised_nor_assembled() -> None:
    outer(asked)(3)
    for function in (one_more, twice, all_of_them):
        library = library_of(function)
        (result,) = function.overloads.values()
        assert not library._codegen._engine.is_symbol_defined(result.fndesc.llvm_func_name)
        assert library._compiled_object is None
        defined = [each.name for each in library._final_module.functions if not each.is_declaration]
        assert defined == [result.fndesc.llvm_func_name]  # what it calls is not in it


def test_an_inner_function_is_compiled_once_for_all_integers() -> None:
    """Not for each of 0, 1, ``i``, and the 32-bit numbers of a record."""

    @numba.njit(**INTERNAL)
    def less(number: int, other: int) -> int:
        return number - other

    compiled = outer(lambda number, small: less(0, 1) + less(number, 2) + less(small, number))
    for_any_integer(less)
    assert compiled(5, np.uint32(3)) == -1 + 3 - 2
    assert list(less.overloads) == [(int64, int64)]

    @numba.njit(**INTERNAL)
    def same(number: Any) -> Any:
        return number

    for_any_integer(same)
    others = outer(lambda truth, fraction, large: (same(truth), same(fraction), same(large)))
    assert others(True, 2.5, np.uint64(2**64 - 1)) == (True, 2.5, 2**64 - 1)
    assert [str(kind) for (kind,) in same.overloads] == ["bool", "float64", "uint64"]


def test_what_was_stored_is_loaded_and_not_compiled_again(tmp_path: Path) -> None:
    first = entry(asked, tmp_path)
    again = entry(asked, tmp_path)
    assert first(3) == again(3) == 23
    assert (first.num_compiled, first.num_loaded) == (1, 0)
    assert (again.num_compiled, again.num_loaded) == (0, 1)


def test_the_environment_of_what_an_outer_function_holds_is_set() -> None:
    """Compiled code finds a function's globals by a variable: null would end the process where they are needed."""

    @numba.njit(**INTERNAL)
    def thrice(number: int) -> int:
        return number * 3

    compiled = outer(lambda number: thrice(number) + all_of_them(number))
    compiled(3)
    library = library_of(compiled)
    names = [
        variable.name
        for variable in library._final_module.global_variables
        if environment.lookup_environment(variable.name) is not None
    ]
    assert len(names) >= 3
    for name in names:
        address = library._codegen._engine.get_global_value_address(name)
        assert ctypes.c_void_p.from_address(address).value == id(environment.lookup_environment(name))


def test_code_that_is_not_outer_cannot_call_an_inner_function_and_says_so() -> None:
    plain: Any = numba.njit(lambda number: all_of_them(number) + 1)
    with pytest.raises(AssertionError, match="not linked properly"):
        plain(3)


def at_least_three(number: int) -> int:
    if number < 3:
        raise ValueError("too small")
    return number


def calling() -> Any:
    @intrinsic  # type: ignore[untyped-decorator] # numba is untyped
    def call(typing_context: Any, address: Any, number: Any) -> Any:  # noqa: ARG001 - numba gives it
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
            return call_at(arguments[0], int64, (int64,), (arguments[1],), context=context, builder=builder)

        return int64(int64, int64), generate

    return call


called = Intrinsic(calling)


def by_address(address: int, number: int) -> int:
    return int(called(address, number))


def test_compiled_code_calls_an_outer_function_at_its_address_and_passes_its_errors_on(
    tmp_path: Path,
) -> None:
    """Compiled here, or loaded; without linking it in."""
    passing_on = entry(by_address)
    for folder in (tmp_path, tmp_path):
        assert passing_on(entry(asked, folder).address_for(3, returned="int64"), 3) == 23
    address = entry(at_least_three).address_for(3, returned="int64")
    assert passing_on(address, 3) == 3
    with pytest.raises(ValueError, match="too small"):
        passing_on(address, 2)
    with pytest.raises(TypeError, match="from Python"):
        by_address(address, 3)


def test_a_function_that_returns_another_type_is_refused() -> None:
    with pytest.raises(TypeError, match="asked: got int64, expected float64 returned"):
        entry(asked).address_for(3, returned="float64")


def test_numba_has_what_is_relied_on() -> None:
    """Its private names, and what they do: where this fails, ``linking.py`` does not fit this numba."""
    library = codegen.JITCodeLibrary(cpu_codegen(), "nothing")
    for name in ("_raise_if_finalized", "_finalized", "_linking_libraries", "_final_module", "_codegen"):
        assert hasattr(library, name), name
    assert isinstance(inspect.getattr_static(codegen.CodeLibrary, "codegen"), property)
    assert hasattr(cpu_codegen(), "set_env")
    assert callable(library.enable_object_caching)
    assert list(inspect.signature(library.finalize).parameters) == []
    assert list(inspect.signature(compiler.CompilerBase.compile_extra).parameters) == ["self", "func"]
    assert "library.codegen.set_env(" in inspect.getsource(cpu.CPUContext.get_executable)
    for name in ("get_function_type", "call_function", "return_status_propagate"):
        assert hasattr(numba.core.registry.cpu_target.target_context.call_conv, name), name
    for name in ("get_pointer_to_function", "_get_compiled_object"):
        assert hasattr(library, name), name
    assert str(callconv.excinfo_t) == "{i8*, i32, i8*, i8*, i32}"
    assert "self.dispatcher.get_call_template(args, kws)" in inspect.getsource(types.Dispatcher.get_call_type)
    assert environment.lookup_environment("_ZN08NumbaEnv is none's") is None
    assert twice._compiler.pipeline_class is INTERNAL["pipeline_class"]  # type: ignore[attr-defined]
    assert twice.targetoptions["no_cpython_wrapper"]  # type: ignore[attr-defined]
    (result,) = results_of(outer(asked))
    assert result.environment.env_name.startswith("_ZN08NumbaEnv")
    assert result.fndesc.llvm_func_name in {each.name for each in result.library._final_module.functions}


def cpu_codegen() -> Any:
    """Return numba's code generator for this machine."""
    return numba.core.registry.cpu_target.target_context.codegen()
