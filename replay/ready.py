"""Compiled code made ready for what a command is about to simulate."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, cast

from replay.progress import working
from traces.strict.tell import tell

if TYPE_CHECKING:
    from types import ModuleType

    from replay.twin.twin_config import TwinConfig
    from sim import RunVariant
    from traces import Trace


TAKES: Mapping[str, str] = {
    "plain": "compiling the engine once: some fifteen seconds, longer on a busy machine …",
    "hybrid": "compiling the engine for layers that cache differently once: some twenty seconds, longer on a busy "
    "machine …",
    "whole": "compiling the whole engine once: up to a minute, longer on a busy machine …",
}
"""What is said before a variant of the engine is compiled."""


def load_engine(*variants: RunVariant) -> None:
    """Have the engine compiled and loaded, so that its CPU time in the summary is the simulation's.

    ``variants``: those that will be needed, plain where none is named (``variants_of``).
    """
    with _without_scipy():
        from sim import compile_engine

        tell_when_compiling()
        for variant in variants or ("plain",):
            compile_engine(variant)


@cache
def tell_when_compiling() -> None:
    """Say from now on when a variant of the engine is compiled: at once, or when a request turns out to need it."""
    from sim import when_compiled

    when_compiled(lambda variant: tell(TAKES[variant]))


def variants_of(twin: TwinConfig, trace: Trace | None = None) -> tuple[RunVariant, ...]:
    """Return which variants of the engine the servers of a twin need, for the images of a trace, too."""
    from sim import needed_variant

    cluster = twin.cluster
    if cluster.moves_kv or cluster.lockstep or (trace is not None and _has_images(twin, trace)):
        return ("whole",)
    return tuple(sorted({needed_variant(pool.engine) for pool in cluster.pools}))


def _has_images(twin: TwinConfig, trace: Trace) -> bool:
    """Return whether a trace has images at places that a server of the twin encodes."""
    from traces import image_lists

    lists = image_lists(trace.cells("images"))
    return (
        lists is not None
        and len(lists.num_tokens) > 0
        and any(pool.engine.encodes_images for pool in twin.cluster.pools)
    )


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


def prepare_engine(twin: TwinConfig, *, has_gateway: bool | None = None, trace: Trace | None = None) -> None:
    """Have all compiled code ready that a twin needs; of a cluster's own what one server needs is loaded when it is.

    ``has_gateway``: the cluster's loop, too; None: unless it is one server. ``trace``: what will be simulated.
    """
    has_gateway = not twin.is_plain_server if has_gateway is None else has_gateway
    with _without_scipy():
        from sim import is_compiled

        variants = variants_of(twin, trace)
        is_ready = all(map(is_compiled, variants))
    if not has_gateway or not is_ready:
        load_engine(*variants)
    if has_gateway:
        from sim.cluster import compile_cluster

        with (
            _without_scipy(),
            working("compiling the cluster once: up to a minute, longer on a busy machine"),
        ):
            for variant in variants:
                compile_cluster(variant)
