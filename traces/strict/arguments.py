"""Arguments of functions: one check for each kind, which names the parameter, what it got and what it expected.

A function says its ranges where it stands, and an option that means the same takes its ends from there::

    JOBS = Count(1, 1024)

    @takes(grid=PATH, jobs=JOBS)
    def sweep(grid: Path | str, *, jobs: int | None = None) -> Table: ...

``None`` is taken where it is the default.
"""

from __future__ import annotations

import functools
import inspect
import math
import os
from collections.abc import Callable
from lazy_dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import Any, Final, ParamSpec, Protocol, TypeVar, cast

from traces.errors import ConfigError, quoted

Given = ParamSpec("Given")
Returned = TypeVar("Returned")
MOST_COUNT: Final = 2**63 - 1


class Expectation(Protocol):
    """What an argument has to be."""

    @property
    def expected(self) -> str:
        """What a value is to be, in words."""

    def allows(self, value: object) -> bool:
        """Return whether a value is that."""


@dataclass(frozen=True, slots=True)
class Count:
    """A whole number from ``least`` to ``most``; numpy's are taken, true and false are not."""

    least: int = 0
    most: int = MOST_COUNT

    @property
    def expected(self) -> str:
        """The range in words."""
        return f"an integer from {self.least:,} to {self.most:,}"

    def allows(self, value: object) -> bool:
        """Return whether a value is such a number."""
        return (
            isinstance(value, Integral)
            and not isinstance(value, bool)
            and self.least <= int(value) <= self.most
        )


@dataclass(frozen=True, slots=True)
class Number:
    """A finite number from ``least`` to ``most``."""

    least: float = -math.inf
    most: float = math.inf

    @property
    def expected(self) -> str:
        """The range in words."""
        if math.isfinite(self.least) and math.isfinite(self.most):
            return f"a number from {self.least:,g} to {self.most:,g}"
        ends = (f" of at least {self.least:g}", f" of at most {self.most:g}")
        return "a number" + " and".join(
            text for text, end in zip(ends, (self.least, self.most), strict=True) if math.isfinite(end)
        )

    def allows(self, value: object) -> bool:
        """Return whether a value is such a number."""
        if not isinstance(value, Real) or isinstance(value, bool):
            return False
        return self.least <= value <= self.most and abs(value) < math.inf  # type: ignore[operator] # a real number


@dataclass(frozen=True, slots=True)
class OfClass:
    """An object of a class, known by its name, so that a check imports nothing heavy."""

    names: tuple[str, ...]
    expected: str

    def allows(self, value: object) -> bool:
        """Return whether a value's class, or one that it derives from, has one of the names."""
        return any(each.__name__ in self.names for each in type(value).__mro__)


@dataclass(frozen=True, slots=True)
class Written:
    """A text that is not empty, or a path, as text or as an object."""

    expected: str
    is_path: bool = False

    def allows(self, value: object) -> bool:
        """Return whether a value is that."""
        if self.is_path and isinstance(value, os.PathLike):
            value = os.fspath(value)
        return isinstance(value, str) and value != "" and "\0" not in value


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of a few texts."""

    names: tuple[str, ...]

    @property
    def expected(self) -> str:
        """The texts."""
        return f"one of {', '.join(self.names)}"

    def allows(self, value: object) -> bool:
        """Return whether a value is one of them."""
        return isinstance(value, str) and value in self.names


TEXT: Final = Written("text")
PATH: Final = Written("a path", is_path=True)
ANY_TEXT: Final = OfClass(("str",), "text")
"""A text whose parser says what an empty one lacks."""
TRACE: Final = OfClass(("Trace",), "a trace")
TWIN: Final = OfClass(("TwinConfig", "PurePath", "str"), "a twin, or the path of a TWIN.yaml")
SEED: Final = Count(0)
ANY_SEED: Final = Count(-MOST_COUNT - 1)
"""A seed where negative ones are taken, too."""


def check_argument(name: str, value: object, check: Expectation) -> None:
    """Raise ConfigError, with the parameter's name, if a value is not what the check expects."""
    if not check.allows(value):
        is_plain = value is None or isinstance(value, str | Real | os.PathLike)
        got = quoted(value) if is_plain else f"a {type(value).__name__}"
        raise ConfigError(f"{name}: got {got}, expected {check.expected}")


def takes(**checks: Expectation) -> Callable[[Callable[Given, Returned]], Callable[Given, Returned]]:
    """Return a decorator that checks a function's arguments, by their names, before it is called."""

    def decorated(function: Callable[Given, Returned]) -> Callable[Given, Returned]:
        parameters = inspect.signature(function).parameters
        defaults = {name: parameter.default for name, parameter in parameters.items()}

        @functools.wraps(function)
        def checked(*args: Given.args, **kwargs: Given.kwargs) -> Returned:
            given = {
                **dict(zip(parameters, args, strict=False)),
                **kwargs,
            }  # what fits no parameter, the call refuses
            for name, check in checks.items():
                if name in given and not (given[name] is None and defaults[name] is None):
                    check_argument(name, given[name], check)
            return function(*args, **kwargs)

        return checked

    return decorated


def check_fields(made: object, **checks: Expectation) -> None:
    """Check a dataclass's fields, from its ``__post_init__``."""
    defaults = {each.name: each.default for each in fields(cast("Any", made))}
    for name, check in checks.items():
        value = getattr(made, name)
        if not (value is None and defaults[name] is None):
            check_argument(name, value, check)
