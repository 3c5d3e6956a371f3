"""The settings by which CI computes as on another processor: they are valid on this one, and they change something."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.other_processor import settings

SHOW = """
from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__
from threadpoolctl import threadpool_info
import numpy
print({each.get("architecture") for each in threadpool_info()}, [n for n in __cpu_dispatch__ if __cpu_features__[n]])
"""


def shown(more: dict[str, str]) -> str:
    """Return which kernels and features a new process has; a warning would be its end."""
    command = [sys.executable, "-W", "error", "-c", SHOW]
    return subprocess.run(command, env=os.environ | more, capture_output=True, text=True, check=True).stdout


def test_other_kernels_and_no_newer_features_are_taken() -> None:
    own, other = shown({}), shown(settings())
    if len(settings()) > 1:  # on a processor without choices there is nothing to turn off
        assert own != other
        assert other.rstrip().endswith("[]")


def test_the_tests_that_run_again_are_there() -> None:
    root = Path(__file__).parent.parent
    printed = subprocess.run(
        ["make", "--dry-run", "--always-make", "other-processor"],  # noqa: S607 - whichever make runs the tests
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    named = [word for word in printed.split() if word.startswith("tests/")]
    assert named
    assert [name for name in named if not (root / name).exists()] == []
