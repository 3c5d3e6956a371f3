"""KV cache groups: which layers keep what of a request, as vLLM deals them out.

Layers of one kind form groups of equally many layers. A group has its own row of blocks per request; all groups draw
from one pool (vllm 0.32.0 v1/core/kv_cache_utils.py:get_kv_cache_groups). A model whose layers all keep everything has
one ``full`` group, which needs no mention.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

GroupKind = Literal["full", "sliding", "chunked", "state"]
StateMode = Literal["none", "align"]

MOST_GROUPS = 64
"""More than any model has; each costs a row of blocks per request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KVCacheGroup:
    """One group: what its layers keep.

    ``full``: every block. ``sliding``: those that the last ``window`` tokens lie in. ``chunked``: those of the
    ``chunk`` of tokens under way. ``state``: a state in place of keys and values; with ``mode`` none one block per
    request, with align the last states at the ends of blocks, for prefix caching.
    ``block_size``: tokens per block where it is not the engine's, 0: it is.
    """

    kind: GroupKind
    window: int = 0
    chunk: int = 0
    mode: StateMode = "none"
    block_size: int = 0

    def fault(self) -> tuple[str, str] | None:
        """Return (field, what is wrong with it), None where nothing is."""
        if self.kind not in get_args(GroupKind):
            return "kind", f"got {self.kind!r}, expected one of {', '.join(get_args(GroupKind))}"
        if self.mode not in get_args(StateMode):
            return "mode", f"got {self.mode!r}, expected one of {', '.join(get_args(StateMode))}"
        for name, kind in (("window", "sliding"), ("chunk", "chunked")):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value > MOST_TOKENS:
                return name, f"got {value!r}, expected an integer of at most {MOST_TOKENS:,}"
            if self.kind == kind and value < 1:
                return name, f"got {value}, expected an integer >= 1 for a {kind} group"
            if self.kind != kind and value:
                return name, f"got {value}, expected none: a {self.kind} group has none"
        size = self.block_size
        if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size <= MOST_TOKENS:
            return "block_size", f"got {size!r}, expected an integer >= 1"
        if self.kind != "state" and self.mode != "none":
            return "mode", f"got {self.mode}, expected none: only a state group has one"
        return None


MOST_TOKENS = 1 << 30


def faults_of(groups: Sequence[KVCacheGroup], *, block_size: int, caches_prefixes: bool) -> tuple[str, str] | None:
    """Return (which setting, what is wrong with groups beside each other), None where nothing is.

    ``block_size``: the engine's; ``caches_prefixes``: whether prefix caching is on.
    """
    if len(groups) > MOST_GROUPS:
        return "kv_cache_groups", f"got {len(groups)}, expected at most {MOST_GROUPS}"
    for number, group in enumerate(groups):
        fault = group.fault()
        if fault is not None:
            return f"kv_cache_groups[{number}].{fault[0]}", fault[1]
    states = [group for group in groups if group.kind == "state"]
    if len({group.mode for group in states}) > 1:
        return "kv_cache_groups", "got state groups of both modes, expected one mode: vLLM has one per server"
    if states and caches_prefixes != (states[0].mode == "align"):
        wanted = "align" if caches_prefixes else "none"
        return (
            "kv_cache_groups",
            f"got a state group of mode {states[0].mode} with enable_prefix_caching {str(caches_prefixes).lower()}, "
            f"expected mode {wanted}",
        )
    sizes = {group.block_size or block_size for group in groups if group.kind != "state" or group.mode == "align"}
    for kind, why in (
        ("chunked", "vLLM caches no chunked layers beside blocks of other sizes"),
        ("state", "states at the ends of blocks of other sizes are not simulated"),
    ):
        if len(sizes) > 1 and any(group.kind == kind for group in groups) and caches_prefixes:
            return "kv_cache_groups", f"got block sizes {sorted(sizes)} with a {kind} group, expected one size: {why}"
    return None


def sizes_of(groups: Sequence[KVCacheGroup], *, block_size: int, max_model_len: int) -> list[int]:
    """Return the tokens per block of each group; a state without caching is one block, whatever the length."""
    return [
        max_model_len if group.kind == "state" and group.mode == "none" else group.block_size or block_size
        for group in groups
    ]


def alignment_of(sizes: Sequence[int]) -> tuple[int, int]:
    """Return (tokens at whose multiples prefix hits end, tokens per hash): least common multiple, greatest divisor.

    vllm 0.32.0 v1/core/kv_cache_utils.py:resolve_kv_cache_block_sizes.
    """
    return math.lcm(*sizes), math.gcd(*sizes)
