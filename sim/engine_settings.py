"""The engine's settings: vLLM's names, vLLM's defaults, and what follows from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sim.kv_cache_groups import KVCacheGroup, alignment_of, eagle_groups_of, sizes_of, without_eagle_marks
from sim.versions import DEFAULT_VERSION, rules_of

SchedulingPolicy = Literal["fcfs", "priority", "sjf", "reverse-priority"]
PriorityScoring = Literal["constant", "slo-based", "inverted-slo"]
Frontend = Literal["openai", "none"]
Compatibility = Literal["vllm", "blis"]

KVOffloading = Literal["native", "shared", "blis"]

Batching = Literal["vllm", "orca", "sarathi", "static", "vllm-v0"]

Record = Literal["none", "spans", "steps", "blocks", "tokens"]
"""What a run writes down: nothing; spans of steps, which give inter-token latencies; every step (one at a time);
every step with its blocks; every token."""

MOST_GRAPH_TOKENS = 512
"""vLLM captures CUDA graphs of twice the seats, and of so many tokens at most."""
UNBOUNDED = 0
"""``num_gpu_blocks`` of a KV cache that never binds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """The scheduler's and the KV cache's settings under vLLM's own names; defaults are those of 0.32.

    ``vllm_version``: whose scheduling rules hold (``sim/versions.py``).

    ``num_gpu_blocks`` counts blocks as vLLM does, the null block included (usable = n - 1);
    0 means a KV cache that never binds. ``watermark`` is a fraction of ``num_gpu_blocks``.

    ``pipeline_parallel_size`` p: stages that a batch passes one after the other, each working on another batch. Then p
    batches are in flight, with async scheduling as many as the version has (``max_concurrent_batches``).

    ``prefill_schedule_interval`` N: data-parallel ranks in step (``ClusterConfig.lockstep``) compute prompts in every
    N-th step only; an engine alone ignores it, as vLLM up to 0.32, and is refused from 0.33 on.

    Beyond vLLM: ``scheduling_policy`` sjf (shortest prompt first) and reverse-priority; ``priority_scoring`` lets a
    request's priority change with its age, by ``priority_age_weight`` per second: slo-based makes those that wait
    more urgent, inverted-slo less.

    Speculative decoding is on with ``num_speculative_tokens`` k >= 1. ``synthetic_acceptance_rates``: for each i the
    chance that the first i of the k drafts are all accepted, non-increasing; or one number, the chance of each draft
    whose predecessors were. ``num_lookahead_tokens``: slots kept behind a step's tokens for the drafting model (vLLM: k
    for EAGLE, MTP and draft models, 0 for n-grams). ``use_eagle``: the drafting model reads hidden states (EAGLE, MTP),
    so the last block of a prefix hit is computed again, or its hash covers the tokens behind it, too (0.33;
    ``num_hash_lookahead_tokens``). ``num_prefill_lookahead_tokens``: how many tokens of a prompt
    several MTP modules read ahead, k with vLLM (config/vllm.py:num_prefill_lookahead_tokens); up to 1 nothing follows
    from it. ``seed``: of what is accepted.

    The KV cache has a second tier with ``num_cpu_blocks`` >= 1. It stays empty where nothing can be evicted: unbounded,
    or without caching. With ``kv_offloading`` native it is vLLM's own (``sim/engine/kv_offload``): a block takes
    ``kv_load_us_per_block`` to come from there, ``kv_store_us_per_block`` to go there, and goes when it is offered for
    the ``kv_store_threshold``-th time, 0 and 1: at once. With blis it is the peer's
    (``sim/engine/kv_cache/cpu_tier.py``): ``kv_offload_threshold``, a share of the GPU's blocks;
    ``kv_transfer_bandwidth`` in tokens per µs, ``kv_transfer_base_latency`` in µs.

    Time beyond a latency model's, none of it by default (``sim/engine/optional/added_time.py`` has the rules): a batch
    holds ``max_loras`` adapters at most (0: any number), ``lora_load_us`` for loading one, ``lora_step_factor`` >= 1 on
    steps with any; ``guided_compile_us`` before a guided request can run, ``guided_mask_us`` per guided request and
    step; ``draft_us`` per drafted token and step. A step that encodes anything takes ``encoder_step_us`` longer, and
    ``encoder_token_us`` per multimodal token, ``encoder_token_pair_us`` per pair of tokens of each image whose place is
    known, n² of n; ``encoder_data_parallel_size`` GPUs encode whole images side by side. A step of more tokens than
    ``max_cudagraph_capture_size`` (0: vLLM's default) lasts ``launch_us`` at least: the CPU starts its kernels one by
    one; with ``enforce_eager`` every step does. Without async scheduling ``host_step_us`` is added to each step,
    ``host_prefill_us`` to one with prompts: what the CPU does between steps, hidden otherwise.

    ``session_kv_ttl_us``: how long the KV of a session's round stays pinned for the next one, 0: not at all
    (``sim/engine/kv_cache/session_kv.py`` has the rules; vLLM does not do it).

    Requests with images (``sim/engine/optional/encoder_inputs.py`` has the rules): a step encodes
    ``max_num_encoder_input_tokens`` of them, the encoder cache has room for ``encoder_cache_size``; 0 of either:
    ``max_num_batched_tokens``, as vLLM, and at least the largest image. ``disable_chunked_mm_input``: no step computes
    a part of an image. ``language_model_only``: no encoder; images are text.

    ``batching``: which requests are put into a batch, by vLLM's rule or by that of another scheduler, for comparison
    (``sim/engine/optional/batching.py`` has the rules).

    ``compatibility`` blis takes on the peer's deviations (``sim/engine/optional/blis.py`` has them).

    Whatever they are: ``sim.config.EngineConfig`` is the settings that an engine can run with.
    """

    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    num_gpu_blocks: int = UNBOUNDED
    block_size: int = 16
    max_model_len: int = 32768
    enable_prefix_caching: bool = True
    enable_chunked_prefill: bool = True
    long_prefill_token_threshold: int = 0
    long_prefill_token_threshold_adaptive: bool = False
    scheduler_reserve_full_isl: bool = True
    watermark: float = 0.0
    prefill_schedule_interval: int = 1
    scheduling_policy: SchedulingPolicy = "fcfs"
    priority_scoring: PriorityScoring = "constant"
    priority_age_weight: float = 0.0
    async_scheduling: bool = True
    pipeline_parallel_size: int = 1
    frontend: Frontend = "openai"
    num_speculative_tokens: int = 0
    synthetic_acceptance_rates: tuple[float, ...] = ()
    num_lookahead_tokens: int = 0
    use_eagle: bool = False
    num_prefill_lookahead_tokens: int = 0
    num_cpu_blocks: int = 0
    prefix_cache_retention_interval: int | None = None
    kv_offloading: KVOffloading = "blis"
    kv_load_us_per_block: float = 0.0
    kv_store_us_per_block: float = 0.0
    kv_store_threshold: int = 0
    kv_offload_threshold: float = 0.9
    kv_transfer_bandwidth: float = 100.0
    kv_transfer_base_latency: int = 0
    max_loras: int = 0
    lora_load_us: int = 0
    lora_step_factor: float = 1.0
    guided_compile_us: int = 0
    guided_mask_us: float = 0.0
    draft_us: float = 0.0
    encoder_step_us: float = 0.0
    encoder_token_us: float = 0.0
    encoder_token_pair_us: float = 0.0
    encoder_data_parallel_size: int = 1
    enforce_eager: bool = False
    max_cudagraph_capture_size: int = 0
    launch_us: float = 0.0
    host_step_us: float = 0.0
    host_prefill_us: float = 0.0
    session_kv_ttl_us: int = 0
    max_num_encoder_input_tokens: int = 0
    encoder_cache_size: int = 0
    disable_chunked_mm_input: bool = False
    language_model_only: bool = False
    seed: int = 42
    batching: Batching = "vllm"
    compatibility: Compatibility = "vllm"
    vllm_version: str = DEFAULT_VERSION
    kv_cache_groups: tuple[KVCacheGroup, ...] = ()
    prefix_match_unit: int | None = None

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
        if not rules_of(self.vllm_version).drops_once_for_drafts:
            groups = without_eagle_marks(groups)
        return eagle_groups_of(groups, use_eagle=self.drops_blocks_for_drafts)

    @property
    def num_hash_lookahead_tokens(self) -> int:
        """How many tokens behind a block its hash covers, too: none beside a connector (vllm 0.33.0 config/vllm.py)."""
        covers = rules_of(self.vllm_version).hashes_ahead_of_drafts and self.enable_prefix_caching
        covers = covers and self.use_eagle and not self.has_native_offloading
        return max(1, self.num_prefill_lookahead_tokens) if covers else 0

    @property
    def drops_blocks_for_drafts(self) -> bool:
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
