"""The records that the engine's arrays are made of; they carry vLLM's names.

A request number is its row in ``State.requests``; a block number is its row in ``State.blocks``. Block 0 is vLLM's null
block: it is never handed out, so here it doubles as the head of the free queue's ring and, in the hash table, as "no
block".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sim.engine.records import feature
from sim.engine.records.features import FEATURES
from sim.engine_settings import KINDS, TAKEN
from sim.latency.batch import STEP_SUMS
from sim.versions import ASKED


def of_features(name: str) -> feature.Rows:
    """Return what all features add to the record of a name (``FeatureRecords``)."""
    return [row for each in FEATURES for row in getattr(each, name)]


NEVER = feature.NEVER
"""A time or a step that has not happened."""

WAITING, RUNNING, PREEMPTED, FINISHED, REJECTED, ABORTED, PENDING, WAITING_FOR_REMOTE_KVS = (
    0,
    1,
    2,
    3,
    4,
    5,
    6,
    7,
)
"""Where a request is. PENDING: not yet in the engine's queue. WAITING_FOR_REMOTE_KVS: it has its blocks, and another
engine fills them."""

FCFS, BY_URGENCY = 0, 1
"""How the queue is ordered: by arrival in a list, or by each request's ``urgency`` in a heap."""

ALL_COMPILE = 2
"""``head_is_blocked`` where every waiting request waits for its grammar."""

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
        ("next_waiting", np.int32),  # neighbours in the pending list, then in a first-come-first-served queue
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
        ("hash_id", np.int32),  # its key in the hash table, NEVER when it is not in it; UNSHARED
        ("next_same_hash", np.uint32),
        ("previous_same_hash", np.uint32),
    ],
    align=True,
)

HASH = np.dtype([("oldest", np.uint32), ("newest", np.uint32)], align=True)
"""The blocks that hold one content, oldest first (vLLM looks up the oldest); 0 is none."""

TRAIT = np.dtype([*of_features("traits")], align=True)
"""What costs time beyond a request's lengths (``sim/engine/optional/added_time.py``)."""

ENTRY = np.dtype(
    [("request", np.uint32), ("num_tokens", np.int32), ("computed", np.int32), ("kind", np.int32)]
)
"""One request's share of a batch; ``computed`` before the step; ``kind`` is a sum of the flags below."""

IS_DECODE, SAMPLES, IS_PADDED = 1, 2, 4
"""IS_PADDED: its last tokens are drafts that no drafter made."""

BATCH = np.dtype(
    [
        ("step", np.int64),
        ("num_entries", np.int64),
        ("exec_end_us", np.int64),
        *((name, np.int64) for name in STEP_SUMS),
        # these three: sim/engine/counting
        ("num_first_tokens", np.int64),  # requests that it gives their first token
        ("num_last_tokens", np.int64),  # and their last, if that is not their first
        ("num_surplus", np.int64),  # of its decodes, those whose request has all its tokens
        *of_features("batch"),
    ],
    align=True,
)
"""A step that was scheduled; its requests stand in ``State.entries``, unless blocks are counted."""


_TYPES: Mapping[str, Any] = {"int": np.int64, "bool": np.int64, "float": np.float64}

SETTINGS = np.dtype(
    [
        ("watermark_blocks", np.int64),
        ("policy", np.int64),  # FCFS or BY_URGENCY
        ("age_weight_per_us", np.float64),
        ("max_concurrent_batches", np.int64),
        ("latency_kind", np.int64),
        ("recycle_private_first", np.int64),  # unbounded cache: only shared content is remembered
        ("outputs_are_shared", np.int64),  # some request's hashes run on past its prompt
        ("takes_in_tokens", np.int64),  # async, or drafts with ``caches_at_outputs``
        ("hit_alignment", np.int64),  # tokens: prefix hits end at multiples of it
        ("hash_block_size", np.int64),  # tokens per hash
        ("is_closed_loop", np.int64),
        ("think_time_us", np.int64),
        ("is_capped", np.int64),  # closed loop of a cap: a request arrives no sooner than it was due
        ("has_deadlines", np.int64),
        ("log_steps", np.int64),
        ("log_blocks", np.int64),
        ("log_tokens", np.int64),
        ("log_spans", np.int64),
        ("count_steps", np.int64),
        ("num_graph_tokens", np.int64),
        ("host_step_us", np.float64),  # these two: 0 with async scheduling
        ("host_prefill_us", np.float64),
        ("first_noise_draw", np.int64),  # of a step's scatter: each engine of a cluster has its own
        ("log_completions", np.int64),
        ("pauses_at_completions", np.int64),  # `run` returns as soon as the log of completions holds any
        *((name, _TYPES[KINDS[name]]) for name in TAKEN),
        *((name, np.int64) for name in ASKED),
        *of_features("settings"),
    ],
    align=True,
)
"""What the engine was configured with; constant while it runs."""

CLOCK = np.dtype(
    [
        ("now_us", np.int64),
        ("device_free_us", np.int64),  # when the newest batch in flight ends
        ("num_batches", np.int64),  # in flight
        ("oldest_batch", np.int64),  # its row in ``State.batches``
        ("compute_duty", np.float64),  # share of recent time spent computing, at duty_time_us
        ("duty_time_us", np.int64),
        *of_features("clock"),
    ],
    align=True,
)
"""The time, what the device is busy with, and how hot it has become."""

QUEUES = np.dtype(
    [
        ("num_requests", np.int64),
        ("first_pending", np.int64),  # not yet due, a list by (queued_us, order of coming); NEVER when empty
        ("last_pending", np.int64),  # its end, worthless when it is empty
        ("num_added", np.int64),  # to that list
        ("num_pending_passed", np.int64),  # by those that joined it since ``State.fingers`` were placed
        ("first_finger", np.int64),
        ("num_fingers", np.int64),  # the end of those in use
        ("num_joined", np.int64),  # how many of those have gone on to the waiting queue
        ("num_deadlines", np.int64),  # how many of `deadlines` are filled
        ("num_deadlines_taken", np.int64),  # how many of those have passed, or matter no more
        ("num_deadlines_heard", np.int64),  # closed loop: after how many of those the next request was let go
        ("next_held", np.int64),  # closed loop: the place in `held` of the next request to be released
        ("num_waiting", np.int64),
        ("first_waiting", np.int64),
        ("last_waiting", np.int64),
        ("num_running", np.int64),
        ("num_free_slots", np.int64),
        ("num_free_blocks", np.int64),
        ("num_keys", np.int64),  # of the hash table, in use
        ("num_cache_changes", np.int64),  # contents that came or went since a router last looked
        ("has_finished_ids", np.int64),
        ("head_is_blocked", np.int64),  # the head did not fit and nothing has been freed since; ALL_COMPILE
        ("is_blocked", np.int64),  # nothing can run until another request arrives; 2: preempts for ever
        ("num_fruitless_steps", np.int64),  # that preempted, since any request got a token or joined
        ("fruitless_since", np.int64),  # num_emissions + num_joined of then
        *of_features("queues"),
    ],
    align=True,
)
"""How full the queues and pools are, and whether they can move."""

CURRENT_STEP = np.dtype(
    [
        ("token_budget", np.int64),
        ("req_index", np.int64),
        ("num_preempted", np.int64),
        ("num_hits", np.int64),
        ("num_hit_blocks", np.int64),
        ("num_finished", np.int64),
        ("has_company", np.int64),  # running requests are in the step
        ("decode_context_tokens", np.int64),  # of a jump: KV entries that its first step reads
        ("must_enter_blocks", np.int64),  # a jump fills blocks that the hash table must know
        *of_features("current_step"),
    ],
    align=True,
)
"""Scratch of the step, or the jump, that is being taken; worthless after it."""

TOTALS = np.dtype(
    [
        ("num_steps", np.int64),
        ("num_jumps", np.int64),
        ("num_emissions", np.int64),  # steps that gave tokens
        ("num_preemptions", np.int64),
        ("num_kv_allocation_failures", np.int64),  # allocate_slots found too few free blocks
        ("num_cache_queries", np.int64),  # prompt tokens looked up at first schedule
        ("num_cache_hits", np.int64),
        ("num_completed", np.int64),  # requests
        ("busy_us", np.int64),  # durations of all counted steps
        ("num_prefill_tokens", np.int64),  # of all counted steps
        ("num_decode_tokens", np.int64),
        *of_features("totals"),
    ],
    align=True,
)
"""What has happened since the engine was made."""

LOG_FILL = np.dtype(
    [
        ("num_log_words", np.int64),
        ("num_spans", np.int64),
        ("num_pauses", np.int64),
        ("num_logged_tokens", np.int64),
        ("num_completions", np.int64),
    ],
    align=True,
)
"""How full the logs are."""

LAST_SCHEDULE = np.dtype([("num_running", np.int64), ("num_free_blocks", np.int64)], align=True)
"""What the last step left when it was scheduled: the engine as it is while that step runs."""

COUNTING = np.dtype(
    [
        ("num_blocks", np.int64),  # that the running requests come to need, all together
        ("num_free_blocks", np.int64),  # before the next step, where that is more than there are
        (
            "has_lacked",
            np.int64,
        ),  # of several KV cache groups: a request was admitted for which there are too few
        ("counts_residues", np.int64),  # ``first_in_round`` says how many requests need a block in which step
        ("num_scheduled", np.int64),  # steps
        ("num_decodes", np.int64),  # requests that the next step computes a token of,
        ("context_tokens", np.int64),  # and the KV entries that it reads for them
        ("num_surplus", np.int64),  # likewise, of requests whose last token, an EOS, is in flight
        ("surplus_context_tokens", np.int64),
        ("surplus_request", np.int64),  # the last one of those
        ("first_begun", np.int64),  # the list of requests of whose prompts a part is computed
        ("last_begun", np.int64),
        ("num_ends", np.int64),  # in the heap
        ("num_admitted", np.int64),  # requests so far; of one that runs, ``slot`` says how many before it
        ("first_of_firsts", np.int64),  # the list of requests whose first token is in flight
        ("last_of_firsts", np.int64),
        ("first_of_lasts", np.int64),  # and of those whose last token is
        ("last_of_lasts", np.int64),
    ],
    align=True,
)
"""Where a run that counts blocks stands (``sim/engine/counting``); worthless to one that hands them out."""

ENGINE = np.dtype(
    [
        ("settings", SETTINGS),
        ("clock", CLOCK),
        ("queues", QUEUES),
        ("current_step", CURRENT_STEP),
        ("totals", TOTALS),
        ("log_fill", LOG_FILL),
        ("last_schedule", LAST_SCHEDULE),
        ("counting", COUNTING),
        *of_features("engine"),
    ],
    align=True,
)
"""The engine's scalars. One record of records, not six arrays: compiled code then reaches them all from one address."""

SPAN = np.dtype([("first_end_us", np.int64), ("step_us", np.int64), ("num_steps", np.int64)], align=True)
"""Consecutive steps that gave tokens, ``step_us`` apart."""

PAUSE = np.dtype(
    [("request", np.int64), ("last_emission", np.int64), ("next_emission", np.int64)], align=True
)
"""A request that got no token in some steps between its first and its last."""

TOKEN = np.dtype([("request", np.int64), ("time_us", np.int64)], align=True)

GOT_FIRST_TOKEN, COMPLETED, GAVE_UP, LOAD_STARTED = 0, 1, 2, 3
"""Kinds of entries in the log of completions. LOAD_STARTED: not seen by a client; a request asks for its KV."""

COMPLETION = np.dtype([("time_us", np.int64), ("request", np.int64), ("kind", np.int64)], align=True)
"""What a client sees of a request, and when; by time."""
