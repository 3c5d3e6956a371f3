"""The records that the engine's arrays are made of; they carry vLLM's names.

A request number is its row in ``State.requests``; a block number is its row in ``State.blocks``. Block 0 is vLLM's null
block: it is never handed out, so here it doubles as the head of the free queue's ring and, in the hash table, as "no
block".
"""

from __future__ import annotations

import numpy as np

from sim.latency.batch import STEP_SUMS

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

VLLM, ORCA, SARATHI, STATIC, VLLM_V0 = 0, 1, 2, 3, 4
"""Which requests are put into a batch (``sim/engine/optional/batching.py``)."""

FCFS, BY_URGENCY = 0, 1
"""How the queue is ordered: by arrival in a list, or by each request's ``urgency`` in a heap."""

ALL_COMPILE = 2
"""Of ``head_is_blocked``: every request that waits, waits for a grammar."""

NEVER = -1
"""A time or a step that has not happened."""

UNSHARED = -2
"""In place of a key: a block's content is cached, and no request but its own could ask for it."""

NO_OWNER = 0xFFFFFFFF
"""Of such a block: no request can find it any more."""

FULL, SLIDING, CHUNKED, STATE, ALIGNED_STATE = 0, 1, 2, 3, 4
"""Kinds of KV cache groups (``sim/kv_cache_groups.py``), states last. ALIGNED_STATE: mode align."""

NEVER_PADS, PADS_OR_WAITS, PADS_WHERE_IT_FITS, PADS_BESIDE_HITS = 0, 1, 2, 3
"""Which admissions are padded with drafts, oldest first (``sim/versions.py:Padding``)."""

BEFORE_OUTPUTS, TO_LAST_STATE, AT_JUNCTIONS, AT_KNOWN_ENDS, AT_BLOCK_ENDS = 0, 1, 2, 3, 4
"""How chunks of prompts end at states, oldest first (``sim/versions.py:StateChunks``)."""

NO_CHECKPOINTS, FROM_BLOCK_ENDS, OF_EVERY_CHUNK, OF_LAST_CHUNK, WHERE_HITS_END = 0, 1, 2, 3, 4
"""Which states are saved inside chunks, oldest first (``sim/versions.py:PrefillCheckpoints``)."""

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

KV_CACHE_GROUP = np.dtype(
    [
        ("kind", np.int64),
        ("block_size", np.int64),
        (
            "window",
            np.int64,
        ),  # of a sliding group, with what drafts keep behind it; of a chunked one its chunk
        ("num_hashes_per_block", np.int64),
        ("most_blocks", np.int64),  # that the gate of admission counts for a request
        ("num_blocks_for_hit", np.int64),  # sliding: in a row, ending at the hit
        ("blocks_per_segment", np.int64),  # between places at which a hit can end
        ("next_alike", np.int64),  # the next group of the same kind and numbers, NEVER
        ("next_to_ask", np.int64),  # of the first of its kind: the next kind in the order of lookups, NEVER
        ("use_eagle", np.int64),  # of these, or of one alike, a hit's last block is computed again for drafts
        ("caches_past_hit", np.int64),  # and that block is kept for them
        ("is_eagle_group", np.int64),  # it was marked as one of these: host memory goes by the marks
        ("saves_checkpoints", np.int64),  # states: of a prompt's chunk, in a block for it
        ("checkpoint_alignment", np.int64),  # at such a distance from the chunk's start, 0: none is saved
        ("is_eagle_verified", np.int64),  # these three: the lookup in hand; its length has lost that block
        ("num_hit_blocks", np.int64),
        ("hit_length", np.int64),  # NEVER: not looked up yet
        (
            "num_to_put",
            np.int64,
        ),  # the offer to a shared store in hand: behind its last block that is not there yet
    ],
    align=True,
)
"""A KV cache group."""

GROUP_ROW = np.dtype(
    [
        ("num_blocks", np.int32),  # null blocks in place of what was let go included
        ("num_cached_blocks", np.int32),  # leading blocks that carry a hash, or were passed over
        ("num_retired_blocks", np.int32),  # states: leading blocks that were let go
        ("last_state_block", np.int32),  # states: where the state before the newest is, NEVER
        ("checkpoint_place", np.int32),  # states: where one is saved inside the newest tokens, 0: none is
        ("checkpoint_block", np.int32),  # and which block has it
        (
            "shared_prefix_boundary",
            np.int32,
        ),  # of the request, in its first group's row: 0 where there is none
        (
            "next_visit",
            np.int32,
        ),  # likewise: at how many computed tokens a decode's blocks change next, 0: unknown
    ],
    align=True,
)
"""What a request has in one group; there as long as it owns a slot."""

PARTIAL_HASH = np.dtype(
    [
        (
            "hash_id",
            np.int32,
        ),  # these three: as of a block; a content has one place in a block, so none is in both
        ("next_same_hash", np.uint32),
        ("previous_same_hash", np.uint32),
    ],
    align=True,
)
"""The content of a block that ends inside it (``sim/engine/kv_cache/groups/partial.py``)."""

BLOCK_COPY = np.dtype([("group", np.int64), ("source", np.int64), ("destination", np.int64)], align=True)
"""A block that the step in hand copies, both held until it is scheduled."""

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

CHUNK = np.dtype(
    [
        (
            "next",
            np.uint32,
        ),  # in the order of last use; 0 is the ring's head, whose next was used longest ago
        ("previous", np.uint32),
        ("ref_cnt", np.int32),  # loads that read it; NEVER while it is being stored
        ("job", np.uint32),  # the transfer that it is part of
        ("next_of_job", np.uint32),
        ("block", np.uint32),  # of the GPU, that it is being stored from
        (
            "next_of_block",
            np.uint32,
        ),  # of those that are being stored from this block and whose request is gone
        ("is_fenced", np.int32),  # it is in that list
        ("key", np.int64),  # of the hash table
        ("offer", np.int64),  # the last offer for storing that named it
        ("rank", np.int64),  # these three: sim/engine/kv_offload/recency.py
        ("order", np.int64),  # and of what goes to a shared store
        ("heap_at", np.int64),
    ],
    align=True,
)
"""A block's worth of host memory of native offloading; row 0 is the head of the ring."""

STORE_BLOCK = np.dtype(
    [
        ("next", np.uint32),  # in the order of last use, as a chunk's
        ("previous", np.uint32),
        ("key", np.int64),  # of the hash table, NEVER: no request can ask for it
        ("ready_us", np.int64),  # from when on it is found; NEVER: its transfer has not been handed over
        ("busy_us", np.int64),  # until when transfers need it that were handed over
        ("num_pins", np.int64),  # transfers that need it and were not
        ("offer", np.int64),  # the last one that named it
    ],
    align=True,
)
"""A block of a store that instances share (``kv_offload/shared_store.py``); row 0 is the head of the ring."""

KV_STORE = np.dtype([("num_blocks", np.int64), ("num_offers", np.int64)], align=True)
"""How many of its blocks were ever filled, and how often anything was offered to it."""

FENCE = np.dtype([("first_chunk", np.uint32), ("step", np.int64)], align=True)
"""Of a block of the GPU: chunks that are being stored from it for requests that are gone; the last step that gave it to
a request."""

KV_JOB = np.dtype(
    [
        ("next", np.uint32),  # on its link
        ("next_new", np.uint32),  # of those that the step in hand ordered
        ("first_chunk", np.uint32),
        ("is_load", np.int32),
        ("is_departed", np.int32),  # a store whose request is gone: its row may be another's
        ("num_blocks", np.int32),
        ("request", np.int64),
        ("ordered_us", np.int64),
        ("end_us", np.int64),  # NEVER before it is handed over
        ("flush_step", np.int64),  # the last step that waited for it
    ],
    align=True,
)
"""A transfer between the GPU and host memory; row 0 is none."""

LOAD, STORE = 0, 1
"""Rows of ``State.kv_links``."""

KV_LINK = np.dtype(
    [
        ("first_job", np.uint32),  # not reported yet, in their order
        ("last_job", np.uint32),
        ("last_handed_over", np.uint32),
        ("first_waiting", np.uint32),  # not handed over yet
        ("free_us", np.int64),
        ("block_cost", np.int64),  # 10⁻⁶ µs
        ("num_told", np.int64),  # jobs whose end the results of some batch tell of;
        ("num_taken", np.int64),  # of those, jobs whose end was taken in
    ],
    align=True,
)
"""A direction between the GPU and host memory."""

DEPARTED = np.dtype(
    [
        ("request", np.int64),
        ("private_start", np.int64),  # its rows of ``State.seen_keys``
        ("num_tokens", np.int64),
        ("num_prompt_tokens", np.int64),
        ("shared_prefix_boundary", np.int64),
        ("slot", np.int64),  # the row of block_table that it keeps for its last offer, NEVER
        ("gives_row", np.int64),  # that row is free after the offer
        ("num_offered_tokens", np.int64),  # these two: as of a request (TRANSFER)
        ("num_found_tokens", np.int64),
        ("num_tokens_to_offer", np.int64),  # where that offer ends
    ],
    align=True,
)
"""A request that is gone since the last step, as native offloading remembers it."""

OFFERED = np.dtype(
    [("key", np.int64), ("place", np.int64), ("block", np.int64), ("order", np.int64)], align=True
)
"""A block that is offered to host memory: its key, its row of ``State.seen_keys``, where it is on the GPU, and where
among its request's blocks (``recency.py:order_of``)."""

HANDED_STATE = np.dtype(
    [
        ("next", np.uint32),  # of the same request, numbered from 1
        ("block", np.uint32),
        ("request", np.int64),
        ("group", np.int64),
        ("index", np.int64),  # of the block that the state ends
    ],
    align=True,
)
"""A state that has entered the prefix cache, for the step's stores."""

COUNTED = np.dtype([("next", np.uint32), ("previous", np.uint32), ("num_offers", np.int64)], align=True)
"""Of each content: how often it was offered for storing, in a ring by when it last was; row 0 is its head, row k + 1
key k."""

HASH = np.dtype([("oldest", np.uint32), ("newest", np.uint32)], align=True)
"""The blocks that hold one content, oldest first (vLLM looks up the oldest); 0 is none."""

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
        (
            "num_polled",
            np.int64,
        ),  # ends of KV transfers that its results bring, those of earlier batches included
        ("num_told_loads", np.int64),  # these two: of native offloading, likewise
        ("num_told_stores", np.int64),
        *((name, np.int64) for name in STEP_SUMS),
        # these three: sim/engine/counting
        ("num_first_tokens", np.int64),  # requests that it gives their first token
        ("num_last_tokens", np.int64),  # and their last, if that is not their first
        ("num_surplus", np.int64),  # of its decodes, those whose request has all its tokens
    ],
    align=True,
)
"""A step that was scheduled; its requests stand in ``State.entries``, unless blocks are counted."""

TRAIT = np.dtype(
    [("adapter", np.int32), ("num_encoder_tokens", np.int32), ("is_guided", np.int64)], align=True
)
"""What costs time beyond a request's lengths (``sim/engine/optional/added_time.py``)."""

IMAGE = np.dtype(
    [
        ("position", np.int32),  # of its first token in the prompt
        ("num_tokens", np.int32),
        ("content", np.int32),
        ("is_repeated", np.int16),  # the request has its content twice
        ("is_held", np.int16),  # its request holds it in the encoder cache
        (
            "is_counted",
            np.int16,
        ),  # without ``holds_images_to_the_last``: it is the one by which the request is counted
    ],
    align=True,
)
"""An image of a prompt (vLLM's ``mm_features``); a request's are consecutive, by position."""

IMAGES_OF = np.dtype(
    [
        ("first", np.int32),  # of ``State.images``
        ("count", np.int32),
        ("end", np.int32),  # where in the prompt the last one ends
        ("num_tokens", np.int32),  # of all of them
        ("num_held", np.int32),
        ("set_start", np.int32),  # these three: sim/engine/optional/held_images.py; NEVER: it needs no table
        ("set_mask", np.int32),
        ("set_fill", np.int32),
        ("num_encoded", np.int32),  # tokens of images that the encoder makes for it in ``step``
        ("step", np.int32),  # from 1
        ("num_pairs", np.float64),  # these two likewise: of tokens of one image; tokens of the largest image
        ("largest", np.int64),
    ],
    align=True,
)
"""The images of a request."""

ENCODER_ENTRY = np.dtype(
    [
        ("next", np.uint32),  # in the order in which they were released; 0 is the ring's head
        ("previous", np.uint32),
        ("num_refs", np.int32),  # requests that hold it
        ("num_embeds", np.int32),  # 0: it is not cached
    ],
    align=True,
)
"""An image's place in the encoder cache; row 0 is the head of the ring, row k + 1 content k."""

ENCODER = np.dtype(
    [
        ("num_free_slots", np.int64),
        ("num_freeable_slots", np.int64),  # these, and those of images that no request holds
        ("compute_budget", np.int64),  # from here on: of the step in hand
        ("budget_behind", np.int64),  # what is left of it behind the request in hand
        ("num_in_hand", np.int64),  # images of the request in hand that it takes along
    ],
    align=True,
)
"""The encoder cache: worthless where ``has_images`` is 0."""

LORA_PLACE = np.dtype([("adapter", np.int64), ("last_step", np.int64)], align=True)
"""A place for an adapter on the GPU, and the last step that used it."""

LINEAGE = np.dtype([("pin", np.int32), ("goes_on_from", np.int32), ("is_in_time", np.int64)], align=True)
"""The row of ``State.session_pins`` that a request pins its KV in, and the one it goes on from, NO_PIN none
(``sim/engine/kv_cache/session_kv.py``); whether it came to the queue before that was let go."""

NO_PIN = 0
"""The row of ``State.session_pins`` that is the head of the ring of those which hold blocks."""

SESSION_PIN = np.dtype(
    [
        ("next", np.int32),  # ``kv_cache/ring.py``, by when they were pinned
        ("previous", np.int32),
        ("hash_start", np.int32),  # of ``State.hash_ids``
        ("num_blocks", np.int32),  # 0: nothing is pinned
        ("num_left", np.int32),  # requests that go on from it and were not admitted yet
        ("num_waiting", np.int32),  # of those, how many wait in the queue and came in time
        ("expires_us", np.int64),
        ("began_us", np.int64),  # when its session began, NEVER before the request ended
    ],
    align=True,
)
"""What a request pins that others go on from."""

SETTINGS = np.dtype(
    [
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
        ("policy", np.int64),  # FCFS or BY_URGENCY
        ("age_weight_per_us", np.float64),
        ("async_scheduling", np.int64),
        ("pipeline_parallel_size", np.int64),
        ("max_concurrent_batches", np.int64),
        (
            "decode_stagger",
            np.int64,
        ),  # steps from one token of a request to its next, 0: no rule; sim/versions.py
        (
            "waits_for_output",
            np.int64,
        ),  # async with stages: a request whose token is in flight sits a step out
        ("batching", np.int64),  # VLLM, ORCA, SARATHI, STATIC or VLLM_V0
        ("prefill_schedule_interval", np.int64),
        ("cuts_shares", np.int64),  # a running request's share may end at a state, or before an image
        ("notes_shares", np.int64),  # a share means something to the encoder or to transfers of KV
        ("balances_prefills", np.int64),  # these two: sim/engine/optional/prefill_balance.py
        ("may_sit_out", np.int64),  # a running request: it is so, or there are stages
        ("is_lockstep", np.int64),  # steps begin and end with those of other engines (run.py:run_in_lockstep)
        ("dummy_step_us", np.int64),  # what a step takes of an engine of these that has nothing to compute
        ("latency_kind", np.int64),
        ("recycle_private_first", np.int64),  # unbounded cache: only shared content is remembered
        ("outputs_are_shared", np.int64),  # some request's hashes run on past its prompt
        ("continues_after_self_preemption", np.int64),  # these four: sim/versions.py
        ("lifts_threshold_for_lone_request", np.int64),
        ("moves_cursor_for_every_victim", np.int64),
        ("frees_unhashed_blocks_first", np.int64),
        ("pads_admissions", np.int64),  # NEVER_PADS to PADS_BESIDE_HITS
        ("state_chunks", np.int64),  # these, too, of KV cache groups: BEFORE_OUTPUTS to AT_BLOCK_ENDS
        ("prefill_checkpoints", np.int64),  # NO_CHECKPOINTS where no group saves any
        ("checkpoint_alignment", np.int64),  # of the first group of states, 0 unless all save any
        ("leaves_token_behind_state", np.int64),
        ("enters_prompt_state_anew", np.int64),
        ("retires_states_over_gaps", np.int64),
        ("defers_states_of_step", np.int64),
        ("excludes_tokens_in_flight", np.int64),
        ("frees_skipped_first", np.int64),
        ("frees_windows_first", np.int64),
        ("caches_to_alignment", np.int64),
        ("keeps_junctions", np.int64),
        ("looks_past_hit", np.int64),
        ("keeps_ends_for_drafts", np.int64),
        ("drops_once_for_drafts", np.int64),
        ("takes_in_tokens", np.int64),  # async, or drafts with ``caches_at_outputs``
        ("queues_passed_over_apart", np.int64),  # from here on: sim/versions.py
        ("has_queue_apart", np.int64),  # it does, and there can be any
        ("cuts_before_cached_images", np.int64),
        ("holds_repeated_images", np.int64),
        ("passes_over_empty_shares", np.int64),
        ("may_pass_over_empty", np.int64),  # it does, and there can be any
        ("counts_adapters_of_all_running", np.int64),
        ("encodes_without_lookahead", np.int64),
        ("keeps_whole_images_together", np.int64),
        ("gives_up_by_place", np.int64),
        ("offers_again", np.int64),
        ("takes_surplus_back", np.int64),
        ("thins_states_out", np.int64),
        ("ends_states_at_hit", np.int64),
        ("keeps_junctions_for_drafts", np.int64),
        ("holds_images_to_the_last", np.int64),
        ("encodes_ahead", np.int64),
        ("frees_images_once_read", np.int64),
        ("keeps_placeholders", np.int64),  # with stages, without ``sets_stale_output_aside``
        ("num_reserved_tokens", np.int64),  # for drafts, of each request whose prompt is under way;
        ("num_reserved_blocks", np.int64),  # or so many blocks
        ("num_hash_lookahead_tokens", np.int64),  # behind a block, that its hash covers, too
        ("is_blis", np.int64),
        ("num_speculative_tokens", np.int64),
        ("num_lookahead_tokens", np.int64),
        ("num_first_lookahead_tokens", np.int64),  # of a request that is admitted
        ("use_eagle", np.int64),  # the last block of a hit is computed again
        (
            "num_prefill_lookahead_tokens",
            np.int64,
        ),  # of the prompt that the drafting model reads ahead, above 1
        ("seed", np.int64),
        ("num_cpu_blocks", np.int64),
        ("num_kv_cache_groups", np.int64),
        ("has_kv_cache_groups", np.int64),  # other than one full group
        ("first_group_to_ask", np.int64),  # in the order of lookups: a full one, if there is any
        ("asks_groups_once", np.int64),  # one group, or a full kind and one other: one round settles it
        ("hit_alignment", np.int64),  # tokens: prefix hits end at multiples of it
        ("hash_block_size", np.int64),  # tokens per hash
        (
            "matches_inside_blocks",
            np.int64,
        ),  # prefix hits end at any hash: sim/engine/kv_cache/groups/partial.py
        ("aligns_states", np.int64),  # chunks of prompts end where states are kept
        ("hands_states", np.int64),  # those that are kept are handed to the connector
        ("offload_above_blocks", np.int64),  # blocks in use above which evicted contents go to the CPU
        ("reload_us", np.int64),  # per block that comes back
        ("is_closed_loop", np.int64),
        ("think_time_us", np.int64),
        ("is_capped", np.int64),  # closed loop of a cap: a request arrives no sooner than it was due
        ("has_deadlines", np.int64),
        ("log_steps", np.int64),
        ("log_blocks", np.int64),
        ("log_tokens", np.int64),
        ("log_spans", np.int64),
        ("count_steps", np.int64),
        ("adds_time", np.int64),  # from here on: sim/engine/optional/added_time.py
        ("has_traits", np.int64),
        ("limits_adapters", np.int64),
        ("max_loras", np.int64),
        ("lora_load_us", np.int64),
        ("lora_step_factor", np.float64),
        ("guided_compile_us", np.int64),
        ("waits_for_grammars", np.int64),
        ("guided_mask_us", np.float64),
        ("draft_us", np.float64),
        ("encoder_step_us", np.float64),  # these four: of a step that encodes
        ("encoder_token_us", np.float64),
        ("encoder_token_pair_us", np.float64),
        ("encoder_data_parallel_size", np.int64),
        ("num_graph_tokens", np.int64),
        ("launch_us", np.float64),
        ("host_step_us", np.float64),  # these two: 0 with async scheduling
        ("host_prefill_us", np.float64),
        ("first_noise_draw", np.int64),  # of a step's scatter: each engine of a cluster has its own
        ("log_completions", np.int64),
        ("pauses_at_completions", np.int64),  # `run` returns as soon as the log of completions holds any
        ("has_loads", np.int64),  # of any kind: a request may hold blocks and not run
        (
            "retention_interval",
            np.int64,
        ),  # of windows and states: tokens between checkpoints, 0: none, NEVER: all
        ("has_windows", np.int64),  # some group lets go of blocks while its request runs
        (
            "store_alignment",
            np.int64,
        ),  # where hits of host memory end; groups of windows keep what these can need
        ("has_kv_offloading", np.int64),  # these two: sim/engine/kv_offload
        ("has_shared_store", np.int64),
        ("kv_store_threshold", np.int64),
        (
            "draft_step_blocks",
            np.int64,
        ),  # that a request which loads must leave for its first step with drafts
        ("session_kv_ttl_us", np.int64),  # 0: nothing is pinned
        ("has_images", np.int64),  # these four: sim/engine/optional/encoder_inputs.py
        ("max_num_encoder_input_tokens", np.int64),
        ("encoder_cache_size", np.int64),
        ("disable_chunked_mm_input", np.int64),
        ("has_kv_transfers", np.int64),  # from here on: sim/engine/kv_transfer
        ("is_kv_producer", np.int64),
        ("defers_block_frees", np.int64),
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
        ("oldest_runs", np.int64),  # in step with other engines: it is on the device, not only planned
        ("num_steps_of_wave", np.int64),  # in step with other engines: since all of them were idle
        ("compute_duty", np.float64),  # share of recent time spent computing, at duty_time_us
        ("duty_time_us", np.int64),
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
        ("next_held", np.int64),  # closed loop: the place in `held` of the next request to be released
        ("num_waiting", np.int64),
        ("last_passed_over", np.int64),  # of the queue apart, its number + 1; 0: it is empty
        ("first_waiting", np.int64),
        ("last_waiting", np.int64),
        ("num_running", np.int64),
        ("num_free_slots", np.int64),
        ("num_free_blocks", np.int64),
        ("num_keys", np.int64),  # of the hash table, in use
        ("num_cache_changes", np.int64),  # contents that came or went since a router last looked
        ("has_finished_ids", np.int64),
        ("head_is_blocked", np.int64),  # the head did not fit and nothing has been freed since; ALL_COMPILE
        ("next_grammar_us", np.int64),  # when the first is there of those that the last step missed, NEVER
        ("is_prefill_bound", np.int64),  # the last step that did not defer prompts left requests without room
        ("is_blocked", np.int64),  # nothing can run until another request arrives; 2: preempts for ever
        ("num_fruitless_steps", np.int64),  # that preempted, since any request got a token or joined
        ("fruitless_since", np.int64),  # num_emissions + num_joined of then
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
        ("waits_for_state", np.int64),  # the head did not fit, but may in the very next step
        ("shared_prefix_boundary", np.int64),  # up to where some group has the prefix of the lookup in hand
        ("num_block_copies", np.int64),
        ("num_finished", np.int64),
        ("has_prefill", np.int64),  # speculating: a prompt of a running request goes on in it
        ("has_company", np.int64),  # running requests are in the step
        ("step_reload_us", np.int64),  # what its reloads add to its duration
        ("decode_context_tokens", np.int64),  # of a jump: KV entries that its first step reads
        ("must_enter_blocks", np.int64),  # a jump fills blocks that the hash table must know
        ("num_encoder_tokens", np.int64),  # that an encoder makes in it
        ("num_adapters", np.int64),
        ("num_skipped", np.int64),  # waiting requests, for their adapter or grammar
        ("step_of_wave", np.int64),  # balancing prompts, these two: its number,
        ("defers_prefills", np.int64),  # and whether prompts wait
        ("num_guided", np.int64),  # of a jump
        ("has_adapter", np.int64),  # likewise
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
        ("num_draft_tokens", np.int64),  # verified
        ("num_accepted_tokens", np.int64),
        ("num_kv_offloads", np.int64),
        ("num_kv_reloads", np.int64),
        ("num_kv_thrashings", np.int64),
        ("num_kv_loads", np.int64),  # these six: native offloading; transfers
        ("num_kv_stores", np.int64),
        ("num_kv_flushes", np.int64),  # that a step waited for
        ("kv_load_wait_us", np.int64),  # of all requests, from asking to being told
        ("kv_flush_wait_us", np.int64),  # of steps
        ("num_kv_loaded_tokens", np.int64),  # of requests' first schedules
        ("num_lora_loads", np.int64),
        ("busy_us", np.int64),  # durations of all counted steps
        ("num_prefill_tokens", np.int64),  # of all counted steps
        ("num_decode_tokens", np.int64),
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

TRANSFER = np.dtype(
    [
        ("do_remote_prefill", np.int32),  # its prompt is computed elsewhere and has not been asked for yet
        ("do_remote_decode", np.int32),  # its blocks are held until another engine has them
        ("is_held", np.int32),  # it stands in `holding`
        ("is_received", np.int32),  # its KV is there
        ("is_prefill_chunk", np.int32),  # the step that it was in last did not complete its known tokens
        (
            "num_local_tokens",
            np.int32,
        ),  # found in the engine's own prefix cache when its blocks were handed out
        ("num_external_computed_tokens", np.int32),  # beyond those, from the other engine
        ("num_blocks", np.int32),  # that these take, P/D alone
        ("num_offered_tokens", np.int32),  # from here on: offloading. The full blocks of so many were offered
        (
            "num_found_tokens",
            np.int32,
        ),  # so many were there when it last loaded: their blocks are not offered
        ("num_stores", np.int32),  # under way or ordered
        (
            "first_handed",
            np.uint32,
        ),  # of its states, those that the next stores take (``State.handed_states``),
        ("last_handed", np.uint32),  # numbered from 1; 0: none
        ("num_loaded_tokens", np.int32),  # when it was first scheduled
        ("num_tokens_of_share", np.int32),  # in the step that it was in last,
        ("step_of_share", np.int64),  # and which one that was
        ("rank", np.int64),  # of what it uses of host memory while it runs, 0: none yet
        (
            "load_wait_us",
            np.int64,
        ),  # from asking for blocks to being told that they are there, all times together
    ],
    align=True,
)
"""What becomes of a request's KV between two engines (vLLM's ``kv_transfer_params``), or between GPU and host."""

KV_EVENT = np.dtype([("time_us", np.int64), ("request", np.int64), ("kind", np.int64)], align=True)

FINISHED_RECVING, FINISHED_SENDING = 0, 1
"""What a worker reports of a transfer: its blocks are filled, or its blocks are read."""

KV_TRANSFERS = np.dtype(
    [
        ("num_holding", np.int64),  # requests that hold blocks and do not run: they load, or have just loaded
        ("num_ready", np.int64),  # of those, requests that could be admitted
        ("num_delayed", np.int64),  # requests that are gone and whose blocks are not free yet
        ("num_delivered", np.int64),  # ends of transfers so far;
        ("num_polled", np.int64),  # of those, how many a batch has taken along;
        ("num_applied", np.int64),  # of those, how many batches' results are in
        ("num_heard", np.int64),  # by the last batch whose results came in
        ("num_deferred", np.int64),  # these three: sim/engine/kv_transfer/deferred_frees.py
        ("num_scheduled", np.int64),
        ("num_processed", np.int64),
    ],
    align=True,
)
"""Transfers of KV: worthless where ``has_loads`` is 0."""

DEFERRED_FREE = np.dtype([("request", np.int64), ("fence", np.int64)], align=True)
"""A request that is gone, and the batch whose results free its blocks."""

KV_OFFLOAD = np.dtype(
    [
        ("num_chunks", np.int64),  # that were ever filled
        ("num_evictable", np.int64),  # that no transfer needs
        ("num_offers", np.int64),
        ("num_counted", np.int64),  # contents whose offers are counted
        ("num_ranks", np.int64),  # given so far; these two: sim/engine/kv_offload/recency.py
        ("heap_length", np.int64),
        ("num_jobs", np.int64),  # rows of ``State.kv_jobs`` ever used
        ("first_free_job", np.int64),
        ("num_handed", np.int64),  # states that the next stores take
        ("num_departed", np.int64),
        ("first_free_piece", np.int64),  # these three: of a shared store
        ("num_pieces", np.int64),  # rows of ``State.chunks`` in use
        ("num_wanted", np.int64),  # of the offer in hand
        ("first_new", np.int64),  # from here on: of the step in hand
        ("last_new", np.int64),
        ("num_new_loads", np.int64),
        ("num_new_stores", np.int64),
        ("num_flushed", np.int64),
        ("flushed_us", np.int64),  # when what it waits for is done
        ("num_reported", np.int64),
    ],
    align=True,
)
"""Native offloading: worthless where ``has_kv_offloading`` is 0."""

COUNTING = np.dtype(
    [
        ("num_blocks", np.int64),  # that the running requests come to need, all together
        ("num_scheduled", np.int64),  # steps
        ("num_decodes", np.int64),  # requests that the next step computes a token of,
        ("context_tokens", np.int64),  # and the KV entries that it reads for them
        ("num_surplus", np.int64),  # likewise, of requests whose last token, an EOS, is in flight
        ("surplus_context_tokens", np.int64),
        ("prefilling", np.int64),  # the one request of whose prompt a part is computed, NEVER
        ("num_ends", np.int64),  # in the heap
        ("num_pushed", np.int64),  # onto it so far
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
        ("kv_transfers", KV_TRANSFERS),
        ("kv_offload", KV_OFFLOAD),
        ("encoder", ENCODER),
        ("counting", COUNTING),
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
