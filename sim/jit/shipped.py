"""Machine code that comes with an installed vtwin, in the package's own folder ``machine_code``: nothing is compiled.

It is made once, when a wheel or an image is built, for every x86-64 that has AVX2 and FMA (``x86-64-v3``: Intel since
2013, AMD since 2015). It is filed as the cache on disk is, under a digest of the sources, numba's version and Python's,
so that other sources, another numba or another Python never load it. Where it does not fit, all is compiled as without
it. It is trusted like the sources beside it; each file is checked for damage whenever it is loaded.

The intermediate code is left out, since only linking needs it and no other code links with an entry: entries are called
by Python, or at their address. All of it packed is 1.2 MB.
"""

from __future__ import annotations

import pickle
import shutil
import zlib
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import llvmlite.binding as llvm
import numba
from numba.core import caching

from sim.jit.code_cache import CheckedFiles, CodeCache

SHIPPED: Final = Path(__file__).parent.parent / "machine_code"
"""Not in a clone: building a wheel or an image makes it (``sim.cluster.ship``)."""
CPU: Final = "x86-64-v3"
"""What the code is made for, as LLVM calls it: with these features, and no others."""
FEATURES: Final = frozenset(
    (
        *("cmov", "cx8", "fxsr", "mmx", "sse", "sse2"),  # every x86-64
        *("cx16", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3"),  # the second level
        *("avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave"),  # the third
    )
)
"""The names are LLVM's; the levels are those of the System V ABI for x86-64, table 3.1."""


def runs_here(features: str) -> bool:
    """Return whether a processor with these features, as LLVM lists them (``+avx,-sse4a``), runs shipped code."""
    return {f"+{each}" for each in FEATURES} <= set(features.split(","))


def this_processor_runs_it() -> bool:
    """Return whether the processor of this machine does."""
    features = llvm.get_host_cpu_features().flatten()
    return bool(llvm.get_process_triple().startswith("x86_64-")) and runs_here(features)


class _ShippedFiles(CheckedFiles):
    """As in the cache on disk, each file of code packed once more: of 28 MB 1.2 are left. They are the installer's."""

    _are_users_own = False

    def _load_data(self, name: str) -> Any:  # noqa: ANN401 - numba is untyped
        return pickle.loads(zlib.decompress(super()._load_data(name)))  # noqa: S301 - the package's own


class _ShippedCode(CodeCache):
    """A function's shipped code; nothing is ever added to it."""

    _files = _ShippedFiles

    def _index_key(self, sig: object, codegen: Any) -> Any:  # noqa: ANN401 - numba is untyped
        """Return where code for this signature is filed; under no processor's name where it would not run here."""
        signature, (triple, _, features), of_code = super()._index_key(sig, codegen)
        fits = numba.config.CPU_NAME is None and runs_here(features)
        return signature, (triple, CPU, "") if fits else None, of_code


class ShippedFirst:
    """numba's cache of a function: what is shipped, else what this machine compiled, whose folder is then made."""

    def __init__(self, shipped: CodeCache, own: Callable[[], CodeCache | caching.NullCache]) -> None:
        self.shipped, self._find_own = shipped, own

    @cached_property
    def own(self) -> CodeCache | caching.NullCache:
        """The cache on disk."""
        return self._find_own()

    @property
    def cache_path(self) -> str | None:
        """Where what is compiled is kept, None: nowhere."""
        path: str | None = self.own.cache_path
        return path

    def load_overload(self, sig: object, target_context: object) -> object:
        """Return what is stored for a signature, None: nothing."""
        found = self.shipped.load_overload(sig, target_context)
        return self.own.load_overload(sig, target_context) if found is None else found

    def save_overload(self, sig: object, compiled: object) -> None:
        """Store what has been compiled for a signature."""
        self.own.save_overload(sig, compiled)


def with_shipped(
    function: Callable[..., Any], own: Callable[[], CodeCache | caching.NullCache], folder: Path
) -> ShippedFirst | CodeCache | caching.NullCache:
    """Return a function's cache: of shipped code in ``folder`` where there is such a folder, and its own."""
    return ShippedFirst(_ShippedCode(function, folder), own) if folder.is_dir() else own()


def ship(compiled: Path, into: Path) -> None:
    """Pack a folder of the cache, of code for ``CPU``, into a folder of shipped code that is not there yet."""
    into.mkdir(parents=True)
    for module in sorted(compiled.iterdir()):
        (into / module.name).mkdir()
        for index in module.glob("*.nbi"):
            shutil.copyfile(index, into / module.name / index.name)
            files = CheckedFiles(str(module), index.stem, "")
            packed = CheckedFiles(str(into / module.name), index.stem, "")
            for path in module.glob(f"{index.stem}.*.nbc"):
                packed._save_data(path.name, _packed(files._load_data(path.name)))


def _packed(stored: Any) -> bytes:  # noqa: ANN401 - numba is untyped
    """Return a function's code, packed, without what others would link with."""
    uses_runtime, (name, kind, (code, _, symbols)), *rest = stored
    return zlib.compress(pickle.dumps((uses_runtime, (name, kind, (code, b"", symbols)), *rest)), 9)
