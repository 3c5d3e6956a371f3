"""Every fault of a trace, not only the first."""

from __future__ import annotations

from pathlib import Path

from traces.files.read import examine
from traces.schema import FIELDS
from traces.strict.arguments import PATH, takes
from traces.strict.yaml_nodes import nearest
from traces.tables.problems import Problem
from traces.trace import Trace


@takes(path=PATH)
def check_trace(path: str | Path) -> list[Problem]:
    """Return all faults of the trace, by file and row; an empty list if there are none.

    A column that TraceV2 does not know is a fault only if its name is almost a known one's: other tools may have their
    own columns. Raises TraceError if there is no trace to check: a missing file, a bad header, no table.
    """
    trace, problems, findings = examine(path)
    found = [*problems, *(problem for finding in findings for problem in finding)]
    found += _misspelt_columns(trace)
    if len(trace) == 0 and not problems:
        message = "got a table without rows, expected a request at least"
        found.append(Problem(file="table", row=None, column=None, message=message))
    return sorted(found, key=lambda problem: (problem.file, problem.row or 0, problem.column or ""))


def _misspelt_columns(trace: Trace, *, likeness: float = 0.9) -> list[Problem]:
    """Return a problem for each unknown column whose name is this similar to that of an absent known one."""
    here = trace.table.names
    absent = [name for name in FIELDS if name not in here]
    problems = []
    for name in here:
        close = nearest(name, absent, likeness=likeness) if name not in FIELDS else None
        if close is not None:
            message = f"got a column that TraceV2 does not know, expected {close}"
            problems.append(Problem(file="table", row=None, column=name, message=message))
    return problems
