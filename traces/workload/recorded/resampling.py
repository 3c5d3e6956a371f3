"""Requests of a trace drawn again: rows, or whole sessions, by index and with replacement.

What a row says stays together: lengths, sharing, class, tenant, model, adapter. When it is sent is drawn apart.
A session's rounds are one draw. A block of a prompt that no other draw of the trace has (its hash stands in one
row or one session alone) is new in every draw of it, since two users do not write the same text: the first draw
keeps the recorded hash, the k-th has it with k behind it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from traces.errors import ConfigError, TraceError
from traces.header import Header
from traces.importers.recorded import read_recorded
from traces.trace import Trace, typed
from traces.warm_up import without_warmup
from traces.workload.draw import uniforms
from traces.workload.lengths import Recorded
from traces.workload.model import Client
from traces.workload.recorded.from_trace import answer_decides, workload_of
from traces.workload.recorded.scaling import clip_lengths, scale_lengths

Ints = npt.NDArray[np.int64]

TIMEOUT: Final = "timeout_us"
"""Column of a recorded row's deadline as a time from its arrival."""

_OF_THE_ROW: Final = (
    *("vllm_priority", "prefix_group", "prefix_length", "streaming", "text_tokens", "image_tokens"),
    *("audio_tokens", "video_tokens", "reason_ratio", "new_input_tokens", "guided"),
    *("network_rtt_us", "network_bandwidth_mbps"),
)
_UNLESS_THE_CLIENT_SAYS: Final = ("tenant_id", "slo_class", "model", "adapter", "slo_target_us")


def read_requests_to_draw(
    path: Path,
    *,
    names_clients: bool = False,
    prompt_scale: float = 1.0,
    output_scale: float = 1.0,
    prompt_max: int | None = None,
    output_max: int | None = None,
) -> Recorded:
    """Return the requests of the trace at ``path`` to draw from, scaled and clipped; warm-up left out.

    ``names_clients``: a drawn row keeps its own ``client_id``. Raises TraceError for a trace that cannot be read
    or a request that says no output length.
    """
    recorded = without_warmup(read_recorded(path))
    timeout = recorded.column("deadline_us") - recorded.column("arrival_time_us")
    try:
        trace = workload_of(recorded)
    except TraceError as error:
        raise TraceError(f"{error} ({path})") from error
    trace = scale_lengths(trace, prompt=prompt_scale, output=output_scale)
    trace = clip_lengths(trace, prompt=prompt_max, output=output_max)
    requests = trace.requests.assign(**{TIMEOUT: timeout.array})
    order, first_row = _sessions(requests)
    rows = Trace(header=trace.header, requests=requests.iloc[order].reset_index(drop=True))
    return Recorded(
        requests=rows, first_row=tuple(first_row.tolist()), source=str(path), names_clients=names_clients
    )


def _sessions(requests: pd.DataFrame) -> tuple[Ints, Ints]:
    """Return the rows' order, a session's rounds together, and where each session begins in it, its end last."""
    n = len(requests)
    rows = np.arange(n)
    if "session_id" not in requests.columns:
        return rows, np.arange(n + 1)
    named = requests["session_id"].notna().to_numpy(dtype=bool)
    codes = pd.factorize(requests["session_id"])[0]
    first_seen = pd.Series(rows[named]).groupby(codes[named]).transform("min").to_numpy()
    session = rows.copy()
    session[named] = first_seen
    rounds = (
        requests["round_index"] if "round_index" in requests.columns else pd.Series(0, index=requests.index)
    )
    order = np.lexsort((rows, rounds.fillna(0).to_numpy(dtype=np.int64), session))
    begins = np.flatnonzero(np.diff(session[order], prepend=-1))
    return order.astype(np.int64), np.append(begins, n).astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnRows:
    """Sessions in the order they were drawn: how many rounds each has, and the row of every round."""

    rounds: Ints
    row: Ints


def draw_rows(recorded: Recorded, *, seed: int, stream: str, n: int) -> DrawnRows:
    """Return the first ``n`` sessions of a stream; a request of no session is a session of one round."""
    first_row = np.array(recorded.first_row, dtype=np.int64)
    session = np.floor(uniforms(seed, f"{stream}/rows", n=n)[:, 0] * (first_row.size - 1)).astype(np.int64)
    begins, rounds = first_row[session], np.diff(first_row)[session]
    within = np.arange(int(rounds.sum())) - np.repeat(np.cumsum(rounds) - rounds, rounds)
    return DrawnRows(rounds=rounds, row=np.repeat(begins, rounds) + within)


def header_keys(drawn_from: Sequence[Recorded]) -> dict[str, object]:
    """Return what the drawn trace's header takes over: the hashes' block, whether prompts grow, the targets.

    Raises ConfigError where two traces hash blocks of different sizes.
    """
    sizes = {it.requests.header.hash_block_size for it in drawn_from} - {None}
    if len(sizes) > 1:
        got = ", ".join(str(size) for size in sorted(sizes, key=str))
        raise ConfigError(f"hash_block_size: got {got} in the traces to draw from, expected one size")
    headers: list[Header] = [it.requests.header for it in drawn_from]
    grown = any(header.session_context_growth == "accumulate" for header in headers)
    targets = next((header.goodput_slo_targets for header in headers if header.goodput_slo_targets), None)
    known = {
        "hash_block_size": next(iter(sizes), None),
        "session_context_growth": "accumulate" if grown else None,
        "goodput_slo_targets": targets,
    }
    return {name: value for name, value in known.items() if value is not None}


# ── columns


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnRequests:
    """Of each request: its client's place, the row of its recorded request, and a number for its session.

    The row counts in the client's own recorded requests; it says nothing where the client has none.
    """

    client: Ints
    row: Ints
    session: Ints


def with_recorded(
    columns: dict[str, object],
    drawn: DrawnRequests,
    *,
    clients: Sequence[Client],
    in_closed_loop: bool,
) -> dict[str, object]:
    """Return the columns with what the recorded rows say filled in.

    A client's own tenant, class, model, adapter, target and timeout stand. A session's later rounds whose think
    time is known have no arrival, the others come as long after the first as recorded; raises ConfigError where
    neither is known or the loop is closed.
    """
    filled = dict(columns)
    drawing = {i: it.lengths for i, it in enumerate(clients) if isinstance(it.lengths, Recorded)}
    for index, recorded in drawing.items():
        mine = np.flatnonzero(drawn.client == index)
        requests = recorded.requests.requests.take(drawn.row[mine])
        own = [name for name in _UNLESS_THE_CLIENT_SAYS if getattr(clients[index], name) is None]
        for name in (*_OF_THE_ROW, *own, *(["client_id"] if recorded.names_clients else [])):
            if name in requests.columns:
                _put(filled, name, at=mine, values=requests[name], n=drawn.client.size)
        rows, sessions = drawn.row[mine], drawn.session[mine]
        _put_rounds(filled, recorded, at=mine, rows=rows, sessions=sessions, in_closed_loop=in_closed_loop)
        if clients[index].timeout_us is None:
            _put_deadlines(filled, recorded, at=mine, rows=rows)
    for source in {recorded.source for recorded in drawing.values()}:
        alike = [index for index, recorded in drawing.items() if recorded.source == source]
        mine = np.flatnonzero(np.isin(drawn.client, alike))
        recorded = drawing[alike[0]]
        _put_hashes(filled, recorded, at=mine, rows=drawn.row[mine], sessions=drawn.session[mine])
    return filled


def _put(columns: dict[str, object], name: str, *, at: Ints, values: pd.Series[Any], n: int) -> None:
    """Put ``values`` where they say something; a column that was not there is empty elsewhere."""
    if name not in columns and not values.notna().any():
        return
    column: Any = typed(name, columns.get(name, [None] * n))
    column = column.copy()
    known = values.notna().to_numpy(dtype=bool)
    column[at[known]] = typed(name, values.array[known])
    columns[name] = column


def _put_rounds(
    columns: dict[str, object],
    recorded: Recorded,
    *,
    at: Ints,
    rows: Ints,
    sessions: Ints,
    in_closed_loop: bool,
) -> None:
    """Fill in sessions of several rounds: their names, places, think times and later arrivals."""
    first_row = np.array(recorded.first_row)
    place = np.searchsorted(first_row, rows, side="right") - 1
    begin, several = first_row[place], np.diff(first_row)[place] > 1
    later = rows > begin
    if not several.any():
        return
    requests, n = recorded.requests.requests, len(np.asarray(columns["request_id"]))
    waits = answer_decides(requests)[rows] & later
    own = requests["arrival_time_us"]
    since_us = own.take(rows).array - own.take(begin).array
    unknown = (np.asarray(pd.isna(since_us)) | in_closed_loop) & later & ~waits
    if unknown.any():
        raise ConfigError(
            "--lengths-from: got sessions without think times, expected them where answers set the pace "
            f"({recorded.source})"
        )
    arrival: Any = typed("arrival_time_us", columns["arrival_time_us"]).copy()
    arrival[at[later]] = (arrival[at] + since_us)[later]
    arrival[at[waits]] = None
    columns["arrival_time_us"] = arrival
    names = pd.Series([f"s{number}" for number in sessions], dtype="string").where(several)
    _put(columns, "session_id", at=at, values=names, n=n)
    _put(columns, "round_index", at=at, values=pd.Series(rows - begin, dtype="Int64").where(several), n=n)
    if waits.any():
        think = requests["think_time_us"].take(rows).reset_index(drop=True)
        _put(columns, "think_time_us", at=at, values=think.where(waits), n=n)


def _put_deadlines(columns: dict[str, object], recorded: Recorded, *, at: Ints, rows: Ints) -> None:
    """Fill in deadlines, as long after the arrivals as recorded."""
    timeout = recorded.requests.requests[TIMEOUT].take(rows).array
    arrival: Any = typed("arrival_time_us", columns["arrival_time_us"])
    due = pd.Series(pd.array(arrival[at], dtype="Int64") + timeout, dtype="Int64")
    _put(columns, "deadline_us", at=at, values=due, n=len(arrival))


def _put_hashes(
    columns: dict[str, object], recorded: Recorded, *, at: Ints, rows: Ints, sessions: Ints
) -> None:
    """Fill in the prompts' hashes, those of one session alone made new from its second draw on."""
    requests = recorded.requests.requests
    if "prefix_hashes" not in requests.columns:
        return
    texts = requests["prefix_hashes"].fillna("").astype(object).to_numpy()
    shared = _shared_hashes(texts, np.array(recorded.first_row, dtype=np.int64))
    drawn = _times_drawn(np.searchsorted(np.array(recorded.first_row), rows, side="right"), sessions)
    hashes = [
        texts[row] if not again else " ".join(
            name if name in shared else f"{name}.{again}" for name in texts[row].split()
        )
        for row, again in zip(rows.tolist(), drawn, strict=True)
    ]  # fmt: skip
    values = pd.Series(hashes, dtype="string").replace("", pd.NA)
    _put(columns, "prefix_hashes", at=at, values=values, n=len(np.asarray(columns["request_id"])))


def _shared_hashes(texts: npt.NDArray[np.object_], first_row: Ints) -> set[str]:
    """Return the hashes that stand in more than one session."""
    counts: Counter[str] = Counter()
    for begin, end in zip(first_row[:-1].tolist(), first_row[1:].tolist(), strict=True):
        counts.update({name for text in texts[begin:end] for name in text.split()})
    return {name for name, count in counts.items() if count > 1}


def _times_drawn(recorded_session: Ints, session: Ints) -> list[int]:
    """Return of each request how often its recorded session was drawn before."""
    seen: dict[int, dict[int, int]] = {}
    times = []
    for of, number in zip(recorded_session.tolist(), session.tolist(), strict=True):
        draws = seen.setdefault(of, {})
        times.append(draws.setdefault(number, len(draws)))
    return times
