"""Compiled code made ready for what a command is about to simulate."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, cast

from replay.progress import working
from traces.strict.tell import tell

if TYPE_CHECKING:
    from types import ModuleType

    from replay.twin.twin_config import TwinConfig


def _is_compiled(*, whole: bool) -> bool:
    with _without_scipy():
        from sim import is_compiled

        return is_compiled(whole=whole)


def load_engine(*, whole: bool = False) -> None:
    """Have the engine compiled and loaded, so that its CPU time in the summary is the simulation's.

    ``whole``: with what few servers have, such as drafts or layers that cache differently.
    """
    with _without_scipy():
        from sim import compile_engine, is_compiled, when_whole_is_compiled

        if whole:
            if not is_compiled(whole=True):
                _tell_of_whole()
        elif not is_compiled():
            tell("compiling the engine once: some fifteen seconds, longer on a busy machine …")
        compile_engine(whole=whole)
        when_whole_is_compiled(_tell_of_whole)


@cache
def _tell_of_whole() -> None:
    """Say, once, that the whole engine is compiled."""
    tell("compiling the engine with all that it can do once: up to a minute, longer on a busy machine …")


def needs_whole(twin: TwinConfig) -> bool:
    """Return whether some server of a twin has what the plain engine lacks."""
    from sim import needs_whole

    cluster = twin.cluster
    return cluster.moves_kv or cluster.lockstep or any(needs_whole(pool.engine) for pool in cluster.pools)


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
    whole = needs_whole(twin)
    if not has_gateway or not _is_compiled(whole=whole):
        load_engine(whole=whole)
    if has_gateway:
        from sim.cluster import compile_cluster

        with (
            _without_scipy(),
            working("compiling the cluster once: up to a minute, longer on a busy machine"),
        ):
            compile_cluster(whole=whole)
