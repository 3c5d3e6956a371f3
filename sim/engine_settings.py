"""The engine's settings: vLLM's names, vLLM's defaults, and what follows from them."""

from __future__ import annotations

from collections.abc import Mapping
from lazy_dataclasses import dataclass, fields
from typing import Literal

from sim.features.core_engine import (
    UNBOUNDED,
    BatchSettings,
    FrontendSettings,
    QueueSettings,
    VersionSettings,
)
from sim.features.grammars import GrammarSettings
from sim.features.host_time import MOST_GRAPH_TOKENS, HostTimes
from sim.features.images import EncoderCosts, ImageSettings
from sim.features.kv_groups import GroupSettings, RetentionSettings
from sim.features.lora import LoraSettings
from sim.features.offloading import KVOffloading, TierSettings, TierSize
from sim.features.other_schedulers import BatchingSettings, Compatibility, CompatibilitySettings
from sim.features.pipeline_stage_settings import StageSettings
from sim.features.ranks_in_step import RankSettings
from sim.features.session_pins import SessionSettings
from sim.features.setting import Said
from sim.features.speculative_decoding import DraftSeed, DraftSettings, DraftTimes
from sim.kv_cache_groups import KVCacheGroup, alignment_of, eagle_groups_of, sizes_of, without_eagle_marks
from sim.versions import rules_of

__all__ = ["KINDS", "SAID", "TAKEN", "UNBOUNDED", "Compatibility", "EngineSettings", "KVOffloading", "Record"]

Record = Literal["none", "spans", "steps", "blocks", "tokens"]
"""What a run writes down: nothing; spans of steps, which give inter-token latencies; every step (one at a time);
every step with its blocks; every token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings(
    GroupSettings,
    VersionSettings,
    CompatibilitySettings,
    BatchingSettings,
    DraftSeed,
    ImageSettings,
    SessionSettings,
    HostTimes,
    EncoderCosts,
    DraftTimes,
    GrammarSettings,
    LoraSettings,
    TierSettings,
    RetentionSettings,
    TierSize,
    DraftSettings,
    FrontendSettings,
    StageSettings,
    QueueSettings,
    RankSettings,
    BatchSettings,
):
    """The scheduler's and the KV cache's settings under vLLM's own names; defaults are those of 0.32.

    Each feature says its own in ``sim/features``; they come in the order of the bases, the last one's first. Whatever
    they are: ``sim.config.EngineConfig`` is the settings that an engine can run with.
    """

    @property
    def needed_groups(self) -> tuple[KVCacheGroup, ...]:
        """The groups without a lone full one; with it where several MTP modules read ahead, by the rules of groups."""
        groups, one_full = self.kv_cache_groups, (KVCacheGroup(kind="full"),)
        if self.num_prefill_lookahead_tokens > 1:
            return groups or one_full
        is_plain = groups == one_full or (self.use_eagle and without_eagle_marks(groups) == one_full)
        return () if is_plain else groups

    @property
    def eagle_groups(self) -> tuple[int, ...]:
        """The groups in which a prefix hit loses its last block to drafts."""
        groups = self.kv_cache_groups
        if not rules_of(self.vllm_version).drops_last_block_once:
            groups = without_eagle_marks(groups)
        return eagle_groups_of(groups, use_eagle=self.drops_last_block_of_hits)

    @property
    def num_hash_lookahead_tokens(self) -> int:
        """How many tokens behind a block its hash covers, too: none beside a connector (vllm 0.33.0 config/vllm.py)."""
        covers = rules_of(self.vllm_version).hashes_ahead_of_drafts and self.enable_prefix_caching
        covers = covers and self.use_eagle and not self.has_native_offloading
        return max(1, self.num_prefill_lookahead_tokens) if covers else 0

    @property
    def drops_last_block_of_hits(self) -> bool:
        """Whether a prefix hit loses its last block, since drafts read hidden states behind it."""
        return self.use_eagle and self.num_hash_lookahead_tokens == 0

    @property
    def may_pass_over(self) -> bool:
        """Whether waiting requests are passed over that have neither adapter nor grammar."""
        rules = rules_of(self.vllm_version)
        is_held_up = self.pipeline_parallel_size > 1 or self.has_native_offloading
        return is_held_up or rules.passes_over_empty_shares

    @property
    def num_retained_tokens(self) -> int:
        """What a window keeps behind it for several MTP modules, and is cached later (kv_cache_utils.py)."""
        return max(0, self.num_prefill_lookahead_tokens - 1)

    @property
    def num_kv_cache_groups(self) -> int:
        """How many groups draw from the pool of blocks: 1 where nothing is said of them."""
        return max(len(self.kv_cache_groups), 1)

    @property
    def hash_block_size(self) -> int:
        """How many tokens a content of the prefix cache has: what all groups' blocks are multiples of."""
        if not self.kv_cache_groups:
            return self.block_size
        alignment, hash_size = alignment_of(self.group_block_sizes)
        is_hashed = all(group.kind != "state" or group.mode == "align" for group in self.kv_cache_groups)
        if not is_hashed:
            return alignment
        return self.prefix_match_unit or hash_size if self.enable_prefix_caching else hash_size

    @property
    def group_block_sizes(self) -> list[int]:
        """The tokens per block of each KV cache group."""
        groups = self.kv_cache_groups
        return sizes_of(groups, block_size=self.block_size, max_model_len=self.max_model_len)

    @property
    def matches_inside_blocks(self) -> bool:
        """Whether a prefix hit can end inside a block: states do, and nothing beside them asks for whole blocks.

        vllm 0.32.0 v1/core/kv_cache_utils.py:partial_hash_hits_enabled.
        """
        sized = list(zip(self.kv_cache_groups, self.group_block_sizes, strict=True))
        has_large_states = any(group.mode == "align" and size > self.hash_block_size for group, size in sized)
        return has_large_states and all(
            group.kind in ("full", "state") or size == self.hash_block_size for group, size in sized
        )

    @property
    def max_in_flight_tokens(self) -> int:
        """Tokens of steps that may still read a window's blocks (config/vllm.py:max_in_flight_tokens, 0.26 on)."""
        is_excluded = rules_of(self.vllm_version).excludes_tokens_in_flight
        return self.max_num_batched_tokens * (self.max_concurrent_batches if is_excluded else 1)

    @property
    def acceptance_rates(self) -> tuple[float, ...]:
        """For each of the k drafts the chance that it and all before it are accepted."""
        rates = self.synthetic_acceptance_rates
        if len(rates) == 1:
            return tuple(rates[0] ** i for i in range(1, self.num_speculative_tokens + 1))
        return rates

    @property
    def max_concurrent_batches(self) -> int:
        """How many batches may be in flight (vllm 0.32.0 config/vllm.py:max_concurrent_batches)."""
        stages = self.pipeline_parallel_size
        if not self.async_scheduling:
            return stages
        is_staggered = rules_of(self.vllm_version).async_pipeline == "staggered"
        return stages + 1 if stages == 1 or is_staggered else stages

    @property
    def steps_singly(self) -> bool:
        """Whether no decode steps are taken at once: what comes of one is not known before it is taken."""
        has_stages = self.pipeline_parallel_size > 1
        return self.num_speculative_tokens > 0 or self.has_blis_tier or has_stages

    @property
    def charges_traits(self) -> bool:
        """Whether grammars, adapters or encoders cost anything, or it matters which requests have a grammar."""
        costs = (self.max_loras, self.lora_load_us, self.guided_compile_us, self.guided_mask_us)
        has_time = any(costs) or self.has_encoder_time or self.lora_step_factor != 1
        return has_time or self.queues_passed_over_apart

    @property
    def queues_passed_over_apart(self) -> bool:
        """Whether requests that are passed over stand in a queue of their own; other policies have one order."""
        is_vllm = self.batching == "vllm" and self.compatibility == "vllm"
        is_fcfs = self.scheduling_policy == "fcfs"
        return is_vllm and is_fcfs and rules_of(self.vllm_version).queues_passed_over_apart

    @property
    def has_encoder_time(self) -> bool:
        """Whether an encoder takes any time."""
        return self.encoder_step_us + self.encoder_token_us + self.encoder_token_pair_us > 0

    @property
    def gives_one_token(self) -> bool:
        """Whether a step gives a request one token at most: there are no drafts."""
        return self.num_speculative_tokens == 0

    @property
    def encodes_images(self) -> bool:
        """Whether an encoder makes images' tokens, as vLLM has it; other schedulers take them for text."""
        is_vllm = self.batching == "vllm" and self.compatibility == "vllm"
        return is_vllm and not self.language_model_only

    @property
    def num_graph_tokens(self) -> int:
        """Up to how many tokens a step runs as a CUDA graph (vllm 0.32.0 config/vllm.py:_set_cudagraph_sizes)."""
        if self.enforce_eager:
            return 0
        return self.max_cudagraph_capture_size or min(MOST_GRAPH_TOKENS, 2 * self.max_num_seqs)

    @property
    def adds_host_time(self) -> bool:
        """Whether the CPU's time lengthens any step."""
        return self.launch_us > 0 or (
            not self.async_scheduling and self.host_step_us + self.host_prefill_us > 0
        )

    @property
    def has_cpu_tier(self) -> bool:
        """Whether evicted blocks can go anywhere."""
        return self.num_cpu_blocks > 0 and self.num_gpu_blocks != UNBOUNDED and self.enable_prefix_caching

    @property
    def has_blis_tier(self) -> bool:
        """Whether evicted blocks go to host memory when they are evicted, as the peer has it."""
        return self.kv_offloading == "blis" and self.has_cpu_tier

    @property
    def has_native_offloading(self) -> bool:
        """Whether blocks are stored beside the GPU as vLLM does it: in host memory, or a store of several instances."""
        return self.kv_offloading != "blis" and self.has_cpu_tier

    @property
    def has_shared_store(self) -> bool:
        """Whether that is a store of all instances together."""
        return self.kv_offloading == "shared" and self.has_cpu_tier


SAID: Mapping[str, Said] = {each.name: each.metadata["said"] for each in fields(EngineSettings)}
"""What is known of each setting beside its type and its default."""

KINDS: Mapping[str, str] = {each.name: str(each.type) for each in fields(EngineSettings)}
"""The type of each setting, as it is written."""

TAKEN = tuple(name for name, said in SAID.items() if said.taken)
"""Settings that compiled code has as they are."""
