"""A run before the one that is simulated: its requests warm the caches up and are not measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from traces.errors import ConfigError
from traces.metrics import sent_or_due
from traces.schema import FIELDS
from traces.tables.cells import Cells, cells_where, no_cells, text_cells
from traces.tables.session_tree import has_tree
from traces.trace import make_trace
from traces.warm_up import MOMENTS
from traces.workload.recorded.from_trace import workload_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from traces.trace import Trace

PAUSE_US: Final = 60_000_000
"""Between the last that is known of the run before and the first request behind it."""
NAMES: Final = ("request_id", "session_id")
ENDS: Final = ("last_chunk_time_us", "last_token_time_us")


def behind(trace: Trace, before: Trace) -> tuple[Trace, int]:
    """Return a trace's requests behind those of a run before it, and when they begin, µs; the others are warm-up.

    Equal prefixes are equal across both: ``prefix_hashes`` and ``prefix_group`` are kept. Raises ConfigError on traces
    whose requests do not come at times of their own, whose sessions branch, or whose hashes are of other blocks.
    """
    _check(trace, before)
    first = workload_of(before)
    times = [before.cells(name).known().max(initial=0) for name in ENDS]
    begin_us = int(max(*times, sent_or_due(before).known().max(initial=0))) + PAUSE_US
    due = first.cells("arrival_time_us")
    added: dict[str, Cells] = {name: first.cells(name) for name in first.table.names}
    added |= {name: _renamed(first.cells(name)) for name in NAMES if name in first.table}
    added["phase"] = text_cells(["warmup"] * len(first))
    if "send_time_us" in trace.table:
        added["send_time_us"] = due
    names = dict.fromkeys((*trace.table.names, *added))
    columns = {name: _joined(name, trace, added, shift_us=begin_us, num=len(first)) for name in names}
    return make_trace(trace.header, columns), begin_us


def _check(trace: Trace, before: Trace) -> None:
    """Raise ConfigError where two traces cannot stand one behind the other."""
    for each in (trace, before):
        if each.header.closed_loop is not None:
            raise ConfigError("--after: got a closed loop, expected requests that come at times of their own")
        if has_tree(each.table):
            raise ConfigError("--after: got sessions that branch, expected requests, or sessions in rounds")
    for name in ("hash_block_size", "session_context_growth"):
        ours, theirs = (getattr(each.header, name) for each in (trace, before))
        if None not in (ours, theirs) and ours != theirs:
            raise ConfigError(f"--after: got {name} {theirs}, expected {ours}, as the other trace has")


def _renamed(cells: Cells) -> Cells:
    """Return names that no request of the run behind has."""
    return text_cells(
        [
            f"before/{name}" if known else None
            for name, known in zip(cells.values, cells.is_known, strict=True)
        ]
    )


def _joined(name: str, trace: Trace, added: dict[str, Cells], *, shift_us: int, num: int) -> Cells:
    """Return a column of both, that of the trace moved if it is a time."""
    own = trace.cells(name)
    dtype = FIELDS[name].dtype if name in FIELDS else "string"
    other = added.get(name, no_cells(dtype, num))
    values: NDArray[Any] = own.values + shift_us if name in MOMENTS else own.values
    is_known = np.concatenate([other.is_known, own.is_known])
    return cells_where(np.concatenate([other.values, values]), is_known)
