"""Doors that import a name when it is first asked for, so that importing a package costs nothing."""

from __future__ import annotations

import sys
from importlib import import_module

TYPE_CHECKING = False  # without typing, which is the most that a start costs until Ctrl-C is heeded

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def homes_of(modules: Mapping[str, str]) -> dict[str, str]:
    """Return the module of each name; ``modules``: its names with spaces between, by module."""
    return {name: module for module, names in modules.items() for name in names.split()}


def opened(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package whose names are at home in these modules.

    A name that was asked for stays in the package. Raises AttributeError on any other.
    """

    def imported(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(import_module(homes[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return imported, lambda: sorted(homes)
