"""The engine's arrays before the first step: how large each is, a record per request; and how they are made longer."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from sim.config import UNBOUNDED, EngineConfig, Record
from sim.engine import dtypes as dt
from sim.engine import state as st
from sim.engine.log import BINS_PER_DOUBLING, NUM_BINS
from sim.engine.optional import batching, blis
from sim.kv_cache_groups import alignment_of, most_blocks_of, without_eagle_marks
from sim.latency.latency_model import SCALE, LatencyModel
from sim.paged_memory import untouched, untouched_records
from sim.policies import age_weight_per_us, urgency
from sim.requests import UNKNOWN_LIMIT, Int64s, Requests
from sim.versions import Padding, PrefillCheckpoints, StateChunks, rules_of

SAME_IN_CONFIG = (
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
    "pipeline_parallel_size",
    "max_concurrent_batches",
    "prefill_schedule_interval",
    "num_speculative_tokens",
    "num_lookahead_tokens",
    "num_prefill_lookahead_tokens",
    "seed",
    "max_loras",
    "lora_load_us",
    "lora_step_factor",
    "guided_compile_us",
    "guided_mask_us",
    "draft_us",
    "encoder_step_us",
    "encoder_token_us",
    "encoder_token_pair_us",
    "encoder_data_parallel_size",
    "num_graph_tokens",
    "launch_us",
)
"""Settings that the engine takes as they are."""

RULES = (
    "continues_after_self_preemption",
    "lifts_threshold_for_lone_request",
    "moves_cursor_for_every_victim",
    "frees_unhashed_blocks_first",
    "leaves_token_behind_state",
    "enters_prompt_state_anew",
    "retires_states_over_gaps",
    "defers_states_of_step",
    "excludes_tokens_in_flight",
    "frees_skipped_first",
    "frees_windows_first",
    "caches_to_alignment",
    "keeps_junctions",
    "looks_past_hit",
    "keeps_ends_for_drafts",
    "drops_once_for_drafts",
    "queues_passed_over_apart",
    "cuts_before_cached_images",
    "holds_repeated_images",
    "passes_over_empty_shares",
    "counts_adapters_of_all_running",
    "encodes_without_lookahead",
    "keeps_whole_images_together",
    "gives_up_by_place",
    "offers_again",
    "takes_surplus_back",
    "thins_states_out",
    "ends_states_at_hit",
    "keeps_junctions_for_drafts",
    "holds_images_to_the_last",
    "encodes_ahead",
    "frees_images_once_read",
)
"""Rules of the vLLM version that the engine asks about."""

STATE_CHUNKS = get_args(StateChunks)

PREFILL_CHECKPOINTS = get_args(PrefillCheckpoints)

PADDINGS = get_args(Padding)

FIRST_LOG_LENGTH = 4096

NUM_FINGERS = 1024
"""Of ``State.fingers``: among a million requests that wait to join, one passes some five hundred."""

SPANS_PER_REQUEST = 4
"""Of an engine's log: a request starts and ends a run of equal steps, and a step of a prompt lasts longer."""

LONGEST_JUMP = 4096
"""Steps taken at once at most; a longer run of equal steps takes several jumps."""


def size_for(config: EngineConfig, requests: Requests) -> tuple[int, int]:
    """Return (number of KV blocks, blocks of the longest sequence) for these requests."""
    smallest = min(*group_sizes(config), config.hash_block_size)
    longest = int((requests.prompt_tokens + requests.output_tokens).max(initial=1))
    longest += config.num_speculative_tokens + config.num_lookahead_tokens
    # behind an EOS that is in flight, or behind drafts that are
    if requests.max_tokens is not None or config.num_speculative_tokens > 0:
        longest += (config.max_concurrent_batches - 1) * (1 + config.num_speculative_tokens)
    longest += (
        config.pipeline_parallel_size - 1
    )  # async: decodes that give no request a token, behind a last token that is in flight
    if not config.kv_cache_groups:  # of groups, what is let go may be found again beyond any limit
        longest = min(longest, config.max_model_len + config.pipeline_parallel_size - 1)
    width = longest // smallest + 2
    if any(group.kind == "state" for group in config.kv_cache_groups):
        width += config.num_speculative_tokens  # a state for each draft
    if config.num_gpu_blocks != UNBOUNDED:
        return config.num_gpu_blocks, width
    num_held = width * min(config.max_num_seqs, max(1, len(requests)))
    if config.matches_inside_blocks:  # and a copy of the block that a hit ends in
        num_held = (longest // min(group_sizes(config)) + 3 + config.num_speculative_tokens) * min(
            config.max_num_seqs, max(1, len(requests))
        )
    return 1 + config.num_kv_cache_groups * (num_held + len(requests.hash_ids)), width


def group_sizes(config: EngineConfig) -> list[int]:
    """Return the tokens per block of each KV cache group."""
    return config.group_block_sizes or [config.block_size]


def gives_gaps_from_tokens(config: EngineConfig, record: Record) -> bool:
    """Return whether inter-token latencies come from logged tokens: with speculation, spans do not tell them."""
    return record == "spans" and config.num_speculative_tokens > 0


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
    for name in ("prefilling", "first_of_firsts", "first_of_lasts"):
        engine["counting"][name] = dt.NEVER
    seats, has_tier = config.max_num_seqs, config.has_cpu_tier
    num_groups = config.num_kv_cache_groups
    groups = group_records(config)
    num_rows = num_groups * (num_hashes + 1)
    if room is None:
        room = room_of_its_own(record=record, logs_spans=record == "spans")
    stages, num_batches = config.pipeline_parallel_size, max(2, config.max_concurrent_batches)
    return st.State(
        engine=engine,
        latency=latency.engine_coefficients(),
        terms=latency.engine_terms(),
        requests=st.records(0, dt.REQUEST),
        held=np.zeros(0, np.int64),
        deadline_us=np.zeros(0, np.int64),
        deadlines=np.zeros(0, np.int64),
        taken_in_us=np.zeros(0, np.int64),
        preempted_us=np.zeros(0, np.int64),
        running=np.zeros(seats + 1, np.uint32),
        heap=np.zeros(0, np.int64),
        blocks=_new_blocks(num_blocks),
        block_table=np.zeros((seats * num_groups, width), np.uint32),
        free_slots=np.arange(seats, dtype=np.int64)[::-1].copy(),
        fingers=np.zeros(NUM_FINGERS, np.int64),
        length_limit=np.zeros(0, np.int32),
        hash_ids=hash_ids.astype(np.int32),
        hashes=st.records(num_rows, dt.HASH),
        cache_log=np.zeros(0, np.int32),
        cpu_slots=_new_cpu_slots(config.num_cpu_blocks if config.has_blis_tier else 0),
        cpu_slot_of_key=np.zeros(
            num_hashes + 1 if has_tier and not config.has_shared_store else 0, np.uint32
        ),
        hit_blocks=np.zeros(width, np.uint32),
        kv_cache_groups=groups,
        group_rows=st.records(seats * len(groups), dt.GROUP_ROW).reshape(seats, len(groups)),
        group_hits=np.zeros((len(groups), width), np.uint32),
        step_of_key=np.zeros(num_rows if settings.aligns_states[0] else 0, np.int64),
        partial_hashes=_new_partial_hashes(num_blocks if settings.matches_inside_blocks[0] else 0),
        block_copies=st.records(
            seats * num_groups if settings.matches_inside_blocks[0] else 0, dt.BLOCK_COPY
        ),
        shared_block=np.zeros(seats * num_groups if settings.matches_inside_blocks[0] else 0, np.int64),
        num_drafts=np.zeros(0, np.int32),
        prefill_marks=np.zeros(0, np.int64),
        acceptance_rates=np.array(config.acceptance_rates, np.float64),
        traits=st.records(0, dt.TRAIT),
        lora_places=st.records(0, dt.LORA_PLACE),
        adapter_steps=np.zeros(0, np.int64),
        skipped=np.zeros(0, np.int64),
        preempted=np.zeros(seats + 1, np.int64),
        hits=st.records(seats, dt.ENTRY),
        finished=np.zeros(seats, np.int64),
        batches=st.records(num_batches, dt.BATCH),
        entries=st.records(num_batches * seats, dt.ENTRY).reshape(num_batches, seats),
        stage_free_us=np.zeros(stages if stages > 1 else 0, np.int64),
        token_us=np.zeros(0, np.int64),
        next_decode_step=np.zeros(0, np.int64),
        first_in_round=np.zeros(config.block_size, np.uint32),
        last_in_round=np.zeros(config.block_size, np.uint32),
        next_in_round=np.zeros(seats + 1, np.uint32),
        ends_us=room.ends_us,
        duties=room.duties,
        log=np.zeros(FIRST_LOG_LENGTH if record in ("steps", "blocks") else 0, np.int64),
        spans=room.spans,
        pauses=room.pauses,
        tokens=st.records(FIRST_LOG_LENGTH if settings.log_tokens[0] else 0, dt.TOKEN),
        batch_sizes=np.zeros(seats + 1 if settings.count_steps[0] else 0, np.int64),
        step_tokens=np.zeros(num_token_bins(config) if settings.count_steps[0] else 0, np.int64),
        step_times=room.step_times,
        completions=st.records(0, dt.COMPLETION),
        transfers=st.records(0, dt.TRANSFER),
        lineage=st.records(0, dt.LINEAGE),
        session_pins=st.records(0, dt.SESSION_PIN),
        images=st.records(0, dt.IMAGE),
        images_of=st.records(0, dt.IMAGES_OF),
        image_sets=np.zeros(0, np.int32),
        moved_images=np.zeros(0, np.int64),
        encoder_cache=st.records(0, dt.ENCODER_ENTRY),
        images_in_hand=np.zeros(0, np.int64),
        holding=np.zeros(seats if config.has_native_offloading else 0, np.int64),
        kv_events=st.records(0, dt.KV_EVENT),
        deferred_frees=deferred_frees(num_batches * seats, exists=bool(settings.defers_block_frees[0])),
        **_host_memory(
            config, num_blocks=num_blocks, width=width, num_rows=num_rows, num_table_rows=seats * num_groups
        ),
        **new_store(config, num_contents=num_groups * num_hashes),
    )


def new_store(config: EngineConfig, *, num_contents: int) -> dict[str, Any]:
    """Return the arrays of a store that instances share, all empty; without rows where there is none."""
    is_on = config.has_shared_store
    return {
        "store_blocks": st.records(config.num_cpu_blocks + 1 if is_on else 0, dt.STORE_BLOCK),
        "store_slots": np.zeros(num_contents if is_on else 0, np.uint32),
        "kv_store": st.records(1 if is_on else 0, dt.KV_STORE),
    }


MOST_MOVED = 4
"""Blocks on their way to a shared store, for each of the GPU's: one, and those whose end is not known yet."""


def _host_memory(
    config: EngineConfig, *, num_blocks: int, width: int, num_rows: int, num_table_rows: int
) -> dict[str, Any]:
    """Return the arrays of native offloading, without rows where there is none."""
    is_on = config.has_native_offloading
    num_chunks = config.num_cpu_blocks + 1 if is_on else 0
    num_jobs = num_chunks
    if config.has_shared_store:  # rows of blocks under way; a load has none
        num_chunks = MOST_MOVED * num_blocks + 1
        num_jobs = num_chunks + num_blocks
    links = st.records(2 if is_on else 0, dt.KV_LINK)
    if is_on:
        costs = (config.kv_load_us_per_block, config.kv_store_us_per_block)
        links["block_cost"] = [round(Fraction(repr(cost)) * SCALE) for cost in costs]
    counts = is_on and config.kv_store_threshold > 1
    return {
        "chunks": st.records(num_chunks, dt.CHUNK),
        "chunk_heap": np.zeros(num_chunks if gives_up_by_place(config) else 0, np.int64),
        "fences": st.records(num_blocks if is_on else 0, dt.FENCE),
        "kv_links": links,
        "kv_jobs": st.records(num_jobs, dt.KV_JOB),
        "departed": st.records(config.max_num_seqs if is_on else 0, dt.DEPARTED),
        "counted": st.records(num_rows + 1 if counts else 0, dt.COUNTED),
        "seen_keys": np.zeros(num_rows if is_on else 0, np.int64),
        "offered": st.records(config.num_kv_cache_groups * width if is_on else 0, dt.OFFERED),
        "handed_states": st.records(
            most_handed_states(config) if hands_states(config) else 0, dt.HANDED_STATE
        ),
        "store_order": store_order_of(config) if is_on else np.zeros(0, np.int64),
        "num_known_blocks": np.zeros(num_table_rows if is_on else 0, np.int64),
        "num_blocks_before": np.zeros(num_table_rows if is_on else 0, np.int64),
        "known_blocks": np.zeros(
            (num_table_rows if is_on and config.kv_cache_groups else 0, width), np.uint32
        ),
    }


def gives_up_by_place(config: EngineConfig) -> bool:
    """Return whether host memory is one engine's, and gives up its contents in the order of places."""
    is_own = config.has_native_offloading and not config.has_shared_store
    return is_own and rules_of(config.vllm_version).gives_up_by_place


def settings_of(config: EngineConfig, latency: LatencyModel, *, record: Record) -> st.Records:
    """Return what the engine is configured with (SETTINGS[1])."""
    from_tokens = gives_gaps_from_tokens(config, record)
    records = st.records(1, dt.SETTINGS)
    settings = st.columns(records)
    for name in SAME_IN_CONFIG:
        settings[name] = getattr(config, name)
    _set_rules(settings, config)
    _set_groups(settings, config)
    batching.apply_settings(settings, config)
    settings["may_sit_out"] = config.pipeline_parallel_size > 1
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
    settings["adds_time"] = (
        config.draft_us > 0 and config.num_speculative_tokens > 0
    ) or config.adds_host_time
    if not config.async_scheduling:
        settings["host_step_us"], settings["host_prefill_us"] = config.host_step_us, config.host_prefill_us
    if config.language_model_only:
        for name in ("encoder_step_us", "encoder_token_us", "encoder_token_pair_us"):
            settings[name] = 0
    if config.has_native_offloading:
        settings["has_kv_offloading"] = settings["has_loads"] = settings["notes_shares"] = 1
        settings["defers_block_frees"] = config.max_concurrent_batches > 1
        settings["store_alignment"] = store_alignment_of(config)
        settings["hands_states"] = hands_states(config)
        settings["draft_step_blocks"] = draft_step_blocks(config)
        settings["kv_store_threshold"] = config.kv_store_threshold
        settings["has_shared_store"] = config.has_shared_store
        settings["gives_up_by_place"] = gives_up_by_place(config)
        settings["offers_again"] &= not config.has_shared_store
    elif config.has_blis_tier:
        _set_cpu_tier(settings, config)
    if config.compatibility == "blis":
        blis.apply_settings(settings)
    return records


def _set_rules(settings: st.Records, config: EngineConfig) -> None:
    """Say what the version of vLLM does otherwise than others."""
    rules = rules_of(config.vllm_version)
    for name in RULES:
        settings[name] = getattr(rules, name)
    settings["num_first_lookahead_tokens"] = (
        config.num_lookahead_tokens * rules.gives_draft_slots_at_admission
    )
    if rules.queues_freed_without_cache and not config.enable_prefix_caching:
        for name in ("frees_unhashed_blocks_first", "frees_skipped_first", "frees_windows_first"):
            settings[name] = 0
    settings["takes_in_tokens"] = config.async_scheduling or (
        rules.caches_at_outputs and config.num_speculative_tokens > 0
    )
    settings["num_hash_lookahead_tokens"] = config.num_hash_lookahead_tokens
    settings["use_eagle"] = config.drops_blocks_for_drafts
    is_by_group = reserves_drafts_by_group(config)
    settings["num_reserved_tokens"] = draft_step_tokens(config) * is_by_group
    settings["num_reserved_blocks"] = 0 if is_by_group else draft_step_blocks(config)
    if config.num_speculative_tokens > 0:
        settings["pads_admissions"] = PADDINGS.index(rules.pads_admissions)
    settings["state_chunks"] = STATE_CHUNKS.index(rules.state_chunks)
    settings["has_queue_apart"] = config.queues_passed_over_apart and config.pipeline_parallel_size > 1
    settings["may_pass_over_empty"] = (
        rules.passes_over_empty_shares and config.num_prefill_lookahead_tokens > 1
    )
    if config.pipeline_parallel_size > 1 and not rules.sets_stale_output_aside:
        settings["keeps_placeholders"] = 1
    if config.async_scheduling and config.pipeline_parallel_size > 1:
        is_staggered = rules.async_pipeline == "staggered"
        settings["decode_stagger"] = config.pipeline_parallel_size if is_staggered else 0
        settings["waits_for_output"] = rules.async_pipeline == "waits for output"


def _set_groups(settings: st.Records, config: EngineConfig) -> None:
    """Say what KV cache groups there are, and where their hits end."""
    groups, sizes = config.kv_cache_groups, group_sizes(config)
    settings["hash_block_size"] = config.hash_block_size
    settings["matches_inside_blocks"] = config.matches_inside_blocks
    alignment, _ = alignment_of(sizes)
    settings["hit_alignment"] = config.hash_block_size if config.matches_inside_blocks else alignment
    settings["num_kv_cache_groups"] = config.num_kv_cache_groups
    settings["has_kv_cache_groups"] = len(groups) > 0
    interval = config.prefix_cache_retention_interval
    settings["retention_interval"] = dt.NEVER if interval is None else interval
    settings["has_windows"] = any(group.kind != "full" for group in groups)
    settings["aligns_states"] = any(group.mode == "align" for group in groups)
    _set_checkpoints(settings, config)
    settings["cuts_shares"] = settings["aligns_states"] | (config.num_prefill_lookahead_tokens > 1)
    groups = without_eagle_marks(groups)
    first = [groups.index(group) for group in dict.fromkeys(groups)]
    first.sort(key=lambda number: groups[number].kind != "full")
    settings["first_group_to_ask"] = first[0] if first else 0
    is_simple = len(first) == 2 and groups[first[0]].kind == "full"
    settings["asks_groups_once"] = len(groups) == 1 or is_simple


def _set_checkpoints(settings: st.Records, config: EngineConfig) -> None:
    """Say which states are saved inside chunks: none where no group has blocks for them."""
    states = [group for group in config.kv_cache_groups if group.mode == "align"]
    numbers = [group.num_prefill_checkpoint_blocks for group in states]
    if not any(numbers):
        return
    rule = rules_of(config.vllm_version).prefill_checkpoints
    settings["prefill_checkpoints"] = PREFILL_CHECKPOINTS.index(rule)
    first = states[0].prefill_checkpoint_alignment
    settings["checkpoint_alignment"] = (1 if rule == "from block ends" else first) * all(numbers)


def hands_states(config: EngineConfig) -> bool:
    """Return whether states at the ends of blocks go to host memory."""
    return config.has_native_offloading and any(group.mode == "align" for group in config.kv_cache_groups)


def most_handed_states(config: EngineConfig) -> int:
    """Return how many states enter the prefix cache between two stores at most.

    A request's blocks enter it when it is admitted, when a step gives it tokens and when one's results come in, at most
    two full ones of each group at a time. One more request may have its loaded blocks and not fit.
    """
    return 6 * (config.max_num_seqs + 1) * config.num_kv_cache_groups


def draft_step_tokens(config: EngineConfig) -> int:
    """Return how many tokens a step with drafts has of a request, with the slots behind them; 0 without drafts."""
    if config.num_speculative_tokens == 0:
        return 0
    return 1 + config.num_speculative_tokens + config.num_lookahead_tokens


def reserves_drafts_by_group(config: EngineConfig) -> bool:
    """Return whether room for drafts is reserved group by group; where instances pass KV on, always."""
    return rules_of(config.vllm_version).reserves_drafts_by_group or not config.has_native_offloading


def draft_step_blocks(config: EngineConfig) -> int:
    """Return how many blocks a step with drafts takes in all groups but states, at the most; 0 without drafts.

    vllm 0.32.0 v1/core/sched/scheduler.py:Scheduler.__init__ (_spec_decode_step_blocks); 0.31.0: the method so called.
    """
    num_tokens = draft_step_tokens(config)
    if not reserves_drafts_by_group(config):
        return -(-num_tokens // alignment_of(group_sizes(config))[0])
    kinds = [group.kind for group in config.kv_cache_groups] or ["full"]
    sizes = group_sizes(config)
    return sum(-(-num_tokens // size) for kind, size in zip(kinds, sizes, strict=True) if kind != "state")


def store_alignment_of(config: EngineConfig) -> int:
    """Return at whose multiples hits of host memory can end: the full groups' blocks, or the largest without one.

    1 where full groups have unlike sizes: then every block of a window is stored (vllm 0.32.0
    distributed/kv_transfer/kv_connector/v1/offloading/scheduler.py:SchedulerOffloadConfig.from_spec).
    """
    sizes = group_sizes(config)
    full = {size for group, size in zip(config.kv_cache_groups, sizes, strict=False) if group.kind == "full"}
    if not full:
        return max(sizes)
    return full.pop() if len(full) == 1 else 1


def store_order_of(config: EngineConfig) -> NDArray[np.int64]:
    """Return the groups in the order in which host memory is asked: full ones, then windows, most blocks first."""
    order = np.arange(config.num_kv_cache_groups)
    if not config.kv_cache_groups:
        return order
    sizes = group_sizes(config)
    blocks = [
        -(-(group.window or group.chunk or 1) // size)
        for group, size in zip(config.kv_cache_groups, sizes, strict=True)
    ]
    windows = [number for number in order if config.kv_cache_groups[number].kind != "full"]
    full = [number for number in order if config.kv_cache_groups[number].kind == "full"]
    return np.array([*full, *sorted(windows, key=lambda number: -blocks[number])], np.int64)


def group_records(config: EngineConfig) -> st.Records:
    """Return the engine's records of KV cache groups; none where there is one full group."""
    groups, sizes = config.kv_cache_groups, group_sizes(config)
    records = st.records(len(groups), dt.KV_CACHE_GROUP)
    if not groups:
        return records
    alignment, hash_size = alignment_of(sizes)
    if config.prefix_match_unit is not None:
        hash_size = config.hash_block_size
    rules = rules_of(config.vllm_version)
    marked = config.eagle_groups
    groups = without_eagle_marks(groups)
    kinds = list(dict.fromkeys(groups))
    kinds.sort(key=lambda group: group.kind != "full")
    for number, (group, size) in enumerate(zip(groups, sizes, strict=True)):
        record = records[number]
        record.kind, record.block_size = KIND_CODES[group.kind] + (group.mode == "align"), size
        record.window = group.window + config.num_retained_tokens if group.window else group.chunk
        record.num_hashes_per_block, record.blocks_per_segment = size // hash_size, alignment // size
        record.num_blocks_for_hit = -(-(group.window - 1) // size) if group.window else 0
        record.most_blocks = most_blocks_of(
            group,
            size=size,
            in_flight=config.max_in_flight_tokens,
            max_model_len=config.max_model_len,
            retained=config.num_retained_tokens,
        )
        if not rules.caps_windows:
            record.most_blocks = config.max_model_len + 1
        record.is_eagle_group = config.kv_cache_groups[number].is_eagle_group
        record.saves_checkpoints = group.num_prefill_checkpoint_blocks > 0
        record.checkpoint_alignment = group.prefill_checkpoint_alignment
        record.use_eagle = any(groups[other] == group for other in marked)
        record.caches_past_hit = record.use_eagle * rules.caches_past_hit_for_drafts
        alike = [other for other in range(number + 1, len(groups)) if groups[other] == group]
        record.next_alike = alike[0] if alike else dt.NEVER
        after = kinds[kinds.index(group) + 1 :]
        record.next_to_ask = groups.index(after[0]) if after else dt.NEVER
    return records


KIND_CODES = {"full": dt.FULL, "sliding": dt.SLIDING, "chunked": dt.CHUNKED, "state": dt.STATE}


def _queues(config: EngineConfig, *, num_blocks: int, num_hashes: int) -> st.Records:
    """Return empty queues and full pools."""
    queues = st.records(1, dt.QUEUES)
    for name in ("first_waiting", "last_waiting", "first_pending"):
        queues[name] = dt.NEVER
    queues["num_free_slots"] = config.max_num_seqs
    queues["num_free_blocks"] = num_blocks - 1
    queues["num_keys"] = num_hashes
    return queues


def _set_cpu_tier(settings: st.Records, config: EngineConfig) -> None:
    """Switch the CPU tier on: its size, from how many blocks in use on it fills, what a block's way back takes."""
    settings["num_cpu_blocks"] = config.num_cpu_blocks
    settings["offload_above_blocks"] = int(config.kv_offload_threshold * (config.num_gpu_blocks - 1))
    moving = Fraction(config.block_size) / Fraction(repr(config.kv_transfer_bandwidth))
    settings["reload_us"] = config.kv_transfer_base_latency + math.ceil(moving)


def _new_cpu_slots(num_cpu_blocks: int) -> st.Records:
    """Return the CPU tier's slots, all empty, in a ring closed by slot 0."""
    slots = st.records(num_cpu_blocks + 1, dt.CPU_SLOT)
    numbers = np.arange(num_cpu_blocks + 1, dtype=np.int64)
    slots["next"] = (numbers + 1) % (num_cpu_blocks + 1)
    slots["previous"] = (numbers - 1) % (num_cpu_blocks + 1)
    slots["key"] = dt.NEVER
    return slots


def _new_blocks(num_gpu_blocks: int) -> st.Records:
    """Return the blocks, all free in the order 1, 2, 3, …; the null block closes the ring."""
    blocks = st.records(num_gpu_blocks, dt.BLOCK)
    columns, numbers = st.columns(blocks), np.arange(num_gpu_blocks, dtype=np.uint32)
    columns["next_free"][:-1] = numbers[1:]
    columns["previous_free"][1:] = numbers[:-1]
    columns["previous_free"][:1] = num_gpu_blocks - 1
    columns["hash_id"] = dt.NEVER
    return blocks


def _new_partial_hashes(num_blocks: int) -> st.Records:
    """Return that no block has a content that ends inside it."""
    partial_hashes = st.records(num_blocks, dt.PARTIAL_HASH)
    partial_hashes["hash_id"] = dt.NEVER
    return partial_hashes


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
    rows = first.repeat(len(requests))  # row by row: to fill column by column takes three times as long
    prompt, output = requests.prompt_tokens, requests.output_tokens
    refused = (prompt < 1) | (output < 1)
    if config.frontend == "openai":
        refused |= (prompt >= config.max_model_len) | (_asked_tokens(requests) > config.max_model_len)
        output = np.minimum(output, config.max_model_len - prompt)
    if config.compatibility == "blis":
        refused |= blis.refused_on_arrival(config, prompt_tokens=prompt, output_tokens=requests.output_tokens)
    rows["status"] = np.where(refused, dt.REJECTED, dt.PENDING)
    rows["num_tokens"] = rows["num_prompt_tokens"] = prompt
    rows["max_total_tokens"] = np.maximum(
        prompt + 1, np.minimum(prompt + output, blis.longest_sequence(config))
    )
    rows["urgency"] = urgency(config, priority=requests.priority, prompt_tokens=prompt)
    rows["urgency"] += age_weight_per_us(config) * requests.arrival_us
    rows["arrival_us"] = requests.arrival_us
    rows["queued_us"] = requests.arrival_us + latency.queue_delay_us(prompt)
    rows["hash_start"] = requests.hash_starts
    rows["num_hashes"] = requests.num_hashes
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
    seats = config.max_num_seqs * (1 + config.num_speculative_tokens)
    shift = max((config.max_num_batched_tokens + seats).bit_length() - BINS_PER_DOUBLING.bit_length(), 0)
    return min((shift + 2) * BINS_PER_DOUBLING, NUM_BINS)


def trait_records(requests: Requests) -> st.Records:
    """Return the engine's records of what costs time beyond the lengths."""
    rows = st.records(len(requests), dt.TRAIT)
    rows["adapter"] = dt.NEVER if requests.adapter is None else requests.adapter
    rows["num_encoder_tokens"] = 0 if requests.encoder_tokens is None else requests.encoder_tokens
    rows["is_guided"] = 0 if requests.is_guided is None else requests.is_guided
    return rows


def with_traits(state: st.State, traits: st.Records, skipped: Int64s, config: EngineConfig) -> st.State:
    """Return the state of an engine some of whose requests cost time beyond their lengths.

    ``traits``: of each request. ``skipped``: scratch, as long. Engines may share both.
    """
    num_adapters = int(traits["adapter"].max(initial=dt.NEVER)) + 1
    settings = state.engine["settings"]
    settings["has_traits"] = settings["adds_time"] = 1
    settings["limits_adapters"] = config.max_loras > 0 and num_adapters > 0
    settings["waits_for_grammars"] = config.guided_compile_us > 0  # requests that come later may have one
    settings["has_queue_apart"] |= config.queues_passed_over_apart
    state = state._replace(traits=traits, skipped=skipped)
    return with_room_for_adapters(state, num_adapters, config)


def with_room_for_adapters(state: st.State, num_adapters: int, config: EngineConfig) -> st.State:
    """Return the state with so many adapters counted, and with their places on the GPU."""
    num_places = config.max_loras or num_adapters
    if num_adapters <= len(state.adapter_steps) and num_places <= len(state.lora_places):
        return state
    places, steps = longer(state.lora_places, num_places), longer(state.adapter_steps, num_adapters)
    places["adapter"][len(state.lora_places) :] = places["last_step"][len(state.lora_places) :] = dt.NEVER
    steps[len(state.adapter_steps) :] = dt.NEVER
    return state._replace(lora_places=places, adapter_steps=steps)


def longer(array: st.Records, length: int) -> st.Records:
    """Return a copy of ``array`` with zeros behind it."""
    longer = (
        st.records(length, array.dtype) if isinstance(array, np.recarray) else np.zeros(length, array.dtype)
    )
    longer[: len(array)] = array
    return longer


def longer_table(table: NDArray[np.uint32], length: int) -> NDArray[np.uint32]:
    """Return a copy of a table with rows of zeros below it."""
    longer = np.zeros((length, table.shape[1]), np.uint32)
    longer[: len(table)] = table
    return longer


def longer_hashes(state: st.State, length: int) -> dict[str, Any]:
    """Return the hash table, and what else is kept of its rows, with room for ``length`` contents."""
    length *= int(state.engine[0].settings.num_kv_cache_groups)
    has_tier, has_states = len(state.cpu_slot_of_key) > 0, len(state.step_of_key) > 0
    counts, is_seen = len(state.counted) > 0, len(state.seen_keys) > 0
    return {
        "hashes": longer(state.hashes, length),
        "cpu_slot_of_key": longer(state.cpu_slot_of_key, length if has_tier else 0),
        "step_of_key": longer(state.step_of_key, length if has_states else 0),
        "counted": longer(state.counted, length + 1 if counts else 0),
        "seen_keys": longer(state.seen_keys, length if is_seen else 0),
    }


def row_of_content(state: st.State, content: int) -> int:
    """Return the row of ``hashes`` that a router asks for a content (``prefix_cache.has_content``)."""
    settings = state.engine[0].settings
    return int(content * settings.num_kv_cache_groups + settings.first_group_to_ask)


def more_slots(state: st.State, length: int) -> dict[str, Any]:
    """Return the arrays of requests that hold blocks, with room for ``length`` requests."""
    queues, kv = state.engine[0].queues, state.engine[0].kv_transfers
    before, groups = len(state.free_slots), int(state.engine[0].settings.num_kv_cache_groups)
    free_slots = longer(state.free_slots, length)
    num_free = int(queues.num_free_slots)
    free_slots[num_free : num_free + length - before] = np.arange(before, length)
    queues.num_free_slots += length - before
    events = st.records(length, dt.KV_EVENT)
    for number in range(int(kv.num_applied), int(kv.num_delivered)):
        events[number % length] = state.kv_events[number % len(state.kv_events)]
    rows = st.records(length * state.group_rows.shape[1], dt.GROUP_ROW).reshape(length, -1)
    rows[:before] = state.group_rows
    return {
        "block_table": longer_table(state.block_table, length * groups),
        "group_rows": rows,
        "num_known_blocks": longer(state.num_known_blocks, length * groups),
        "num_blocks_before": longer(state.num_blocks_before, length * groups),
        "known_blocks": longer_table(state.known_blocks, length * len(state.kv_cache_groups)),
        "free_slots": free_slots,
        "holding": longer(state.holding, length),
        "kv_events": events,
    }


def with_kv_transfers(state: st.State, transfers: st.Records, *, is_producer: bool) -> st.State:
    """Return the state of an engine with a KV connector; ``transfers``: of each request, shared by all engines."""
    settings, seats = state.engine.settings, len(state.block_table)
    settings["has_kv_transfers"], settings["is_kv_producer"] = 1, is_producer
    settings["has_loads"] = settings["notes_shares"] = 1
    settings["defers_block_frees"] = (settings.max_concurrent_batches > 1) & (not is_producer)
    return state._replace(
        transfers=transfers,
        holding=np.zeros(seats, np.int64),
        kv_events=st.records(seats, dt.KV_EVENT),
        deferred_frees=deferred_frees(state.entries.size, exists=bool(settings.defers_block_frees[0])),
    )


def deferred_frees(length: int, *, exists: bool) -> st.Records:
    """Return the array of requests whose blocks wait to be freed, of no rows where none do."""
    return st.records(length if exists else 0, dt.DEFERRED_FREE)


def with_more_room(state: st.State) -> st.State:
    """Return the state with every log doubled that is more than half full, likewise the hash table and the heap."""
    settings, fill, queues = (
        st.columns(state.engine)[0][each] for each in ("settings", "log_fill", "queues")
    )
    seats, width = int(settings["max_num_seqs"]), state.block_table.shape[1]
    tokens_per_step = len(state.batches) * seats * (1 + int(settings["num_speculative_tokens"]))
    changes: dict[str, Any] = {}
    most_loads = int(queues["num_waiting"] + queues["num_added"] - queues["num_joined"]) + seats
    for name, used, most in (
        (
            "log",
            fill["num_log_words"],
            len(state.blocks) * 4 + len(state.block_table) * (width + 8) * 2 + 8 * most_loads + 128,
        ),
        ("spans", fill["num_spans"], tokens_per_step + LONGEST_JUMP),
        ("pauses", fill["num_pauses"], tokens_per_step),
        ("tokens", fill["num_logged_tokens"], tokens_per_step + LONGEST_JUMP),
        (
            "completions",
            fill["num_completions"],
            2 * len(state.batches) * seats + (most_loads if settings["has_loads"] else 0),
        ),
    ):
        array = getattr(state, name)
        if len(array) and 2 * used + most > len(array):
            changes[name] = longer(array, 2 * len(array) + most)
    if settings["has_loads"] and most_loads > queues["num_free_slots"]:
        changes |= more_slots(state, 2 * len(state.free_slots) + most_loads)
    num_holding = int(st.columns(state.engine)[0]["kv_transfers"]["num_holding"])
    if settings["has_kv_offloading"]:
        num_departed = int(st.columns(state.engine)[0]["kv_offload"]["num_departed"])
        most_departed = most_loads + num_departed + num_holding
        if most_departed > len(state.departed):
            changes["departed"] = longer(state.departed, 2 * most_departed)
    most_ids = (seats + num_holding) * (width + 1)
    num_contents = len(state.hashes) // int(settings["num_kv_cache_groups"])
    if queues["num_keys"] + most_ids > num_contents:
        changes |= longer_hashes(state, 2 * num_contents + most_ids)
    most_waiting = int(
        queues["num_waiting"] + queues["num_added"] - queues["num_joined"] + queues["num_running"]
    )
    if len(state.heap) and most_waiting > len(state.heap):
        changes["heap"] = longer(state.heap, 2 * most_waiting)
    return state._replace(**changes)
