"""What the engine's arrays say: outcomes, totals, tokens, gaps between them, steps, and the state at a glance."""

from __future__ import annotations

from functools import cache
from lazy_dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from sim.config import EngineConfig, Record
from sim.engine import dtypes as dt
from sim.engine.initial_state import gives_gaps_from_tokens
from sim.engine.log import BINS_PER_DOUBLING
from sim.engine.state import State, columns
from sim.latency.batch import StepBatch
from sim.latency.latency_model import LatencyModel
from sim.records.histograms import Histogram, histogram_of
from sim.records.itl import InterTokenLatencies, inter_token_latencies, latencies_of_tokens
from sim.records.steps import Step, decode_steps, step_batches
from sim.requests import Int64s, Outcomes, Status

_STATUS = np.full(dt.WAITING_FOR_REMOTE_KVS + 1, Status.UNFINISHED, np.int8)
"""What the engine's status of a request means, by its number."""
_STATUS[[dt.FINISHED, dt.REJECTED, dt.ABORTED]] = Status.OK, Status.REJECTED, Status.ABORTED
_FIRST = np.ones(1, np.int64)
"""The number of an answer's first token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """What has happened in an engine since it was made.

    ``num_steps`` counts every step, ``num_jumps`` the jumps taken over runs of them. ``num_kv_allocation_failures``:
    how often a request needed KV blocks that were not free, while running or at the head of the queue, where it asks in
    each step that could admit it. Drafts count as verified; offloads, reloads and thrashings are blocks
    (``sim/engine/kv_cache/cpu_tier.py``). ``busy_us``: durations of the steps that computed anything, and
    ``num_prefill_tokens``, ``num_decode_tokens``: their tokens; all 0 without a record.
    """

    num_steps: int
    num_jumps: int
    num_preemptions: int
    num_kv_allocation_failures: int
    num_draft_tokens: int
    num_accepted_tokens: int
    num_kv_offloads: int
    num_kv_reloads: int
    num_kv_thrashings: int
    num_kv_loads: int
    num_kv_stores: int
    num_kv_flushes: int
    kv_load_wait_us: int
    kv_flush_wait_us: int
    num_kv_loaded_tokens: int
    num_lora_loads: int
    busy_us: int = 0
    num_prefill_tokens: int = 0
    num_decode_tokens: int = 0


_TOTALS = tuple(field.name for field in fields(Totals))


@dataclass(frozen=True, slots=True, kw_only=True)
class View(Totals):
    """A running engine at a glance. ``clock_us`` is the end of the last step taken."""

    clock_us: int
    num_running: int
    num_waiting: int
    num_free_blocks: int
    kv_cache_usage_frac: float
    prefix_cache_queries: int
    prefix_cache_hits: int


def totals_of(state: State) -> dict[str, int]:
    """Return the fields of ``Totals``."""
    totals = columns(state.engine)["totals"][0]
    return {name: int(totals[name]) for name in _TOTALS}


def view_of(state: State) -> View:
    """Return the engine's state at its clock."""
    engine = columns(state.engine)[0]
    queues, totals = engine["queues"], engine["totals"]
    num_free = int(queues["num_free_blocks"])
    return View(
        clock_us=int(engine["clock"]["now_us"]),
        num_running=int(queues["num_running"]),
        num_waiting=int(queues["num_waiting"]),
        num_free_blocks=num_free,
        kv_cache_usage_frac=1 - num_free / (len(state.blocks) - 1),
        prefix_cache_queries=int(totals["num_cache_queries"]),
        prefix_cache_hits=int(totals["num_cache_hits"]),
        **totals_of(state),
    )


def outcomes_of(state: State, latency: LatencyModel, requests: slice = slice(None)) -> Outcomes:
    """Return every request's outcome so far, or those of the requests with these numbers.

    What runs or waits is UNFINISHED.
    """
    engine = columns(state.engine)[0]
    queues, settings = engine["queues"], engine["settings"]
    rows = columns(state.requests)[: queues["num_requests"]][requests]
    status = _STATUS[rows["status"]]
    num_outputs = rows["num_tokens"] - rows["num_prompt_tokens"]
    got_tokens = num_outputs > 0
    first_delay, last_delay = latency.output_delay_us(_FIRST), latency.output_delay_us(num_outputs)
    first_seen_us = np.where(got_tokens, rows["first_token_us"] + first_delay, dt.NEVER)
    last_seen_us = np.where(got_tokens, rows["last_token_us"] + last_delay, dt.NEVER)
    if len(state.deadline_us):
        deadline_us = state.deadline_us[: queues["num_requests"]][requests]
        gave_up = (rows["status"] == dt.ABORTED) | (
            (rows["status"] == dt.FINISHED) & (last_seen_us > deadline_us)
        )
        gave_up &= deadline_us != dt.NEVER
        status[gave_up] = Status.TIMEOUT
        first_seen_us[gave_up & (first_seen_us > deadline_us)] = dt.NEVER
    preempted_us = np.zeros(len(rows), np.int64)
    if len(state.preempted_us):
        preempted_us += state.preempted_us[: queues["num_requests"]][requests]
        is_preempted = rows["status"] == dt.PREEMPTED
        if is_preempted.any():
            preempted_us[is_preempted] += engine["clock"]["now_us"]
    arrival_us, queued_us = rows["arrival_us"].copy(), rows["queued_us"].copy()
    taken_in_us = state.taken_in_us[: queues["num_requests"]][requests].copy()
    # of a request that was never scheduled, it depends on the run's slices whether a jump or pause has noted it already
    taken_in_us[rows["scheduled_us"] == dt.NEVER] = dt.NEVER
    if settings["is_closed_loop"]:
        is_held = np.zeros(queues["num_requests"], bool)
        is_held[state.held[queues["next_held"] :]] = True
        arrival_us[is_held[requests]] = queued_us[is_held[requests]] = dt.NEVER
    num_loaded_tokens, load_wait_us = np.full((2, len(rows)), dt.NEVER, np.int64)
    if settings["has_kv_offloading"]:
        transfers = columns(state.transfers)[: queues["num_requests"]][requests]
        num_loaded_tokens[:], load_wait_us[:] = transfers["num_loaded_tokens"], transfers["load_wait_us"]
    return Outcomes(
        status=status,
        arrival_us=arrival_us,
        queued_us=queued_us,
        taken_in_us=taken_in_us,
        scheduled_us=rows["scheduled_us"].copy(),
        first_token_us=first_seen_us,
        last_token_us=last_seen_us,
        num_output_tokens=num_outputs,
        num_preemptions=rows["num_preemptions"].copy(),
        preempted_us=preempted_us,
        num_cached_tokens=rows["num_cached_tokens"].copy(),
        num_loaded_tokens=num_loaded_tokens,
        load_wait_us=load_wait_us,
    )


def cut_off(state: State, outcomes: Outcomes, *, until_us: int) -> tuple[int, int]:
    """Take back what lies past a horizon; return how many requests were running at it, and how many waiting.

    A request that arrives at the horizon or later has not arrived; one whose last token has not been seen by then is
    UNFINISHED, or TIMEOUT if its deadline came before.
    """
    rows, status = state.requests[: len(outcomes.status)], outcomes.status
    deadline_us = (
        state.deadline_us[: len(status)] if len(state.deadline_us) else np.full(len(status), dt.NEVER)
    )
    gave_up = (deadline_us != dt.NEVER) & (deadline_us < until_us)
    is_absent = (outcomes.arrival_us == dt.NEVER) | (outcomes.arrival_us >= until_us)
    is_late = (rows["status"] == dt.FINISHED) & (outcomes.last_token_us > until_us)
    status[is_absent | (is_late & ~gave_up)] = Status.UNFINISHED
    status[(status == Status.UNFINISHED) & gave_up & ~is_absent] = Status.TIMEOUT
    outcomes.arrival_us[is_absent] = outcomes.queued_us[is_absent] = dt.NEVER
    outcomes.first_token_us[outcomes.first_token_us > until_us] = dt.NEVER
    is_cut = status == Status.UNFINISHED
    is_running = is_cut & ((rows["status"] == dt.RUNNING) | is_late)
    is_waiting = is_cut & ~is_running & (outcomes.arrival_us != dt.NEVER)
    return int(is_running.sum()), int(is_waiting.sum())


def batch_sizes_of(state: State) -> Histogram:
    """Return how many steps had how many requests."""
    return histogram_of(state.batch_sizes, np.arange(len(state.batch_sizes), dtype=np.float64))


def step_times_of(state: State) -> Histogram:
    """Return how many steps took how long, µs: each at the middle of its bin, rounded down."""
    found = _of_bins(state.step_times)
    widths = np.maximum(found.values // BINS_PER_DOUBLING, 1) if len(found.values) else found.values
    middles = found.values + np.floor((2 ** np.floor(np.log2(widths)) - 1) / 2)
    return Histogram(values=middles, counts=found.counts)


def step_tokens_of(state: State) -> Histogram:
    """Return how many steps computed how many tokens, each at the least number of its bin."""
    return _of_bins(state.step_tokens)


def _of_bins(counts: Int64s) -> Histogram:
    """Return what was counted by ``sim/engine/log.py:bin_of``."""
    return histogram_of(counts, _least_of_bins(len(counts)))


@cache
def _least_of_bins(num_bins: int) -> NDArray[np.float64]:
    """Return the least number of each bin, the same for every engine: a step may have it, unlike a middle of two."""
    bins = np.arange(num_bins)
    shift = np.maximum(bins // BINS_PER_DOUBLING - 1, 0)
    least: NDArray[np.float64] = ((bins - shift * BINS_PER_DOUBLING) << shift).astype(np.float64)
    return least


def gaps_of(state: State, latency: LatencyModel, *, from_tokens: bool) -> InterTokenLatencies:
    """Return the gaps between the tokens so far, alpha2 included."""
    fill = state.engine[0].log_fill
    rows, outcomes = state.requests[: state.engine[0].queues.num_requests], outcomes_of(state, latency)
    num_gaps = np.maximum(outcomes.num_output_tokens - 1, 0)
    decoding_us = (outcomes.last_token_us - outcomes.first_token_us).astype(np.float64)
    mean_us = np.divide(decoding_us, num_gaps, out=np.full(len(rows), np.nan), where=num_gaps > 0)
    mean_us = np.round(mean_us, 3)
    delay_us = int(latency.output_delay_us(np.array([1]))[0])
    if from_tokens:
        tokens = state.tokens[: fill.num_logged_tokens]
        request, time_us = tokens["request"], tokens["time_us"]
        return latencies_of_tokens(request, time_us, mean_us=mean_us, delay_us=delay_us)
    got_tokens = outcomes.num_output_tokens > 0
    return inter_token_latencies(
        spans=state.spans[: fill.num_spans],
        pauses=state.pauses[: fill.num_pauses],
        first_emission=np.where(got_tokens, rows["first_emission"], dt.NEVER),
        last_emission=rows["last_emission"],
        mean_us=mean_us,
        delay_us=delay_us,
    )


def tokens_of(
    state: State, config: EngineConfig, latency: LatencyModel, *, num_taken: Int64s
) -> tuple[Int64s, Int64s]:
    """Return (request, time_us as the client sees it) of the logged tokens, in the order of the steps.

    ``num_taken``: how many tokens of each request were taken out of the log before.
    """
    tokens = state.tokens[: state.engine.log_fill.num_logged_tokens[0]]
    if config.compatibility == "blis":  # what a preemption undid is no token
        rows = state.requests[tokens["request"]]
        has_any = rows["num_tokens"] > rows["num_prompt_tokens"]
        tokens = tokens[has_any & (tokens["time_us"] >= rows["first_token_us"])]
    request, time_us = tokens["request"].copy(), tokens["time_us"].copy()
    number = num_taken[request] + _number_within(request)
    return request, time_us + latency.output_delay_us(number)


def _number_within(request: Int64s) -> Int64s:
    """Return each token's position among the given tokens of its request, from 1."""
    order = np.argsort(request, kind="stable")
    ordered = request[order]
    number = np.empty(len(request), np.int64)
    number[order] = np.arange(len(request)) - np.searchsorted(ordered, ordered, side="left") + 1
    return number


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRecord:
    """What an engine wrote down; read when it is asked for."""

    state: State
    config: EngineConfig
    latency: LatencyModel
    record: Record

    def inter_token_latencies(self) -> InterTokenLatencies:
        """Return the gaps between the tokens so far, alpha2 included; needs ``record="spans"``."""
        from_tokens = gives_gaps_from_tokens(self.config, self.record)
        return gaps_of(self.state, self.latency, from_tokens=from_tokens)

    def steps(self) -> list[Step]:
        """Return every step whose results are in; needs ``record="steps"`` or ``"blocks"``."""
        log = self.state.log[: self.state.engine.log_fill.num_log_words[0]]
        is_queued, with_blocks = self.config.max_concurrent_batches > 1, self.record == "blocks"
        num_groups = len(self.config.kv_cache_groups)
        return list(
            decode_steps(
                log,
                is_queued=is_queued,
                with_blocks=with_blocks,
                num_groups=num_groups,
                with_orders=self.config.has_native_offloading,
            )
        )

    def step_batches(self) -> tuple[StepBatch, Int64s]:
        """Return (sums of every scheduled step, its duration in µs); needs ``record="steps"`` or ``"blocks"``."""
        return step_batches(self.state.log[: self.state.engine.log_fill.num_log_words[0]])

    def tokens(self, num_taken: Int64s | None = None) -> tuple[Int64s, Int64s]:
        """Return (request, time_us) of every token in the log, in the order of the steps; needs ``record="tokens"``.

        ``num_taken``: how many tokens of each request were taken out of the log before.
        """
        if num_taken is None:
            num_taken = np.zeros(len(self.state.requests), np.int64)
        return tokens_of(self.state, self.config, self.latency, num_taken=num_taken)
