"""How the engine becomes machine code: all that relies on names that numba does not publish is in this room."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from types import ModuleType


def _import_numba() -> None:
    """Import numba without scipy, of which it asks no more than the version; that would take 8 ms."""
    if "scipy" in sys.modules:
        return
    sys.modules["scipy"] = cast("ModuleType", None)  # which Python takes for a module that cannot be imported
    try:
        import numba  # noqa: F401 - for those who import it next
    finally:
        del sys.modules["scipy"]


_import_numba()
