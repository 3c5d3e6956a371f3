"""A trace in, a simulated trace out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from replay.trace.requests import At, requests_from_trace
from replay.trace.sessions import has_rounds
from sim import Requests, Simulation, Status, simulate
from traces import ConfigError

if TYPE_CHECKING:
    from replay.twin.config import TwinConfig
    from sim.config import Record
    from traces import Trace

Loop = Literal["auto", "closed", "open"]

STATUS_NAMES = {
    Status.OK: "ok",
    Status.REJECTED: "rejected",
    Status.STUCK: "stuck",
    Status.ABORTED: "aborted",
    Status.UNFINISHED: "incomplete",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pacing:
    """Who decides when a trace's requests reach the engine: their times alone, or the engine's answers, too.

    ``closed_loop``: (concurrency, think_time_us) of users who wait for answers. ``max_concurrency``: the cap of a
    client that sends what is due once fewer are in flight. At most one of them; ``at``: which of a row's times counts.
    """

    at: At = "auto"
    closed_loop: tuple[int, int] | None = None
    max_concurrency: int | None = None

    def note(self) -> str | None:
        """Return how answers set the pace, None where they do not."""
        if self.closed_loop is not None:
            return f"a closed loop of {self.closed_loop[0]}, simulated as such"
        if self.max_concurrency is not None:
            return (
                f"sent with at most {self.max_concurrency} in flight, simulated as such: from due times, "
                "the simulated answers letting the next ones go"
            )
        return None


def pacing_of(trace: Trace, loop: Loop = "auto", *, at: At = "auto") -> Pacing:
    """Return how a trace is to be replayed.

    ``auto``: as its header says it was run: a closed loop, a client with a cap, or neither; ``at="send"`` asks for the
    recorded times of a capped run, which are the real answers' doing. ``open``: by the rows' times alone. ``closed``
    needs a header that says how many were in flight. Waves and users with sessions are replayed as they were sent.
    """
    _refuse_what_has_no_times(trace)
    recorded, client = trace.header.closed_loop, trace.header.client
    cap = None if client is None else client.max_concurrency
    if loop == "open" or (loop == "auto" and recorded is None and (cap is None or at == "send")):
        return Pacing(at=at)
    if recorded is not None and (recorded.in_waves or has_rounds(trace)):
        return _as_sent(trace, loop, at=at)
    if recorded is not None:
        return Pacing(at=at, closed_loop=(recorded.concurrency, recorded.think_time_us))
    if cap is None:
        raise ConfigError(
            "--closed-loop: the trace's header has neither closed_loop nor client.max_concurrency, "
            "expected how many were in flight"
        )
    has_due = bool(trace.column("arrival_time_us").notna().all())
    never_bound = client is not None and client.num_held_back == 0
    if at == "auto" and has_due and not never_bound:
        at = "arrival"
    return Pacing(at=at, max_concurrency=cap)


def _refuse_what_has_no_times(trace: Trace) -> None:
    untimed = trace.column("send_time_us").isna() & trace.column("arrival_time_us").isna()
    if has_rounds(trace) and untimed.any():
        raise ConfigError(
            f"sessions: got {int(untimed.sum())} rounds whose times are the answers' doing, which are not simulated "
            "yet; expected a trace that was observed, or rounds with times of their own (closed_loop: false)"
        )


def _as_sent(trace: Trace, loop: Loop, *, at: At) -> Pacing:
    """Return the pacing of waves and of users with sessions: when they were sent, which is all there is yet."""
    if loop == "closed" or trace.column("send_time_us").isna().any():
        raise ConfigError(
            "closed_loop: got waves, or users with sessions, to be paced by simulated answers, which is not "
            "there yet; expected a trace that was observed, replayed at the times it was sent"
        )
    return Pacing(at="send" if at == "auto" else at)


def paced_requests(trace: Trace, pacing: Pacing, *, block_size: int) -> Requests:
    """Return a trace's requests as the engine's columns, arriving as the pacing wants them to."""
    return requests_from_trace(
        trace, block_size=block_size, at=pacing.at, closed_loop=pacing.closed_loop is not None
    )


def simulate_trace(
    trace: Trace, config: TwinConfig, *, at: At = "auto", closed_loop: Loop = "auto", record: Record = "spans"
) -> tuple[Trace, Simulation]:
    """Return the trace with the simulator's outcomes in place of its own, and the simulation itself.

    With ``record="spans"`` each request carries its mean and 99th percentile of inter-token latencies, with
    ``"tokens"`` the trace has an event per token. Raises TraceError where a row lacks a time or a length.
    """
    pacing = pacing_of(trace, closed_loop, at=at)
    simulation = simulate(
        paced_requests(trace, pacing, block_size=config.engine.block_size),
        config.engine,
        config.latency,
        record=record,
        closed_loop=pacing.closed_loop,
        max_concurrency=pacing.max_concurrency,
    )
    is_closed_loop = pacing.closed_loop is not None
    return simulated_trace(trace, simulation, is_closed_loop=is_closed_loop), simulation


def _known(values: NDArray[np.int64], is_known: NDArray[np.bool_]) -> pd.Series[int]:
    """Return values as Int64, NA where they are not known."""
    return pd.Series(pd.array(values, dtype="Int64")).where(is_known)


def simulated_trace(trace: Trace, simulation: Simulation, *, is_closed_loop: bool = False) -> Trace:
    """Return ``trace`` with its outcome columns filled from a simulation; times count from the run's start."""
    outcomes = simulation.outcomes
    ok = outcomes.status == Status.OK
    scheduled, got_tokens = outcomes.scheduled_us >= 0, outcomes.first_token_us >= 0
    names = np.array([STATUS_NAMES[Status(code)] for code in range(len(Status))], dtype=object)
    first, last = _known(outcomes.first_token_us, got_tokens), _known(outcomes.last_token_us, ok)
    arrival = _known(outcomes.arrival_us, outcomes.arrival_us >= 0)
    columns: dict[str, object] = {
        "send_time_us": arrival,
        "first_chunk_time_us": first,
        "last_chunk_time_us": last,
        "content_first_time_us": first,
        "last_token_time_us": last,
        "output_tokens": outcomes.num_output_tokens,
        "status": names[outcomes.status],
        "finish_reason": pd.Series("length", index=range(len(ok)), dtype="string").where(ok),
        "scheduled_time_us": _known(outcomes.scheduled_us, scheduled),
        "num_preemptions": outcomes.num_preemptions,
        "num_cached_tokens": _known(outcomes.num_cached_tokens, scheduled),
    }
    if is_closed_loop:
        columns["arrival_time_us"] = arrival
    if simulation.record == "spans":
        gaps = simulation.inter_token_latencies()
        columns["itl_mean_us"] = pd.Series(gaps.mean_us).where(ok)
        columns["itl_p99_us"] = pd.Series(gaps.p99_us).where(ok)
    planned = replace(trace, requests=trace.requests.drop(columns=list(OBSERVED_ONLY), errors="ignore"))
    filled = planned.with_columns(**columns).with_header(mode="replayed", tool="vtwin")
    if simulation.record == "tokens":
        return filled.with_events(_events(trace, simulation))
    return filled.with_events(None)


OBSERVED_ONLY = (
    "num_chunks",
    "error_message",
    "num_token_chunks",
    "cached_input_tokens",
    "server_queue_us",
    "server_prefill_us",
    "server_decode_us",
    "dispatch_lag_us",
    "connection_wait_us",
    "first_byte_time_us",
)
"""Columns that only a live server can fill; a simulated trace is without them."""


def _events(trace: Trace, simulation: Simulation) -> pd.DataFrame:
    """Return one event per token, by request, then time."""
    request, time_us = simulation.tokens()
    order = np.argsort(request, kind="stable")
    request, time_us = request[order], time_us[order]
    starts = np.searchsorted(request, request, side="left")
    return pd.DataFrame(
        {
            "request_id": trace.requests["request_id"].to_numpy()[request],
            "chunk_index": np.arange(len(request)) - starts,
            "timestamp_us": time_us,
            "num_tokens": 1,
        }
    )
