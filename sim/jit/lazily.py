"""What compiled functions call: numba learns of it when it compiles one of them.

A process that loads machine code asks for none of six hundred; telling numba takes 0.2 ms each, numba itself 0.13 s.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any


class Uncompiled:
    """A function that only compiled ones call.

    ``py_func``: the function. ``options``: numba's, by which it is compiled, beside those of all inner functions.
    """

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        self.py_func, self.options = function, options

    @cached_property
    def _dispatcher(self) -> Any:  # noqa: ANN401 - numba is untyped
        """What numba compiles it by; its type does not keep it."""
        from sim.jit.linking import inner

        return inner(self.py_func, self.options)

    @property
    def _numba_type_(self) -> Any:  # noqa: ANN401 - numba is untyped
        """What numba takes for the type of this object where a function that it compiles names it."""
        return self._dispatcher._numba_type_


class Intrinsic:
    """A function that is written as intermediate code; ``made`` returns numba's intrinsic. Python cannot call it."""

    def __init__(self, made: Callable[[], Any]) -> None:
        self._made = made

    @cached_property
    def _numba_type_(self) -> Any:  # noqa: ANN401 - numba is untyped
        from sim.jit.linking import type_of_intrinsic

        return type_of_intrinsic(self._made())

    def __call__(self, *_: Any) -> Any:  # noqa: ANN401
        """Raise TypeError."""
        raise TypeError("got a call from Python, expected one from a compiled function")
