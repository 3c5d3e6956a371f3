"""A sending process of this machine: how it is started, and how it ended, in words."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys


def start_child() -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start a sender without the terminal's Ctrl-C, which its parent handles; return it and our end of its socket."""
    ours, theirs = socket.socketpair()
    with theirs:
        child = subprocess.Popen(  # noqa: S603  this very program
            [sys.executable, "-P", "-m", "observe.processes.worker", str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
        )
    return child, ours


def ended_words(code: int | None) -> str:
    """Return how a process ended that did not finish its job."""
    if code is not None and code < 0:
        return f"was killed ({signal.Signals(-code).name})"
    return f"ended early (exit code {code})"
