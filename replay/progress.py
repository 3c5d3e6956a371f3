"""What takes longer says what it is."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from traces.strict.tell import tell

PATIENCE_S = 2.0
"""What takes longer than this says what it is."""


@contextmanager
def working(what: str) -> Iterator[None]:
    """Say what is being done once it has taken two seconds: a line, or in a terminal a spinner."""
    done = threading.Event()
    teller = threading.Thread(target=_tell, args=(what, done), daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()


def _tell(what: str, done: threading.Event) -> None:
    if done.wait(PATIENCE_S):
        return
    if not sys.stderr.isatty():
        tell(f"{what} …")
        return
    from rich.console import Console

    with suppress(OSError), Console(stderr=True).status(f"{what} …"):
        done.wait()
