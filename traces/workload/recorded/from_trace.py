"""The requests of a trace as a workload: a run without its outcomes."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt

from traces.errors import ConfigError, TraceError
from traces.header import Header
from traces.importers.recorded import check_load, read_recorded
from traces.metrics import has_failed, served_output
from traces.tables.cells import Cells, cells_where
from traces.tables.session_tree import has_tree
from traces.trace import Trace, make_trace, select_rows
from traces.units import to_us
from traces.warm_up import from_first_request, is_warmup, load_alone, without_warmup
from traces.workload.basics import DEFAULT_SEED
from traces.workload.options import WorkloadOptions
from traces.workload.recorded.known_lengths import with_known_lengths
from traces.workload.recorded.scaling import clip_lengths, scale_lengths
from traces.workload.recorded.session_starts import is_first
from traces.workload.recorded.total_limit import with_total_limit

WORKLOAD_COLUMNS: Final = (
    *("request_id", "client_id", "tenant_id", "slo_class", "vllm_priority", "session_id", "round_index"),
    *("prefix_group", "prefix_length", "streaming", "input_tokens", "output_tokens", "text_tokens"),
    *(
        "image_tokens",
        "audio_tokens",
        "video_tokens",
        "reason_ratio",
        "model",
        "deadline_us",
        "slo_target_us",
    ),
    *("arrival_time_us", "adapter", "think_time_us", "prefix_hashes", "new_input_tokens"),
    *("parent_request_id", "awaited_request_ids", "num_parent_hashes"),
    *(
        "cancel_after_us",
        "cancel_after_tokens",
        "images",
        "guided",
        "network_rtt_us",
        "network_bandwidth_mbps",
    ),
    *("server_input_tokens", "max_tokens", "finish_reason"),
)
"""Columns of the request, and the lengths of prompt and answer; all others are outcomes."""


def workload_of(trace: Trace) -> Trace:
    """Return a trace's requests without outcomes, as a workload to simulate, or (``as_sent``) to send.

    Warm-up requests are left out, and failed ones of unknown length (``with_known_lengths``). Lengths are those that
    the server processed: ``output_tokens`` of a finished request, ``max_tokens`` of one that failed or got nothing;
    ``server_input_tokens`` and ``max_tokens`` are kept. Arrivals beyond the first round of a closed loop, and of a
    session whose think times are known, are NA: answers decided them.
    Raises TraceError if a request has no output length, or none is left.
    """
    trace = with_known_lengths(trace)
    trace = from_first_request(without_warmup(trace)) if is_warmup(trace).any() else trace
    served = served_output(trace)
    output = served.where(served.values >= 1).or_else(trace.cells("max_tokens"))
    silent = trace.cells("request_id").values[output.values < 1]
    if len(silent) or not len(trace):
        got = f"{len(silent)} requests without one (first: request_id {silent[0]})" if len(silent) else "none"
        raise TraceError(f"output_tokens: got {got}, expected requests that each ask for at least 1 token")
    kept: dict[str, object] = {name: trace.cells(name) for name in WORKLOAD_COLUMNS if name in trace.table}
    header = trace.header
    later = answer_decides(trace)
    if header.closed_loop is not None:
        later |= np.arange(len(trace)) >= header.closed_loop.concurrency
    for name in kept.keys() & {"arrival_time_us", "deadline_us"}:
        kept[name] = trace.cells(name).where(~later)
    if "finish_reason" in kept:
        kept["finish_reason"] = trace.cells("finish_reason").where(~has_failed(trace))
    return make_trace(
        Header(
            mode="generated",
            tool="vtwin",
            seed=header.seed,
            closed_loop=header.closed_loop,
            hash_block_size=header.hash_block_size,
            goodput_slo_targets=header.goodput_slo_targets,
            session_context_growth=header.session_context_growth,
            source=header.source,
        ),
        kept | {"output_tokens": output},
    )


def answer_decides(trace: Trace) -> npt.NDArray[np.bool_]:
    """Return which requests came a known pause after the answer to their session's previous round.

    Of sessions that branch: all that wait for an answer, as the simulator takes them.
    """
    if has_tree(trace.table):
        return ~is_first(trace)
    later = trace.cells("session_id").is_known & (trace.cells("round_index").values > 0)
    return later & trace.cells("think_time_us").is_known


def requests_again(options: WorkloadOptions) -> Trace:
    """Return the workload of ``--trace``, cut by --num-requests and --duration.

    Raises TraceError for a trace that cannot be read or sent again, ConfigError if nothing is left.
    """
    assert options.trace is not None  # noqa: S101 - the caller has looked
    recorded = read_recorded(options.trace)
    check_load(recorded, options.trace, asked="taking these requests as they came")
    try:
        trace = workload_of(recorded)
    except TraceError as error:
        raise TraceError(f"{error} ({options.trace})") from error
    seed = DEFAULT_SEED if options.seed is None else options.seed
    return _changed(trace, options).with_header(seed=seed, workload_spec=f"trace:{options.trace}")


def recorded_load(options: WorkloadOptions) -> Trace:
    """Return the requests of ``--trace`` to simulate, with the times at which they were sent, changed by the options.

    Failed requests of unknown length are left out, and a warm-up that was over when the load began. Raises TraceError
    for a trace that cannot be read, or has no request, ConfigError if nothing is left.
    """
    assert options.trace is not None  # noqa: S101 - the caller has looked
    recorded = load_alone(with_known_lengths(read_recorded(options.trace, events=True)))
    check_load(recorded, options.trace, asked="a simulation")
    if len(recorded) == 0:
        raise TraceError(f"{options.trace}: got a trace without requests, expected one at least")
    return _changed(recorded, options)


def _changed(trace: Trace, options: WorkloadOptions) -> Trace:
    """Return a trace's requests faster, longer or shorter, and fewer, as the options say; as they are without any."""
    trace = _scaled(trace, options.speed or 1.0)
    trace = scale_lengths(trace, prompt=options.prompt_scale or 1.0, output=options.output_scale or 1.0)
    trace = clip_lengths(trace, prompt=options.prompt_tokens_max, output=options.output_tokens_max)
    if options.duration is None and options.num_requests is None:
        return with_total_limit(trace, options.total_tokens_max)
    arrival = _with_its_session(trace)
    keep = np.ones(len(arrival), dtype=bool)
    if options.duration is not None:
        if trace.header.closed_loop is not None:
            raise ConfigError(
                f"--duration: cannot be combined with a closed loop, expected --num-requests ({options.trace})"
            )
        keep &= arrival.is_known & (arrival.values <= to_us(options.duration))
    if options.num_requests is not None:
        in_order = np.argsort(arrival.filled(np.iinfo(np.int64).max), kind="stable")
        first = in_order[keep[in_order]][: options.num_requests]
        keep = np.isin(np.arange(len(arrival)), first)
    if not keep.any():
        raise ConfigError(f"--duration: got {options.duration:g} s, which holds no request ({options.trace})")
    return with_total_limit(select_rows(trace, keep), options.total_tokens_max)


def _with_its_session(trace: Trace) -> Cells:
    """Return arrivals; one that an answer decides is that of the session's first round."""
    arrival = trace.cells("arrival_time_us")
    if arrival.is_known.all():
        return arrival
    session, names = trace.cells("session_id").codes()
    timed = arrival.is_known & (session >= 0)
    first, is_timed = np.zeros(len(names) + 1, dtype=np.int64), np.zeros(len(names) + 1, dtype=np.bool_)
    first[:-1] = np.iinfo(np.int64).max
    np.minimum.at(first, session[timed], arrival.values[timed])
    is_timed[session[timed]] = True
    return arrival.or_else(cells_where(first[session], is_timed[session]))  # no session: -1, the last


def _scaled(trace: Trace, speed: float) -> Trace:
    """Return the trace with its times divided by ``speed``; lengths and order stay."""
    if speed == 1.0:
        return trace
    columns = {
        name: _divided(trace.cells(name), speed)
        for name in ("arrival_time_us", "send_time_us", "deadline_us", "think_time_us")
        if name in trace.table
    }
    loop = trace.header.closed_loop
    if loop is not None:
        loop = replace(loop, think_time_us=round(loop.think_time_us / speed))
    return trace.with_columns(**columns).with_header(closed_loop=loop)


def _divided(times: Cells, speed: float) -> Cells:
    return cells_where(np.rint(times.values / speed).astype(np.int64), times.is_known)
