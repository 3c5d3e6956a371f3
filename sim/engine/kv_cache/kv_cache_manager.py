"""The KV cache as the scheduler sees it (vLLM's kv_cache_manager.py): one full group, or several of other kinds.

One full group, which most models have, goes by ``allocate_slots``, ``blocks`` and ``prefix_cache``, and costs nothing
for the rest; everything else goes by ``groups``.
"""

from __future__ import annotations

from sim.engine.kv_cache import allocate_slots as one_group
from sim.engine.kv_cache.blocks import free_blocks
from sim.engine.kv_cache.groups.caching import cache_in_groups, remember_private_blocks_of_groups
from sim.engine.kv_cache.groups.decode import allocate_in_groups
from sim.engine.kv_cache.groups.lookup import find_hits
from sim.engine.kv_cache.groups.slots import admit_to_groups, free_groups, groups_fit
from sim.engine.kv_cache.prefix_cache import cache_full_blocks, remember_private_blocks
from sim.engine.state import State
from sim.jit.compile import part


@part
def get_computed_blocks(s: State, request: int) -> int:
    """Look up a waiting request's prefix; return how many free blocks its hit takes, where one full group is asked."""
    if s.engine[0].settings.has_kv_cache_groups:
        find_hits(s, request)
        return 0
    return one_group.get_computed_blocks(s, request)


@part
def fits(s: State, request: int, num_new_tokens: int, num_evictable: int) -> bool:
    """Return whether a waiting request may be admitted with this first chunk behind its prefix hit; count where not."""
    if s.engine[0].settings.has_kv_cache_groups:
        return groups_fit(s, request, num_new_tokens)
    return one_group.fits(s, request, num_new_tokens, num_evictable)


@part
def admit(s: State, request: int, num_new_tokens: int) -> None:
    """Give an admitted request its hit blocks and the blocks for its first chunk."""
    if s.engine[0].settings.has_kv_cache_groups:
        admit_to_groups(s, request, num_new_tokens)
    else:
        one_group.admit(s, request, num_new_tokens)


@part
def allocate_slots(s: State, request: int, num_new_tokens: int) -> bool:
    """Give a running request the blocks for its next tokens; return False, only counting it, when they lack."""
    if s.engine[0].settings.has_kv_cache_groups:
        return allocate_in_groups(s, request, num_new_tokens)
    return one_group.allocate_slots(s, request, num_new_tokens)


@part
def cache_blocks(s: State, request: int, num_tokens: int) -> None:
    """Enter the full blocks among a request's first ``num_tokens`` into the prefix cache."""
    if s.engine[0].settings.has_kv_cache_groups:
        cache_in_groups(s, request, num_tokens)
    else:
        cache_full_blocks(s, request, num_tokens)


@part
def free(s: State, request: int) -> None:
    """Drop a request's references to its blocks."""
    if s.engine[0].settings.has_kv_cache_groups:
        free_groups(s, request, False)
    else:
        free_blocks(s, request)


@part
def free_late(s: State, request: int) -> None:
    """Drop a request's references to its blocks, which were kept for a batch in flight."""
    if s.engine[0].settings.has_kv_cache_groups:
        free_groups(s, request, True)
    else:
        free_blocks(s, request)


@part
def remember_private(s: State, request: int) -> None:
    """Enter a request's own cached blocks into the table before it loses them, so that it can find them again."""
    if s.engine[0].settings.has_kv_cache_groups:
        remember_private_blocks_of_groups(s, request)
    else:
        remember_private_blocks(s, request)
