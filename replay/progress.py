"""What takes longer says what it is."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from traces.strict.tell import tell

PATIENCE_S = 2.0
"""What takes longer than this says what it is."""
EVERY_S = 10.0
"""How often a long computation that is shown in no terminal says how far it is."""


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


@contextmanager
def counting(what: str, total: int) -> Iterator[Callable[[], None]]:
    """Yield what is to be called after each of ``total`` parts: a bar in a terminal, now and then a line elsewhere."""
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
