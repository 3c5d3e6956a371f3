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
    done = 0
    with stepping() as step:
        step(what, 0, total)

        def advance() -> None:
            nonlocal done
            done += 1
            step(what, done, total)

        yield advance


Step = Callable[[str, int, int], None]
"""Called with a step's name, how many of its parts are done, and of how many."""


@contextmanager
def stepping() -> Iterator[Step]:
    """Yield a function that shows a step's progress: a bar in a terminal, elsewhere a line at times with the time left.

    A new name, or fewer parts than before, is a new step.
    """
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        parts = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
        )
        with Progress(*parts, console=Console(stderr=True), transient=True) as progress:
            task = progress.add_task("")
            yield lambda what, done, total: progress.update(
                task, description=what, completed=done, total=total
            )
        return
    shown = _LinesOfSteps()
    yield shown.step


class _LinesOfSteps:
    """Lines of steps' progress, one each ``EVERY_S`` seconds at most."""

    def __init__(self) -> None:
        self.began = self.told = time.monotonic()
        self.last = ("", 0)

    def step(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        if what != self.last[0] or done < self.last[1]:
            self.began = now
        self.last = (what, done)
        if now - self.told <= EVERY_S:
            return
        self.told = now
        spent = now - self.began
        left = f", about {spent / done * (total - done):.0f} s left in this step" if done and spent else ""
        tell(f"{what}: {done:,} of {total:,}{left}")
