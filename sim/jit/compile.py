"""What is compiled: by numba, cached on disk under a digest of the engine's own sources.

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
from functools import cache, partial
from glob import glob
from pathlib import Path
from typing import Any, TypeVar, cast

from sim.jit.code_cache import CodeFolder, NoFolder, private_folder
from sim.jit.entries import Entry, hear_of_compiles
from sim.jit.lazily import Uncompiled
from sim.jit.numba_settings import IS_PLAIN_PYTHON, numba_settings, numba_version
from sim.jit.shipped import SHIPPED, ShippedFolder
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
    "records/looks.py",
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
    checks = numba_settings().BOUNDSCHECK
    digest = hashlib.sha256(f"{numba_version()} {sys.version_info[:2]} {checks}".encode())
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
    """Return whether an entry's machine code, shipped or from the cache, is loaded instead of compiled."""
    return not isinstance(function, Entry) or function.is_stored()


def _folders(*, of_cluster: bool) -> list[CodeFolder]:
    """Return where code is looked for: what is shipped, if there is any, and the cache on disk."""
    shipped = SHIPPED / cache_directory(with_cluster=of_cluster).name
    own = cache_folder(of_cluster=of_cluster)
    found = [NoFolder() if own is None else CodeFolder(own)]
    return [ShippedFolder(shipped), *found] if shipped.is_dir() else found


def engine_entry(function: Function) -> Function:
    """Compile a function that Python calls; it runs without the GIL and makes no arrays."""
    return cast("Function", _entry(function))


def variant_entry(function: Function, variant: CompiledVariant) -> Function:
    """Return the variant of an entry of the engine for known settings; the entry itself where nothing is compiled."""
    if not isinstance(function, Entry):
        return function
    return cast("Function", _entry(variant.named(function.py_func), lambda: variant.outer))


def _entry(function: Any, pipeline: Callable[[], Any] | None = None) -> Any:  # noqa: ANN401 - keeps its type
    if IS_PLAIN_PYTHON:
        return function
    module = function.__module__
    of_engine = module.startswith("sim.") and not module.startswith("sim.cluster")
    return Entry(function, pipeline, partial(_folders, of_cluster=not of_engine))


def listen(entries: Mapping[Name, Callable[..., Any]], hear: Callable[[Name], None]) -> None:
    """Have ``hear`` called with the name of an entry from now on, before it is compiled, and not loaded."""

    def hear_one(compiled: Entry) -> None:
        for name, entry in entries.items():
            if entry is compiled:
                hear(name)

    hear_of_compiles(hear_one)


def part(function: Function) -> Function:
    """Compile a small function of the engine that only other compiled ones call; it is always inlined."""
    return _internal(function, forceinline=True)


def phase(function: Function) -> Function:
    """Compile a large or rarely needed function of the engine that only other compiled ones call; it stays a call."""
    return _internal(function)


def _internal(function: Function, **options: bool) -> Function:
    """Compile a function that only compiled ones call, when the first of them is compiled."""
    return function if IS_PLAIN_PYTHON else cast("Function", Uncompiled(function, options))
