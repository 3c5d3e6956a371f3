"""From a workload to a trace without outcomes, which ``observe``, ``run`` and ``trace synth`` start from.

Each client is one or more sources: its own, and one per window that draws otherwise. A source's arrivals and
lengths are streams of their own; the trace is their merge by time, cut where the workload ends. More of a
stream never changes what came before, so the first N rows are the same however many are asked for.
"""

from __future__ import annotations

import math
from lazy_dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from traces.errors import ConfigError
from traces.header import ClosedLoop, Header
from traces.schema import FIELDS
from traces.strict.free_memory import require_memory
from traces.strict.limits import MOST_REQUESTS
from traces.tables.cells import NUMPY_DTYPE, all_known, cells_where
from traces.tables.table import typed
from traces.trace import Trace, make_trace
from traces.workload.arrivals import RateProfile, rate_profiles
from traces.workload.content import (
    CONTENT_COLUMNS,
    Texts,
    draw_content,
    image_sizes,
    placed_images,
    prompt_of,
)
from traces.workload.contradictions import check_options
from traces.workload.draw import draw_lengths, draw_tokens, unit_gaps
from traces.workload.lengths import Recorded, Separate
from traces.workload.model import ActiveWindow, Client, OpenLoop, UserLoop, Workload
from traces.workload.options import WorkloadOptions
from traces.workload.recorded.from_trace import requests_again
from traces.workload.recorded.resampling import DrawnRequests, draw_rows, header_keys, with_recorded
from traces.workload.recorded.total_limit import with_total_limit
from traces.workload.resolve import seed_of, workload_from_options
from traces.workload.session_rounds import (
    begin_and_place,
    context_tokens,
    grows,
    later_arrivals,
    session_columns,
)

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

MAX_REQUESTS: Final = MOST_REQUESTS
BYTES_PER_REQUEST: Final = 300
"""Memory of a drawn request while its columns are drawn and written: two million take 0.6 GB."""
"""A duration and rate that ask for more are taken for a slip: the columns alone would not fit into memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSource:
    """What one stream of requests is drawn from; ``client`` is its client's index, ``stream`` its name."""

    client: int
    stream: str
    drawn: Client


@dataclass(frozen=True, slots=True, kw_only=True)
class Draws:
    """Requests in order of arrival, a session's rounds together: columns of one length.

    ``arrival_us`` is a session's begin for all of its rounds, and empty in a closed loop. ``session``: a number
    each for requests that belong together; ``round_index`` counts within it. ``prompt_tokens``: what the round
    adds. ``row``: that of the recorded request, where the client draws from recorded ones, else 0.
    ``think_us``: the pause before it, of a round after the first. ``content``: columns of what else it is made of,
    NaN where it has none. ``images``: the sizes of its images (``content.sizes_of_parts``).
    """

    client: Ints
    arrival_us: Ints
    prompt_tokens: Ints
    output_tokens: Ints
    session: Ints
    round_index: Ints
    row: Ints
    think_us: Ints
    content: dict[str, Floats]
    images: Texts


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionsDrawn:
    """Sessions of one source in order: how many rounds each has, and every round's lengths and recorded row."""

    rounds: Ints
    prompt_tokens: Ints
    output_tokens: Ints
    row: Ints
    think_us: Ints
    content: dict[str, Floats]
    images: Texts


def trace_from_options(options: WorkloadOptions) -> Trace:
    """Return the trace without outcomes that the options ask for: drawn, or the requests of ``--trace``.

    Its header's ``seed`` is the one that holds (42 unless given by option or specification). Raises
    ConfigError for options or a specification that do not hold together, TraceError for a trace that cannot
    be read or sent again.
    """
    check_options(options)
    if options.trace is not None:
        return requests_again(options)
    workload = workload_from_options(options)
    return synth(workload, seed=seed_of(options, workload))


def synth(workload: Workload, *, seed: int) -> Trace:
    """Return the workload drawn with ``seed``: mode ``generated``, request ids 0, 1 … in order of arrival.

    In a closed loop the users' first requests are spread evenly over one think time, later arrivals are NA, and
    so are those of a session's later rounds. Where rounds build on each other, a prompt is what was said before
    and what the round adds (``new_input_tokens``).
    Raises ConfigError where the workload's windows hold no request.
    """
    load = workload.load
    draws = _closed(workload, seed) if isinstance(load, UserLoop) else _open(workload, load, seed)
    if draws.client.size == 0:
        source = workload.source or "options"
        raise ConfigError(f"workload: got no request within its time, expected at least one ({source})")
    header = Header(
        mode="generated",
        tool="vtwin",
        seed=seed,
        workload_seed=seed,
        workload_spec=workload.source,
        goodput_slo_targets=workload.goodput_slo_targets,
        rate_per_s=_rate_in_header(load),
        closed_loop=_loop_in_header(load),
        session_context_growth="accumulate" if any(map(grows, workload.clients)) else None,
    )
    taken = header_keys(_recorded(workload))
    if workload.goodput_slo_targets:
        taken.pop("goodput_slo_targets", None)
    drawn = make_trace(replace(header, **taken), _columns(workload, draws))  # type: ignore[arg-type]
    return with_total_limit(drawn, workload.total_tokens_max)


def _rate_in_header(load: OpenLoop | UserLoop) -> float | None:
    """Return the rate in all, where there is one that is asked for and finite."""
    rate = load.rate_per_s if isinstance(load, OpenLoop) else None
    return None if rate is None or rate == math.inf else rate


def _loop_in_header(load: OpenLoop | UserLoop) -> ClosedLoop | None:
    if isinstance(load, OpenLoop):
        return None
    return ClosedLoop(
        concurrency=load.concurrency, think_time_us=load.think_time_us, in_waves=load.in_waves or None
    )


# ── open loop


def _open(workload: Workload, load: OpenLoop, seed: int) -> Draws:
    """Draw the sources' arrivals up to a common time, merge and cut them, and draw the lengths."""
    at_once = load.rate_per_s == math.inf
    sources = [source for i, client in enumerate(workload.clients) for source in _sources(i, client)]
    profiles = rate_profiles(tuple(s.drawn for s in sources), 1.0 if at_once else load.rate_per_s)
    arrivals = _arrivals_until_enough(workload, sources, profiles, seed)
    times = np.concatenate(arrivals)
    sizes = [row.size for row in arrivals]
    owner = np.repeat(np.arange(len(sources)), sizes)
    order = np.argsort(times, kind="stable")[: workload.num_requests]
    drawn = [
        _draw_sessions(source.drawn, seed=seed, stream=source.stream, n=size)
        for source, size in zip(sources, sizes, strict=True)
    ]
    # the rounds of a source's sessions stand one after another, in the order of its arrivals
    rounds = np.concatenate([each.rounds for each in drawn])
    first_row = np.cumsum(rounds) - rounds
    session, round_index = begin_and_place(rounds[order], most=workload.num_requests)
    heads = order[session]
    rows = first_row[heads] + round_index
    return Draws(
        client=np.array([source.client for source in sources])[owner[heads]],
        arrival_us=np.zeros_like(heads) if at_once else times[heads],
        prompt_tokens=np.concatenate([each.prompt_tokens for each in drawn])[rows],
        output_tokens=np.concatenate([each.output_tokens for each in drawn])[rows],
        session=session,
        round_index=round_index,
        row=np.concatenate([each.row for each in drawn])[rows],
        think_us=np.concatenate([each.think_us for each in drawn])[rows],
        content={name: values[rows] for name, values in _contents(drawn).items()},
        images=np.concatenate([each.images for each in drawn])[rows],
    )


def _contents(drawn: list[SessionsDrawn]) -> dict[str, Floats]:
    """Return the sources' content columns one after another, NaN where a source has none."""
    names = [name for name in CONTENT_COLUMNS if any(name in each.content for each in drawn)]
    return {
        name: np.concatenate([each.content.get(name, np.full(each.row.size, np.nan)) for each in drawn])
        for name in names
    }


def _draw_sessions(client: Client, *, seed: int, stream: str, n: int) -> SessionsDrawn:
    """Return the first ``n`` sessions of a stream: recorded ones, or lengths drawn for the client's rounds."""
    lengths = client.lengths
    if isinstance(lengths, Recorded):
        again = draw_rows(lengths, seed=seed, stream=stream, n=n)
        prompt, output = (
            lengths.requests.cells(name).values[again.row] for name in ("input_tokens", "output_tokens")
        )
        return SessionsDrawn(
            rounds=again.rounds,
            prompt_tokens=prompt,
            output_tokens=output,
            row=again.row,
            think_us=np.zeros_like(prompt),
            content={},
            images=np.full(prompt.size, "", dtype=object),
        )
    rounds, number = np.full(n, client.rounds.number), n * client.rounds.number
    prompt, output = draw_lengths(lengths, seed=seed, stream=stream, n=number)
    content = draw_content(client, seed=seed, stream=stream, n=number)
    several_kinds = prompt_of(content)
    return SessionsDrawn(
        rounds=rounds,
        prompt_tokens=prompt if several_kinds is None else several_kinds,
        output_tokens=output,
        row=np.zeros_like(prompt),
        think_us=_think_us(client, seed=seed, stream=stream, n=number),
        content=content,
        images=image_sizes(client, seed=seed, stream=stream, n=number),
    )


def _think_us(client: Client, *, seed: int, stream: str, n: int) -> Ints:
    """Return the pauses before the first ``n`` requests of a stream, µs."""
    if client.rounds.think_time is None:
        return np.full(n, client.rounds.think_time_us, dtype=np.int64)
    return draw_tokens(client.rounds.think_time, seed=seed, stream=f"{stream}/think", n=n)


def _sources(index: int, client: Client) -> list[StreamSource]:
    """Return the client with the windows that draw as it does, and one source per other window."""
    if not any(window.overrides for window in client.windows):
        return [StreamSource(client=index, stream=f"client {client.id}", drawn=client)]
    own = tuple(window for window in client.windows if not window.overrides)
    sources = []
    if own:
        sources.append(
            StreamSource(client=index, stream=f"client {client.id}", drawn=replace(client, windows=own))
        )
    for window in client.windows:
        if window.overrides:
            stream = f"client {client.id} from {window.start_us}"
            sources.append(StreamSource(client=index, stream=stream, drawn=_as_in(window, client)))
    return sources


def _as_in(window: ActiveWindow, client: Client) -> Client:
    lengths = client.lengths
    if isinstance(lengths, Separate):
        prompt, output = window.prompt or lengths.prompt, window.output or lengths.output
        lengths = Separate(prompt=prompt, output=output)
    return replace(
        client,
        windows=(window,),
        lengths=lengths,
        arrival=window.arrival or client.arrival,
        reason_shares=window.reason_shares or client.reason_shares,
    )


def _arrivals_until_enough(
    workload: Workload, sources: list[StreamSource], profiles: list[RateProfile], seed: int
) -> list[Ints]:
    """Return each source's arrivals, ascending, in µs, up to a time that holds all that is asked for."""
    duration = math.inf if workload.duration_us is None else float(workload.duration_us)
    wanted = math.inf if workload.num_requests is None else workload.num_requests
    if all(source.drawn.rounds.once for source in sources):
        wanted = min(wanted, len(sources))
    until = min(duration, _likely_end_us(profiles, wanted))
    while True:
        arrivals = [
            _arrivals(source, profile, until_us=until, seed=seed)
            for source, profile in zip(sources, profiles, strict=True)
        ]
        last = max(float(profile.edges_us[-1]) for profile in profiles)
        if sum(row.size for row in arrivals) >= wanted or until >= min(duration, last):
            return arrivals
        until = min(duration, 2 * until)


def _likely_end_us(profiles: list[RateProfile], wanted: float) -> float:
    """Return a time by which ``wanted`` requests and a few more are expected, or the last edge."""
    if wanted == math.inf:
        return math.inf
    edges = np.array(profiles[0].edges_us)  # the same for all
    total = RateProfile(edges_us=edges, per_us=np.sum([profile.per_us for profile in profiles], axis=0))
    ample = wanted + 4 * math.sqrt(wanted) + 4
    reached = float(total.times_us(np.array([ample]))[0])
    return min(reached, float(edges[-1]))


def _require_memory(n: int) -> None:
    require_memory(f"workload: got about {n:,} requests, which take", n * BYTES_PER_REQUEST)


def _arrivals(source: StreamSource, profile: RateProfile, *, until_us: float, seed: int) -> Ints:
    """Return the source's arrivals up to and including ``until_us``, ascending, int64 µs."""
    expected = profile.expected(until_us)
    n = math.ceil(expected + 4 * math.sqrt(expected) + 8)
    while True:
        if n > MAX_REQUESTS:
            raise ConfigError(f"workload: got about {n:.1e} requests, expected at most {MAX_REQUESTS:.1e}")
        _require_memory(n)
        if source.drawn.arrival.exactly is not None:
            return _exactly(source, seed=seed, until_us=until_us)
        gaps = unit_gaps(source.drawn.arrival, seed=seed, stream=f"{source.stream}/gaps", n=n)
        counts = np.cumsum(gaps)
        if counts[-1] > expected + 1:  # 1: what rounding to µs may bring in
            due = np.rint(profile.times_us(counts[counts <= expected + 1]))
            due = due[: 1 if source.drawn.rounds.once else None]
            return due[due <= until_us].astype(np.int64)
        n *= 2


def _exactly(source: StreamSource, *, seed: int, until_us: float) -> Ints:
    """Return as many arrivals as are asked for, gaps scaled so that the last is at the end."""
    assert source.drawn.arrival.exactly is not None  # noqa: S101 - the caller has looked
    number, span_us = source.drawn.arrival.exactly
    counts = np.cumsum(unit_gaps(source.drawn.arrival, seed=seed, stream=f"{source.stream}/gaps", n=number))
    due = np.rint(counts / counts[-1] * span_us).astype(np.int64)
    within: Ints = due[due <= until_us]
    return within


# ── closed loop


def _closed(workload: Workload, seed: int) -> Draws:
    client, n = workload.clients[0], workload.num_requests
    assert n is not None  # noqa: S101 - Workload has checked it
    _require_memory(n)
    drawn = _draw_sessions(client, seed=seed, stream=f"client {client.id}", n=n)
    none = np.empty(0, dtype=np.int64)
    session, round_index = begin_and_place(drawn.rounds, most=n)
    return Draws(
        client=np.zeros(n, dtype=np.int64),
        arrival_us=none,
        prompt_tokens=drawn.prompt_tokens[:n],
        output_tokens=drawn.output_tokens[:n],
        session=session,
        round_index=round_index,
        row=drawn.row[:n],
        think_us=drawn.think_us[:n],
        content={name: values[:n] for name, values in drawn.content.items()},
        images=drawn.images[:n],
    )


def _first_round_us(load: UserLoop, session: Ints) -> list[int | None]:
    """Return the arrivals: the users' first requests spread over a think time (a wave's all at 0), then None."""
    spread_us = 0 if load.in_waves else load.think_time_us
    return [
        int(user) * spread_us // load.concurrency if user < load.concurrency else None
        for user in session.tolist()
    ]


# ── columns


def _columns(workload: Workload, draws: Draws) -> dict[str, object]:
    """Return TraceV2's columns; those that no client fills are left out."""
    n, load = draws.client.size, workload.load
    arrivals = draws.arrival_us if isinstance(load, OpenLoop) else _first_round_us(load, draws.session)
    arrival_time_us = typed("arrival_time_us", arrivals)
    by_round = session_columns(workload.clients, draws)
    if "session_id" in by_round:
        arrival_time_us = later_arrivals(workload.clients, draws, begin_us=arrival_time_us)
    columns: dict[str, object] = {
        "request_id": all_known(np.array(list(map(str, range(n))), dtype=object)),
        "input_tokens": context_tokens(workload.clients, draws),
        "output_tokens": draws.output_tokens,
        "arrival_time_us": arrival_time_us,
    }
    for column, floats in draws.content.items():
        columns[column] = _content_column(column, floats)
    images = placed_images(workload.clients, draws, draws.images)
    if images is not None:
        columns["images"] = images
    for column, field in _CLIENT_COLUMNS.items():
        values = [getattr(client, field) for client in workload.clients]
        if any(value is not None for value in values):
            columns[column] = typed(column, values).take(draws.client)
    if any(client.timeout_us is not None for client in workload.clients):
        timeouts = typed("deadline_us", [client.timeout_us for client in workload.clients])
        columns["deadline_us"] = arrival_time_us.plus(timeouts.take(draws.client))
    columns |= by_round | _network_columns(workload, draws.client)
    if not _recorded(workload):
        return columns
    drawn = DrawnRequests(client=draws.client, row=draws.row, session=draws.session)
    return with_recorded(columns, drawn, clients=workload.clients, in_closed_loop=isinstance(load, UserLoop))


def _content_column(name: str, values: Floats) -> object:
    """Return the values in the column's dtype, empty for NaN."""
    known = ~np.isnan(values)
    return cells_where(np.where(known, values, 0.0).astype(NUMPY_DTYPE[FIELDS[name].dtype]), known)


def _network_columns(workload: Workload, client: Ints) -> dict[str, object]:
    """Return the columns of the way between client and server, none where no client says any."""
    paths = [it.network for it in workload.clients]
    columns: dict[str, object] = {}
    if any(path is not None for path in paths):
        rtt = [None if path is None else path.rtt_us for path in paths]
        columns["network_rtt_us"] = typed("network_rtt_us", rtt).take(client)
    if any(path is not None and path.bandwidth_mbps for path in paths):
        speed = [None if path is None else path.bandwidth_mbps for path in paths]
        columns["network_bandwidth_mbps"] = typed("network_bandwidth_mbps", speed).take(client)
    return columns


def _recorded(workload: Workload) -> list[Recorded]:
    """Return the recorded requests that clients draw from."""
    return [client.lengths for client in workload.clients if isinstance(client.lengths, Recorded)]


_CLIENT_COLUMNS: Final = {
    "client_id": "id",
    "tenant_id": "tenant_id",
    "slo_class": "slo_class",
    "vllm_priority": "priority",
    "prefix_group": "prefix_group",
    "prefix_length": "prefix_length",
    "streaming": "streaming",
    "model": "model",
    "adapter": "adapter",
    "slo_target_us": "slo_target_us",
}
"""Columns that all requests of a client have alike, and the client's field."""
