"""Requests of a trace drawn again: rows, or whole sessions, by index and with replacement.

A row's values stay together: lengths, sharing, class, tenant, model, adapter. Its send time is drawn separately. A
session's rounds are one draw. A block of a prompt that no other row or session has is new in every draw, since two
users do not write the same text: the first draw keeps the recorded hash, the k-th has it with k appended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from lazy_dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from traces.errors import ConfigError, TraceError
from traces.header import Header, Source
from traces.tables.cells import Cells, cells_where
from traces.tables.table import typed
from traces.trace import Trace
from traces.warm_up import without_warmup
from traces.workload.draw import uniforms
from traces.workload.lengths import Recorded
from traces.workload.model import Client
from traces.workload.recorded.from_trace import answer_decides, workload_of
from traces.workload.recorded.known_lengths import with_known_lengths
from traces.workload.recorded.scaling import clip_lengths, scale_lengths

Ints = npt.NDArray[np.int64]

TIMEOUT: Final = "timeout_us"
"""Column of a recorded row's deadline as a time from its arrival."""

_OF_THE_ROW: Final = (
    *("vllm_priority", "prefix_group", "prefix_length", "streaming", "text_tokens", "image_tokens"),
    *("images", "audio_tokens", "video_tokens", "reason_ratio", "new_input_tokens", "guided"),
    *("network_rtt_us", "network_bandwidth_mbps"),
    *("server_input_tokens", "max_tokens", "finish_reason"),
)
_UNLESS_THE_CLIENT_SAYS: Final = ("tenant_id", "slo_class", "model", "adapter", "slo_target_us")


def requests_to_draw(
    trace: Trace,
    source: str,
    *,
    names_clients: bool = False,
    prompt_scale: float = 1.0,
    output_scale: float = 1.0,
    prompt_max: int | None = None,
    output_max: int | None = None,
) -> Recorded:
    """Return a trace's requests to draw from, scaled and clipped; warm-up left out.

    ``source``: the trace's name, for errors. ``names_clients``: a drawn row keeps its own ``client_id``. Raises
    TraceError for a request that says no output length.
    """
    recorded = with_known_lengths(without_warmup(trace))
    due, arrival = recorded.cells("deadline_us"), recorded.cells("arrival_time_us")
    timeout = cells_where(due.values - arrival.values, due.is_known & arrival.is_known)
    try:
        trace = workload_of(recorded)
    except TraceError as error:
        raise TraceError(f"{error} ({source})") from error
    trace = scale_lengths(trace, prompt=prompt_scale, output=output_scale)
    trace = clip_lengths(trace, prompt=prompt_max, output=output_max)
    lineage = trace.lineage
    rows = replace(trace, table=trace.table.with_columns({TIMEOUT: timeout}).take(lineage.order))
    begins = np.flatnonzero(lineage.rank[lineage.order] == 0)
    return Recorded(
        requests=rows,
        first_row=(*begins.tolist(), len(trace)),
        source=source,
        names_clients=names_clients,
    )


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
    """Return the values copied to the drawn trace's header: the hashes' block, prompts that grow, targets, notes.

    Raises ConfigError where two traces hash blocks of different sizes.
    """
    sizes = {it.requests.header.hash_block_size for it in drawn_from} - {None}
    if len(sizes) > 1:
        got = ", ".join(str(size) for size in sorted(sizes, key=str))
        raise ConfigError(f"hash_block_size: got {got} in the traces to draw from, expected one size")
    headers: list[Header] = [it.requests.header for it in drawn_from]
    grown = any(header.session_context_growth == "accumulate" for header in headers)
    targets = next((header.goodput_slo_targets for header in headers if header.goodput_slo_targets), None)
    sources = [header.source for header in headers if header.source is not None]
    known = {
        "source": _drawn_from(sources),
        "hash_block_size": next(iter(sizes), None),
        "session_context_growth": "accumulate" if grown else None,
        "goodput_slo_targets": targets,
    }
    return {name: value for name, value in known.items() if value is not None}


def _drawn_from(sources: Sequence[Source]) -> Source | None:
    """Return what is known of the files that requests are drawn from; their load is not what is drawn."""
    if not sources:
        return None
    if len(sources) == 1:
        return _without_load(sources[0])
    notes = [f"{each.file}: {line}" for each in sources for line in _without_load(each).lines()]
    return Source(format="several", file=", ".join(each.file for each in sources), notes=tuple(notes))


def _without_load(source: Source) -> Source:
    """Return a source whose own load is a note: what is drawn has another."""
    if source.load_unknown is None:
        return source
    return replace(
        source,
        load_unknown=None,
        notes=(f"the file's own load is not used: {source.load_unknown}", *source.notes),
    )


# ── columns


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnRequests:
    """Where each request is from: its client's place, the row of its recorded request, a number for its session.

    The row counts in the client's own recorded requests; it is meaningless if the client has none.
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
    """Return the columns, filled in from the recorded rows.

    A client's own tenant, class, model, adapter, target, timeout and prefix stand; the prefix comes before the
    recorded prompts, whichever side counted those. A session's later rounds whose think
    time is known have no arrival, the others come as long after the first as recorded; raises ConfigError where
    neither is known or the loop is closed.
    """
    filled = dict(columns)
    drawing = {i: it.lengths for i, it in enumerate(clients) if isinstance(it.lengths, Recorded)}
    for index, recorded in drawing.items():
        mine = np.flatnonzero(drawn.client == index)
        requests = recorded.requests.table
        own = [name for name in _UNLESS_THE_CLIENT_SAYS if getattr(clients[index], name) is None]
        for name in (*_OF_THE_ROW, *own, *(["client_id"] if recorded.names_clients else [])):
            if name in requests:
                values = _behind(clients[index], name, requests[name].take(drawn.row[mine]))
                _put(filled, name, at=mine, values=values, n=drawn.client.size)
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


def _behind(client: Client, name: str, recorded: Cells) -> Cells:
    """Return a column of recorded requests behind the client's own prefix, if it has one; theirs have none then."""
    own = client.prefix_length if client.prefix_group is not None else 0
    if not own or name not in ("prefix_length", "server_input_tokens"):
        return recorded
    return cells_where(recorded.values + own, recorded.is_known)


def _put(columns: dict[str, object], name: str, *, at: Ints, values: Cells, n: int) -> None:
    """Store ``values`` where they are known; a new column is empty elsewhere."""
    if name not in columns and not values.is_known.any():
        return
    before = typed(name, columns.get(name, [None] * n))
    columns[name] = before.replaced(at[values.is_known], values.take(values.is_known))


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
    requests, n = recorded.requests, len(typed("request_id", columns["request_id"]))
    waits = answer_decides(requests)[rows] & later
    recorded_us, begin_us = (requests.cells("arrival_time_us").take(each) for each in (rows, begin))
    since_us = cells_where(recorded_us.values - begin_us.values, recorded_us.is_known & begin_us.is_known)
    unknown = (~since_us.is_known | in_closed_loop) & later & ~waits
    if unknown.any():
        raise ConfigError(
            "--like: got sessions without think times, expected them where answers set the pace "
            f"({recorded.source})"
        )
    arrival = typed("arrival_time_us", columns["arrival_time_us"])
    moved = arrival.take(at).plus(since_us).where(~waits)
    columns["arrival_time_us"] = arrival.replaced(at[later], moved.take(later))
    names = np.array([f"s{number}" for number in sessions], dtype=object)
    _put(columns, "session_id", at=at, values=cells_where(names, several), n=n)
    _put(columns, "round_index", at=at, values=cells_where(rows - begin, several), n=n)
    if waits.any():
        think = requests.cells("think_time_us").take(rows)
        _put(columns, "think_time_us", at=at, values=think.where(waits), n=n)


def _put_deadlines(columns: dict[str, object], recorded: Recorded, *, at: Ints, rows: Ints) -> None:
    """Fill in deadlines, as long after the arrivals as recorded."""
    timeout = recorded.requests.table[TIMEOUT].take(rows)
    arrival = typed("arrival_time_us", columns["arrival_time_us"])
    due = arrival.take(at).plus(timeout)
    _put(columns, "deadline_us", at=at, values=due, n=len(arrival))


def _put_hashes(
    columns: dict[str, object], recorded: Recorded, *, at: Ints, rows: Ints, sessions: Ints
) -> None:
    """Fill in the prompts' hashes; those of one session alone are new from its second draw on."""
    if "prefix_hashes" not in recorded.requests.table:
        return
    texts = recorded.requests.cells("prefix_hashes").filled("")
    shared = _shared_hashes(texts, np.array(recorded.first_row, dtype=np.int64))
    drawn = _times_drawn(np.searchsorted(np.array(recorded.first_row), rows, side="right"), sessions)
    hashes = [
        texts[row] if not again else " ".join(
            name if name in shared else f"{name}.{again}" for name in texts[row].split()
        )
        for row, again in zip(rows.tolist(), drawn, strict=True)
    ]  # fmt: skip
    values = typed("prefix_hashes", [text or None for text in hashes])
    _put(columns, "prefix_hashes", at=at, values=values, n=len(typed("request_id", columns["request_id"])))


def _shared_hashes(texts: npt.NDArray[np.object_], first_row: Ints) -> set[str]:
    """Return the hashes that stand in more than one session."""
    counts: Counter[str] = Counter()
    for begin, end in zip(first_row[:-1].tolist(), first_row[1:].tolist(), strict=True):
        counts.update({name for text in texts[begin:end] for name in text.split()})
    return {name for name, count in counts.items() if count > 1}


def _times_drawn(recorded_session: Ints, session: Ints) -> list[int]:
    """Return, for each request, how often its recorded session was drawn before."""
    seen: dict[int, dict[int, int]] = {}
    times = []
    for of, number in zip(recorded_session.tolist(), session.tolist(), strict=True):
        draws = seen.setdefault(of, {})
        times.append(draws.setdefault(number, len(draws)))
    return times
