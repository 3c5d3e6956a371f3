"""OpenBLAS starts one thread in a command's process."""

from __future__ import annotations

import os
import subprocess
import sys

from traces.console.process import ONE_THREAD

THREADS = "import os, numpy; print(len(os.listdir('/proc/self/task')))"


def test_numpy_starts_no_threads() -> None:
    given = {**os.environ, ONE_THREAD[0]: ONE_THREAD[1]}
    done = subprocess.run(
        [sys.executable, "-c", THREADS], env=given, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["1"]
