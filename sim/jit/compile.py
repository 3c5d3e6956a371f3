"""How the engine is compiled: numba, cached on disk under a digest of the engine's own sources.

numba's cache looks at one file's content only: a caller would go on running a stale copy of a function it calls from
another module. Keying the directory by every source that may be called makes the cache right by construction: for the
engine all of this package but the cluster, which is built on it; for the cluster all of it; NOT_COMPILED excepted.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import cache
from glob import glob
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba.core import caching, event

from sim.jit.code_cache import cache_for, private_folder
from sim.jit.linking import Inner, Outer, Uncompiled
from sim.jit.shipped import SHIPPED, ShippedFirst, with_shipped
from sim.jit.variants import CompiledVariant

Function = TypeVar("Function", bound=Callable[..., Any])
Name = TypeVar("Name", bound=str)


PACKAGE = Path(__file__).parent.parent
NOT_COMPILED = (
    "fleet",
    "simulation.py",
    "resumable.py",
    "countable.py",
    "engine_ready.py",
    "records/run_results.py",
    "cluster/infrastructure",
    "cluster/run/changes/instance_phases.py",
    "cluster/run/changes/operations.py",
    "cluster/run/changes/requests_of_instance.py",
    "cluster/run/driving.py",
    "cluster/by_events.py",
    "cluster/cluster_config.py",
    "cluster/live",
    "cluster/cluster_ready.py",
    "cluster/results/finished.py",
    "cluster/results/horizon.py",
    "cluster/results/cluster_results.py",
    "cluster/results/watching.py",
    "cluster/ship.py",
    "cluster/cluster_simulation.py",
)
"""What no compiled code calls, and what lays out no array for it."""

_NOT_COMPILED = tuple(f"{name}/" for name in NOT_COMPILED)


def is_compiled_source(name: str) -> bool:
    """Return whether machine code depends on a file of this package; ``name``: ``engine/run.py``."""
    return not f"{name}/".startswith(_NOT_COMPILED)


@cache
def _digest(*, with_cluster: bool) -> str:
    """Return a digest of this package's source files, their names, numba's version and Python's, and of its checks."""
    checks = numba.config.BOUNDSCHECK
    digest = hashlib.sha256(f"{numba.__version__} {sys.version_info[:2]} {checks}".encode())
    for name, content in _sources(PACKAGE):
        if with_cluster or not name.startswith("cluster/"):
            digest.update(f"\0{name}\0".encode() + content)
    return digest.hexdigest()[:16]


@cache
def _sources(package: Path) -> list[tuple[str, bytes]]:
    """Return the name and the content of every source that machine code depends on, in the order of the paths."""
    names = glob("**/*.py", root_dir=package, recursive=True)  # noqa: PTH207 - of paths it takes four times as long
    return [(name, (package / name).read_bytes()) for name in sorted(names) if is_compiled_source(name)]


def cache_directory(*, with_cluster: bool = False) -> Path:
    """Return where compiled code is stored: ``$VTWIN_CACHE_DIR`` or the user's cache, a folder per digest."""
    root = os.environ.get("VTWIN_CACHE_DIR") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "vtwin"
    name = "cluster" if with_cluster else "engine"
    try:
        root = Path(root).expanduser()
    except RuntimeError:  # a user without a home
        root = Path(tempfile.gettempdir()) / f"vtwin-{os.getuid()}"
    return Path(root) / f"{name}-{_digest(with_cluster=with_cluster)}"


@cache
def cache_folder(*, of_cluster: bool) -> Path | None:
    """Return the folder of compiled code; None if there is none that belongs to the user alone."""
    return private_folder(cache_directory(with_cluster=of_cluster))


def is_cached(function: Callable[..., Any]) -> bool:
    """Return whether numba will load an entry's machine code, shipped or from the cache, instead of compiling it."""
    if numba.config.DISABLE_JIT:
        return True
    cache: Any = function._cache  # type: ignore[attr-defined] # a dispatcher's; numba has no public way to ask
    codegen = function.targetctx.codegen()  # type: ignore[attr-defined]
    if isinstance(cache, ShippedFirst):
        if cache.shipped.has_any(codegen):
            return True
        cache = cache.own
    return not isinstance(cache, caching.NullCache) and cache.has_any(codegen)


def _compile(function: Function, *, pipeline: type[Outer] = Outer, **options: bool | str) -> Function:
    """Compile with the code that is shipped, and the cache in our directory."""
    compiled: Any = numba.njit(nogil=True, pipeline_class=pipeline, **options)(function)
    if not numba.config.DISABLE_JIT:
        module = function.__module__
        of_engine = module.startswith("sim.") and not module.startswith("sim.cluster")
        # as the dispatcher's enable_caching does with numba's own
        compiled._cache = with_shipped(
            function,
            own=lambda: cache_for(function, cache_folder(of_cluster=not of_engine)),
            folder=SHIPPED / cache_directory(with_cluster=not of_engine).name,
        )
    return cast("Function", compiled)


def entry(function: Function) -> Function:
    """Compile a function that Python calls; it runs without the GIL."""
    return _compile(function)


def engine_entry(function: Function) -> Function:
    """Compile a function of the engine that Python calls: it makes no arrays, so none are reference-counted."""
    return _compile(function, _nrt=False, error_model="numpy")


def variant_entry(function: Function, variant: CompiledVariant) -> Function:
    """Return the variant of an entry of the engine for known settings; the entry itself where nothing is compiled."""
    if numba.config.DISABLE_JIT:
        return function
    named = variant.named(function.py_func)  # type: ignore[attr-defined] # a dispatcher's
    return cast("Function", _compile(named, pipeline=variant.outer, _nrt=False, error_model="numpy"))


class _Listener(event.Listener):  # type: ignore[misc] # numba is untyped
    """Calls a function when one of several entries is about to be compiled, and not loaded."""

    def __init__(self, entries: Mapping[Any, Callable[..., Any]], hear: Callable[[Any], None]) -> None:
        self._entries, self._hear = entries, hear

    def on_start(self, event: Any) -> None:  # noqa: ANN401 - numba is untyped
        for name, entry in self._entries.items():
            if event.data["dispatcher"] is entry:
                self._hear(name)

    def on_end(self, event: Any) -> None:  # noqa: ANN401 - numba is untyped
        """Do nothing."""


def listen(entries: Mapping[Name, Callable[..., Any]], hear: Callable[[Name], None]) -> None:
    """Have ``hear`` called with the name of an entry from now on, before it is compiled."""
    event.register("numba:compile", _Listener(entries, hear))


INTERNAL = {
    "pipeline_class": Inner,
    "nogil": True,
    "_nrt": False,  # the engine makes no arrays: without reference counting, an atomic operation per array and call
    "error_model": "numpy",  # no divisor is zero, so none is asked about
    "no_cpython_wrapper": True,  # Python never calls these: a third of the compile time went into letting it
    "no_cfunc_wrapper": True,
}
"""How functions are compiled that only compiled ones call."""


def part(function: Function) -> Function:
    """Compile a small function of the engine that only other compiled ones call; it is always inlined."""
    return _internal(function, forceinline=True)


def phase(function: Function) -> Function:
    """Compile a large or rarely needed function of the engine that only other compiled ones call; it stays a call."""
    return _internal(function)


def _internal(function: Function, **options: bool) -> Function:
    """Compile a function that only compiled ones call, when the first of them is compiled."""
    if numba.config.DISABLE_JIT:
        return function
    return cast("Function", Uncompiled(function, {**INTERNAL, **options}))
