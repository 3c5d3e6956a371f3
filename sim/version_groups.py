"""KV cache groups that a version of vLLM would refuse, or that are not simulated by its rules.

Paths are under ``vllm/v1/core``. The schedulers of 0.12 to 0.33 were driven through random cases with groups; what
stands here is what they refused, and what their sources do that is left out (``docs/validation.md``).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from lazy_dataclasses import dataclass

from sim.kv_cache_groups import KVCacheGroup, without_eagle_marks
from sim.versions import NEWEST, minor_version, rules_of

FIRST_WITH_SEVERAL_KINDS = 14
FIRST_WITH_ALIGNED_STATES = 15
WITH_WRONG_CAPS = 20
FIRST_WITH_DRAFTS_BESIDE_STATES = 20
FIRST_WITH_INTERVAL = 23
FIRST_WITH_LIKE_GROUPS = 29

Fault = tuple[str, str]
"""Which setting, and what is wrong with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """The settings combined with groups. ``ahead``: ``num_prefill_lookahead_tokens``; ``interval``: of retention.

    ``block_size``: the engine's.
    """

    caches_prefixes: bool
    use_eagle: bool
    num_speculative_tokens: int
    ahead: int
    interval: int | None
    block_size: int


def fault_of_version(version: str, groups: Sequence[KVCacheGroup], beside: Beside) -> Fault | None:
    """Return which groups a known version refuses, or is not simulated with; None if there are none."""
    minor = minor_version(version) or NEWEST
    if beside.ahead > 1 and not rules_of(version).reads_ahead_of_prompts:
        return "num_prefill_lookahead_tokens", _before(
            version, beside.ahead, "0 or 1", "has no several MTP modules"
        )
    if minor < FIRST_WITH_INTERVAL and beside.interval is not None:
        return "prefix_cache_retention_interval", _before(
            version, beside.interval, "none", "knows no such interval"
        )
    if not groups:
        return None
    return (
        _fault_of_kinds(version, minor, groups, caches_prefixes=beside.caches_prefixes)
        or _fault_of_states(version, minor, groups, beside)
        or _fault_of_eagle_groups(version, groups, beside)
    )


def _before(version: str, got: object, expected: str, why: str) -> str:
    return f"got {got} with vllm_version {version}, expected {expected}: vLLM {version} {why}"


def _fault_of_kinds(
    version: str, minor: int, groups: Sequence[KVCacheGroup], *, caches_prefixes: bool
) -> Fault | None:
    """Return what is wrong with which kinds there are (kv_cache_coordinator.py:verify_and_split_kv_cache_groups)."""
    kinds = list(dict.fromkeys(without_eagle_marks(groups)))
    if minor == WITH_WRONG_CAPS and any(group.kind in ("sliding", "chunked") for group in groups):
        return "kv_cache_groups", _before(
            version,
            "a window or a chunk",
            "another version",
            "counts too few blocks for them and can end in an error",
        )
    if not caches_prefixes or len(groups) == 1:
        return None
    if len(kinds) == 1 and minor < FIRST_WITH_LIKE_GROUPS:
        return "kv_cache_groups", _before(
            version,
            f"{len(groups)} groups alike",
            "one, or a full group beside",
            "looks up no prefix in groups alike",
        )
    if minor >= FIRST_WITH_SEVERAL_KINDS:
        return None
    is_full = [group.kind == "full" for group in groups]
    turns = sum(one != other for one, other in pairwise(is_full))
    if len(kinds) != 2 or not any(is_full) or turns != 1:
        return "kv_cache_groups", _before(
            version,
            f"{len(kinds)} kinds of groups",
            "full groups and one other kind behind or before them",
            "looks up no prefix in others",
        )
    return None


def _fault_of_states(
    version: str, minor: int, groups: Sequence[KVCacheGroup], beside: Beside
) -> Fault | None:
    """Return what is wrong with states at the ends of blocks; vllm pull request 30877, merged after 0.14.0."""
    if not any(group.mode == "align" for group in groups):
        return None
    if minor < FIRST_WITH_ALIGNED_STATES:
        return "kv_cache_groups", _before(
            version,
            "a state group of mode align",
            "enable_prefix_caching false or a later version",
            "keeps no states at the ends of blocks",
        )
    fault = _fault_of_checkpoints(version, groups, beside)
    if fault is not None:
        return fault
    if minor < FIRST_WITH_DRAFTS_BESIDE_STATES and beside.num_speculative_tokens:
        return "num_speculative_tokens", _before(
            version,
            f"{beside.num_speculative_tokens} beside a state group of mode align",
            "0",
            "has other rules for their blocks, which are not simulated",
        )
    return None


def _fault_of_checkpoints(version: str, groups: Sequence[KVCacheGroup], beside: Beside) -> Fault | None:
    """Return what is wrong with states that are saved inside chunks (single_type_kv_cache_manager.py:MambaManager)."""
    rule = rules_of(version).prefill_checkpoints
    for number, group in enumerate(groups):
        if not group.num_prefill_checkpoint_blocks:
            continue
        field = f"kv_cache_groups[{number}].num_prefill_checkpoint_blocks"
        if rule == "never":
            return field, _before(version, 1, "0", "has no kernel that saves a state inside a chunk")
        if rule != "from block ends" and group.prefill_checkpoint_alignment == 0:
            field = f"kv_cache_groups[{number}].prefill_checkpoint_alignment"
            return field, _before(version, "none", "an integer >= 1", "saves no state without")
        if beside.num_speculative_tokens >= beside.block_size:
            return "num_speculative_tokens", (
                f"got {beside.num_speculative_tokens} with num_prefill_checkpoint_blocks 1 and block_size "
                f"{beside.block_size}, expected fewer than a block has tokens: vLLM ends in an error where a state is "
                "saved among drafts"
            )
    return None


def _fault_of_eagle_groups(version: str, groups: Sequence[KVCacheGroup], beside: Beside) -> Fault | None:
    """Return what is wrong with drafts that read hidden states, whose hits lose a block."""
    if not (beside.use_eagle and beside.caches_prefixes) or rules_of(version).drops_last_block_once:
        return None
    if len({group.block_size for group in groups}) > 1:
        return "use_eagle", _before(
            version,
            "true beside groups whose blocks hold unlike numbers of tokens",
            "false, or enable_prefix_caching false",
            "does not cut such a hit to a place where all can end, or ends in an error",
        )
    if any(group.kind == "chunked" for group in groups):
        return "use_eagle", _before(
            version,
            "true beside a chunked group",
            "false, or enable_prefix_caching false",
            "drops a block of every group's hit, which it does not support in chunks",
        )
    return None
