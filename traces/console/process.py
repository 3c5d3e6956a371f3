"""The process of a command: its streams, its signals, its garbage collector."""

from __future__ import annotations

import gc
import os
import signal
import sys
from pathlib import Path
from typing import Final

from traces.errors import ExitCode

RARELY: Final = (200_000, 20, 20)
"""How rarely Python's garbage collector runs: all objects that imports make stay in use."""
ONE_THREAD: Final = ("OPENBLAS_NUM_THREADS", "01")
"""OpenBLAS then starts none. Written as no user does, so that it is known who has set it, by heirs of it, too."""


def collect_rarely() -> None:
    """Make Python's garbage collector run rarely: all that a command imports stays in use."""
    gc.set_threshold(*RARELY)


def open_closed_streams() -> None:
    """Open a stream that the caller closed (``>&-``) on the null device: else the next file would get its number."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("r" if name == "stdin" else "w"))  # noqa: SIM115  for the whole run


def take_signals() -> None:
    """End at a kill or a hang-up as at Ctrl-C, unless hang-ups are ignored (nohup).

    Commands that serve or observe install their own handlers later.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
        signal.signal(signal.SIGHUP, lambda *_: os.kill(os.getpid(), signal.SIGTERM))


def leave_quietly() -> int:
    """Point stdout at nothing, so that the interpreter's last flush cannot complain; return the exit code."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return ExitCode.BROKEN_PIPE
