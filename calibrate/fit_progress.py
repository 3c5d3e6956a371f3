"""Progress of a fit: a live line in a terminal, lines of text elsewhere; nothing if it is quick."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from traces.strict.tell import tell

PATIENCE_S = 2.0
"""A fit that takes longer shows its progress; without a terminal, a line at this interval, in seconds."""


@contextmanager
def fit_progress() -> Iterator[Callable[[str, float], None]]:
    """Yield a function that a fit calls with its stage and its best loss so far."""
    if sys.stderr.isatty():
        with _live() as report:
            yield report
    else:
        yield _lines()


@contextmanager
def _live() -> Iterator[Callable[[str, float], None]]:
    """Yield a reporter that updates one line in the terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("fitting"),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[stage]}"),
        TextColumn("loss {task.fields[loss]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("fit", total=None, stage="initial guess", loss="")

        def report(stage: str, loss: float) -> None:
            progress.update(task, stage=stage, loss=f"{loss:.4g}")

        yield report


def _lines() -> Callable[[str, float], None]:
    """Return a reporter that prints a line now and then."""
    last, meaning = time.monotonic(), " (1: the typical error of a request; lower is better)"

    def report(stage: str, loss: float) -> None:
        nonlocal last, meaning
        now = time.monotonic()
        if now - last >= PATIENCE_S:
            last = now
            tell(f"fitting: {stage}, loss {loss:.4g}{meaning}")
            meaning = ""

    return report
