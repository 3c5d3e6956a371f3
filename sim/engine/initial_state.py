"""The engine's arrays before the first step: how large each is, a record per request; and how they are made longer."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.config import UNBOUNDED, EngineConfig, Record
from sim.engine import dtypes as dt
from sim.engine import state as st
from sim.engine.beginning.first_of_features import arrays_of_features, set_features
from sim.engine.beginning.first_shape import FirstShape, group_sizes
from sim.engine.beginning.longer_arrays import LONGEST_JUMP
from sim.engine.log import BINS_PER_DOUBLING, NUM_BINS
from sim.engine.optional import blis
from sim.engine_settings import TAKEN
from sim.latency.latency_model import LatencyModel
from sim.paged_memory import untouched, untouched_records
from sim.policies import age_weight_per_us, urgency
from sim.requests import UNKNOWN_LIMIT, Int64s, Requests
from sim.versions import ASKED, VersionRules, rules_of

FIRST_LOG_LENGTH = 4096

NUM_FINGERS = 1024
"""Rows of ``State.fingers``. With a million requests that wait to join, one that joins passes some five hundred."""

SPANS_PER_REQUEST = 4
"""Rows of an engine's log for each request: it starts and ends a run of equal steps; its prompt's step is longer."""


def size_for(config: EngineConfig, requests: Requests) -> tuple[int, int]:
    """Return (number of KV blocks, blocks of the longest sequence) for these requests."""
    smallest = min(*group_sizes(config), config.hash_block_size)
    longest = int((requests.prompt_tokens + requests.output_tokens).max(initial=1))
    longest += config.tokens_per_decode - 1 + config.num_lookahead_tokens
    # behind an EOS that is in flight, or behind drafts that are
    if requests.max_tokens is not None or config.tokens_per_decode > 1:
        longest += (config.max_concurrent_batches - 1) * config.tokens_per_decode
    longest += (
        config.pipeline_parallel_size - 1
    )  # async: decodes that give no request a token, behind a last token that is in flight
    if not config.kv_cache_groups:  # of groups, what is let go may be found again beyond any limit
        longest = min(longest, config.max_model_len + config.pipeline_parallel_size - 1)
    width = longest // smallest + 2
    if any(group.kind == "state" for group in config.kv_cache_groups):
        width += config.tokens_per_decode - 1  # a state for each draft
    if config.num_gpu_blocks != UNBOUNDED:
        return config.num_gpu_blocks, width
    num_held = width * min(config.max_num_seqs, max(1, len(requests)))
    if config.matches_inside_blocks:  # and a copy of the block that a hit ends in
        num_held = (longest // min(group_sizes(config)) + 2 + config.tokens_per_decode) * min(
            config.max_num_seqs, max(1, len(requests))
        )
    return 1 + config.num_kv_cache_groups * (num_held + len(requests.hash_ids)), width


def gives_gaps_from_tokens(config: EngineConfig, record: Record) -> bool:
    """Return whether inter-token latencies come from logged tokens: with speculation, spans do not tell them."""
    return record == "spans" and config.tokens_per_decode > 1


class Room(NamedTuple):
    """The large arrays of an engine that holds little yet. Engines that run one at a time may share the first two."""

    ends_us: Int64s
    duties: NDArray[np.float64]
    spans: st.Records
    pauses: st.Records
    step_times: Int64s


def room_of_its_own(*, record: Record, logs_spans: bool) -> Room:
    """Return the room of an engine that shares nothing."""
    length = FIRST_LOG_LENGTH if logs_spans else 0
    return Room(
        *scratch_of_jumps(),
        spans=st.records(length, dt.SPAN),
        pauses=st.records(length, dt.PAUSE),
        step_times=np.zeros(0 if record == "none" else NUM_BINS, np.int64),
    )


def rooms_for(config: EngineConfig, num: int, *, record: Record, num_requests: int) -> list[Room]:
    """Return the rooms of ``num`` engines that share their scratch and serve ``num_requests`` altogether.

    Their logs are as long as such requests usually need, so that few are made longer, and take memory as they fill.
    """
    scratch, empty = scratch_of_jumps(), st.records(0, dt.SPAN)
    none = [empty] * num
    spans, pauses = none, [st.records(0, dt.PAUSE)] * num
    if record == "spans" and not gives_gaps_from_tokens(config, record):
        most_at_once = max(2, config.max_concurrent_batches) * config.max_num_seqs
        usual = SPANS_PER_REQUEST * -(-num_requests // num)
        spans = untouched_records(num, LONGEST_JUMP + 1 + usual, dt.SPAN)
        pauses = untouched_records(num, 2 * most_at_once + 1, dt.PAUSE)
    bins = 0 if record == "none" else NUM_BINS
    step_times = untouched(num * bins, np.dtype(np.int64)).reshape(num, bins)
    return [Room(*scratch, *each) for each in zip(spans, pauses, step_times, strict=True)]


def scratch_of_jumps() -> tuple[Int64s, NDArray[np.float64]]:
    """Return scratch for a jump: when each of its steps gives its tokens, and the compute duty after each."""
    return np.zeros(LONGEST_JUMP + 1, np.int64), np.zeros(LONGEST_JUMP, np.float64)


def first_state(
    config: EngineConfig,
    latency: LatencyModel,
    hash_ids: Int64s,
    *,
    size: tuple[int, int],
    record: Record,
    room: Room | None = None,
) -> st.State:
    """Return the state of an engine that has no requests yet; ``hash_ids``: those that its requests will name.

    ``room``: its large arrays, None where it has its own.
    """
    num_blocks, width = size
    num_hashes = int(hash_ids.max(initial=-1)) + 1
    engine = st.records(1, dt.ENGINE)
    engine["settings"] = settings = settings_of(config, latency, record=record)
    engine["queues"] = _queues(config, num_blocks=num_blocks, num_hashes=num_hashes)
    for name in ("first_begun", "first_of_firsts", "first_of_lasts"):
        engine["counting"][name] = dt.NEVER
    if room is None:
        room = room_of_its_own(record=record, logs_spans=record == "spans")
    shape = FirstShape(config, rules_of(config.vllm_version), settings, num_blocks, width, num_hashes)
    return st.State(
        engine=engine,
        latency=latency.engine_coefficients(),
        terms=latency.engine_terms(),
        blocks=_new_blocks(num_blocks),
        block_table=np.zeros((shape.num_table_rows, width), np.uint32),
        hash_ids=hash_ids.astype(np.int32),
        hashes=st.records(shape.num_rows, dt.HASH),
        hit_blocks=np.zeros(width, np.uint32),
        **_without_requests(),
        **_of_seats(config),
        **_logs(config, settings, record=record),
        **room._asdict(),
        **arrays_of_features(shape),
    )


def _without_requests() -> dict[str, Any]:
    """Return the arrays that have no rows before there are requests, or before a caller asks."""
    return {
        "requests": st.records(0, dt.REQUEST),
        "held": np.zeros(0, np.int64),
        "deadline_us": np.zeros(0, np.int64),
        "deadlines": np.zeros(0, np.int64),
        "taken_in_us": np.zeros(0, np.int64),
        "preempted_us": np.zeros(0, np.int64),
        "heap": np.zeros(0, np.int64),
        "length_limit": np.zeros(0, np.int32),
        "cache_log": np.zeros(0, np.int32),
        "completions": st.records(0, dt.COMPLETION),
    }


def _of_seats(config: EngineConfig) -> dict[str, Any]:
    """Return the arrays of requests that run, and of the batches that they run in."""
    seats, num_batches = config.max_num_seqs, max(2, config.max_concurrent_batches)
    return {
        "running": np.zeros(seats + 1, np.uint32),
        "free_slots": np.arange(seats, dtype=np.int64)[::-1].copy(),
        "fingers": np.zeros(NUM_FINGERS, np.int64),
        "preempted": np.zeros(seats + 1, np.int64),
        "hits": st.records(seats, dt.ENTRY),
        "finished": np.zeros(seats, np.int64),
        "batches": st.records(num_batches, dt.BATCH),
        "entries": st.records(num_batches * seats, dt.ENTRY).reshape(num_batches, seats),
        "first_in_round": np.zeros(config.block_size, np.uint32),
        "last_in_round": np.zeros(config.block_size, np.uint32),
        "next_in_round": np.zeros(seats + 1, np.uint32),
    }


def _logs(config: EngineConfig, settings: st.Records, *, record: Record) -> dict[str, Any]:
    """Return the logs and counts that stand in no ``Room``."""
    seats, counts = config.max_num_seqs, bool(settings.count_steps[0])
    return {
        "log": np.zeros(FIRST_LOG_LENGTH if record in ("steps", "blocks") else 0, np.int64),
        "tokens": st.records(FIRST_LOG_LENGTH if settings.log_tokens[0] else 0, dt.TOKEN),
        "batch_sizes": np.zeros(seats + 1 if counts else 0, np.int64),
        "step_tokens": np.zeros(num_token_bins(config) if counts else 0, np.int64),
    }


def settings_of(config: EngineConfig, latency: LatencyModel, *, record: Record) -> st.Records:
    """Return what the engine is configured with (SETTINGS[1])."""
    from_tokens = gives_gaps_from_tokens(config, record)
    records = st.records(1, dt.SETTINGS)
    settings = st.columns(records)
    for name in TAKEN:
        settings[name] = getattr(config, name)
    rules = rules_of(config.vllm_version)
    _set_rules(settings, config, rules)
    settings["max_concurrent_batches"] = config.max_concurrent_batches
    settings["hash_block_size"] = config.hash_block_size
    settings["policy"] = dt.FCFS if config.scheduling_policy == "fcfs" else dt.BY_URGENCY
    settings["age_weight_per_us"] = age_weight_per_us(config)
    settings["watermark_blocks"] = int(config.watermark * config.num_gpu_blocks)
    settings["recycle_private_first"] = config.num_gpu_blocks == UNBOUNDED
    settings["latency_kind"] = latency.engine_kind
    settings["log_steps"] = record in ("steps", "blocks")
    settings["log_blocks"] = record == "blocks"
    settings["log_tokens"] = record == "tokens" or from_tokens
    settings["log_spans"] = record == "spans" and not from_tokens
    settings["count_steps"] = record != "none"
    settings["takes_in_tokens"] = config.async_scheduling
    settings["num_graph_tokens"] = config.num_graph_tokens
    settings["adds_time"] = config.adds_host_time
    if not config.async_scheduling:
        settings["host_step_us"], settings["host_prefill_us"] = config.host_step_us, config.host_prefill_us
    set_features(settings, config, rules)
    return records


def _set_rules(settings: st.Records, config: EngineConfig, rules: VersionRules) -> None:
    """Say what the version of vLLM does otherwise than others."""
    for name in ASKED:
        settings[name] = getattr(rules, name)
    if rules.queues_freed_without_cache and not config.enable_prefix_caching:
        for name in ("frees_unhashed_blocks_first", "frees_skipped_first", "frees_windows_first"):
            settings[name] = 0


def _queues(config: EngineConfig, *, num_blocks: int, num_hashes: int) -> st.Records:
    """Return empty queues and full pools."""
    queues = st.records(1, dt.QUEUES)
    for name in ("first_waiting", "last_waiting", "first_pending"):
        queues[name] = dt.NEVER
    queues["num_free_slots"] = config.max_num_seqs
    queues["num_free_blocks"] = num_blocks - 1
    queues["num_keys"] = num_hashes
    return queues


def _new_blocks(num_gpu_blocks: int) -> st.Records:
    """Return the blocks, all free in the order 1, 2, 3, …; the null block closes the ring."""
    blocks = st.records(num_gpu_blocks, dt.BLOCK)
    columns, numbers = st.columns(blocks), np.arange(num_gpu_blocks, dtype=np.uint32)
    columns["next_free"][:-1] = numbers[1:]
    columns["previous_free"][1:] = numbers[:-1]
    columns["previous_free"][:1] = num_gpu_blocks - 1
    columns["hash_id"] = dt.NEVER
    return blocks


def request_records(requests: Requests, config: EngineConfig, latency: LatencyModel) -> st.Records:
    """Return the engine's records of requests, those that the front end refuses marked."""
    first = st.records(1, dt.REQUEST)
    for name in (
        "slot",
        "private_start",
        "next_waiting",
        "previous_waiting",
        "first_emission",
        "last_emission",
        "scheduled_us",
        "first_token_us",
        "last_token_us",
        "num_cached_tokens",
    ):
        first[name] = dt.NEVER
    rows, whole = st.records(len(requests), dt.REQUEST), f"V{dt.REQUEST.itemsize}"
    st.columns(rows).view(whole)[:] = st.columns(first).view(
        whole
    )  # as bytes: field by field takes twenty times as long
    prompt, output = requests.prompt_tokens, requests.output_tokens
    refused = (prompt < 1) | (output < 1)
    if config.frontend == "openai":
        refused |= (prompt >= config.max_model_len) | (_asked_tokens(requests) > config.max_model_len)
        output = np.minimum(output, config.max_model_len - prompt)
    if config.compatibility == "blis":
        refused |= blis.refused_on_arrival(config, prompt_tokens=prompt, output_tokens=requests.output_tokens)
    columns = st.columns(rows)
    columns["status"] = np.where(refused, dt.REJECTED, dt.PENDING)
    columns["num_tokens"] = columns["num_prompt_tokens"] = prompt
    columns["max_total_tokens"] = np.maximum(
        prompt + 1, np.minimum(prompt + output, blis.longest_sequence(config))
    )
    urgent, weight = (
        urgency(config, priority=requests.priority, prompt_tokens=prompt),
        age_weight_per_us(config),
    )
    columns["urgency"] = urgent + weight * requests.arrival_us if weight else urgent
    columns["arrival_us"] = requests.arrival_us
    columns["queued_us"] = requests.arrival_us + latency.queue_delay_us(prompt)
    columns["hash_start"] = requests.hash_starts
    columns["num_hashes"] = requests.num_hashes
    return rows


def _asked_tokens(requests: Requests) -> Int64s:
    """Return how many tokens each request asks for, int64: its ``max_tokens`` where that is known."""
    if requests.max_tokens is None:
        return requests.output_tokens
    known = requests.max_tokens < UNKNOWN_LIMIT
    return np.maximum(requests.output_tokens, np.where(known, requests.max_tokens, 0))


def length_limits(requests: Requests, config: EngineConfig) -> NDArray[np.int32] | None:
    """Return how long each request may become, int32; None where none ends by itself, or the engine does not ask.

    A sync engine has seen a request's newest token when it schedules it, so only an async one asks.
    """
    if requests.max_tokens is None or not config.async_scheduling:
        return None
    output_tokens = np.maximum(requests.output_tokens, requests.max_tokens)
    return np.minimum(requests.prompt_tokens + output_tokens, blis.longest_sequence(config)).astype(np.int32)


def num_token_bins(config: EngineConfig) -> int:
    """Return how many bins of ``log.bin_of`` the tokens of a step can fall into."""
    if config.batching in {"orca", "static"}:
        return NUM_BINS
    seats = config.max_num_seqs * config.tokens_per_decode
    shift = max((config.max_num_batched_tokens + seats).bit_length() - BINS_PER_DOUBLING.bit_length(), 0)
    return min((shift + 2) * BINS_PER_DOUBLING, NUM_BINS)


def row_of_content(state: st.State, content: int) -> int:
    """Return the row of ``hashes`` that a router asks for a content (``prefix_cache.has_content``)."""
    settings = state.engine[0].settings
    return int(content * settings.num_kv_cache_groups + settings.first_group_to_ask)
