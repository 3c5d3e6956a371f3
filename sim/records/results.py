"""What the engine's arrays say: outcomes, gaps between tokens, totals, the state at a glance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sim.engine import state as st
from sim.latency.model import LatencyModel
from sim.records.itl import InterTokenLatencies, inter_token_latencies, latencies_of_tokens
from sim.requests import Outcomes, Status


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A running engine at a glance. ``clock_us`` is the end of the last step taken."""

    clock_us: int
    num_running: int
    num_waiting: int
    num_free_blocks: int
    kv_cache_usage_frac: float
    num_preemptions: int
    prefix_cache_queries: int
    prefix_cache_hits: int
    num_steps: int
    num_draft_tokens: int
    num_accepted_tokens: int
    num_kv_offloads: int
    num_kv_reloads: int
    num_kv_thrashings: int


def view_of(state: st.State) -> View:
    """Return the engine's state at its clock."""
    e = state.counters[0]
    usable = len(state.blocks) - 1
    return View(
        clock_us=int(e.clock_us),
        num_running=int(e.num_running),
        num_waiting=int(e.num_waiting),
        num_free_blocks=int(e.num_free_blocks),
        kv_cache_usage_frac=1 - int(e.num_free_blocks) / usable,
        num_preemptions=int(e.num_preemptions),
        prefix_cache_queries=int(e.num_cache_queries),
        prefix_cache_hits=int(e.num_cache_hits),
        num_steps=int(e.num_steps),
        **_kept(e),
    )


def outcomes_of(state: st.State, latency: LatencyModel, requests: slice = slice(None)) -> Outcomes:
    """Return what became of every request so far, or of those with these numbers.

    What runs or waits is UNFINISHED.
    """
    e = state.counters[0]
    rows = state.requests[: e.num_requests][requests]
    status = np.full(len(rows), Status.UNFINISHED, np.int8)
    for code, meaning in (
        (st.FINISHED, Status.OK),
        (st.REJECTED, Status.REJECTED),
        (st.ABORTED, Status.ABORTED),
    ):
        status[rows["status"] == code] = meaning
    num_outputs = rows["num_tokens"] - rows["num_prompt_tokens"]
    got_tokens = num_outputs > 0
    first_delay = latency.output_delay_us(np.minimum(num_outputs, 1))
    last_delay = latency.output_delay_us(num_outputs)
    arrival_us, queued_us = rows["arrival_us"].copy(), rows["queued_us"].copy()
    if e.is_closed_loop:
        is_held = np.zeros(e.num_requests, bool)
        is_held[state.held[e.next_held :]] = True
        arrival_us[is_held[requests]] = queued_us[is_held[requests]] = st.NEVER
    return Outcomes(
        status=status,
        arrival_us=arrival_us,
        queued_us=queued_us,
        scheduled_us=rows["scheduled_us"].copy(),
        first_token_us=np.where(got_tokens, rows["first_token_us"] + first_delay, st.NEVER),
        last_token_us=np.where(got_tokens, rows["last_token_us"] + last_delay, st.NEVER),
        num_output_tokens=num_outputs,
        num_preemptions=rows["num_preemptions"].copy(),
        num_cached_tokens=rows["num_cached_tokens"].copy(),
    )


def gaps_of(state: st.State, latency: LatencyModel, *, from_tokens: bool) -> InterTokenLatencies:
    """Return the gaps between the tokens so far, alpha2 included."""
    e = state.counters[0]
    rows, outcomes = state.requests[: e.num_requests], outcomes_of(state, latency)
    num_gaps = np.maximum(outcomes.num_output_tokens - 1, 0)
    decoding_us = (outcomes.last_token_us - outcomes.first_token_us).astype(np.float64)
    mean_us = np.divide(decoding_us, num_gaps, out=np.full(len(rows), np.nan), where=num_gaps > 0)
    mean_us = np.round(mean_us, 3)
    delay_us = int(latency.output_delay_us(np.array([1]))[0])
    if from_tokens:
        tokens = state.tokens[: e.num_logged_tokens]
        request, time_us = tokens["request"], tokens["time_us"]
        return latencies_of_tokens(request, time_us, mean_us=mean_us, delay_us=delay_us)
    got_tokens = outcomes.num_output_tokens > 0
    return inter_token_latencies(
        spans=state.spans[: e.num_spans],
        pauses=state.pauses[: e.num_pauses],
        first_emission=np.where(got_tokens, rows["first_emission"], st.NEVER),
        last_emission=rows["last_emission"],
        mean_us=mean_us,
        delay_us=delay_us,
    )


COUNTED = (
    "num_draft_tokens",
    "num_accepted_tokens",
    "num_kv_offloads",
    "num_kv_reloads",
    "num_kv_thrashings",
)


def _kept(counters: st.Records) -> dict[str, int]:
    """Return the totals that speculative decoding and the CPU tier keep."""
    return {name: int(getattr(counters, name)) for name in COUNTED}


def totals_of(state: st.State) -> dict[str, int]:
    """Return every total of a run by its name in ``Simulation``."""
    e = state.counters[0]
    return {name: int(getattr(e, name)) for name in ("num_steps", "num_jumps", "num_preemptions")} | _kept(e)
