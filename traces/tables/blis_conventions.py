"""The only place where BLIS's conventions are translated: 0 for "not recorded", and two time origins in one row.

Facts from inference-sim (commit f90a1e3): ``observe`` counts arrival and deadline from the run's start; send,
first and last chunk in Unix µs; simulated rows count everything from 0. Its columns cannot be empty.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pandas as pd

from traces.errors import TraceError
from traces.header import BLIS_KEYS, BLIS_SERVER_KEYS, Header, Rebased, ServerInfo
from traces.schema import REQUEST_FIELDS, Field

UNIX_TIMES: Final = ("send_time_us", "first_chunk_time_us", "last_chunk_time_us")
ALL_TIMES: Final = ("arrival_time_us", "deadline_us", *UNIX_TIMES)
# Unix µs of March 1973; a run that lasts three years is not expected, so a larger time is one since 1970.
UNIX_FLOOR_US: Final = 100_000_000_000_000
_STATUS_IN_BLIS: Final = {"aborted": "error", "rejected": "error", "stuck": "incomplete"}


def from_blis(
    header: Header, requests: pd.DataFrame, events: pd.DataFrame | None
) -> tuple[Header, pd.DataFrame, pd.DataFrame | None]:
    """Return the three with NA where BLIS wrote 0 for nothing, every time counted from the run's start."""
    requests = requests.assign(
        **{
            field.name: requests[field.name].mask((requests[field.name] == 0).fillna(False))
            for field in REQUEST_FIELDS
            if field.name in requests.columns and _zero_is_missing(field, header)
        }
    )
    return _rebased(header, requests, events)


def _zero_is_missing(field: Field, header: Header) -> bool:
    if field.zero_is_missing == "always":
        return True
    return field.zero_is_missing == ("real" if header.mode == "real" else "simulated")


def _rebased(
    header: Header, requests: pd.DataFrame, events: pd.DataFrame | None
) -> tuple[Header, pd.DataFrame, pd.DataFrame | None]:
    """Return the three with Unix times counted from the run's start.

    ``observe`` writes Unix times beside arrivals from 0; a replay of such a trace writes them throughout
    but for the deadlines.
    """
    arrival = requests["arrival_time_us"]
    send = requests.get("send_time_us", arrival).where(arrival.notna())
    if not (send >= UNIX_FLOOR_US).any():
        return header, requests, events
    row = int(send.argmin())
    first_send, its_arrival = int(send.iloc[row]), int(arrival.iloc[row])
    origin = first_send - its_arrival if its_arrival < UNIX_FLOOR_US else int(arrival.min())
    times = {name: requests[name] for name in ALL_TIMES if name in requests.columns}
    requests = requests.assign(**{name: _from(origin, column) for name, column in times.items()})
    if events is not None:
        events = events.assign(timestamp_us=_from(origin, events["timestamp_us"]))
    rebased = Rebased(smallest_send_unix_us=first_send, arrival_of_that_row_us=first_send - origin)
    return replace(header, start_unix_us=origin, rebased=rebased), requests, events


def _from(origin: int, times: pd.Series[Any]) -> pd.Series[Any]:
    """Return the times counted from ``origin`` where they are Unix times, unchanged where they are not."""
    return times.mask((times >= UNIX_FLOOR_US).fillna(False), times - origin)


def to_blis(
    header: Header, requests: pd.DataFrame, events: pd.DataFrame | None
) -> tuple[Header, pd.DataFrame, pd.DataFrame | None]:
    """Return the three as BLIS reads them: its keys and columns, no empty number, its origins and statuses.

    If a request_id is not an integer, every row is numbered, its name kept in ``x_request_id``. Properties that BLIS
    does not have are lost: this dialect is for exchange, not for storage. Raises TraceError for a closed loop that has
    not run: its requests have no times.
    """
    origin = header.start_unix_us if header.mode == "real" and header.start_unix_us else 0
    if bool(requests["arrival_time_us"].isna().any()):
        raise TraceError(
            "arrival_time_us: got empty cells, expected a time in each: BLIS's dialect has no closed loop"
        )
    requests, numbers = _numbered(requests)
    columns: dict[str, Any] = {}
    for field in REQUEST_FIELDS:
        wanted = field.origin == "base" or (field.origin == "optional" and _is_used(requests, field.name))
        if wanted:
            columns[field.name] = _filled(requests, field, origin=origin)
    columns["status"] = pd.Series(columns["status"]).replace(_STATUS_IN_BLIS)
    if events is not None:
        events = pd.DataFrame(
            {
                "request_id": events["request_id"].map(numbers).astype("string"),
                "chunk_index": events["chunk_index"],
                "timestamp_us": events["timestamp_us"] + origin,
            }
        )
    return _blis_header(header), pd.DataFrame(columns, index=requests.index), events


def _blis_header(header: Header) -> Header:
    keys = {name: getattr(header, name) for name in BLIS_KEYS}
    server = ServerInfo(**{name: getattr(header.server, name) for name in BLIS_SERVER_KEYS})
    seed = header.workload_seed if header.workload_seed is not None else header.seed
    return replace(Header(), **{**keys, "server": server, "workload_seed": seed})


def _is_used(requests: pd.DataFrame, name: str) -> bool:
    return name in requests.columns and bool(requests[name].notna().any())


def _numbered(requests: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, str]]:
    """Return the requests with integers for names, and the number of each name."""
    names = requests["request_id"]
    if bool(names.str.fullmatch("[0-9]{1,18}").all()):
        return requests, dict(zip(names, names, strict=True))
    numbers = pd.array([str(row) for row in range(len(names))], dtype="string")
    changes: dict[str, Any] = {"request_id": numbers}
    if not _is_used(requests, "x_request_id"):
        changes["x_request_id"] = names
    return requests.assign(**changes), dict(zip(names, numbers, strict=True))


def _filled(requests: pd.DataFrame, field: Field, *, origin: int) -> pd.Series[Any]:
    if field.name not in requests.columns:
        values = pd.Series(pd.NA, index=requests.index, dtype="Int64")
    else:
        values = requests[field.name]
    if field.name in UNIX_TIMES and origin:
        values = values + origin
    if field.dtype == "string":
        return values.astype("string")
    if field.dtype == "bool":
        return values.astype("boolean").fillna(False)
    return values.fillna(0)
