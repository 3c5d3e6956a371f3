"""Speculative decoding (``sim/engine/optional/speculative.py`` has the rules)."""

from __future__ import annotations

from itertools import pairwise
from lazy_dataclasses import dataclass
from typing import Literal

from sim.features.setting import AllSettings, InvalidConfig, changing, setting, since

Padding = Literal["never", "or waits", "where it fits", "beside hits"]
"""Which admissions of one token to compute are padded with placeholder drafts, see ``DraftRules``."""

FIRST_WITH_KNOWN_DRAFTS = 16
"""From 0.N on drafts are simulated by a version's own rules, as recorded; before, prompts that are computed in several
steps have drafts, too, which are verified with the last of these (sched/scheduler.py:update_draft_token_ids)."""


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False, match_args=False)
class DraftSettings:
    """What drafts, how often it is right, and how far it reads.

    ``num_prefill_lookahead_tokens``: k with vLLM (config/vllm.py:num_prefill_lookahead_tokens). ``use_eagle``: see
    ``num_hash_lookahead_tokens``.
    """

    __slots__ = ()

    num_speculative_tokens: int = setting(
        0,
        "Speculative decoding: tokens drafted per step and decoding request; 0: none. See "
        "docs/explanation/policies.md.",
        most=1024,
        taken=True,
    )
    synthetic_acceptance_rates: tuple[float, ...] = setting(
        (),
        "For each i the chance that the first i drafts are all accepted, not increasing; or "
        "one number, the chance of each draft whose predecessors were.",
    )
    num_lookahead_tokens: int = setting(
        0,
        "KV slots kept for the drafting model: as many as drafts for EAGLE, MTP and draft models, "
        "0 for n-grams.",
        most=1024,
        taken=True,
    )
    use_eagle: bool = setting(
        False,
        "The drafting model reads hidden states (EAGLE, MTP): a prefix hit's last block is computed again; "
        "with `vllm_version` 0.33 a block is found if the token behind it is the same as well.",
    )
    num_prefill_lookahead_tokens: int = setting(
        0,
        "Several MTP modules draft: how many tokens of a prompt they read ahead, as many "
        "as drafts; a chunk leaves so many or none. Up to 1 nothing follows from it; with "
        "`speculative_method` mtp the model's config.json says it.",
        most=1024,
        taken=True,
    )

    @property
    def tokens_per_decode(self) -> int:
        """Tokens that a step computes of a request that decodes, its drafts included, at most."""
        return 1 + self.num_speculative_tokens


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False, match_args=False)
class DraftTimes:
    """What drafts take."""

    __slots__ = ()

    draft_us: float = setting(
        0.0,
        "µs per drafted token and step: speculative decoding with k drafts adds k times as much to each step.",
        least=0,
        taken=True,
    )


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False, match_args=False)
class DraftSeed:
    """The seed of the draws that say which drafts are accepted."""

    __slots__ = ()

    seed: int = setting(42, most=2**64 - 1, taken=True)


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False, match_args=False)
class DraftRules:
    """What versions do with drafts.

    - ``pads_admissions``: whether an admission with one token to compute, in a step in which no running request still
      computes its prompt, is padded to 1 + k with placeholder drafts (sched/scheduler.py:schedule, pad_spec_decode).
      ``never`` (up to 0.24). ``or waits``: beside running requests; where these tokens do not fit into the budget or
      ``max_model_len`` it is not admitted (0.25 to 0.28). ``where it fits``: where they and the sampled one exceed
      ``max_model_len``, it is admitted without (0.29). ``beside hits``: with a prefix hit also when no running request
      is in the step (from 0.30.0).
    - ``reads_ahead_of_prompts``: several MTP modules each read a token further ahead (from 0.28.0;
      config/vllm.py:num_prefill_lookahead_tokens).
    - ``gives_draft_slots_at_admission``: an admitted request gets the drafting model's slots at once; before, with its
      next step (from 0.23.0; sched/scheduler.py:schedule, effective_lookahead_tokens).
    - ``drops_last_block_once``: for one length in hand a group's hit loses its block to drafts once, and is asked for
      one block more; before, at each lookup, in all groups (from 0.20.0; find_longest_cache_hit, eagle_verified).
    - ``caches_past_hit``: that block is cached and kept, too (from 0.23.0; cache_blocks).
    - ``hashes_ahead_of_drafts``: beside drafts that read hidden states a block's hash covers the tokens behind it, too,
      so that it exists once they do, and hits lose no block (from 0.33.0; config/vllm.py:num_hash_lookahead_tokens).
    - ``keeps_junctions_a_block_earlier``: where prompts part, groups that lose a block to drafts also keep what ends a
      block before (from 0.33.0; single_type_kv_cache_manager.py:cache_blocks).
    - ``takes_surplus_back``: drafts that hold, but that a request has no more room for, do not count as computed when
      it ends: a window has passed as many tokens less (from 0.33.0; sched/scheduler.py:_update_request_with_output).
    - ``caches_at_outputs``: what drafts that hold have filled enters the prefix cache with the results of their step,
      also where they are awaited; before, with the next step (from 0.33.0; sched/scheduler.py:update_from_output).
    - ``looks_past_hit``: for drafts a lookup may match the block that the prompt ends in (from 0.32.0);
      ``keeps_ends_a_block_earlier``: a prompt's ends are kept a block earlier (from 0.30.0).
    - ``ends_states_at_hit``: beside drafts that read hidden states a state is looked for up to the length in hand;
      before, a block further, though it drops none, so that the request goes on from tokens that full groups lack
      (from 0.26.0; kv_cache_coordinator.py:find_longest_cache_hit).
    - ``reserves_drafts_by_group``: beside a load there must be room for a step with drafts, of each request under way
      and in each group; before, as many blocks for each request as one group needs (from 0.32.0; sched/scheduler.py:
      _request_remaining_blocks).
    - ``marks_mtp_group``: of drafts by MTP layers only their group's hits lose a block (from 0.31.0).
    """

    __slots__ = ()

    pads_admissions: Padding = changing("never", {25: "or waits", 29: "where it fits", 30: "beside hits"})
    reads_ahead_of_prompts: bool = since(28, asked=False)
    gives_draft_slots_at_admission: bool = since(23, asked=False)
    drops_last_block_once: bool = since(20)
    caches_past_hit: bool = since(23, asked=False)
    hashes_ahead_of_drafts: bool = since(33, asked=False)
    keeps_junctions_a_block_earlier: bool = since(33)
    takes_surplus_back: bool = since(33)
    caches_at_outputs: bool = since(33, asked=False)
    looks_past_hit: bool = since(32)
    keeps_ends_a_block_earlier: bool = since(30)
    ends_states_at_hit: bool = since(26)
    reserves_drafts_by_group: bool = since(32, asked=False)
    marks_mtp_group: bool = since(31, asked=False)


def check_drafts(config: AllSettings) -> None:
    """Raise InvalidConfig on acceptance rates that are not valid, or lookahead slots without drafts."""
    rates, k = config.synthetic_acceptance_rates, config.num_speculative_tokens
    if k == 0:
        for name in (
            "synthetic_acceptance_rates",
            "num_lookahead_tokens",
            "use_eagle",
            "num_prefill_lookahead_tokens",
        ):
            if getattr(config, name):
                raise InvalidConfig(
                    f"{name}: got {getattr(config, name)!r} with num_speculative_tokens 0, expected none"
                )
        return
    if config.num_prefill_lookahead_tokens > k:
        raise InvalidConfig(
            f"num_prefill_lookahead_tokens: got {config.num_prefill_lookahead_tokens} with num_speculative_tokens "
            f"{k}, expected at most {k}: each module reads one token further ahead"
        )
    falls = all(later <= earlier for earlier, later in pairwise(rates))
    if len(rates) not in (1, k) or not falls or not all(0 <= rate <= 1 for rate in rates):
        raise InvalidConfig(
            f"synthetic_acceptance_rates: got {list(rates)}, expected {k} non-increasing numbers in [0, 1], or one"
        )


def check_drafts_beside_stages(config: AllSettings) -> None:
    """Raise InvalidConfig on drafts with pipeline stages, which are not simulated together."""
    if config.num_speculative_tokens and config.pipeline_parallel_size > 1:
        raise InvalidConfig(
            "pipeline_parallel_size: cannot be combined with num_speculative_tokens, expected 1 or no drafts"
        )


def check_drafts_beside_store(config: AllSettings) -> None:
    """Raise InvalidConfig on drafts with a store of all instances, which are not simulated together."""
    if config.num_speculative_tokens and config.kv_offloading == "shared" and config.num_cpu_blocks:
        raise InvalidConfig(
            "kv_offloading: shared cannot be combined with num_speculative_tokens "
            f"{config.num_speculative_tokens}, expected 0"
        )


def check_drafts_beside_blis(config: AllSettings) -> None:
    """Raise InvalidConfig on drafts with the peer's rules."""
    if config.num_speculative_tokens and config.compatibility == "blis":
        raise InvalidConfig(
            f"num_speculative_tokens: got {config.num_speculative_tokens} with compatibility blis, expected 0: "
            "it has no speculative decoding"
        )
