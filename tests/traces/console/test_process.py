"""OpenBLAS starts one thread in a command's process, and a user's own programs do not hear of it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from traces.console.process import ONE_THREAD, users_environment, work_in_one_thread

BLAS_THREADS = ONE_THREAD[0]
THREADS = """
import os, traces.console.process as process
process.work_in_one_thread()
import numpy
print(len(os.listdir("/proc/self/task")), process.ONE_THREAD[0] in process.users_environment())
"""


def test_numpy_starts_no_threads_and_the_environment_of_others_is_as_it_was() -> None:
    given = {name: value for name, value in os.environ.items() if name != BLAS_THREADS}
    done = subprocess.run(
        [sys.executable, "-c", THREADS], env=given, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["1", "False"]


@pytest.mark.parametrize("theirs", ["1", "4"])
def test_a_number_of_threads_that_the_user_gives_stays(theirs: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(BLAS_THREADS, theirs)
    work_in_one_thread()
    assert os.environ[BLAS_THREADS] == users_environment()[BLAS_THREADS] == theirs
