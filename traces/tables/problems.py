"""Faults of a file, row by row, kept as columns until they are printed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from lazy_dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from traces.errors import TraceError

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One fault of a trace. ``row`` counts the table's rows from 1, the line of names left out."""

    file: str
    row: int | None
    column: str | None
    message: str

    def __str__(self) -> str:
        """Return it as one line: where, what was found, what was expected, in which file."""
        where = ", ".join(
            part for part in (f"row {self.row}" if self.row is not None else "", self.column or "") if part
        )
        return f"{where}: {self.message} ({self.file})" if where else f"{self.message} ({self.file})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One kind of fault in one column: the rows (from 0, ascending) that have it, and how to word each."""

    file: str
    column: str
    rows: NDArray[np.int64]
    message: Callable[[int], str]

    def problem(self, place: int) -> Problem:
        """Return the ``place``-th of them, in words."""
        row = int(self.rows[place])
        return Problem(file=self.file, row=row + 1, column=self.column, message=self.message(row))

    def __iter__(self) -> Iterator[Problem]:
        """Yield every one of them, in words."""
        return (self.problem(place) for place in range(len(self.rows)))


def finding(
    file: str, column: str, *, bad: NDArray[np.bool_], message: Callable[[int], str]
) -> list[Finding]:
    """Return the finding of the rows where ``bad`` is true, or nothing."""
    rows = np.flatnonzero(bad)
    return [Finding(file=file, column=column, rows=rows, message=message)] if len(rows) else []


def refuse(problems: Sequence[Problem], findings: Sequence[Finding], *, hint: str = "") -> None:
    """Raise TraceError with the first fault and the count of the others, if any; ``hint`` ends it."""
    num = len(problems) + sum(len(found.rows) for found in findings)
    if num == 0:
        return
    first = min([*problems, *(found.problem(0) for found in findings)], key=lambda p: (p.row or 0, p.file))
    more = f"; {num - 1} more{hint}" if num > 1 else ""
    raise TraceError(f"{first}{more}")
