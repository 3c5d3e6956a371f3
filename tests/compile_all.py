"""`python -m tests.compile_all`: engine and cluster compiled side by side, in two processes, if they are not yet."""

from __future__ import annotations

import subprocess
import sys

from sim import compile_engine
from sim.cluster.ready import compile_cluster

LOOP = "from sim.cluster.ready import compile_loop; compile_loop()"

if __name__ == "__main__":
    with subprocess.Popen([sys.executable, "-c", LOOP]) as loop:
        compile_engine()
    if loop.returncode:
        sys.exit(loop.returncode)
    compile_cluster()
