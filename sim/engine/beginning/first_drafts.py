"""Drafts of an engine at its beginning: what its settings say of them."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np

from sim.config import EngineConfig
from sim.engine.beginning.first_shape import FirstShape, group_sizes
from sim.engine.records.feature import Records
from sim.features.speculative_decoding import Padding
from sim.kv_cache_groups import alignment_of
from sim.versions import VersionRules

PADDINGS = get_args(Padding)


def draft_arrays(shape: FirstShape) -> dict[str, Any]:
    """Return the arrays of drafts that an engine has before any request."""
    return {
        "num_drafts": np.zeros(0, np.int32),
        "acceptance_rates": np.array(shape.config.acceptance_rates, np.float64),
    }


def set_drafts(settings: Records, config: EngineConfig, rules: VersionRules) -> None:
    """Say what drafts need, and what the version of vLLM does with them."""
    settings["num_first_lookahead_tokens"] = (
        config.num_lookahead_tokens * rules.gives_draft_slots_at_admission
    )
    settings["num_hash_lookahead_tokens"] = config.num_hash_lookahead_tokens
    settings["use_eagle"] = config.drops_last_block_of_hits
    is_by_group = reserves_drafts_by_group(config, rules)
    settings["num_reserved_tokens"] = draft_step_tokens(config) * is_by_group
    settings["num_reserved_blocks"] = 0 if is_by_group else draft_step_blocks(config, rules)
    settings["draft_step_blocks"] = draft_step_blocks(config, rules) * config.has_native_offloading
    settings["may_pass_over_empty"] = (
        rules.passes_over_empty_shares and config.num_prefill_lookahead_tokens > 1
    )
    settings["cuts_shares"] |= config.num_prefill_lookahead_tokens > 1
    if config.num_speculative_tokens > 0:
        settings["pads_admissions"] = PADDINGS.index(rules.pads_admissions)
        settings["takes_in_tokens"] |= rules.caches_at_outputs
        settings["adds_time"] |= config.draft_us > 0


def draft_step_tokens(config: EngineConfig) -> int:
    """Return how many tokens a step with drafts has of a request, with the slots behind them; 0 without drafts."""
    if config.num_speculative_tokens == 0:
        return 0
    return 1 + config.num_speculative_tokens + config.num_lookahead_tokens


def reserves_drafts_by_group(config: EngineConfig, rules: VersionRules) -> bool:
    """Return whether room for drafts is reserved group by group; where instances pass KV on, always."""
    return rules.reserves_drafts_by_group or not config.has_native_offloading


def draft_step_blocks(config: EngineConfig, rules: VersionRules) -> int:
    """Return how many blocks a step with drafts takes in all groups but states, at the most; 0 without drafts.

    vllm 0.32.0 v1/core/sched/scheduler.py:Scheduler.__init__ (_spec_decode_step_blocks); 0.31.0: the method so called.
    """
    num_tokens = draft_step_tokens(config)
    if not reserves_drafts_by_group(config, rules):
        return -(-num_tokens // alignment_of(group_sizes(config))[0])
    kinds = [group.kind for group in config.kv_cache_groups] or ["full"]
    sizes = group_sizes(config)
    return sum(-(-num_tokens // size) for kind, size in zip(kinds, sizes, strict=True) if kind != "state")
