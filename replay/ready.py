"""Compiled code made ready for what a command is about to simulate."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

from replay.progress import working
from traces.strict.tell import tell

if TYPE_CHECKING:
    from types import ModuleType

    from replay.twin.twin_config import TwinConfig


def _is_compiled() -> bool:
    with _without_scipy():
        from sim import is_compiled

        return is_compiled()


def load_engine() -> None:
    """Have the engine compiled and loaded, so that its CPU time in the summary is the simulation's."""
    with _without_scipy():
        from sim import compile_engine, is_compiled

        if not is_compiled():
            tell("compiling the engine once: half a minute, longer on a busy machine …")
        compile_engine()


@contextmanager
def _without_scipy() -> Iterator[None]:
    """Make numba load its functions without scipy, which it only asks whether there is linear algebra.

    The engine has none, and scipy takes a tenth of a second to import. Where it is there already, nothing changes.
    """
    asked = "scipy.linalg.cython_blas"
    if asked in sys.modules:
        yield
        return
    sys.modules[asked] = cast("ModuleType", None)  # which Python takes for a module that cannot be imported
    try:
        yield
    finally:
        del sys.modules[asked]


def prepare_engine(twin: TwinConfig, *, has_gateway: bool | None = None) -> None:
    """Have all compiled code ready that a twin needs; of a cluster's own what one server needs is loaded when it is.

    ``has_gateway``: the cluster's loop, too; None: unless it is one server.
    """
    has_gateway = not twin.is_plain_server if has_gateway is None else has_gateway
    if not has_gateway or not _is_compiled():
        load_engine()
    if has_gateway:
        from sim.cluster import compile_cluster

        with (
            _without_scipy(),
            working("compiling the cluster once: up to a minute, longer on a busy machine"),
        ):
            compile_cluster()
