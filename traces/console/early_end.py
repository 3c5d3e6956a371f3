"""Ctrl-C while a program is still being imported: one line and exit code 130. Imported before anything else is.

It handles the signal only in a process that runs ``vtwin`` itself, and restores it once the command starts.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Final

EXIT_INTERRUPTED: Final = 130
"""128 and SIGINT's number, as shells have it."""

NOTHING_WRITTEN: Final = "interrupted; no result is written"


def _end_at_once(*_: object) -> None:
    """Print that there is no result, and end without cleaning up half-imported modules."""
    os.write(2, f"{NOTHING_WRITTEN}\n".encode())
    os._exit(EXIT_INTERRUPTED)


def heed_later() -> None:
    """Make Ctrl-C raise KeyboardInterrupt from now on, as usual in Python; before, it ended the process at once."""
    if signal.getsignal(signal.SIGINT) is _end_at_once:
        signal.signal(signal.SIGINT, signal.default_int_handler)


if Path(sys.argv[0]).stem == "vtwin" and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, _end_at_once)
