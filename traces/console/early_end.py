"""Ctrl-C, or a kill, while a program is still being imported: one line and exit code 130. Imported before all else.

It handles these only in a process that runs ``vtwin`` itself, until the command starts. It imports little: until it has
run, an early Ctrl-C is a traceback.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Final

EXIT_INTERRUPTED: Final = 130
"""128 and SIGINT's number, as shells have it."""

NOTHING_WRITTEN: Final = "interrupted; no result is written"


def _end_at_once(*_: object) -> None:
    """Print that there is no result, and end without cleaning up half-imported modules."""
    os.write(2, f"{NOTHING_WRITTEN}\n".encode())
    os._exit(EXIT_INTERRUPTED)


def heed_later() -> None:
    """Make both raise KeyboardInterrupt from now on, as Ctrl-C usually does; before, they ended the process at once."""
    for number in _USUAL:
        if signal.getsignal(number) is _end_at_once:
            signal.signal(number, signal.default_int_handler)


_USUAL: Final = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
if sys.argv[0].rpartition("/")[2] in ("vtwin", "vtwin.py"):
    for usual_number, usual in _USUAL.items():
        if signal.getsignal(usual_number) is usual:
            signal.signal(usual_number, _end_at_once)
