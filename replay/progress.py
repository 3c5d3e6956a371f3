"""Messages of work that takes long."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from traces.strict.tell import tell

PATIENCE_S = 2.0
"""Work that takes longer than this prints a line, in seconds."""
EVERY_S = 10.0
"""How often a long computation outside a terminal prints its progress."""


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show what is being done once it has taken two seconds: a line, or in a terminal a spinner."""
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


@contextmanager
def counting(what: str, total: int) -> Iterator[Callable[[], None]]:
    """Yield a function to call after each of ``total`` parts: a bar in a terminal, elsewhere a line at times."""
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        parts = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*parts, console=Console(stderr=True), transient=True) as progress:
            task = progress.add_task(what, total=total)
            yield lambda: progress.advance(task)
        return
    done, told = 0, time.monotonic()

    def advance() -> None:
        nonlocal done, told
        done += 1
        if time.monotonic() - told > EVERY_S:
            told = time.monotonic()
            tell(f"{what}: {done:,} of {total:,}")

    yield advance
