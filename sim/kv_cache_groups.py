"""KV cache groups: which layers keep what of a request, as vLLM deals them out.

Layers of one kind form groups of equally many layers. A group has its own row of blocks per request; all groups draw
from one pool (vllm 0.32.0 v1/core/kv_cache_utils.py:get_kv_cache_groups). A model whose layers all keep everything has
one ``full`` group, which needs no mention.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from lazy_dataclasses import dataclass, replace
from typing import Literal, get_args

GroupKind = Literal["full", "sliding", "chunked", "state"]
StateMode = Literal["none", "align"]

MOST_GROUPS = 64
"""More than any model has; each costs a row of blocks per request."""


WITH_ONE_GROUP_ONLY: tuple[tuple[str, str | int], ...] = (
    ("batching", "vllm"),
    ("compatibility", "vllm"),
    ("pipeline_parallel_size", 1),
)
"""Settings that are simulated with one full group alone, and their values beside others."""

MOST_TOKENS = 1 << 30
"""The largest window, chunk or block that is accepted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KVCacheGroup:
    """One group: what its layers keep.

    ``full``: every block. ``sliding``: those that the last ``window`` tokens lie in. ``chunked``: those of the
    ``chunk`` of tokens under way. ``state``: a state in place of keys and values; with ``mode`` none one block per
    request, with align the last states at the ends of blocks, for prefix caching.
    ``block_size``: tokens per block where it is not the engine's, 0: it is.
    ``num_prefill_checkpoint_blocks``: 1 where the layers' kernel saves a state inside a prompt's chunk, which takes a
    block (from 0.29 on), at multiples of ``prefill_checkpoint_alignment`` tokens behind the chunk's start (from 0.30
    on). ``is_eagle_group``: layers of a drafting
    model that reads hidden states are among its own (``eagle_groups_of``).
    """

    kind: GroupKind
    window: int = 0
    chunk: int = 0
    mode: StateMode = "none"
    block_size: int = 0
    num_prefill_checkpoint_blocks: int = 0
    prefill_checkpoint_alignment: int = 0
    is_eagle_group: bool = False

    def fault(self) -> tuple[str, str] | None:
        """Return (field, what is wrong with it), None where nothing is."""
        for name, choices in (("kind", get_args(GroupKind)), ("mode", get_args(StateMode))):
            value = getattr(self, name)
            if value not in choices:
                return name, f"got {value!r}, expected one of {', '.join(choices)}"
        for name, kind in (("window", "sliding"), ("chunk", "chunked"), ("block_size", self.kind)):
            fault = _fault_of_number(
                getattr(self, name), is_needed=name != "block_size" and self.kind == kind
            )
            if fault is None and self.kind != kind and getattr(self, name):
                fault = f"got {getattr(self, name)}, expected none: a {self.kind} group has no {name}"
            if fault is not None:
                return name, fault
        if not isinstance(self.is_eagle_group, bool):
            return "is_eagle_group", f"got {self.is_eagle_group!r}, expected true or false"
        if self.kind != "state" and self.mode != "none":
            return "mode", f"got {self.mode}, expected none: only a state group has one"
        return self._fault_of_checkpoints()

    def _fault_of_checkpoints(self) -> tuple[str, str] | None:
        """Return (field, what is wrong) of states that are saved inside chunks."""
        number, alignment = self.num_prefill_checkpoint_blocks, self.prefill_checkpoint_alignment
        if not isinstance(number, int) or isinstance(number, bool) or number not in (0, 1):
            return "num_prefill_checkpoint_blocks", f"got {number!r}, expected 0 or 1"
        if number and self.mode != "align":
            return (
                "num_prefill_checkpoint_blocks",
                "got 1, expected 0: only a state group of mode align has any",
            )
        fault = _fault_of_number(alignment, is_needed=False)
        if fault is None and alignment and not number:
            fault = f"got {alignment} with num_prefill_checkpoint_blocks 0, expected none"
        return None if fault is None else ("prefill_checkpoint_alignment", fault)


def _fault_of_number(value: object, *, is_needed: bool) -> str | None:
    """Return what is wrong with a number of tokens, 0 where none is given."""
    if not isinstance(value, int) or isinstance(value, bool) or not int(is_needed) <= value <= MOST_TOKENS:
        return f"got {value!r}, expected an integer from 1 to {MOST_TOKENS:,}"
    return None


def faults_of(
    groups: Sequence[KVCacheGroup], *, block_size: int, caches_prefixes: bool
) -> tuple[str, str] | None:
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
    sizes = {
        group.block_size or block_size for group in groups if group.kind != "state" or group.mode == "align"
    }
    for kind, why in (
        ("chunked", "vLLM caches no chunked layers beside blocks of other sizes"),
        ("state", "states at the ends of blocks of other sizes are not simulated"),
    ):
        if len(sizes) > 1 and any(group.kind == kind for group in groups) and caches_prefixes:
            return (
                "kv_cache_groups",
                f"got block sizes {sorted(sizes)} with a {kind} group, expected one size: {why}",
            )
    return None


def sizes_of(groups: Sequence[KVCacheGroup], *, block_size: int, max_model_len: int) -> list[int]:
    """Return the tokens per block of each group; a state without caching is one block, whatever the length."""
    return [
        max_model_len if group.kind == "state" and group.mode == "none" else group.block_size or block_size
        for group in groups
    ]


def most_blocks_of(
    group: KVCacheGroup, *, size: int, in_flight: int, max_model_len: int, retained: int = 0
) -> int:
    """Return how many blocks of ``size`` tokens a request holds in a group at most; a full group has no such limit.

    Blocks of tokens in flight are freed once those are processed; a window may begin inside a block, and keeps
    ``retained`` tokens more (vllm 0.32.0 v1/kv_cache_interface.py: max_admission_blocks_per_request of each kind).
    """
    if group.kind == "sliding":
        return -(-min(group.window - 1 + retained + in_flight, max_model_len) // size) + 1
    if group.kind == "chunked":
        return -(-min(group.chunk + in_flight, max_model_len) // size)
    return max_model_len + 1


def without_eagle_marks(groups: Sequence[KVCacheGroup]) -> tuple[KVCacheGroup, ...]:
    """Return groups as lookups compare them: those that cache alike are looked up as one, whichever layers use them."""
    return tuple(replace(group, is_eagle_group=False) for group in groups)


def without_checkpoints(groups: Sequence[KVCacheGroup]) -> tuple[KVCacheGroup, ...]:
    """Return groups whose kernels save no state inside a prompt's chunk."""
    return tuple(
        replace(group, num_prefill_checkpoint_blocks=0, prefill_checkpoint_alignment=0) for group in groups
    )


def eagle_groups_of(groups: Sequence[KVCacheGroup], *, use_eagle: bool) -> tuple[int, ...]:
    """Return in which groups a hit loses its last block: those marked, or all where none is.

    vllm 0.32.0 v1/core/kv_cache_coordinator.py:KVCacheCoordinator. vLLM marks the group of the last layer with the
    method mtp, and none with EAGLE (kv_cache_utils.py:_annotate_eagle_groups).
    """
    marked = tuple(number for number, group in enumerate(groups) if group.is_eagle_group)
    return (marked or tuple(range(len(groups)))) if use_eagle else ()


def fault_of_eagle_groups(
    groups: Sequence[KVCacheGroup],
    sizes: Sequence[int],
    *,
    use_eagle: bool,
    caches_prefixes: bool,
    ahead: int,
) -> tuple[str, str] | None:
    """Return (which setting, what is wrong with drafts beside groups), None where nothing is.

    ``sizes``: tokens per block of each group. ``ahead``: ``num_prefill_lookahead_tokens``.
    """
    for number, group in enumerate(groups):
        if group.is_eagle_group and not use_eagle:
            return (
                f"kv_cache_groups[{number}].is_eagle_group",
                "got true with use_eagle false, expected use_eagle true: no hit loses a block",
            )
    if not use_eagle or not caches_prefixes:
        return None
    dropping = {groups[number].kind for number in eagle_groups_of(groups, use_eagle=use_eagle)}
    if "chunked" in dropping:
        return (
            "kv_cache_groups",
            "got a chunked group with use_eagle true, expected is_eagle_group at another group, or no drafts: vLLM "
            "does not support its hybrid KV cache for EAGLE with chunked local attention",
        )
    if ahead > 1 and any(group.num_prefill_checkpoint_blocks for group in groups):
        return (
            "num_prefill_lookahead_tokens",
            f"got {ahead} with num_prefill_checkpoint_blocks 1, expected 0 or 1: states saved inside chunks are not "
            "simulated with several MTP modules",
        )
    alignment, _ = alignment_of(sizes)
    if alignment < ahead:
        return (
            "num_prefill_lookahead_tokens",
            f"got {ahead} with prefix hits at multiples of {alignment} tokens, expected at most {alignment}: vLLM "
            "refuses several MTP modules that read further ahead than the block that a hit drops",
        )
    return None


def alignment_of(sizes: Sequence[int]) -> tuple[int, int]:
    """Return (tokens at whose multiples prefix hits end, tokens per hash): least common multiple, greatest divisor.

    vllm 0.32.0 v1/core/kv_cache_utils.py:resolve_kv_cache_block_sizes.
    """
    return math.lcm(*sizes), math.gcd(*sizes)
