"""Blocks of groups that are filled from elsewhere: whether they fit, what a request is given, what it goes on with."""

from __future__ import annotations

from sim.engine.kv_cache.blocks import get_new_block
from sim.engine.kv_cache.groups.checkpoints import num_saved
from sim.engine.kv_cache.groups.keys import table_row
from sim.engine.kv_cache.groups.slots import (
    blocks_to_go_on,
    extend_group,
    fits_beside,
    most_with_checkpoint,
    num_blocks_for,
    take_hit,
)
from sim.engine.kv_cache.groups.windows import let_skipped_go
from sim.engine.records.group_records import ALIGNED_STATE, NO_CHECKPOINTS
from sim.engine.state import State
from sim.jit.compile import part, phase


@phase
def groups_have_room(s: State, request: int, num_tokens: int, num_kept_free: int, num_reserved: int) -> bool:
    """Return whether a waiting request may have the blocks of a hit that is loaded; count where not.

    ``num_kept_free``: the watermark; ``num_reserved``: what prefills under way still need.
    """
    settings = s.engine[0].settings
    known = min(s.requests[request].num_tokens, settings.max_model_len)
    does_fit = not settings.scheduler_reserve_full_isl or fits_beside(
        s, request, known, known, num_tokens, num_kept_free, True
    )
    num_others = num_kept_free + num_reserved
    if does_fit and fits_beside(s, request, num_tokens, num_tokens, num_tokens, num_others, False):
        return True
    s.engine[0].totals.num_kv_allocation_failures += 1
    return False


@phase
def adopt_in_groups(s: State, request: int, num_tokens: int) -> None:
    """Give a request its hits in all groups, then blocks for the rest of its first ``num_tokens``, which are loaded."""
    slot, num_groups = s.requests[request].slot, s.engine[0].settings.num_kv_cache_groups
    for group in range(num_groups):
        take_hit(s, request, group, num_tokens)
    s.group_rows[slot, 0].shared_prefix_boundary = s.engine[0].current_step.shared_prefix_boundary
    s.group_rows[slot, 0].next_visit = 0
    for group in range(num_groups):
        if s.kv_cache_groups[group].kind == ALIGNED_STATE:
            append_states(s, request, group, 1)
        else:
            extend_group(s, request, group, num_tokens, num_tokens, num_tokens, True)
    num_drafts = s.engine[0].settings.num_speculative_tokens
    if num_drafts > 0:
        for group in range(num_groups):
            if s.kv_cache_groups[group].kind == ALIGNED_STATE:
                s.group_rows[slot, group].last_state_block = s.group_rows[slot, group].num_blocks - 1
                append_states(s, request, group, num_drafts)


@part
def append_states(s: State, request: int, group: int, num: int) -> None:
    """Give a request ``num`` blocks more of a group of states."""
    have, row = s.group_rows[s.requests[request].slot, group], table_row(s, request, group)
    for _ in range(num):
        s.block_table[row, have.num_blocks] = get_new_block(s)
        have.num_blocks += 1


@part
def num_computed_before(s: State, request: int) -> int:
    """Return how many of a request's tokens were computed before the step in hand, as vLLM counts until its end."""
    r, t = s.requests[request], s.transfers[request]
    is_in_step = t.step_of_share == s.engine[0].totals.num_steps
    return r.num_computed_tokens - t.num_tokens_of_share * is_in_step


@phase
def blocks_missing_in_groups(s: State, request: int, num_more_tokens: int) -> int:
    """Return how many blocks a request with a row still needs for all tokens that it knows, and so many more."""
    settings, r = s.engine[0].settings, s.requests[request]
    known, num_missing = min(r.num_tokens, settings.max_model_len), 0
    for group in range(settings.num_kv_cache_groups):
        g = s.kv_cache_groups[group]
        num_required = min(num_blocks_for(s, group, known + num_more_tokens, known), g.most_blocks)
        num_new = max(0, num_required - s.group_rows[r.slot, group].num_blocks)
        if g.kind == ALIGNED_STATE:
            most = 1
            if settings.prefill_checkpoints != NO_CHECKPOINTS:
                start = num_computed_before(s, request)
                if num_saved(s, request, group, start, known, False):
                    most = most_with_checkpoint(s)
            num_new = min(num_new, most)
        num_missing += num_new
    return num_missing


@phase
def groups_fit_behind(s: State, request: int, num_new_tokens: int, num_kept_free: int) -> bool:
    """Return whether a request that was loaded may be admitted with these tokens; count where not.

    What its windows have passed is let go before the blocks are counted, whether or not they are there.
    """
    settings, queues, r = s.engine[0].settings, s.engine[0].queues, s.requests[request]
    does_fit = True
    if settings.scheduler_reserve_full_isl:
        does_fit = blocks_missing_in_groups(s, request, 0) + num_kept_free <= queues.num_free_blocks
    if does_fit:
        total = min(r.num_computed_tokens + num_new_tokens, settings.max_model_len)
        slots = min(total + settings.num_lookahead_tokens, settings.max_model_len)
        num_needed = num_kept_free
        for group in range(settings.num_kv_cache_groups):
            let_skipped_go(s, request, group, r.num_computed_tokens)
        for group in range(settings.num_kv_cache_groups):
            num_needed += blocks_to_go_on(s, request, group, r.num_computed_tokens, slots, total)
        does_fit = num_needed <= queues.num_free_blocks
    if not does_fit:
        s.engine[0].totals.num_kv_allocation_failures += 1
    return does_fit
