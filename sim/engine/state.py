"""The engine's whole state: a few arrays of records, nothing else.

Records carry vLLM's names. A request number is its row in ``requests``; a block number is its row in ``blocks``.
Block 0 is vLLM's null block: it is never handed out, so here it doubles as the head of the free queue's ring and,
in the hash table, as "no block".
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.config import EngineConfig

Records = Any  # numpy.recarray; its fields are typed by the dtypes below, which mypy cannot follow

WAITING, RUNNING, PREEMPTED, FINISHED, REJECTED, ABORTED, PENDING = 0, 1, 2, 3, 4, 5, 6
"""Where a request is. PENDING: not yet in the engine's queue."""

FCFS, BY_URGENCY = 0, 1
"""How the queue is ordered: by arrival in a list, or by each request's ``urgency`` in a heap."""

NEVER = -1
"""A time or a step that has not happened."""

REQUEST = np.dtype(
    [
        # the first cache line: what every step reads
        ("num_tokens", np.int32),  # prompt + outputs so far
        ("num_computed_tokens", np.int32),  # scheduled so far, in flight included, as vLLM counts
        ("max_total_tokens", np.int32),  # it stops when num_tokens reaches this
        ("num_output_placeholders", np.int32),  # async: sampled tokens still in flight
        ("num_blocks", np.int32),
        ("num_cached_blocks", np.int32),  # leading blocks that carry a hash
        ("slot", np.int32),  # row of block_table, NEVER when it owns none
        ("status", np.int32),
        ("num_prompt_tokens", np.int32),
        ("num_in_flight_tokens", np.int32),
        ("num_stale_output_tokens", np.int32),  # async: of those, how many a preemption made stale
        ("first_emission", np.int32),
        ("last_emission", np.int32),
        ("num_hashes", np.int32),
        ("private_start", np.int32),  # its own ids in the hash table, NEVER before its first preemption
        ("num_cached_tokens", np.int32),
        # the second: what becomes of it
        ("last_token_us", np.int64),
        ("first_token_us", np.int64),
        ("scheduled_us", np.int64),
        ("arrival_us", np.int64),
        ("queued_us", np.int64),
        ("urgency", np.float64),  # what every policy but fcfs orders by; lower goes first
        ("hash_start", np.int32),  # its first entry of hash_ids
        ("num_preemptions", np.int32),
        ("next_waiting", np.int32),  # first-come-first-served queue: neighbours, NEVER at the ends
        ("previous_waiting", np.int32),
    ],
    align=True,
)
"""A request in two cache lines of 64 bytes: the loop over the running ones is what an engine's speed is made of."""

BLOCK = np.dtype(
    [
        ("next_free", np.uint32),
        ("previous_free", np.uint32),
        ("ref_cnt", np.int32),
        ("hash_id", np.int32),  # its key in the hash table, NEVER when it is not in it
        ("next_same_hash", np.uint32),
        ("previous_same_hash", np.uint32),
    ],
    align=True,
)

CPU_SLOT = np.dtype(
    [
        ("next", np.uint32),
        ("previous", np.uint32),
        ("key", np.int64),  # of the hash table, NEVER when the slot is empty
        ("offloaded_us", np.int64),
    ],
    align=True,
)
"""A block's worth of host memory; slot 0 is the head of the ring, whose front is the next to be overwritten."""

HASH = np.dtype([("oldest", np.uint32), ("newest", np.uint32)], align=True)
"""The blocks that hold one content, oldest first (vLLM looks up the oldest); 0 is none."""

ENTRY = np.dtype(
    [("request", np.uint32), ("num_tokens", np.int32), ("computed", np.int32), ("kind", np.int32)]
)
"""One request's share of a batch; ``computed`` before the step; ``kind`` is a sum of the flags below."""

IS_DECODE, SAMPLES, IS_PADDED = 1, 2, 4
"""IS_PADDED: its last tokens are drafts that nobody made."""

BATCH = np.dtype(
    [
        ("step", np.int64),
        ("num_entries", np.int64),
        ("num_tokens", np.int64),
        ("exec_end_us", np.int64),
        ("num_prefill_tokens", np.int64),
        ("num_decode_tokens", np.int64),
        ("decode_context_tokens", np.int64),  # KV entries that its decodes read
        ("prefill_pairs", np.int64),  # (query, key) pairs that its prefills attend to
        ("num_prefill_seqs", np.int64),
    ],
    align=True,
)

COUNTERS = np.dtype(
    [
        # configuration, constant during a run
        ("max_num_seqs", np.int64),
        ("max_num_batched_tokens", np.int64),
        ("block_size", np.int64),
        ("max_model_len", np.int64),
        ("enable_prefix_caching", np.int64),
        ("enable_chunked_prefill", np.int64),
        ("long_prefill_token_threshold", np.int64),
        ("long_prefill_token_threshold_adaptive", np.int64),
        ("scheduler_reserve_full_isl", np.int64),
        ("watermark_blocks", np.int64),
        ("policy", np.int64),
        ("async_scheduling", np.int64),
        ("recycle_private_first", np.int64),  # unbounded cache: only shared content is kept
        ("is_blis", np.int64),
        ("num_speculative_tokens", np.int64),
        ("num_lookahead_tokens", np.int64),
        ("seed", np.int64),
        ("num_cpu_blocks", np.int64),
        ("offload_above_blocks", np.int64),  # blocks in use above which evicted contents go to the CPU
        ("reload_us", np.int64),  # per block that comes back
        ("outputs_are_shared", np.int64),  # some request's hashes run on past its prompt
        ("log_steps", np.int64),
        ("log_blocks", np.int64),
        ("log_tokens", np.int64),
        ("log_spans", np.int64),
        # the clock and the queues
        ("clock_us", np.int64),
        ("device_free_us", np.int64),
        ("latency_kind", np.int64),
        ("compute_duty", np.float64),  # share of recent time spent computing, at duty_time_us
        ("duty_time_us", np.int64),
        ("decode_context_tokens", np.int64),  # scratch of a jump: KV entries its first step reads
        ("num_requests", np.int64),
        ("num_pending", np.int64),  # how many of `pending` are filled
        (
            "next_held",
            np.int64,
        ),  # closed loop: where in `held` the first request stands that waits for a completion
        ("think_time_us", np.int64),
        ("is_closed_loop", np.int64),
        ("keeps_due_times", np.int64),  # closed loop of a cap: nobody arrives before it was due
        ("age_weight_per_us", np.float64),
        ("num_pending_taken", np.int64),  # how many of `pending` have joined
        ("num_running", np.int64),
        ("num_waiting", np.int64),
        ("first_waiting", np.int64),
        ("last_waiting", np.int64),
        ("num_free_slots", np.int64),
        ("num_free_blocks", np.int64),
        ("num_keys", np.int64),  # of the hash table, in use
        # the step in hand
        ("token_budget", np.int64),
        ("req_index", np.int64),
        ("num_preempted", np.int64),
        ("num_hits", np.int64),
        ("num_hit_blocks", np.int64),
        ("num_finished", np.int64),
        ("has_prefill", np.int64),  # speculating: a prompt of a running request goes on in it
        ("step_reload_us", np.int64),  # what its reloads add to its duration
        ("head_is_blocked", np.int64),  # the head did not fit and nothing has been freed since
        ("is_blocked", np.int64),  # nothing can run until another request arrives
        ("num_fruitless_steps", np.int64),  # that preempted, since anybody got a token or joined
        ("fruitless_since", np.int64),  # num_emissions + num_pending_taken of then
        ("has_finished_ids", np.int64),
        ("must_enter_blocks", np.int64),  # a jump fills blocks that the hash table must know
        ("num_batches", np.int64),  # in flight
        ("oldest_batch", np.int64),
        # totals
        ("num_steps", np.int64),
        ("num_jumps", np.int64),
        ("num_emissions", np.int64),
        ("num_preemptions", np.int64),
        ("num_cache_queries", np.int64),  # prompt tokens looked up at first schedule
        ("num_cache_hits", np.int64),
        ("num_completed", np.int64),  # requests
        ("num_draft_tokens", np.int64),  # verified
        ("num_accepted_tokens", np.int64),
        ("num_kv_offloads", np.int64),
        ("num_kv_reloads", np.int64),
        ("num_kv_thrashings", np.int64),
        # how full the logs are
        ("num_log_words", np.int64),
        ("num_spans", np.int64),
        ("num_pauses", np.int64),
        ("num_logged_tokens", np.int64),
    ],
    align=True,
)

SPAN = np.dtype([("first_end_us", np.int64), ("step_us", np.int64), ("num_steps", np.int64)], align=True)
"""Consecutive steps that gave tokens, ``step_us`` apart."""

PAUSE = np.dtype(
    [("request", np.int64), ("last_emission", np.int64), ("next_emission", np.int64)], align=True
)
"""A request that got no token in some steps between its first and its last."""

TOKEN = np.dtype([("request", np.int64), ("time_us", np.int64)], align=True)


class State(NamedTuple):
    """All that the engine knows. Compiled functions take it whole and change it in place."""

    counters: Records  # COUNTERS[1]
    latency: NDArray[np.int64]  # Blackbox: coefficients in 10⁻⁶ µs
    terms: NDArray[np.float64]  # every other latency model's coefficients
    requests: Records  # REQUEST[capacity]
    pending: NDArray[np.int64]  # request numbers by (queued_us, number)
    held: NDArray[np.int64]  # closed loop: request numbers in the order in which they may go
    running: NDArray[np.uint32]  # request numbers in admission order
    heap: NDArray[np.int64]  # waiting requests of every policy but fcfs
    blocks: Records  # BLOCK[num_gpu_blocks]
    block_table: NDArray[np.uint32]  # [max_num_seqs, blocks of the longest request]
    free_slots: NDArray[np.int64]
    hash_ids: NDArray[np.int32]
    hashes: Records  # HASH[shared ids + private ids]
    cpu_slots: Records  # CPU_SLOT[num_cpu_blocks + 1]
    cpu_slot_of_key: NDArray[np.uint32]  # per row of hashes: where the CPU tier has it, 0 nowhere
    hit_blocks: NDArray[np.uint32]  # the lookup in hand; 0: the CPU tier has it
    num_drafts: NDArray[np.int32]  # per request: speculated tokens in hand
    acceptance_rates: NDArray[np.float64]  # [num_speculative_tokens]
    preempted: NDArray[np.int64]  # of the step in hand
    hits: Records  # ENTRY[max_num_seqs]: admitted in the step in hand
    finished: NDArray[np.int64]
    batches: Records  # BATCH[2]
    entries: Records  # ENTRY[2, max_num_seqs]
    first_in_round: NDArray[np.uint32]  # scratch of a jump: per step of its first block_size,
    last_in_round: NDArray[np.uint32]  # who needs a block in it, as linked lists of
    next_in_round: NDArray[np.uint32]  # positions in `running`
    ends_us: NDArray[np.int64]  # scratch of a jump: when each of its steps gives its tokens
    duties: NDArray[np.float64]  # scratch of a jump: the compute duty after each of its steps
    log: NDArray[np.int64]
    spans: Records
    pauses: Records
    tokens: Records


CACHE_LINE = 64


def records(length: int, dtype: np.dtype[Any]) -> Records:
    """Return ``length`` zeroed records whose fields are attributes, in compiled code and in plain Python.

    The first stands at the start of a cache line.
    """
    memory = np.zeros(length * dtype.itemsize + CACHE_LINE, np.uint8)
    skip = -memory.ctypes.data % CACHE_LINE
    return memory[skip : skip + length * dtype.itemsize].view(dtype).view(np.recarray)


def new_counters(config: EngineConfig) -> Records:
    """Return the counters of an engine that has not begun."""
    counters = records(1, COUNTERS)
    for name in (
        "max_num_seqs",
        "max_num_batched_tokens",
        "block_size",
        "max_model_len",
        "enable_prefix_caching",
        "enable_chunked_prefill",
        "long_prefill_token_threshold",
        "long_prefill_token_threshold_adaptive",
        "scheduler_reserve_full_isl",
        "async_scheduling",
        "num_speculative_tokens",
        "num_lookahead_tokens",
        "seed",
    ):
        counters[name] = getattr(config, name)
    counters["policy"] = FCFS if config.scheduling_policy == "fcfs" else BY_URGENCY
    counters["watermark_blocks"] = int(config.watermark * config.num_gpu_blocks)
    counters["first_waiting"] = counters["last_waiting"] = NEVER
    counters["num_free_slots"] = config.max_num_seqs
    return counters


def set_cpu_tier(counters: Records, config: EngineConfig) -> None:
    """Switch the CPU tier on: its size, from how many blocks in use on it fills, what a block's way back takes."""
    counters["num_cpu_blocks"] = config.num_cpu_blocks
    counters["offload_above_blocks"] = int(config.kv_offload_threshold * (config.num_gpu_blocks - 1))
    moving = Fraction(config.block_size) / Fraction(repr(config.kv_transfer_bandwidth))
    counters["reload_us"] = config.kv_transfer_base_latency + math.ceil(moving)


def new_cpu_slots(num_cpu_blocks: int) -> Records:
    """Return the CPU tier's slots, all empty, in a ring closed by slot 0."""
    slots = records(num_cpu_blocks + 1, CPU_SLOT)
    numbers = np.arange(num_cpu_blocks + 1, dtype=np.int64)
    slots["next"] = (numbers + 1) % (num_cpu_blocks + 1)
    slots["previous"] = (numbers - 1) % (num_cpu_blocks + 1)
    slots["key"] = NEVER
    return slots


def new_blocks(num_gpu_blocks: int) -> Records:
    """Return the blocks, all free in the order 1, 2, 3, …; the null block closes the ring."""
    blocks = records(num_gpu_blocks, BLOCK)
    numbers = np.arange(num_gpu_blocks, dtype=np.int64)
    blocks["next_free"] = (numbers + 1) % num_gpu_blocks
    blocks["previous_free"] = (numbers - 1) % num_gpu_blocks
    blocks["hash_id"] = NEVER
    return blocks
