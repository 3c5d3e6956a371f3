"""Blocks of groups: whether a request fits, what it is given, what it gives back (vLLM's allocate_slots and free)."""

from __future__ import annotations

from sim.engine.dtypes import NEVER
from sim.engine.kv_cache.blocks import get_new_block, touch
from sim.engine.kv_cache.groups.caching import cache_in_groups
from sim.engine.kv_cache.groups.checkpoints import checkpoint_block, num_saved, place_to_save
from sim.engine.kv_cache.groups.keys import table_row
from sim.engine.kv_cache.groups.partial import copy_shared_block, ends_inside, has_to_copy, key_of_hit
from sim.engine.kv_cache.groups.windows import let_skipped_go, num_skipped_tokens, release
from sim.engine.kv_cache.prefix_cache import cdiv, give_private_keys
from sim.engine.records.group_records import (
    ALIGNED_STATE,
    FROM_BLOCK_ENDS,
    NO_CHECKPOINTS,
    OF_EVERY_CHUNK,
    OF_LAST_CHUNK,
    SLIDING,
    STATE,
    WHERE_HITS_END,
)
from sim.engine.state import State
from sim.jit.compile import part, phase


@part
def was_made_in_this_step(s: State, group: int) -> bool:
    """Return whether the state that a hit begins with is computed by another request in the step in hand."""
    g = s.kv_cache_groups[group]
    if g.kind != ALIGNED_STATE or g.num_hit_blocks == 0 or not s.engine[0].settings.defers_states_of_step:
        return False
    return s.step_of_key[key_of_hit(s, group)] == s.engine[0].totals.num_steps


@part
def num_blocks_for(s: State, group: int, num_slots: int, num_tokens: int) -> int:
    """Return how many blocks a group's row has with ``num_slots``, of which ``num_tokens`` are the model's own.

    A state has a block more for each draft, and none for the drafting model's slots.
    """
    g = s.kv_cache_groups[group]
    if g.kind < STATE:
        return cdiv(num_slots, g.block_size)
    most = num_tokens if g.kind == ALIGNED_STATE else num_slots
    return cdiv(most, g.block_size) + s.engine[0].settings.num_speculative_tokens


@phase
def blocks_to_admit(
    s: State, request: int, group: int, num_slots: int, num_tokens: int, hit_length: int, is_gate: bool
) -> int:
    """Return how many free blocks a group takes for a request's first ``num_slots``, its hit's included.

    ``num_tokens``: of them the model's own. ``is_gate``: of all known tokens, of which a window never holds more than
    so many blocks.
    """
    g = s.kv_cache_groups[group]
    num_required = num_blocks_for(s, group, num_slots, num_tokens)
    num_skipped = num_skipped_tokens(s, group, hit_length) // g.block_size
    num_copies = ends_inside(s, group, hit_length) if s.engine[0].settings.matches_inside_blocks else 0
    if g.kind == ALIGNED_STATE:
        most = 1 + s.engine[0].settings.num_speculative_tokens
        num_new = min(max(num_required - g.num_hit_blocks, 0), most)
        if s.engine[0].settings.prefill_checkpoints != NO_CHECKPOINTS:
            num_new += num_saved(s, request, group, hit_length, num_tokens, True)
    else:
        if is_gate:
            num_required = min(num_required, g.most_blocks)
        num_new = max(num_required - max(num_skipped, g.num_hit_blocks), 0)
    if g.kind == ALIGNED_STATE:  # the state of a hit is charged even where what is loaded goes beyond it
        num_skipped = max(0, g.num_hit_blocks - 1)
    for i in range(num_skipped, g.num_hit_blocks):
        block = s.group_hits[group, i]
        if block != 0 and s.blocks[block].ref_cnt == 0:
            num_new += 1
    return num_new + num_copies


@part
def fits_beside(
    s: State,
    request: int,
    num_slots: int,
    num_tokens: int,
    hit_length: int,
    num_kept_free: int,
    is_gate: bool,
) -> bool:
    """Return whether there are blocks for a request's first ``num_slots`` in all groups, so many left over."""
    settings, queues = s.engine[0].settings, s.engine[0].queues
    num_needed = num_kept_free
    for group in range(settings.num_kv_cache_groups):
        if was_made_in_this_step(s, group):
            s.engine[0].current_step.waits_for_state = 1
            return False
        num_needed += blocks_to_admit(s, request, group, num_slots, num_tokens, hit_length, is_gate)
    return num_needed <= queues.num_free_blocks


@phase
def groups_fit(s: State, request: int, num_new_tokens: int) -> bool:
    """Return whether a waiting request may be admitted with this first chunk behind its hit; count where not."""
    settings, queues, current = s.engine[0].settings, s.engine[0].queues, s.engine[0].current_step
    hit_length = current.num_hit_blocks * settings.hash_block_size
    kept_free = settings.watermark_blocks if queues.num_running > 0 else 0
    known = min(s.requests[request].num_tokens, settings.max_model_len)
    total = min(hit_length, settings.max_model_len) + num_new_tokens
    slots = min(total + settings.num_first_lookahead_tokens, settings.max_model_len)
    does_fit = not settings.scheduler_reserve_full_isl or fits_beside(
        s, request, known, known, hit_length, kept_free, True
    )
    if does_fit and fits_beside(s, request, slots, total, hit_length, kept_free, False):
        return True
    s.engine[0].totals.num_kv_allocation_failures += 1
    return False


@part
def take_hit(s: State, request: int, group: int, hit_length: int) -> None:
    """Give a request its hit's blocks in a group; those that it will not read are left out."""
    g, have = s.kv_cache_groups[group], s.group_rows[s.requests[request].slot, group]
    row = table_row(s, request, group)
    num_skipped = num_skipped_tokens(s, group, hit_length) // g.block_size
    for i in range(min(num_skipped, g.num_hit_blocks)):
        s.block_table[row, i] = 0
    for i in range(num_skipped, g.num_hit_blocks):
        block = s.group_hits[group, i]
        if block != 0:
            touch(s, block)
        s.block_table[row, i] = block
    for i in range(g.num_hit_blocks, num_skipped):
        s.block_table[row, i] = 0
    have.num_blocks = have.num_cached_blocks = max(num_skipped, g.num_hit_blocks)
    have.num_retired_blocks = 0
    have.last_state_block = NEVER
    have.checkpoint_place = 0
    if s.engine[0].settings.matches_inside_blocks:
        s.shared_block[row] = NEVER
        if ends_inside(s, group, hit_length):
            have.num_cached_blocks = s.shared_block[row] = hit_length // g.block_size


@part
def note_checkpoint(s: State, request: int, group: int, start: int, end: int, is_admission: bool) -> int:
    """Note what is saved inside a request's next tokens; return 1 where anything is, else 0."""
    have = s.group_rows[s.requests[request].slot, group]
    have.checkpoint_place = place_to_save(s, request, group, start, end, is_admission)
    have.checkpoint_block = checkpoint_block(s, group, end)
    return 1 if have.checkpoint_place > 0 else 0


@part
def num_drafts_before(s: State, newest: int, num_saved_states: int) -> int:
    """Return before which block of a row those of drafts' states make room for the newest one's.

    Where a state is saved they stay in 0.30 and 0.31, and later the one that it is saved in.
    """
    rule = s.engine[0].settings.prefill_checkpoints
    if num_saved_states == 0 or rule == FROM_BLOCK_ENDS:
        return newest
    return newest - 1 if rule == WHERE_HITS_END else 0


@part
def extend_states(
    s: State, request: int, group: int, start: int, num_tokens: int, is_admission: bool
) -> None:
    """Give a request a block for its state at the end of ``num_tokens``, unless it goes on in the one it has.

    Before it stands one for what is saved on the way from ``start``. Behind it stand blocks for the states of drafts,
    which a running request takes along.
    """
    have, row = s.group_rows[s.requests[request].slot, group], table_row(s, request, group)
    num_required, before = num_blocks_for(s, group, num_tokens, num_tokens), have.num_blocks
    settings, copies = s.engine[0].settings, 0
    if settings.matches_inside_blocks:
        copies = has_to_copy(s, request, group)
    num_saved_states = 0
    if settings.prefill_checkpoints != NO_CHECKPOINTS:
        num_saved_states = note_checkpoint(s, request, group, start, num_tokens, is_admission)
    if num_required <= before and not copies and not num_saved_states:
        return
    num_drafts = settings.num_speculative_tokens
    num_kept = 0 if is_admission else num_drafts
    if before > 0:
        have.last_state_block = before - 1 - num_kept
    newest = num_required - 1 - num_drafts
    for i in range(before, newest - num_saved_states):
        s.block_table[row, i] = 0
    num_blocks = max(before, newest - num_saved_states)
    drafts_end = newest
    if settings.prefill_checkpoints != NO_CHECKPOINTS:
        drafts_end = num_drafts_before(s, newest, num_saved_states)
    for i in range(before - num_kept, min(before, drafts_end)):
        s.block_table[row, num_blocks] = s.block_table[row, i]
        s.block_table[row, i] = 0
        num_blocks += 1
    if settings.matches_inside_blocks and copies:
        copy_shared_block(s, request, group, get_new_block(s), is_admission)
    for i in range(num_blocks, num_required):
        s.block_table[row, i] = get_new_block(s)
    have.num_blocks = max(num_required, num_blocks)


@phase
def extend_group(
    s: State, request: int, group: int, start: int, num_slots: int, num_tokens: int, is_admission: bool
) -> None:
    """Give a request a group's blocks for ``num_slots``; ``num_tokens`` of them are no drafts' room.

    ``start``: how many are computed.
    """
    g, have = s.kv_cache_groups[group], s.group_rows[s.requests[request].slot, group]
    if g.kind == ALIGNED_STATE:
        extend_states(s, request, group, start, num_tokens, is_admission)
        return
    if s.engine[0].settings.matches_inside_blocks and has_to_copy(s, request, group):
        copy_shared_block(s, request, group, get_new_block(s), is_admission)
    row = table_row(s, request, group)
    for i in range(have.num_blocks, num_blocks_for(s, group, num_slots, num_tokens)):
        s.block_table[row, i] = get_new_block(s)
        have.num_blocks = i + 1


@phase
def admit_to_groups(s: State, request: int, num_new_tokens: int) -> None:
    """Give an admitted request its hit's blocks in all groups, then those for its first chunk."""
    settings, queues, current, r = (
        s.engine[0].settings,
        s.engine[0].queues,
        s.engine[0].current_step,
        s.requests[request],
    )
    queues.num_free_slots -= 1
    r.slot = s.free_slots[queues.num_free_slots]
    hit_length = current.num_hit_blocks * settings.hash_block_size
    for group in range(settings.num_kv_cache_groups):
        take_hit(s, request, group, hit_length)
    s.group_rows[r.slot, 0].shared_prefix_boundary = current.shared_prefix_boundary * settings.keeps_junctions
    s.group_rows[r.slot, 0].next_visit = 0
    r.num_computed_tokens = hit_length
    if settings.has_kv_offloading and r.private_start == NEVER:
        give_private_keys(s, request)
    total = min(hit_length, settings.max_model_len) + num_new_tokens
    slots = min(total + settings.num_first_lookahead_tokens, settings.max_model_len)
    for group in range(settings.num_kv_cache_groups):
        extend_group(s, request, group, hit_length, slots, total, True)
    cache_in_groups(s, request, min(total, r.num_tokens))


@part
def most_with_checkpoint(s: State) -> int:
    """Return how many blocks of states a running request is charged at most where one is saved.

    In 0.30 as many as its row grows by, in 0.31 those of drafts anew.
    """
    settings = s.engine[0].settings
    if settings.prefill_checkpoints == OF_EVERY_CHUNK:
        return settings.max_model_len + settings.num_speculative_tokens
    counts_drafts = settings.prefill_checkpoints == OF_LAST_CHUNK
    return 2 + settings.num_speculative_tokens if counts_drafts else 2


@part
def blocks_to_go_on(s: State, request: int, group: int, start: int, num_slots: int, num_tokens: int) -> int:
    """Return how many new blocks a group takes for a running request's tokens; none for those of rejected drafts.

    A running request takes the blocks of its drafts' states along, so a state is one block more. vLLM lets one that
    needs fewer than it has make up for another group's, and ends in an error where that was taken for room.
    """
    g, have = s.kv_cache_groups[group], s.group_rows[s.requests[request].slot, group]
    num_new = max(num_blocks_for(s, group, num_slots, num_tokens) - have.num_blocks, 0)
    if g.kind != ALIGNED_STATE:
        return num_new
    settings, most = s.engine[0].settings, 1
    if settings.prefill_checkpoints != NO_CHECKPOINTS and num_saved(
        s, request, group, start, num_tokens, False
    ):
        most = most_with_checkpoint(s)
        if settings.prefill_checkpoints == FROM_BLOCK_ENDS and num_new > 0:
            num_new = most
    num_new = min(num_new, most)
    if settings.matches_inside_blocks:
        num_new += has_to_copy(s, request, group)
    return num_new


@phase
def go_on_in_groups(
    s: State, request: int, start: int, total: int, num_processed: int, num_known: int
) -> bool:
    """Give a running request the blocks for ``total`` tokens; return False when they lack.

    ``start`` of them are computed. What it no longer reads behind ``num_processed`` is let go first, whether or not
    the rest is there; the first ``num_known`` tokens are no drafts and may be cached.
    """
    settings, queues = s.engine[0].settings, s.engine[0].queues
    slots = min(total + settings.num_lookahead_tokens, settings.max_model_len)
    s.group_rows[s.requests[request].slot, 0].next_visit = 0
    num_needed = 0
    for group in range(settings.num_kv_cache_groups):
        let_skipped_go(s, request, group, num_processed)
    for group in range(settings.num_kv_cache_groups):
        num_needed += blocks_to_go_on(s, request, group, start, slots, total)
    if num_needed > queues.num_free_blocks:
        return False
    for group in range(settings.num_kv_cache_groups):
        extend_group(s, request, group, start, slots, total, False)
    cache_in_groups(s, request, min(total, num_known))
    return True


@part
def free_group(s: State, request: int, group: int, front: int) -> int:
    """Drop a request's references in a group, the last block first; return where others go (``release``)."""
    row, settings = table_row(s, request, group), s.engine[0].settings
    goes_first = settings.frees_unhashed_blocks_first
    if s.kv_cache_groups[group].kind == SLIDING:
        goes_first = max(goes_first, settings.frees_windows_first)
    for i in range(s.group_rows[s.requests[request].slot, group].num_blocks - 1, -1, -1):
        if s.block_table[row, i] != 0:
            front = release(s, s.block_table[row, i], front, goes_first)
    return front


@phase
def free_groups(s: State, request: int, is_late: bool) -> None:
    """Drop a request's references, group by group, the last block of each first.

    ``is_late``: the blocks were kept for a batch in flight. They go as one list, the last group first.
    """
    settings, queues, r = s.engine[0].settings, s.engine[0].queues, s.requests[request]
    if r.slot == NEVER:
        return
    front = 0
    for group in range(settings.num_kv_cache_groups):
        if is_late:
            front = free_group(s, request, settings.num_kv_cache_groups - 1 - group, front)
        else:
            free_group(s, request, group, 0)
    s.free_slots[queues.num_free_slots] = r.slot
    queues.num_free_slots += 1
    r.slot = NEVER
    queues.head_is_blocked = 0
