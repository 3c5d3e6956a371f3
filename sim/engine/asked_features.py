"""What the core engine asks its features: one name for each question, and no other way to them.

``schedule``, ``jump``, ``run``, ``update`` and what they preempt and abort with know of drafts, images, adapters,
stages, ranks, transfers, host memory, pins and other schedulers by this module alone; of KV cache groups by
``kv_cache_manager``. An engine that lacks a feature gets its answer in the first line, or never asks
(``tests/sim/engine/test_plain_core.py``).
"""

from __future__ import annotations

from sim.engine.dtypes import NEVER, SAMPLES
from sim.engine.kv_cache.groups.decode import hand_out_blocks_of_groups
from sim.engine.kv_cache.groups.states import aligned_chunk, take_states_back
from sim.engine.kv_cache.groups.windows import let_copies_go
from sim.engine.kv_cache.kv_cache_manager import allocate_slots, fits
from sim.engine.kv_cache.session_kv import (
    leave_pin,
    next_expiry_us,
    note_waiting,
    num_blocks_to_pin,
    pin,
    unpin_expired,
    unpin_for_head,
    unpin_until_it_fits,
)
from sim.engine.kv_offload.contents import forget_known_blocks
from sim.engine.kv_offload.links import hand_over, only_waits_to_store, tells
from sim.engine.kv_offload.loading import HAS_NO_ROOM, HAS_NONE, IS_ASIDE, ask_host_memory, promote_loaded
from sim.engine.kv_offload.storing import (
    begin_orders,
    depart,
    end_orders,
    keep_row,
    keeps_still,
    know_blocks_of_running,
    report_transfers,
)
from sim.engine.kv_offload.waking import has_requests, has_unfinished, has_work, hears_news, next_event_us
from sim.engine.kv_transfer.deferred_frees import free_once_written, free_written
from sim.engine.kv_transfer.delivery import (
    abort_held,
    brings_news,
    hear_of_transfers,
    keeps_blocks,
    keeps_state_for_jumps,
    poll_transfers,
)
from sim.engine.kv_transfer.remote_kvs import fits_behind, local_tokens, promote, start_load, take_held
from sim.engine.optional.added_time import (
    describe_running,
    has_new_grammar,
    next_grammar_us,
    note_adapter,
    note_adapters,
    note_first_schedule,
    skips_for_adapter,
    skips_for_grammar,
    with_added_time,
    with_time_added_in_jump,
)
from sim.engine.optional.batching import (
    is_decode,
    is_stopped_by_company,
    num_blocks_reserved,
    reserves_sequences,
    steps_until_one_ends,
)
from sim.engine.optional.blis import forget_outputs, least_step_us, loses_tie, repeats_preempting_all
from sim.engine.optional.encoder_cache import free_images
from sim.engine.optional.encoder_inputs import (
    allocate_encoder_inputs,
    begin_encoding,
    free_encoder_inputs,
    give_budget_back,
    has_images,
    running_hold_images,
    try_schedule_encoder_inputs,
)
from sim.engine.optional.pipeline_stages import (
    first_stage_starts_us,
    is_out_of_turn,
    launch_in_stages,
    skips_for_stale_output,
)
from sim.engine.optional.prefill_balance import begin_balance, end_balance, sits_out
from sim.engine.optional.speculative import (
    clear_of_prompt_end,
    drop_drafts,
    mark_padding,
    note_running,
    num_tokens_to_verify,
    padding_of_admission,
    propose_tokens,
    verify_drafts,
)
from sim.engine.state import State
from sim.jit.compile import part, phase

__all__ = [
    "HAS_NONE",
    "HAS_NO_ROOM",
    "IS_ASIDE",
    "abort_held",
    "ask_elsewhere",
    "begin_admissions",
    "begin_features",
    "brings_news",
    "cut_share",
    "depart",
    "describe_running",
    "end_features",
    "finds_slots",
    "first_stage_starts_us",
    "fits_behind",
    "forget_known_blocks",
    "forget_progress",
    "free_once_written",
    "free_written",
    "gives_one_token",
    "hand_out_blocks_of_groups",
    "hand_over",
    "has_new_grammar",
    "has_requests",
    "has_to_sit_out",
    "has_unfinished",
    "has_work",
    "head_fits",
    "hears_news",
    "is_decode",
    "is_stopped_by_company",
    "join_held",
    "keep_row",
    "keeps_blocks",
    "keeps_state_for_jumps",
    "keeps_still",
    "know_blocks_of_running",
    "launch_in_stages",
    "least_step_us",
    "leave_pin",
    "let_go_of_inputs",
    "let_go_of_read_inputs",
    "local_tokens",
    "loses_tie",
    "mark_padding",
    "may_need_others_inputs",
    "next_event_us",
    "next_expiry_us",
    "next_grammar_us",
    "note_admission",
    "note_first_admission",
    "note_running",
    "note_share",
    "note_waiting",
    "num_blocks_reserved",
    "num_blocks_to_pin",
    "num_tokens_to_verify",
    "only_waits_to_store",
    "padding_of_admission",
    "pin",
    "propose_tokens",
    "repeats_preempting_all",
    "reserves_sequences",
    "running_hold_inputs",
    "skips_for_grammar",
    "skips_head",
    "steps_until_one_ends",
    "take_held",
    "take_in_transfers",
    "take_share_back",
    "take_states_back",
    "tells",
    "unless_cut",
    "verify_tokens",
    "with_added_time",
    "with_time_added_in_jump",
]
"""What the core asks: the functions below, and those of features that it asks as they are."""


# -- a step ---------------------------------------------------------------------------------------------------


@phase
def begin_features(s: State, batch: int) -> None:
    """Have features begin a step, before any request is scheduled."""
    settings = s.engine[0].settings
    s.engine[0].current_step.num_encoder_tokens = 0
    if settings.session_kv_ttl_us > 0:
        unpin_expired(s)
    if settings.has_kv_transfers:
        poll_transfers(s, batch)
    if settings.has_kv_offloading:
        begin_orders(s)
    if settings.balances_prefills:
        begin_balance(s)
    if settings.has_images:
        begin_encoding(s)


@phase
def end_features(s: State, batch: int) -> None:
    """Have features end a step, when all its requests are scheduled."""
    settings = s.engine[0].settings
    if settings.matches_inside_blocks:
        let_copies_go(s)
    if settings.has_kv_offloading:
        end_orders(s, batch)
    if settings.defers_block_frees and s.batches[batch].num_entries > 0:
        s.engine[0].kv_transfers.num_scheduled += 1
    if settings.balances_prefills:
        end_balance(s, batch)


# -- a running request ----------------------------------------------------------------------------------------


@part
def has_to_sit_out(s: State, request: int) -> bool:
    """Return whether a running request is not to be scheduled in this step, whatever it wants."""
    if s.engine[0].settings.balances_prefills:
        return sits_out(s, request)
    return is_out_of_turn(s, request)


@phase
def cut_share(s: State, request: int, start: int, wanted: int, junction: int) -> int:
    """Return how many of the tokens behind ``start`` lie before the next state to keep, an image, or the prompt's end.

    ``junction``: up to where another group has the prefix (``states.aligned_chunk``). 0: the request has to wait;
    NEVER: for a state.
    """
    settings = s.engine[0].settings
    if settings.aligns_states:
        wanted = aligned_chunk(s, request, start, wanted, junction)
        if wanted == 0:
            return NEVER
    if settings.has_images and wanted > 0:
        wanted = try_schedule_encoder_inputs(s, request, start, wanted)
    if settings.num_prefill_lookahead_tokens > 1 and wanted > 0:
        wanted = clear_of_prompt_end(s, request, start, wanted)
    return wanted


@phase
def note_share(s: State, request: int, num_tokens: int, kind: int) -> None:
    """Note what a request's share of the step means to the encoder, and to transfers of KV."""
    settings = s.engine[0].settings
    if settings.has_images:
        allocate_encoder_inputs(s, request)
    if settings.has_loads:
        t = s.transfers[request]
        t.num_tokens_of_share, t.step_of_share = num_tokens, s.engine[0].totals.num_steps
        if settings.num_speculative_tokens == 0 or t.is_prefill_chunk == 0:  # else: ``settle_prefills``
            t.is_prefill_chunk = not kind & SAMPLES


@part
def finds_slots(s: State, request: int, num_tokens: int) -> bool:
    """Give a running request the blocks for its next tokens, pinned ones if need be; return False when they lack."""
    if allocate_slots(s, request, num_tokens):
        return True
    return s.engine[0].settings.session_kv_ttl_us > 0 and unpin_until_it_fits(s, request, num_tokens)


@part
def let_go_of_inputs(s: State, request: int) -> None:
    """Have a request let go of what an encoder made for it: it does not fit, is preempted, or is over."""
    if s.engine[0].settings.has_images:
        free_images(s, request)


@part
def running_hold_inputs(s: State) -> bool:
    """Return whether a running request holds what an encoder made for it, and may let it go with any step."""
    return s.engine[0].settings.has_images == 1 and running_hold_images(s)


# -- a waiting request ----------------------------------------------------------------------------------------


@part
def head_fits(s: State, request: int, num_tokens: int, num_evictable: int) -> bool:
    """Return whether the head of the queue may be admitted, pinned blocks taken away if no request runs."""
    settings = s.engine[0].settings
    if fits(s, request, num_tokens, num_evictable=num_evictable):
        return True
    if settings.session_kv_ttl_us > 0 and unpin_for_head(s, request, num_tokens):
        return True
    let_go_of_inputs(s, request)
    return False


@part
def unless_cut(s: State, num_tokens: int, padding: int) -> tuple[int, int]:
    """Return an admission's tokens and its padding; what a state has cut is padded no more."""
    if s.engine[0].settings.aligns_states and 0 < padding != num_tokens - 1:
        return 1, 0
    return num_tokens, padding


@part
def ask_elsewhere(s: State, request: int, num_evictable: int) -> int:
    """Load what the GPU's cache lacks for the head of the queue, from host memory or another engine."""
    if s.engine[0].settings.has_kv_offloading:
        return ask_host_memory(s, request, num_evictable)
    if not s.transfers[request].do_remote_prefill:
        return HAS_NONE
    if start_load(s, request, num_evictable):
        return IS_ASIDE
    s.engine[0].queues.head_is_blocked = 1
    return HAS_NO_ROOM


@part
def skips_head(s: State, batch: int, request: int) -> bool:
    """Pass over the head of the queue if it has to wait and others have not; return whether it has."""
    settings = s.engine[0].settings
    if settings.waits_for_grammars and skips_for_grammar(s, request):
        return True
    if settings.pipeline_parallel_size > 1 and skips_for_stale_output(s, request):
        return True
    return settings.limits_adapters == 1 and skips_for_adapter(s, batch, request)


@part
def may_need_others_inputs(s: State, request: int) -> bool:
    """Return whether a request that does not fit may fit when other requests let go of what an encoder made."""
    return has_images(s, request)


@part
def begin_admissions(s: State, batch: int) -> None:
    """Have features begin the admission of waiting requests."""
    if s.engine[0].settings.limits_adapters:
        note_adapters(s, batch)


@part
def note_admission(s: State, batch: int, request: int) -> None:
    """Note that a request of the queue was admitted."""
    if s.engine[0].settings.limits_adapters:
        note_adapter(s, batch, request)


@part
def note_first_admission(s: State, request: int) -> None:
    """Note that a request is scheduled for the first time."""
    settings = s.engine[0].settings
    note_first_schedule(s, request)
    if settings.session_kv_ttl_us > 0:
        leave_pin(s, request)
    if settings.has_kv_offloading:
        t = s.transfers[request]
        t.num_loaded_tokens = t.num_external_computed_tokens
        s.engine[0].totals.num_kv_loaded_tokens += t.num_external_computed_tokens


@part
def join_held(s: State, request: int) -> None:
    """Let a request whose KV has come be admitted."""
    if s.engine[0].settings.has_kv_offloading:
        promote_loaded(s, request)
    else:
        promote(s, request)


# -- results --------------------------------------------------------------------------------------------------


@part
def gives_one_token(s: State) -> bool:
    """Return whether a step gives a request one token at most: there are no drafts."""
    return s.engine[0].settings.num_speculative_tokens == 0


@part
def verify_tokens(s: State, batch: int, index: int, is_stale: bool) -> int:
    """Take back the drafts of a request that do not hold; return how many do."""
    entry = s.entries[batch, index]
    if s.engine[0].settings.num_speculative_tokens == 0 or not entry.kind & SAMPLES:
        return 0
    return verify_drafts(s, entry.request, entry.num_tokens, entry.kind, is_stale=is_stale)


@part
def let_go_of_read_inputs(s: State, request: int) -> None:
    """Release the images that a batch completed; drafts that did not hold are taken back before."""
    if s.engine[0].settings.has_images:
        free_encoder_inputs(s, request)


@part
def take_in_transfers(s: State, batch: int, now_us: int) -> None:
    """Take in which transfers of KV have ended, with the results of a batch."""
    if s.engine[0].settings.has_kv_offloading:
        report_transfers(s, batch, now_us)
    else:
        hear_of_transfers(s, batch)


# -- a request that is preempted ------------------------------------------------------------------------------


@part
def take_share_back(s: State, request: int) -> None:
    """Take back what a preempted request was given by an encoder in the step in hand."""
    if s.engine[0].settings.has_images:
        give_budget_back(s, request)


@part
def forget_progress(s: State, request: int) -> None:
    """Have a preempted request lose what features gave it: images, drafts, and with BLIS's rules its outputs."""
    let_go_of_inputs(s, request)
    drop_drafts(s, request)
    forget_outputs(s, request)
