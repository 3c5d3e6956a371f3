"""Which functions become machine code: those that Python calls, with all that they call; the others only as parts.

numba optimises and assembles every function that it compiles, and then once more inside each caller. Most functions
of this package are called by compiled code alone, so all of that work but the last is for nothing: a third of the
compile. Here such a function (``Inner``) is kept as intermediate code. A function that Python calls (``Outer``) is
linked with all the inner ones that it reaches, optimised with them, and assembled once.

numba has no public way to say so. This module and ``sim.jit.code_cache`` rely on numba's private names;
``tests/sim/jit/test_linking.py`` lists those that are used here, and fails where a new numba lacks one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numba
from numba.core import cgutils, types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.environment import lookup_environment
from numba.core.types.misc import unliteral

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

    def finalize(self) -> None:
        """Link, optimise, assemble, and set the environments of all that is in it."""
        self._linking_libraries = _all_reached(self)
        super().finalize()
        for variable in self._final_module.global_variables:
            if variable.name.startswith(_ENVIRONMENT) and not variable.is_declaration:
                environment = lookup_environment(variable.name)
                if environment is not None:
                    self.codegen.set_env(variable.name, environment)


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

    def compile_extra(self, func: Callable[..., Any]) -> Any:  # noqa: ANN401 - numba is untyped
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


def for_any_integer(dispatcher: Any) -> Any:  # noqa: ANN401 - numba is untyped
    """Have an inner function compiled once for all integers that an int64 can hold, known numbers among them.

    numba would compile it for each combination: ``f(s, 0)``, ``f(s, 1)`` and ``f(s, i)`` are three functions to it.
    """
    template_for = dispatcher.get_call_template

    def widened(args: tuple[Any, ...], kws: dict[str, Any]) -> Any:  # noqa: ANN401
        return template_for(tuple(map(_widened, args)), {name: _widened(each) for name, each in kws.items()})

    dispatcher.get_call_template = widened
    return dispatcher


class Uncompiled:
    """A function that only compiled ones call; numba learns of it when it compiles one of them.

    A process that loads machine code asks for none of six hundred, and telling numba takes 0.2 ms each.
    ``py_func``: the function. ``options``: numba's, by which it is compiled.
    """

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        self.py_func, self.options = function, options

    @cached_property
    def _dispatcher(self) -> Any:  # noqa: ANN401 - numba is untyped
        """What numba compiles it by; its type does not keep it."""
        return for_any_integer(numba.njit(**self.options)(self.py_func))

    @property
    def _numba_type_(self) -> Any:  # noqa: ANN401 - numba is untyped
        """What numba takes for the type of this object where a function that it compiles names it."""
        return self._dispatcher._numba_type_


def _widened(type_: Any) -> Any:  # noqa: ANN401 - numba is untyped
    """Return int64 for the type of an integer that it can hold, and of a known number the type that it has."""
    plain = unliteral(type_)
    return types.int64 if isinstance(plain, types.Integer) and plain != types.uint64 else plain


def address_of(function: Any, arguments: tuple[Any, ...], result: Any) -> int:  # noqa: ANN401 - numba is untyped
    """Return where the machine code of an outer function lies for arguments of these types; compile or load it.

    Raises TypeError where it returns another type than ``result``.
    """
    function.compile(arguments)
    compiled = function.overloads[arguments]
    if compiled.signature.return_type != result:
        raise TypeError(f"{function.__name__}: got {compiled.signature}, expected {result} returned")
    return int(compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name))


def call_at(
    address: Any,  # noqa: ANN401 - numba is untyped
    result: Any,  # noqa: ANN401
    taken: tuple[Any, ...],
    arguments: tuple[Any, ...],
    *,
    context: Any,  # noqa: ANN401
    builder: Any,  # noqa: ANN401
) -> Any:  # noqa: ANN401
    """Have an intrinsic call what ``address_of`` found, with arguments of the same types, and return its result."""
    convention = context.call_conv
    pointer = convention.get_function_type(result, taken).as_pointer()
    function = builder.inttoptr(address, pointer)
    status, returned = convention.call_function(builder, function, result, taken, arguments)
    with cgutils.if_unlikely(builder, status.is_error):
        convention.return_status_propagate(builder, status)
    return returned
