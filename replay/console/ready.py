"""Compiling or loading the code for what a command is about to simulate."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

from replay.console.progress import working
from traces.strict.tell import tell

if TYPE_CHECKING:
    from replay.twin.twin_config import TwinConfig
    from sim import RunVariant
    from traces import Trace


TAKES: Mapping[str, str] = {
    "plain": "compiling the engine once: some fifteen seconds, longer on a busy machine …",
    "hybrid": "compiling the engine for layers that cache differently once: some twenty seconds, longer on a busy "
    "machine …",
    "whole": "compiling the whole engine once: up to a minute, longer on a busy machine …",
}
"""The lines printed before a variant of the engine is compiled."""


def load_engine(*variants: RunVariant) -> None:
    """Compile the engine where it is not, and load what most runs need of it.

    ``variants``: those that will be needed, plain where none is named (``variants_of``).
    """
    for variant in variants or ("plain",):
        _load(variant)


@cache
def _load(variant: RunVariant) -> None:
    """Compile and load a variant of the engine, once in a process."""
    from sim import compile_engine, is_compiled

    tell_when_compiling()
    if not is_compiled(variant):  # by this process or, while it waits, by another
        _tell_of(variant)
    compile_engine(variant)


@cache
def tell_when_compiling() -> None:
    """Print a line whenever a variant of the engine is compiled from now on, also when only a request needs it."""
    from sim import when_compiled

    when_compiled(_tell_of)


@cache
def _tell_of(variant: RunVariant) -> None:
    """Print, once, that a variant of the engine is compiled."""
    tell(TAKES[variant])


def variants_of(
    twin: TwinConfig, trace: Trace | None = None, *, takes_any: bool = False
) -> tuple[RunVariant, ...]:
    """Return which variants of the engine the servers of a twin need, for the requests of a trace, too.

    ``takes_any``: for whatever requests may come.
    """
    from sim import needed_variant

    cluster = twin.cluster
    charges = any(pool.engine.charges_traits for pool in cluster.pools)
    encodes = any(pool.engine.encodes_images for pool in cluster.pools)
    asked = trace is not None and (
        (charges and _has_traits(trace)) or (encodes and _has_any(trace, "images"))
    )
    if cluster.moves_kv or cluster.lockstep or asked or (takes_any and charges):
        return ("whole",)
    return tuple(sorted({needed_variant(pool.engine) for pool in cluster.pools}))


def _has_traits(trace: Trace) -> bool:
    """Return whether a trace has adapters, grammars or anything that an encoder makes."""
    from replay.trace.request_columns import MODALITIES

    made = ("images", *(f"{name}_tokens" for name in MODALITIES))
    return any(_has_any(trace, name) for name in ("adapter", "guided", *made))


def _has_any(trace: Trace, column: str) -> bool:
    """Return whether some request has a value in a column other than 0 and false."""
    cells = trace.cells(column)
    return bool((cells.is_known & cells.values.astype(bool)).any())


def prepare_engine(
    twin: TwinConfig,
    *,
    has_gateway: bool | None = None,
    trace: Trace | None = None,
    takes_any: bool = False,
) -> None:
    """Compile and load all code that a twin needs; the little cluster code that one server needs is loaded on use.

    ``has_gateway``: the cluster's loop, too; None: unless it is one server. ``trace``: what will be simulated;
    ``takes_any``: whatever comes.
    """
    has_gateway = not twin.is_plain_server if has_gateway is None else has_gateway
    from sim import is_compiled

    tell_when_compiling()
    variants = variants_of(twin, trace, takes_any=takes_any)
    is_ready = has_gateway and all(map(is_compiled, variants))
    if not is_ready:
        load_engine(*variants)
    if has_gateway:
        from sim.cluster import compile_cluster

        with working("compiling the cluster once: up to a minute, longer on a busy machine"):
            for variant in variants:
                compile_cluster(variant)
