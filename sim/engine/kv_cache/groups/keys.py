"""Which key of the hash table a group's block has: the content's number times the groups, plus the group."""

from __future__ import annotations

from sim.engine.dtypes import NEVER
from sim.engine.kv_cache.prefix_cache import hash_of_block
from sim.engine.state import State
from sim.jit.compile import part


@part
def key_in_group(s: State, request: int, group: int, index: int) -> int:
    """Return the key of a request's block in a group, NEVER where only itself could ask for it."""
    last = (index + 1) * s.kv_cache_groups[group].num_hashes_per_block - 1
    content = hash_of_block(s, request, last)
    return NEVER if content == NEVER else content * s.engine[0].settings.num_kv_cache_groups + group


@part
def table_row(s: State, request: int, group: int) -> int:
    """Return the row of ``block_table`` that a request has in a group."""
    return s.requests[request].slot * s.engine[0].settings.num_kv_cache_groups + group
