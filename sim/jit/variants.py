"""A second variant of compiled functions, for known settings: without the code that these never reach.

``variant_of(run, {"has_images": 0})`` is ``run`` for an engine without images: smaller, sooner compiled, and faster. It
is made of the same source (``sim.jit.folding``), and so is every function that it calls. A variant's functions
are folded when they are compiled, so a process that loads them from a cache does not read a source.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from types import FunctionType
from typing import Any

from sim.jit.lazily import Uncompiled

Number = int | float


class CompiledVariant:
    """The functions of one variant: those for which the attributes in ``known`` have these values."""

    def __init__(self, name: str, known: Mapping[str, Number]) -> None:
        self.name, self.known = name, known
        self._made: dict[Any, Any] = {}

    @cached_property
    def inner(self) -> Any:  # noqa: ANN401 - numba is untyped
        """``pipeline_class`` of a function of this variant that only compiled ones call."""
        from sim.jit.linking import Inner, folding

        return folding(Inner, self.folded)

    @cached_property
    def outer(self) -> Any:  # noqa: ANN401 - numba is untyped
        """``pipeline_class`` of a function of this variant that Python calls."""
        from sim.jit.linking import Outer, folding

        return folding(Outer, self.folded)

    def named(self, function: Any) -> Callable[..., Any]:  # noqa: ANN401 - a function; others would raise
        """Return a copy of a function that is filed under a name of its own."""
        code, globals_ = function.__code__, function.__globals__
        copy = FunctionType(code, globals_, function.__name__, function.__defaults__)
        copy.__kwdefaults__, copy.__doc__ = function.__kwdefaults__, function.__doc__
        copy.__qualname__ = f"{function.__qualname__}_{self.name}"
        return copy

    def folded(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return what is compiled in place of a function."""
        from sim.jit.folding import folded

        return folded(function, self.known, self._in_place_of)

    def _in_place_of(self, called: Any) -> Any:  # noqa: ANN401 - anything that a function can name
        """Return what a function of this variant calls in place of what it names."""
        if not isinstance(called, Uncompiled):
            return called
        if called not in self._made:
            options = {**called.options, "pipeline_class": self.inner}
            self._made[called] = Uncompiled(self.named(called.py_func), options)
        return self._made[called]
