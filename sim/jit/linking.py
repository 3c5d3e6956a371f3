"""Which functions become machine code: those that Python calls, with all that they call; the others only as parts.

numba optimises and assembles every function that it compiles, and then once more inside each caller. Most functions
of this package are called by compiled code alone, so all of that work but the last is for nothing: a third of the
compile. Here such a function (``Inner``) is kept as intermediate code. A function that Python calls (``Outer``) is
linked with all the inner ones that it reaches, optimised with them, and assembled once.

numba has no public way to say so. This module relies on numba's private names; ``tests/sim/jit/test_linking.py`` lists
those that are used here, and fails where a new numba lacks one.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import cloudpickle
from numba.core import cgutils, types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.environment import lookup_environment
from numba.core.registry import cpu_target
from numba.core.runtime import rtsys
from numba.core.types.misc import unliteral

from sim.jit.object_file import OF_WORDS, CodePlace, MachineCode, needs_of

_ENVIRONMENT = "_ZN08NumbaEnv"
"""How the name of the variable begins that holds a function's environment: its globals and constants."""


class _NoEnvironments:
    """Stands for the code generator where numba would set the environment of a function that is not assembled."""

    def set_env(self, name: str, environment: object) -> None:
        """Do nothing: the variable appears with the outer functions, which set it."""


class _InnerLibrary(JITCodeLibrary):  # type: ignore[misc] # numba is untyped
    """A function's intermediate code, for others to link with: neither optimised nor assembled."""

    codegen = _NoEnvironments()

    def finalize(self) -> None:
        """Close it: nothing is added any more. Raises RuntimeError the second time."""
        self._raise_if_finalized()
        self._finalized = True


class _OuterLibrary(JITCodeLibrary):  # type: ignore[misc] # numba is untyped
    """A function with all the inner ones that it calls, directly or not, assembled."""

    _is_empty = True

    def add_ir_module(self, ir_module: ir.Module) -> None:
        """Add the function, which comes first, and beside it one that calls it with what it finds in words."""
        if self._is_empty:
            (function,) = (
                each for each in ir_module.functions if each.blocks and each.name.startswith("_ZN")
            )
            _add_function_of_words(function)
            self._is_empty = False
        super().add_ir_module(ir_module)

    def finalize(self) -> None:
        """Link, optimise, assemble, and set the environments of all that is in it."""
        self._linking_libraries = _all_reached(self)
        super().finalize()
        for variable in self._final_module.global_variables:
            if variable.name.startswith(_ENVIRONMENT) and not variable.is_declaration:
                environment = lookup_environment(variable.name)
                if environment is not None:
                    self.codegen.set_env(variable.name, environment)


def _add_function_of_words(function: ir.Function) -> None:
    """Add to a function's module another: (words, [returned, error]) to its return code.

    Python hands over words at one address; numba's convention (``numba.core.callconv``) has an argument for each.
    """
    word = ir.IntType(64)
    taking = ir.FunctionType(function.function_type.return_type, [word.as_pointer(), word.as_pointer()])
    made = ir.Function(function.module, taking, f"{OF_WORDS}{function.name}")
    builder, (words, out) = ir.IRBuilder(made.append_basic_block()), made.args
    returned, error, *taken = (each.type for each in function.args)
    arguments = [
        builder.bitcast(builder.gep(out, [word(place)]), type_)
        for place, type_ in enumerate((returned, error))
    ]
    for place, type_ in enumerate(taken):
        value = builder.load(builder.gep(words, [word(place)]))
        if isinstance(type_, ir.PointerType):
            value = builder.inttoptr(value, type_)
        elif isinstance(type_, ir.IntType):
            value = builder.trunc(value, type_) if type_.width < 64 else value
        else:
            value = builder.bitcast(value, type_)
        arguments.append(value)
    builder.ret(builder.call(function, arguments, attrs=("noinline",)))


def _all_reached(library: JITCodeLibrary) -> list[JITCodeLibrary]:
    """Return what a library links with, and what inner ones among these link with, each once, nearest first."""
    reached: dict[int, JITCodeLibrary] = {}
    ahead = list(library._linking_libraries)
    for each in ahead:
        if id(each) not in reached:
            reached[id(each)] = each
            if isinstance(each, _InnerLibrary):
                ahead += each._linking_libraries
    return list(reached.values())


class _Compiler(Compiler):  # type: ignore[misc] # numba is untyped
    """numba's compiler, which puts a function into a library of its own kind."""

    kind: type[JITCodeLibrary]

    def compile_extra(self, func: Callable[..., Any]) -> Any:
        """Compile a function; its library can be stored, as those that numba makes."""
        library = self.kind(self.state.targetctx.codegen(), func.__qualname__)
        library.enable_object_caching()
        self.state.library = library
        return super().compile_extra(func)


class Inner(_Compiler):
    """``pipeline_class`` of a function that only compiled ones call."""

    kind = _InnerLibrary


class Outer(_Compiler):
    """``pipeline_class`` of a function that Python calls, and compiled code at its address."""

    kind = _OuterLibrary


def for_any_integer(dispatcher: Any) -> Any:
    """Have an inner function compiled once for all integers that an int64 can hold, known numbers among them.

    numba would compile it for each combination: ``f(s, 0)``, ``f(s, 1)`` and ``f(s, i)`` are three functions to it.
    """
    template_for = dispatcher.get_call_template

    def widened(args: tuple[Any, ...], kws: dict[str, Any]) -> Any:
        return template_for(tuple(map(_widened, args)), {name: _widened(each) for name, each in kws.items()})

    dispatcher.get_call_template = widened
    return dispatcher


INTERNAL = {
    "pipeline_class": Inner,
    "nogil": True,
    "_nrt": False,  # the engine makes no arrays: without reference counting, an atomic operation per array and call
    "error_model": "numpy",  # no divisor is zero, so none is asked about
    "no_cpython_wrapper": True,  # Python never calls these: a third of the compile time went into letting it
    "no_cfunc_wrapper": True,
}
"""How all functions are compiled: Python calls those that it calls at their address (``sim/jit/entries.py``)."""


def inner(function: Callable[..., Any], options: dict[str, Any]) -> Any:
    """Return numba's dispatcher of a function that only compiled ones call."""
    return for_any_integer(numba.njit(**{**INTERNAL, **options})(function))


def folding(pipeline: type[_Compiler], folded: Callable[..., Any]) -> type[_Compiler]:
    """Return a ``pipeline_class`` that compiles ``folded(function)`` in place of a function."""

    class FoldedCompiler(pipeline):  # type: ignore[misc,valid-type] # numba is untyped
        def compile_extra(self, func: Callable[..., Any]) -> Any:
            return super().compile_extra(folded(func))

    return FoldedCompiler


def type_of_intrinsic(made: Any) -> Any:
    """Return numba's type of an intrinsic."""
    cpu_target.typing_context.refresh()  # it may have been made in the middle of a compile
    return cpu_target.typing_context.resolve_value_type(made)


def compiled(
    function: Callable[..., Any], pipeline: type[_Compiler] | None, arguments: tuple[Any, ...]
) -> tuple[CodePlace, MachineCode]:
    """Compile a function that Python calls, for such arguments: where it lies, and what can be stored of it.

    Raises TypeError where it returns what ``MachineCode`` has no name for.
    """
    options = {**INTERNAL, "pipeline_class": pipeline or Outer}
    dispatcher, taken = numba.njit(**options)(function), tuple(map(_type_of, arguments))
    dispatcher.compile(taken)
    result = dispatcher.overloads[taken]
    returned = result.signature.return_type
    if returned not in _NAMES:
        raise TypeError(
            f"{function.__name__}: got {returned} returned, expected {', '.join(_NAMES.values())}"
        )
    symbol, code = result.fndesc.llvm_func_name, result.library._get_compiled_object()
    _COMPILED.append(result)
    place = CodePlace(*map(result.library.get_pointer_to_function, (symbol, OF_WORDS + symbol)))
    return place, MachineCode(symbol, _NAMES[returned], needs_of(code), code)


_COMPILED: list[Any] = []
"""Keeps machine code where it is, to the end of the process."""
_NAMES = {types.int64: "int64", types.boolean: "bool", types.float64: "float64", types.none: "none"}
"""What a function may return."""


def _type_of(argument: Any) -> Any:
    """Return the type as which a function takes an argument: every integer as int64."""
    for kinds, type_ in (((bool, np.bool_), types.boolean), ((int, np.integer), types.int64)):
        if isinstance(argument, kinds):
            return type_
    return types.float64 if isinstance(argument, float) else numba.typeof(argument)


def give_symbols() -> None:
    """Have LLVM know all that code compiled by numba can need."""
    rtsys.initialize(cpu_target.target_context)


def exception_at(described: int) -> Exception:
    """Return the exception that a compiled function describes (``numba.core.callconv``, ``excinfo_t``)."""
    if not described:
        return SystemError("a compiled function failed and did not say why")
    data = ctypes.c_void_p.from_address(described).value
    length = ctypes.c_int32.from_address(described + ctypes.sizeof(ctypes.c_void_p)).value
    kind, given, _ = cloudpickle.loads(ctypes.string_at(data or 0, length))
    error: Exception = kind(*(given or ()))
    return error


def _widened(type_: Any) -> Any:
    """Return int64 for the type of an integer that it can hold, and of a known number the type that it has."""
    plain = unliteral(type_)
    return types.int64 if isinstance(plain, types.Integer) and plain != types.uint64 else plain


def call_at(
    address: Any,
    result: Any,
    taken: tuple[Any, ...],
    arguments: tuple[Any, ...],
    *,
    context: Any,
    builder: Any,
) -> Any:
    """Have an intrinsic call the machine code at an address with arguments of its types, and return its result."""
    convention = context.call_conv
    pointer = convention.get_function_type(result, taken).as_pointer()
    function = builder.inttoptr(address, pointer)
    status, returned = convention.call_function(builder, function, result, taken, arguments)
    with cgutils.if_unlikely(builder, status.is_error):
        convention.return_status_propagate(builder, status)
    return returned
