"""Recorded sessions that a caller has chosen, as a trace: for planners that decide themselves when each one begins."""

from __future__ import annotations

from lazy_dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from traces.header import Header
from traces.tables.cells import all_known
from traces.trace import Trace, make_trace
from traces.workload.lengths import Recorded
from traces.workload.model import Client
from traces.workload.recorded.resampling import DrawnRequests, header_keys, with_recorded

Ints = npt.NDArray[np.int64]
CLIENT = "fleet"


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnTrace:
    """A trace without outcomes, and of each of its requests the recorded row, int64 [n]."""

    trace: Trace
    row: Ints


def drawn_trace(recorded: Recorded, *, begins_us: Ints, session: Ints) -> DrawnTrace:
    """Return these recorded sessions, in this order: what ``--like`` makes of the same draws.

    ``begins_us``, ``session``: int64 [m], when each begins, and its place among the recorded ones; one may come several
    times. A session's rounds stand together. Raises ConfigError where the time of a later round is not known.
    """
    first_row = np.array(recorded.first_row, np.int64)
    rounds = np.diff(first_row)[session]
    number = np.repeat(np.arange(len(session)), rounds)
    within = np.arange(len(number)) - np.repeat(np.cumsum(rounds) - rounds, rounds)
    row = first_row[session][number] + within
    lengths = {name: recorded.requests.cells(name).values[row] for name in ("input_tokens", "output_tokens")}
    columns: dict[str, object] = {
        "request_id": all_known(np.arange(len(row)).astype(str).astype(object)),
        "arrival_time_us": begins_us[number],
        **lengths,
    }
    drawn = DrawnRequests(client=np.zeros(len(row), np.int64), row=row, session=number)
    client = Client(id=CLIENT, lengths=recorded)
    filled = with_recorded(columns, drawn, clients=(client,), in_closed_loop=False)
    header = replace(Header(mode="generated", tool="vtwin"), **header_keys([recorded]))  # type: ignore[arg-type]
    return DrawnTrace(trace=make_trace(header, filled), row=row)


def some_rows(recorded: Recorded, rows: Ints) -> Recorded:
    """Return the recorded requests of these rows alone, ascending; of a session, the rounds that are left."""
    if len(rows) == len(recorded.requests):
        return recorded
    table = recorded.requests.table.take(rows)
    session = np.searchsorted(np.array(recorded.first_row), rows, side="right")
    begins = np.flatnonzero(np.diff(session, prepend=-1))
    return replace(
        recorded,
        requests=replace(recorded.requests, table=table),
        first_row=(*begins.tolist(), len(rows)),
    )
