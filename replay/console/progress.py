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
SPINS_AFTER_S = 0.3
"""In a terminal, where a spinner leaves no trace, it is there after so long."""
EVERY_S = 8.0
"""How often long work outside a terminal prints a line: a reader who sees none for longer takes it for stuck."""


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show what is being done once it has taken two seconds: a line at times, or in a terminal a spinner."""
    with _beside(lambda done: _tell(what, done)):
        yield


@contextmanager
def _beside(tell_until: Callable[[threading.Event], None]) -> Iterator[None]:
    """Run a teller in a thread of its own until the work inside is done."""
    done = threading.Event()
    teller = threading.Thread(target=tell_until, args=(done,), daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()


def _tell(what: str, done: threading.Event) -> None:
    began, is_terminal = time.monotonic(), sys.stderr.isatty()
    if done.wait(SPINS_AFTER_S if is_terminal else PATIENCE_S):
        return
    if not is_terminal:
        tell(f"{what} …")
        while not done.wait(EVERY_S):
            tell(f"{what}: {time.monotonic() - began:.0f} s so far")
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
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            SpinnerColumn,
            TextColumn,
            TimeRemainingColumn,
        )

        parts = (
            SpinnerColumn(),
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
    with _beside(shown.tell_until):
        yield shown.step


class _LinesOfSteps:
    """Lines of steps' progress, one each ``EVERY_S`` seconds, also while a step's part goes on for longer."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.now = ("", 0, 0)

    def step(self, what: str, done: int, total: int) -> None:
        """Note how far a step is."""
        if what != self.now[0] or done < self.now[1]:
            self.began = time.monotonic()
        self.now = (what, done, total)

    def tell_until(self, is_done: threading.Event) -> None:
        """Print a line now and then until all is done."""
        while not is_done.wait(EVERY_S):
            (what, done, total), spent = self.now, time.monotonic() - self.began
            left = (
                f", about {spent / done * (total - done):.0f} s left in this step" if 0 < done < total else ""
            )
            if what:
                tell(f"{what}: {done:,} of {total:,}{left}")
