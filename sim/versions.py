"""vLLM's versions: which scheduling rules each has, which settings it knows, and what it takes by default.

One table, newest change last. A version has what every line up to its own says. The rules were found by driving the
real schedulers of 0.12.0, 0.15.1, 0.19.1, 0.23.0, 0.25.1, 0.28.0, 0.31.0, 0.32.0 and 0.33.0 through recorded cases and
by reading the sources of the releases in between for where each one begins; those of KV cache groups by driving all
minor versions but 0.13, 0.16 and 0.20, those of drafts by driving all from 0.16 on (``docs/validation.md``). Paths are
under ``vllm/v1/core``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

DEFAULT_VERSION = "0.32.0"

AsyncPipeline = Literal["none", "waits for output", "every batch", "staggered"]
"""What async scheduling does with pipeline stages, see ``VersionRules``."""

StateChunks = Literal["before outputs", "to the last state", "to junctions", "to known ends", "to block ends"]
"""How chunks of prompts are cut to keep states at the ends of blocks, see ``VersionRules``."""

PrefillCheckpoints = Literal[
    "never", "from block ends", "of every chunk", "of the last chunk", "where hits end"
]
"""Which states a kernel can save inside a prompt's chunk, see ``VersionRules``."""

Padding = Literal["never", "or waits", "where it fits", "beside hits"]
"""Which admissions of one token to compute are padded with placeholder drafts, see ``VersionRules``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRules:
    """What the scheduler of a version does and knows, and what vLLM assumes where a flag is absent.

    Rules:

    - ``continues_after_self_preemption``: under a policy other than fcfs, a running request that is its own victim
      does not end the loop over the running ones (sched/scheduler.py:schedule, from 0.33.0).
    - ``lifts_threshold_for_lone_request``: the long-prefill threshold does not hold while at most one request runs
      or waits (sched/scheduler.py:schedule, from 0.31.0).
    - ``moves_cursor_for_every_victim``: a victim that stood before the request being scheduled moves the loop's
      place back, whether or not it was scheduled in this step; before, the next request was skipped for a step
      (sched/scheduler.py:schedule, from 0.28.0).
    - ``sets_stale_output_aside``: with pipeline stages a preempted request with tokens in flight is passed over until
      they are in, and is then computed from its beginning; before, it could resume meanwhile, and they counted among
      its tokens under way (sched/scheduler.py:_preempt_request, from 0.27.0).
    - ``frees_unhashed_blocks_first``: freed blocks without a hash are handed out before all others; before, every
      freed block went to the back of the queue (block_pool.py:free_blocks, from 0.24.0).
    - ``queues_freed_without_cache``: without a prefix cache they go to the back all the same (0.27 alone).
    - ``async_pipeline``: what async scheduling does with ``pipeline_parallel_size`` p > 1. ``none``: it is off (up to
      0.14). ``waits for output``: p batches in flight, and a request whose token is in flight sits a step out (0.15;
      sched/scheduler.py:schedule). ``every batch``: p batches in flight, each may hold every request, and the device
      waits for the tokens that it needs (0.16 to 0.22). ``staggered``: p + 1 batches in flight, and a request that
      samples decodes again p steps later (from 0.23.0, with model runner V2: config/vllm.py:max_concurrent_batches,
      sched/async_scheduler.py:_update_after_schedule). Up to 0.30 model runner V1 serves most mixtures of experts, and
      there ``every batch`` still holds, which is not simulated.

    Rules of speculative decoding:

    - ``pads_admissions``: whether an admission with one token to compute, in a step in which no running request still
      computes its prompt, is padded to 1 + k with placeholder drafts (sched/scheduler.py:schedule, pad_spec_decode).
      ``never`` (up to 0.24). ``or waits``: beside running requests; where these tokens do not fit into the budget or
      ``max_model_len`` it is not admitted (0.25 to 0.28). ``where it fits``: where they and the sampled one exceed
      ``max_model_len``, it is admitted without (0.29). ``beside hits``: with a prefix hit also when no running request
      is in the step (from 0.30.0).

    Rules of KV cache groups (v1/core/single_type_kv_cache_manager.py, kv_cache_coordinator.py):

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
    - ``ends_states_at_hit``: beside drafts that read hidden states a state is looked for up to the length in hand;
      before, a block further, though it drops none, so that the request goes on from tokens that full groups lack
      (from 0.26.0; kv_cache_coordinator.py:find_longest_cache_hit).
    - ``has_known_match_units``: what ``prefix_match_unit`` does is known: hits inside blocks (from 0.32.0). Before, the
      flag is there (from 0.26.0), and its rules are others.
    - ``looks_past_hit``: for drafts a lookup may match the block that the prompt ends in (from 0.32.0);
      ``keeps_ends_for_drafts``: a prompt's ends are kept a block earlier (from 0.30.0).
    - ``reads_ahead_of_prompts``: several MTP modules each read a token further ahead (from 0.28.0;
      config/vllm.py:num_prefill_lookahead_tokens).
    - ``gives_draft_slots_at_admission``: an admitted request gets the drafting model's slots at once; before, with its
      next step (from 0.23.0; sched/scheduler.py:schedule, effective_lookahead_tokens).
    - ``drops_once_for_drafts``: for one length in hand a group's hit loses its block to drafts once, and is asked for
      one block more; before, at each lookup, in all groups (from 0.20.0; find_longest_cache_hit, eagle_verified).
    - ``caches_past_hit_for_drafts``: that block is cached and kept, too (from 0.23.0; cache_blocks).
    - ``hashes_ahead_of_drafts``: beside drafts that read hidden states a block's hash covers the tokens behind it, too,
      so that it exists once they do, and hits lose no block (from 0.33.0; config/vllm.py:num_hash_lookahead_tokens).
    - ``keeps_junctions_for_drafts``: where prompts part, groups that lose a block to drafts also keep what ends a block
      before (from 0.33.0; single_type_kv_cache_manager.py:cache_blocks).
    - ``takes_surplus_back``: drafts that hold, but that a request has no more room for, do not count as computed when
      it ends: a window has passed as many tokens less (from 0.33.0; sched/scheduler.py:_update_request_with_output).
    - ``caches_at_outputs``: what drafts that hold have filled enters the prefix cache with the results of their step,
      also where they are awaited; before, with the next step (from 0.33.0; sched/scheduler.py:update_from_output).

    Rules of LoRA, grammars and images (sched/scheduler.py):

    - ``queues_passed_over_apart``: with fcfs those that were passed over stand in a queue of their own before the
      others, so whoever is preempted goes behind them, and a request whose grammar compiles joins them at once (0.18 to
      0.30; _enqueue_waiting_request, skipped_waiting).
    - ``cuts_before_cached_images``: with ``disable_chunked_mm_input`` a share ends before an image that it would not
      reach the end of, also where the encoder has seen that (from 0.32.0; _try_schedule_encoder_inputs).
    - ``holds_repeated_images``: a request that shows an image twice in a step holds it for both (from 0.32.0).
    - ``holds_images_to_the_last``: a request that shows an image several times lets it go with the last; before, with
      the first, and holds it again where it still needs it (from 0.29.0; encoder_cache_manager.py:free_encoder_input).
    - ``frees_images_once_read``: an image is let go when its last token is known to be computed and drafts have read
      past it; before, with the first results behind the step that schedules it (from 0.24.0; _free_encoder_inputs).
    - ``encodes_ahead``: an image is also encoded when only drafts read its first token; before, that made room for it
      and left it (from 0.28.0; _try_schedule_encoder_inputs).
    - ``counts_adapters_of_all_running``: the adapters of running requests that sit a step out take up places in its
      batch, too (from 0.33.0; schedule).
    - ``passes_over_empty_shares``: an admission that an image, or what several MTP modules read ahead, leaves no tokens
      is passed over; before, it stopped those behind it (from 0.33.0; schedule).
    - ``encodes_without_lookahead``: a share ends just before an image that cannot be encoded, and an image is let go
      with its last token, whatever a drafting model reads ahead (from 0.33.0; _try_schedule_encoder_inputs,
      _free_encoder_inputs).
    - ``keeps_whole_images_together``: with ``disable_chunked_mm_input`` a share that begins with an image does not end
      within it either (from 0.33.0; _try_schedule_encoder_inputs).

    A rule that is not simulated:

    - ``holds_prefills_alone``: ``prefill_schedule_interval`` holds prompts back in an engine that is no rank among
      others, too (from 0.33.0; sched/scheduler.py: local_prefill_interval).

    Rules of native offloading (v1/kv_offload/cpu/policies/lru.py, distributed/kv_transfer/kv_connector/v1/offloading):

    - ``gives_up_by_place``: what a request uses of host memory while it runs counts as one use, at its first one, and
      its last block goes first; before, each content counted by when it was stored (from 0.33.0).
    - ``reserves_drafts_by_group``: beside a load there must be room for a step with drafts, of each request under way
      and in each group; before, as many blocks for each request as one group needs (from 0.32.0; sched/scheduler.py:
      _request_remaining_blocks).
    - ``offers_again``: what a request has is offered anew each time that host memory is asked for it (from 0.33.0).

    How it deals a model's layers out (kv_cache_utils.py):

    - ``few_more_layers``: groups take the larger number of layers where it is less than so many times the smaller one
      (1.25 up to 0.17).
    - ``pads_pages``: attention layers of unlike bytes that do not come out even are padded (from 0.24.0);
      ``pads_states``: and states beside them (from 0.26.0). Before, such a model does not start.
    - ``keeps_all_where_uneven``: beside latent attention windows keep everything instead (from 0.27.0).
    - ``marks_mtp_group``: of drafts by MTP layers only their group's hits lose a block (from 0.31.0).
    - ``keeps_chunks``: chunked layers have groups of their own unless told otherwise (from 0.14.0; envs.py:
      VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE).
    - ``aligns_all_states``: no model's states are kept at every block end (``mamba_cache_mode`` all) where prefix
      caching is on and nothing else is said (from 0.28.0; model_executor/models/config.py).

    Settings it knows: ``has_adaptive_threshold`` (from 0.31.0), ``has_watermark`` (from 0.24.0),
    ``has_full_isl_gate``: ``scheduler_reserve_full_isl``, on by default (from 0.19.0).

    Defaults: ``retains_sparsely``: ``prefix_cache_retention_interval`` is 0, so windows and states stay in the prefix
    cache only at the ends of prompts and where prompts part (from 0.29.0; the sources of 0.32.0, and for where it
    begins pull request 52216, merged after 0.28.0); ``async_scheduling`` on GPUs; ``gpu_memory_utilization``;
    ``counts_cuda_graphs`` when the KV cache is sized; ``batched_tokens_by_gib``: of the API server,
    max_num_batched_tokens by the least GPU memory in GiB.
    """

    continues_after_self_preemption: bool = False
    lifts_threshold_for_lone_request: bool = False
    moves_cursor_for_every_victim: bool = False
    sets_stale_output_aside: bool = False
    frees_unhashed_blocks_first: bool = False
    queues_freed_without_cache: bool = False
    async_pipeline: AsyncPipeline = "none"
    pads_admissions: Padding = "never"
    state_chunks: StateChunks = "before outputs"
    prefill_checkpoints: PrefillCheckpoints = "never"
    leaves_token_behind_state: bool = False
    enters_prompt_state_anew: bool = False
    retires_states_over_gaps: bool = False
    defers_states_of_step: bool = False
    excludes_tokens_in_flight: bool = False
    caps_windows: bool = False
    frees_skipped_first: bool = False
    frees_windows_first: bool = False
    caches_to_alignment: bool = False
    keeps_junctions: bool = False
    thins_states_out: bool = False
    ends_states_at_hit: bool = False
    has_known_match_units: bool = False
    looks_past_hit: bool = False
    keeps_ends_for_drafts: bool = False
    few_more_layers: float = 1.25
    pads_pages: bool = False
    pads_states: bool = False
    keeps_all_where_uneven: bool = False
    marks_mtp_group: bool = False
    keeps_chunks: bool = False
    aligns_all_states: bool = False
    reads_ahead_of_prompts: bool = False
    gives_draft_slots_at_admission: bool = False
    drops_once_for_drafts: bool = False
    caches_past_hit_for_drafts: bool = False
    hashes_ahead_of_drafts: bool = False
    caches_at_outputs: bool = False
    queues_passed_over_apart: bool = False
    cuts_before_cached_images: bool = False
    holds_repeated_images: bool = False
    holds_images_to_the_last: bool = False
    encodes_ahead: bool = False
    frees_images_once_read: bool = False
    counts_adapters_of_all_running: bool = False
    passes_over_empty_shares: bool = False
    encodes_without_lookahead: bool = False
    keeps_whole_images_together: bool = False
    holds_prefills_alone: bool = False
    gives_up_by_place: bool = False
    offers_again: bool = False
    takes_surplus_back: bool = False
    keeps_junctions_for_drafts: bool = False
    reserves_drafts_by_group: bool = False
    has_adaptive_threshold: bool = False
    has_watermark: bool = False
    has_full_isl_gate: bool = False
    retains_sparsely: bool = False
    async_scheduling: bool = False
    gpu_memory_utilization: float = 0.9
    counts_cuda_graphs: bool = False
    batched_tokens_by_gib: tuple[tuple[int, int], ...] = ((70, 8192),)


Changes = Mapping[str, bool | float | str | tuple[tuple[int, int], ...]]

CHANGES: Mapping[int, Changes] = {
    12: {},
    14: {"async_scheduling": True, "keeps_chunks": True},
    15: {"async_pipeline": "waits for output"},
    16: {"async_pipeline": "every batch"},
    17: {"state_chunks": "to the last state", "defers_states_of_step": True},
    18: {"few_more_layers": 1.5, "queues_passed_over_apart": True},
    19: {"has_full_isl_gate": True},
    20: {"gpu_memory_utilization": 0.92, "caps_windows": True, "drops_once_for_drafts": True},
    21: {"counts_cuda_graphs": True},
    22: {"caches_to_alignment": True},
    23: {
        "async_pipeline": "staggered",
        "frees_skipped_first": True,
        "frees_windows_first": True,
        "gives_draft_slots_at_admission": True,
        "caches_past_hit_for_drafts": True,
    },
    24: {
        "frees_unhashed_blocks_first": True,
        "has_watermark": True,
        "state_chunks": "to junctions",
        "thins_states_out": True,
        "pads_pages": True,
        "frees_images_once_read": True,
    },
    25: {"pads_admissions": "or waits"},
    26: {
        "state_chunks": "to known ends",
        "excludes_tokens_in_flight": True,
        "keeps_junctions": True,
        "ends_states_at_hit": True,
        "pads_states": True,
    },
    27: {
        "state_chunks": "to block ends",
        "sets_stale_output_aside": True,
        "keeps_all_where_uneven": True,
        "queues_freed_without_cache": True,
    },
    28: {
        "queues_freed_without_cache": False,
        "moves_cursor_for_every_victim": True,
        "batched_tokens_by_gib": ((160, 16384), (70, 8192)),
        "aligns_all_states": True,
        "reads_ahead_of_prompts": True,
        "encodes_ahead": True,
    },
    29: {
        "retains_sparsely": True,
        "pads_admissions": "where it fits",
        "holds_images_to_the_last": True,
        "prefill_checkpoints": "from block ends",
    },
    30: {
        "pads_admissions": "beside hits",
        "retires_states_over_gaps": True,
        "keeps_ends_for_drafts": True,
        "prefill_checkpoints": "of every chunk",
    },
    31: {
        "prefill_checkpoints": "of the last chunk",
        "lifts_threshold_for_lone_request": True,
        "has_adaptive_threshold": True,
        "marks_mtp_group": True,
        "queues_passed_over_apart": False,
    },
    32: {
        "prefill_checkpoints": "where hits end",
        "leaves_token_behind_state": True,
        "enters_prompt_state_anew": True,
        "has_known_match_units": True,
        "looks_past_hit": True,
        "reserves_drafts_by_group": True,
        "cuts_before_cached_images": True,
        "holds_repeated_images": True,
    },
    33: {
        "continues_after_self_preemption": True,
        "enters_prompt_state_anew": False,
        "hashes_ahead_of_drafts": True,
        "caches_at_outputs": True,
        "counts_adapters_of_all_running": True,
        "passes_over_empty_shares": True,
        "encodes_without_lookahead": True,
        "keeps_whole_images_together": True,
        "holds_prefills_alone": True,
        "gives_up_by_place": True,
        "offers_again": True,
        "takes_surplus_back": True,
        "keeps_junctions_for_drafts": True,
    },
}
"""What changed with 0.N.0; the first is the oldest version that is known."""

OLDEST, NEWEST = min(CHANGES), max(CHANGES)

FIRST_WITH_KNOWN_OFFLOADING = 31
"""From 0.N on ``--kv-offloading-size`` is simulated by a version's own rules, as recorded. Before, requests that wait
for what they load stand in one queue with those that are asked again, and a content counts as used when a request that
has it is asked about (sched/scheduler.py: skipped_waiting, distributed/kv_transfer/kv_connector/v1/offloading)."""

FIRST_WITH_KNOWN_DRAFTS = 16
"""From 0.N on drafts are simulated by a version's own rules, as recorded; before, prompts that are computed in several
steps have drafts, too, which are verified with the last of these (sched/scheduler.py:update_draft_token_ids)."""

KNOWN_VERSIONS = f"0.{OLDEST} to 0.{NEWEST}"


MOST_DIGITS = 9
"""A number with more is no version."""


def all_versions() -> tuple[str, ...]:
    """Return the known versions, oldest first."""
    return tuple(f"0.{minor}" for minor in range(OLDEST, NEWEST + 1))


def minor_version(version: str) -> int | None:
    """Return N of a version 0.N, 0.N.M, v0.N.M or 0.N.M with anything behind it; None for any other text."""
    major, _, rest = version.strip().removeprefix("v").partition(".")
    minor = rest.partition(".")[0]
    is_number = minor.isascii() and minor.isdigit() and len(minor) < MOST_DIGITS
    return int(minor) if major == "0" and is_number else None


def is_known(version: str) -> bool:
    """Return whether the rules of a version are in the table."""
    minor = minor_version(version)
    return minor is not None and OLDEST <= minor <= NEWEST


def has_known_drafts(version: str) -> bool:
    """Return whether speculative decoding is simulated by a version's own rules."""
    return (minor_version(version) or NEWEST) >= FIRST_WITH_KNOWN_DRAFTS


def has_native_offloading(version: str) -> bool:
    """Return whether it is known how a version stores KV blocks in host memory."""
    return (minor_version(version) or NEWEST) >= FIRST_WITH_KNOWN_OFFLOADING


@cache
def _rules(minor: int) -> VersionRules:
    rules = VersionRules()
    for since, changes in CHANGES.items():
        if since <= minor:
            rules = replace(rules, **changes)  # type: ignore[arg-type]  # the fields' own types, see the test
    return rules


def rules_of(version: str) -> VersionRules:
    """Return the rules of a version. Raises ValueError for one that is not known."""
    minor = minor_version(version)
    if minor is None or not is_known(version):
        raise ValueError(f"got {version!r}, expected {KNOWN_VERSIONS}")
    return _rules(minor)


def nearest_rules(version: str) -> VersionRules:
    """Return the rules of a version, of the oldest or newest known one for a version outside the table.

    For what is asked of any version, such as how much memory it takes. What is no version counts as the newest.
    """
    minor = minor_version(version)
    return _rules(NEWEST if minor is None else min(max(minor, OLDEST), NEWEST))


def engine_defaults(version: str, *, num_stages: int = 1) -> dict[str, bool]:
    """Return the settings of ``EngineConfig`` whose defaults go with the version and the number of pipeline stages.

    Raises ValueError as above.
    """
    rules = rules_of(version)
    can_be_async = num_stages == 1 or rules.async_pipeline != "none"
    return {
        "async_scheduling": rules.async_scheduling and can_be_async,
        "scheduler_reserve_full_isl": rules.has_full_isl_gate,
    }
