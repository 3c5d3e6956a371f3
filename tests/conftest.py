"""What all tests share: their order (the longest files first), the settings of libraries, fixtures."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

settings.register_profile(
    "suite", deadline=None
)  # a busy machine takes a second for what takes a millisecond
settings.load_profile("suite")

# One thread of BLAS in each worker, and in what it starts: the threads of four workers spin while they wait for each
# other, three quarters of the CPU time of a comparison. It must be said before numpy is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

LONG = (
    "tests/test_docs.py",
    "tests/test_validate.py",
    "tests/test_end_to_end.py",
    "tests/sim/cluster/test_operations.py",
    "tests/replay/plan/fleet/test_fleet_command.py",
    "tests/replay/plan/test_capacity.py",
    "tests/calibrate/test_fit.py",
    "tests/observe/test_processes.py",
)
"""Files whose tests take tens of seconds, in this order before all others."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the tests of long files before all others; within a file, and among the others, the order stays."""
    place = {file: number for number, file in enumerate(LONG)}
    items.sort(key=lambda item: place.get(item.nodeid.partition("::")[0], len(LONG)))


def pytest_collection_finish() -> None:
    """Let Python's collector of unused objects pass over the suite itself, two million objects that stay in use."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def heeds_hang_up() -> Iterator[None]:
    """Children end by SIGHUP while the test lasts: those of a program started by nohup ignore it, as they should."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)
