"""Machine code that comes with an installed vtwin, in the package's own folder ``machine_code``: nothing is compiled.

It is made once, when a wheel or an image is built, for every x86-64 that has AVX2 and FMA (``x86-64-v3``: Intel since
2013, AMD since 2015). It is filed as the cache on disk is, under a digest of the sources, numba's version and Python's,
so that other sources, another numba or another Python never load it. Where it does not fit, all is compiled as without
it. It is trusted like the sources beside it; each file is checked for damage whenever it is loaded.

All of it packed is 1.2 MB.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Final

from sim.jit.code_cache import ENDING, CodeFolder, checked, write_checked
from sim.jit.numba_settings import numba_settings, processor, processor_here
from sim.jit.object_file import MachineCode

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
    """Return whether the processor of this machine does, whatever numba generates code for."""
    platform, _, features = processor_here()
    return platform.startswith("x86_64-") and runs_here(features)


class ShippedFolder(CodeFolder):
    """Shipped code, each file packed; nothing is ever added to it. Its files are the installer's."""

    are_users_own = False

    def processor(self) -> tuple[str, str, str] | None:
        """Return what shipped code is for; None where it would not run here, or code for another is asked for."""
        platform, _, features = processor()
        fits = numba_settings().CPU_NAME is None and runs_here(features)
        return (platform, CPU, "") if fits else None

    @staticmethod
    def unpacked(data: bytes) -> MachineCode:
        """Return what the content of a file stands for."""
        return CodeFolder.unpacked(zlib.decompress(data))


def ship(compiled: Path, into: Path) -> None:
    """Pack a folder of the cache, of code for ``CPU``, into a folder of shipped code that is not there yet."""
    into.mkdir(parents=True)
    for path in sorted(compiled.glob(f"*/*{ENDING}")):
        write_checked(into / path.relative_to(compiled), zlib.compress(checked(path), 9))
