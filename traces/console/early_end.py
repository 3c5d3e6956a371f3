"""Ctrl-C, or a kill, before a command begins and after its end: exit code 130, without a traceback.

Imported before all else, by a process that runs ``vtwin`` itself. It imports little: until it has run, an early Ctrl-C
is a traceback.
"""

from __future__ import annotations

import os
import signal
import sys

INTERRUPTED = 130
"""``traces.errors.ExitCode.INTERRUPTED``, which is imported later: 128 and SIGINT's number, as shells have it."""

NOTHING_WRITTEN = "interrupted; no result is written"


def _end_at_once(*_: object) -> None:
    """Print that there is no result, and end without cleaning up half-imported modules."""
    os.write(2, f"{NOTHING_WRITTEN}\n".encode())
    os._exit(INTERRUPTED)


def heed_no_more() -> None:
    """End the process at once at either, silently: the command has ended, and only Python still cleans up."""
    for number in _USUAL:
        if callable(signal.getsignal(number)):
            signal.signal(number, lambda *_: os._exit(INTERRUPTED))


def ignore() -> None:
    """Ignore both: Python ends in a moment, and would end by them instead, with another exit code."""
    for number in _USUAL:
        signal.signal(number, signal.SIG_IGN)


def heed_later() -> None:
    """Make both raise KeyboardInterrupt from now on, as Ctrl-C usually does; before, they ended the process at once."""
    for number in _USUAL:
        if signal.getsignal(number) is _end_at_once:
            signal.signal(number, signal.default_int_handler)


_USUAL = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
# A worker's process has its parent's name, and is ended by it, without a word.
if sys.argv[0].rpartition("/")[2] in ("vtwin", "vtwin.py") and "multiprocessing" not in sys.modules:
    for usual_number, usual in _USUAL.items():
        if signal.getsignal(usual_number) is usual:
            signal.signal(usual_number, _end_at_once)
