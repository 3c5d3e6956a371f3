"""`python -m tests.other_processor`: settings, one a line, by which numpy and BLAS compute as on another processor.

Matrix products come out of a kernel that this processor would not choose, in two threads, sines and sums out of older
code: last bits differ. It works on every machine: only what this numpy has, and this processor knows, is turned off.
"""

from __future__ import annotations

import platform

from numpy._core._multiarray_umath import (  # type: ignore[attr-defined] # its types lack them
    __cpu_dispatch__,
    __cpu_features__,
)
from threadpoolctl import threadpool_info

SAME_AS_HASWELL = {"Haswell", "Zen"}
"""Kernels of OpenBLAS that compute as Haswell's do; there Nehalem's stands in, which knows no fused products."""


def settings() -> dict[str, str]:
    """Return the environment variables and their values."""
    found = {"OPENBLAS_NUM_THREADS": "2"}  # `make test` has one
    own = {each.get("architecture") for each in threadpool_info()}
    if platform.machine() in ("x86_64", "AMD64"):
        found["OPENBLAS_CORETYPE"] = "Nehalem" if own & SAME_AS_HASWELL else "Haswell"
    if features := [name for name in __cpu_dispatch__ if __cpu_features__.get(name)]:
        found["NPY_DISABLE_CPU_FEATURES"] = ",".join(features)
    return found


if __name__ == "__main__":
    for name, value in settings().items():
        print(f"{name}={value}")
