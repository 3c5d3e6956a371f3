"""What numba is told by its environment variables, known without importing it where there are none.

numba's import takes 0.13 CPU s, more than a short run. A process that finds all its machine code never needs it.
"""

from __future__ import annotations

import os
import re
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import llvmlite.binding as llvm

_USUAL: Final = SimpleNamespace(
    DISABLE_JIT=0, BOUNDSCHECK=None, CPU_NAME=None, CPU_FEATURES=None, ENABLE_AVX=1
)
"""numba's settings where nobody has set any."""
_FILE: Final = ".numba_config.yaml"
"""numba reads settings from this file too, in the folder in which it is imported."""


def numba_settings() -> Any:  # noqa: ANN401 - numba is untyped
    """Return numba's settings; numba is imported where somebody has set one."""
    if "numba" not in sys.modules and not _is_told():
        return _USUAL
    import numba

    return numba.config


@cache
def _is_told() -> bool:
    return any(name.startswith("NUMBA_") for name in os.environ) or Path(_FILE).exists()


@cache
def numba_version() -> str:
    """Return the version of the numba that is installed."""
    spec = find_spec("numba")
    if spec is not None and spec.origin is not None:
        written = Path(spec.origin).with_name("_version.py")
        found = re.search(r'"version": "([^"]+)"', written.read_text("utf-8")) if written.exists() else None
        if found:
            return found[1]
    import numba

    return str(numba.__version__)


def processor() -> tuple[str, str, str]:
    """Return what numba generates code for: LLVM's names of platform, processor and its features (``+avx,-sse4a``)."""
    settings = numba_settings()
    platform, name, features = processor_here()
    if not settings.ENABLE_AVX:
        features = features.replace("+avx", "-avx")
    told = settings.CPU_FEATURES
    return platform, settings.CPU_NAME or name, features if told is None else told


@cache
def processor_here() -> tuple[str, str, str]:
    """Return the same of this machine."""
    return llvm.get_process_triple(), llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


IS_PLAIN_PYTHON: Final = bool(numba_settings().DISABLE_JIT)
"""Whether nothing is compiled (``NUMBA_DISABLE_JIT=1``)."""
