"""`python -m tests.compile_all`: engine and cluster compiled side by side, in two processes, if they are not yet.

The cluster's loop takes twice as long as the engine. In the time that is left the tests are read for the first time:
pytest rewrites their assertions, and stores the result for its workers, each of which would do it anew.
"""

from __future__ import annotations

import subprocess
import sys

from sim import compile_engine
from sim.cluster.cluster_ready import compile_everything
from sim.engine_ready import is_compiled

LOOP = "from sim.cluster.cluster_ready import compile_loop; compile_loop()"
COLLECT = ("-m", "pytest", "--collect-only", "-qq")

if __name__ == "__main__":
    if not is_compiled():
        with subprocess.Popen([sys.executable, "-c", LOOP]) as loop:
            compile_engine()
            # what is wrong with a test is told by its own run
            subprocess.run([sys.executable, *COLLECT], stdout=subprocess.DEVNULL, check=False)
        if loop.returncode:
            sys.exit(loop.returncode)
    compile_everything()
