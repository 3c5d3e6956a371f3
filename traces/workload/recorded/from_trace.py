"""The requests of a trace, once more: a run is a workload again when its outcomes are taken off."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from traces.errors import ConfigError, TraceError
from traces.header import Header
from traces.importers.recorded import read_recorded
from traces.trace import Trace, make_trace, select_rows
from traces.units import to_us
from traces.warm_up import without_warmup
from traces.workload.model import DEFAULT_SEED
from traces.workload.options import WorkloadOptions
from traces.workload.recorded.scaling import clip_lengths, scale_lengths

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
    *("guided", "network_rtt_us", "network_bandwidth_mbps"),
)
"""What was asked; all other columns say what came of it."""


def workload_of(trace: Trace) -> Trace:
    """Return what a trace asked for: its requests without outcomes, as a workload to send or to simulate.

    Warm-up requests are left out. The output length is the budget where one is recorded, else what was
    generated. Arrivals beyond the first round of a closed loop, and of a session whose think times are known,
    are NA: answers decided them. Raises TraceError where a request says no output length, or none is left.
    """
    trace = without_warmup(trace)
    requests = trace.requests
    output = trace.column("max_tokens").fillna(trace.column("output_tokens"))
    silent = requests["request_id"][(output.fillna(0) < 1).to_numpy(dtype=bool)]
    if len(silent) or not len(requests):
        got = (
            f"{len(silent)} requests without one (first: request_id {silent.iloc[0]})"
            if len(silent)
            else "none"
        )
        raise TraceError(f"output_tokens: got {got}, expected requests that each ask for at least 1 token")
    kept = requests[[name for name in WORKLOAD_COLUMNS if name in requests.columns]]
    kept = kept.assign(output_tokens=output).reset_index(drop=True)
    header = trace.header
    later = answer_decides(kept)
    if header.closed_loop is not None:
        later |= np.arange(len(kept)) >= header.closed_loop.concurrency
    for column in kept.columns.intersection(["arrival_time_us", "deadline_us"]):
        kept[column] = kept[column].mask(later)
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
        kept,
    )


def answer_decides(requests: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """Return which requests came a known pause after the answer to their session's previous round."""
    if not {"session_id", "round_index", "think_time_us"} <= set(requests.columns):
        return np.zeros(len(requests), dtype=bool)
    later = requests["session_id"].notna() & (requests["round_index"] > 0).fillna(False)
    return (later & requests["think_time_us"].notna()).to_numpy(dtype=bool)


def requests_again(options: WorkloadOptions) -> Trace:
    """Return the workload of ``--trace``, as much of it as --num-requests and --duration leave.

    Raises TraceError for a trace that cannot be read or sent again, ConfigError where nothing is left.
    """
    assert options.trace is not None  # noqa: S101 - the caller has looked
    recorded = read_recorded(options.trace)
    try:
        trace = workload_of(recorded)
    except TraceError as error:
        raise TraceError(f"{error} ({options.trace})") from error
    trace = _scaled(trace, options.speed or 1.0)
    trace = scale_lengths(trace, prompt=options.prompt_scale or 1.0, output=options.output_scale or 1.0)
    trace = clip_lengths(trace, prompt=options.prompt_tokens_max, output=options.output_tokens_max)
    arrival = _with_its_session(trace)
    keep = np.ones(len(arrival), dtype=bool)
    if options.duration is not None:
        if trace.header.closed_loop is not None:
            raise ConfigError(
                f"--duration: got it for a closed loop, expected --num-requests ({options.trace})"
            )
        keep &= (arrival <= to_us(options.duration)).fillna(False).to_numpy(dtype=bool)
    if options.num_requests is not None:
        in_order = np.argsort(arrival.fillna(np.iinfo(np.int64).max).to_numpy(dtype=np.int64), kind="stable")
        first = in_order[keep[in_order]][: options.num_requests]
        keep = np.isin(np.arange(len(arrival)), first)
    if not keep.any():
        raise ConfigError(f"--duration: got {options.duration:g} s, which holds no request ({options.trace})")
    seed = DEFAULT_SEED if options.seed is None else options.seed
    return select_rows(trace, keep).with_header(seed=seed, workload_spec=f"trace:{options.trace}")


def _with_its_session(trace: Trace) -> pd.Series[int]:
    """Return arrivals, where an answer decides one that of the session's first round."""
    arrival = trace.column("arrival_time_us")
    if not arrival.isna().any():
        return arrival
    first = arrival.groupby(trace.column("session_id")).transform("min")
    return arrival.fillna(first)


def _scaled(trace: Trace, speed: float) -> Trace:
    """Return the trace with its times divided by ``speed``; lengths and order stay."""
    if speed == 1.0:
        return trace
    columns = {
        name: (trace.column(name).astype("Float64") / speed).round().astype("Int64")
        for name in ("arrival_time_us", "deadline_us", "think_time_us")
        if name in trace.requests.columns
    }
    loop = trace.header.closed_loop
    if loop is not None:
        loop = replace(loop, think_time_us=round(loop.think_time_us / speed))
    return trace.with_columns(**columns).with_header(closed_loop=loop)
