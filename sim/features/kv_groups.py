"""KV cache groups: layers that cache differently (``sim/engine/kv_cache/groups`` has the rules)."""

from __future__ import annotations

from lazy_dataclasses import dataclass
from typing import Literal

from sim.features.setting import AllRules, AllSettings, InvalidConfig, changing, setting, since
from sim.kv_cache_groups import (
    MOST_TOKENS,
    WITH_ONE_GROUP_ONLY,
    KVCacheGroup,
    alignment_of,
    fault_of_eagle_groups,
    faults_of,
    sizes_of,
)

StateChunks = Literal["before outputs", "to the last state", "to junctions", "to known ends", "to block ends"]
"""How chunks of prompts are cut to keep states at the ends of blocks, see ``GroupRules``."""

PrefillCheckpoints = Literal[
    "never", "from block ends", "of every chunk", "of the last chunk", "where hits end"
]
"""Which states a kernel can save inside a prompt's chunk, see ``GroupRules``."""


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False, match_args=False)
class RetentionSettings:
    """What windows and states keep in the prefix cache."""

    __slots__ = ()

    prefix_cache_retention_interval: int | None = setting(None, flag="prefix-cache-retention-interval")


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False, match_args=False)
class GroupSettings:
    """Which layers cache alike, and where their hits end."""

    __slots__ = ()

    kv_cache_groups: tuple[KVCacheGroup, ...] = setting(())
    prefix_match_unit: int | None = setting(None, flag="prefix-match-unit")


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False, match_args=False)
class GroupRules:
    """What versions do with KV cache groups (v1/core/single_type_kv_cache_manager.py, kv_cache_coordinator.py).

    - ``state_chunks``: how chunks end where a state can be kept (sched/scheduler.py:_mamba_block_aligned_split).
      ``before outputs``: whole blocks up to the prompt's last one, while a request has no outputs (0.15, 0.16). ``to
      the last state``: so until all that is known is computed (0.17 to 0.23). ``to junctions``: an admitted request
      also stops where another group's prefix ends (0.24, 0.25). ``to known ends``: a chunk that began inside a block
      stops at its end, unless that is behind the last state (0.26). ``to block ends``: always (from 0.27.0).
    - ``prefill_checkpoints``: which states are saved inside chunks where a kernel can (from 0.29.0;
      single_type_kv_cache_manager.py:_needs_internal_checkpoint). ``from block ends``: a chunk that begins at a block's
      end may end anywhere, and the state at its last block's end is saved, unless drafts read hidden states (0.29).
      ``of every chunk``: a chunk that ends a prompt is not cut; each saves a state, and blocks for drafts' states stay
      where they are. Kept at prompts' ends alone, it is forgotten at once unless the prompt is of whole blocks (0.30).
      ``of the last chunk``: the prompt's own stays, and then no other chunk saves any (0.31). ``where hits end``: also
      inside blocks, and what no prompt can go on from never enters the cache (from 0.32.0).
    - ``leaves_token_behind_state``: the last state of a prompt of whole blocks, and the last hash of its last large
      block, are those a block or a hash before its end (from 0.32.0).
    - ``enters_prompt_state_anew``: the state at a prompt's last hash is entered in each step until the next one, and no
      request hits it meanwhile (0.32 alone; _cache_partial_tail_block).
    - ``retires_states_over_gaps``: states behind a gap in a request's row are freed, too (from 0.30.0).
    - ``defers_states_of_step``: a state that is computed in a step is hit in the next one (from 0.17.0).
    - ``excludes_tokens_in_flight``: blocks of windows stay until the batch in flight has read them, and a request may
      hold as many more (from 0.26.0; kv_cache_manager.py:allocate_slots).
    - ``caps_windows``: the gate counts at most so many blocks of a window (from 0.20.0).
    - ``frees_skipped_first``: blocks without a hash that windows have passed are handed out first (from 0.23.0);
      ``frees_windows_first``: and those of requests that end (SlidingWindowManager.free, 0.23). From 0.24.0 on
      ``frees_unhashed_blocks_first`` says so of all.
    - ``caches_to_alignment``: of blocks of unlike sizes those enter the cache that a hit of all groups can reach, once
      it can; before, each as it fills, which a window may have passed by then (from 0.22.0).
    - ``keeps_junctions``: what ends where prompts part is kept at intervals, and a large block is cached in part at the
      end of a prompt (from 0.26.0).
    - ``thins_states_out``: with ``prefix_cache_retention_interval`` states are kept at intervals, too, not windows
      alone (from 0.24.0; single_type_kv_cache_manager.py:MambaManager.reachable_block_mask).
    - ``has_known_match_units``: what ``prefix_match_unit`` does is known: hits inside blocks (from 0.32.0). Before, the
      flag is there (from 0.26.0), and its rules are others.

    ``retains_sparsely``: ``prefix_cache_retention_interval`` is 0, so windows and states stay in the prefix cache only
    at the ends of prompts and where prompts part (from 0.29.0; the sources of 0.32.0, and for where it begins pull
    request 52216, merged after 0.28.0).
    """

    __slots__ = ()

    state_chunks: StateChunks = changing(
        "before outputs",
        {17: "to the last state", 24: "to junctions", 26: "to known ends", 27: "to block ends"},
    )
    prefill_checkpoints: PrefillCheckpoints = changing(
        "never", {29: "from block ends", 30: "of every chunk", 31: "of the last chunk", 32: "where hits end"}
    )
    leaves_token_behind_state: bool = since(32)
    enters_prompt_state_anew: bool = since(32, until=33)
    retires_states_over_gaps: bool = since(30)
    defers_states_of_step: bool = since(17)
    excludes_tokens_in_flight: bool = since(26)
    caps_windows: bool = since(20, asked=False)
    frees_skipped_first: bool = since(23)
    frees_windows_first: bool = since(23)
    caches_to_alignment: bool = since(22)
    keeps_junctions: bool = since(26)
    thins_states_out: bool = since(24)
    has_known_match_units: bool = since(32, asked=False)
    retains_sparsely: bool = since(29, asked=False)


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False, match_args=False)
class LayerRules:
    """How versions deal a model's layers out (kv_cache_utils.py).

    - ``few_more_layers``: groups take the larger number of layers where it is less than so many times the smaller one
      (1.25 up to 0.17).
    - ``pads_pages``: attention layers of unlike bytes that do not come out even are padded (from 0.24.0);
      ``pads_states``: and states beside them (from 0.26.0). Before, such a model does not start.
    - ``keeps_all_where_uneven``: beside latent attention windows keep everything instead (from 0.27.0).
    - ``keeps_chunks``: chunked layers have groups of their own unless told otherwise (from 0.14.0; envs.py:
      VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE).
    - ``aligns_all_states``: no model's states are kept at every block end (``mamba_cache_mode`` all) where prefix
      caching is on and nothing else is said (from 0.28.0; model_executor/models/config.py).
    """

    __slots__ = ()

    few_more_layers: float = changing(1.25, {18: 1.5})
    pads_pages: bool = since(24, asked=False)
    pads_states: bool = since(26, asked=False)
    keeps_all_where_uneven: bool = since(27, asked=False)
    keeps_chunks: bool = since(14, asked=False)
    aligns_all_states: bool = since(28, asked=False)


def check_retention(config: AllSettings) -> None:
    """Raise InvalidConfig on an interval that vLLM would refuse (v1/core/kv_cache_coordinator.py)."""
    interval = config.prefix_cache_retention_interval
    is_number = isinstance(interval, int) and not isinstance(interval, bool)
    if interval is not None and not (is_number and 0 <= interval <= MOST_TOKENS):
        raise InvalidConfig(
            f"prefix_cache_retention_interval: got {interval!r}, expected an integer from 0 to {MOST_TOKENS:,}, or none"
        )
    if not interval or not config.kv_cache_groups:
        return
    sizes = sizes_of(config.kv_cache_groups, block_size=config.block_size, max_model_len=config.max_model_len)
    alignment, _ = alignment_of(sizes)
    if interval % alignment != 0:
        raise InvalidConfig(
            f"prefix_cache_retention_interval: got {interval}, expected a multiple of {alignment} tokens, where "
            "prefix hits of all KV cache groups end"
        )
    if all(group.kind in ("full", "chunked") for group in config.kv_cache_groups):
        raise InvalidConfig(
            f"prefix_cache_retention_interval: got {interval} without a sliding or state group, expected 0: it is of "
            "these alone"
        )


def check_match_unit(config: AllSettings, rules: AllRules) -> None:
    """Raise InvalidConfig on a unit that vLLM would refuse, or that is not simulated with what stands beside it.

    vllm 0.32.0 v1/core/kv_cache_utils.py:resolve_kv_cache_block_sizes. Without prefix caching vLLM takes no notice.
    """
    unit = config.prefix_match_unit
    if isinstance(unit, bool) or not isinstance(unit, int) or not 1 <= unit <= MOST_TOKENS:
        raise InvalidConfig(
            f"prefix_match_unit: got {unit!r}, expected an integer from 1 to {MOST_TOKENS:,}, or none"
        )
    if not config.enable_prefix_caching:
        return
    sizes = config.group_block_sizes or [config.block_size]
    if len(sizes) == 1 and unit != sizes[0]:
        raise InvalidConfig(
            f"prefix_match_unit: got {unit} with one KV cache group, expected {sizes[0]}, or none: its prefix hits end "
            "where blocks end"
        )
    if any(size % unit != 0 for size in sizes):
        raise InvalidConfig(
            f"prefix_match_unit: got {unit} with KV cache groups of {sizes} tokens per block, expected a divisor of all"
        )
    if unit == alignment_of(sizes)[1]:  # as if nothing were said
        return
    if not rules.has_known_match_units:
        raise InvalidConfig(
            f"prefix_match_unit: got {unit} with vllm_version {config.vllm_version}, expected none: its rules of hits "
            "inside blocks are not simulated"
        )
    aligns_states = any(group.mode == "align" for group in config.kv_cache_groups)
    if config.num_prefill_lookahead_tokens > 1:
        raise InvalidConfig(
            f"prefix_match_unit: got {unit} with num_prefill_lookahead_tokens {config.num_prefill_lookahead_tokens}, "
            "expected 0 or 1: hits inside blocks are not simulated with several MTP modules"
        )
    if config.drops_last_block_of_hits and aligns_states and not config.matches_inside_blocks:
        raise InvalidConfig(
            f"prefix_match_unit: got {unit} with use_eagle true and a window or a chunk beside states, expected none: "
            "not simulated"
        )
    if config.has_native_offloading:
        raise InvalidConfig(
            f"prefix_match_unit: got {unit} with kv_offloading {config.kv_offloading}, expected none: what host memory "
            "has inside blocks is not simulated"
        )


def check_groups(config: AllSettings, rules: AllRules) -> None:
    """Raise InvalidConfig on groups that vLLM would refuse, or that are not simulated with the other settings."""
    groups = config.kv_cache_groups
    if config.prefix_match_unit is not None:
        check_match_unit(config, rules)
    if not groups:
        return
    fault = faults_of(groups, block_size=config.block_size, caches_prefixes=config.enable_prefix_caching)
    fault = fault or fault_of_eagle_groups(
        groups,
        sizes_of(groups, block_size=config.block_size, max_model_len=config.max_model_len),
        use_eagle=config.use_eagle,
        caches_prefixes=config.enable_prefix_caching,
        ahead=config.num_prefill_lookahead_tokens,
    )
    if fault is not None:
        raise InvalidConfig(f"{fault[0]}: {fault[1]}")
    if config.disable_chunked_mm_input and any(group.mode == "align" for group in groups):
        raise InvalidConfig(
            "disable_chunked_mm_input: got true with states in mode align, expected false: vLLM cannot do both"
        )
    for name, off in WITH_ONE_GROUP_ONLY:
        value = getattr(config, name)
        if value != off:
            raise InvalidConfig(
                f"kv_cache_groups: groups cannot be combined with {name} {value}, expected {off}"
            )
    if config.has_blis_tier:
        raise InvalidConfig(
            f"kv_cache_groups: groups cannot be combined with num_cpu_blocks {config.num_cpu_blocks} and "
            "kv_offloading blis, expected native"
        )
