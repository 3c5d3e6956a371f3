"""`python -m tests.compile_all`: engine and cluster compiled side by side, in two processes, if they are not yet.

The whole engine takes as long as the plain one and the cluster's loop. In the time that is left the tests are read for
the first time: pytest rewrites their assertions, and stores the result for its workers, each of which would do it anew:
15 CPU seconds each. Where everything is compiled, the tests that were changed since are read by two processes.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from sim import compile_engine
from sim.cluster.cluster_ready import compile_everything
from sim.engine.run_variants import RUN_VARIANTS
from sim.engine_ready import is_compiled

LOOP = """
from sim import compile_engine
from sim.cluster.cluster_ready import compile_loop
compile_engine("plain")
compile_engine("hybrid")
compile_loop()
"""
TESTS = Path(__file__).parent
FEW = 10
"""Files of tests that workers may each rewrite for themselves: all of pytest starts to do it beforehand."""


def unread_tests() -> list[Path]:
    """Return the files of tests whose rewritten form is not stored, or older than they are."""
    found = []
    for path in sorted(TESTS.rglob("test_*.py")):
        stored = path.parent.glob(f"__pycache__/{path.stem}.{sys.implementation.cache_tag}-pytest-*.pyc")
        if not any(each.stat().st_mtime >= path.stat().st_mtime for each in stored):
            found.append(path)
    return found


def read_tests(*, num_processes: int) -> None:
    """Let pytest read what it has not read yet; what is wrong with a test is told by its own run."""
    unread = unread_tests()
    if len(unread) <= FEW:
        return
    command = [sys.executable, "-m", "pytest", "--collect-only", "-qq"]
    half = -(-len(unread) // num_processes)
    started = [
        subprocess.Popen([*command, *map(str, unread[first : first + half])], stdout=subprocess.DEVNULL)
        for first in range(0, len(unread), half)
    ]
    for each in started:
        each.wait()


if __name__ == "__main__":
    if not all(map(is_compiled, RUN_VARIANTS)):
        with subprocess.Popen([sys.executable, "-c", LOOP]) as loop:
            compile_engine("whole")
            read_tests(num_processes=1)
        if loop.returncode:
            sys.exit(loop.returncode)
    compile_everything()
    read_tests(num_processes=2)
