"""What the engine is configured with: vLLM's names, vLLM's defaults."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Literal, get_args

from sim.kv_cache_groups import (
    MOST_TOKENS,
    WITH_ONE_GROUP_ONLY,
    KVCacheGroup,
    alignment_of,
    eagle_groups_of,
    fault_of_drafts,
    faults_of,
    sizes_of,
    without_eagle_marks,
)
from sim.version_groups import Beside, fault_of_version
from sim.versions import (
    DEFAULT_VERSION,
    KNOWN_VERSIONS,
    engine_defaults,
    has_native_offloading,
    is_known,
    rules_of,
)

SchedulingPolicy = Literal["fcfs", "priority", "sjf", "reverse-priority"]
PriorityScoring = Literal["constant", "slo-based", "inverted-slo"]
Frontend = Literal["openai", "none"]
Compatibility = Literal["vllm", "blis"]

KVOffloading = Literal["native", "shared", "blis"]

Batching = Literal["vllm", "orca", "sarathi", "static"]

Record = Literal["none", "spans", "steps", "blocks", "tokens"]
"""What a run writes down: nothing; spans of steps, which give inter-token latencies; every step (one at a time);
every step with its blocks; every token."""

MOST_GRAPH_TOKENS = 512
"""vLLM captures CUDA graphs of twice the seats, and of so many tokens at most."""
UNBOUNDED = 0
"""``num_gpu_blocks`` of a KV cache that never binds."""


MOST_INTEGER = 2**31 - 1
MOST = {
    "max_num_seqs": 1_000_000,
    "max_num_batched_tokens": 2**28,
    "num_gpu_blocks": 100_000_000,
    "num_cpu_blocks": 100_000_000,
    "block_size": 2**20,
    "max_model_len": 2**30,
    "max_loras": 1_000_000,
    "num_speculative_tokens": 1024,
    "num_lookahead_tokens": 1024,
    "num_prefill_lookahead_tokens": 1024,
    "pipeline_parallel_size": 1024,
    "encoder_data_parallel_size": 1024,
    "seed": 2**64 - 1,
    "lora_load_us": 10**9,
    "guided_compile_us": 10**9,
    "session_kv_ttl_us": 10**12,
    "max_num_encoder_input_tokens": 2**30,
    "encoder_cache_size": 2**30,
    "kv_transfer_base_latency": 10**9,
}
"""The largest that an integer may be: the engine has arrays of some, and counts tokens in 32 bits in places."""
MOST_BLOCK_US = 1_000_000
"""Of a block's way between the GPU and host memory: the engine counts 10⁻⁶ µs in 64 bits."""
MOST_ADDED_US = 1_000_000_000
"""Of a time that is added to a step, or to a token in it."""


class InvalidConfig(ValueError):  # noqa: N818 - callers translate it; the name says what it is
    """A value the engine cannot run with; the message names the field, what it got and what it expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """The scheduler's and the KV cache's settings under vLLM's own names; defaults are those of 0.32.

    ``vllm_version``: whose scheduling rules hold (``sim/versions.py``). A setting that the version does not know is
    refused; ``for_version`` has the defaults that go with it.

    ``num_gpu_blocks`` counts blocks as vLLM does, the null block included (usable = n - 1);
    0 means a KV cache that never binds. ``watermark`` is a fraction of ``num_gpu_blocks``.

    ``pipeline_parallel_size`` p: stages that a batch passes one after the other, each working on another batch. Then p
    batches are in flight, with async scheduling as many as the version has (``max_concurrent_batches``).

    ``prefill_schedule_interval`` N: data-parallel ranks in step (``ClusterConfig.lockstep``) compute prompts in every
    N-th step only; an engine alone takes no notice, as in vLLM.

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
    one. Without async scheduling ``host_step_us`` is added to each step, ``host_prefill_us`` to one with prompts: what
    the CPU does between steps, hidden otherwise.

    ``session_kv_ttl_us``: how long the KV of a session's round stays pinned for the next one, 0: not at all
    (``sim/engine/kv_cache/session_kv.py`` has the rules; vLLM does not do it).

    Requests with images (``sim/engine/optional/encoder_inputs.py`` has the rules): a step encodes
    ``max_num_encoder_input_tokens`` of them, the encoder cache has room for ``encoder_cache_size``; 0 of either:
    ``max_num_batched_tokens``, as vLLM, and at least the largest image. ``disable_chunked_mm_input``: no step computes
    a part of an image. ``language_model_only``: no encoder; images are text.

    ``batching``: who is put into a batch, by vLLM's rule or by that of another scheduler, for comparison
    (``sim/engine/optional/batching.py`` has the rules).

    ``compatibility`` blis takes on the peer's deviations (``sim/engine/optional/blis.py`` has them).
    Raises InvalidConfig on a value the engine cannot run with.
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

    @classmethod
    def for_version(cls, version: str, **settings: object) -> EngineConfig:
        """Return the configuration of a version: ``settings``, and its own defaults for what they do not say.

        Raises InvalidConfig.
        """
        stages = settings.get("pipeline_parallel_size", 1)
        num_stages = stages if isinstance(stages, int) else 1
        defaults = engine_defaults(version, num_stages=num_stages) if is_known(version) else {}
        return cls(**{**defaults, "vllm_version": version, **settings})  # type: ignore[arg-type]  # checked there

    def __post_init__(self) -> None:
        """Check every field; the first that cannot be is named."""
        _check_types(self)
        if self.num_gpu_blocks == 1:
            raise InvalidConfig(
                "num_gpu_blocks: got 1, expected >= 2 (block 0 is the null block), or 0: unbounded"
            )
        if not isinstance(self.watermark, int | float) or not 0 <= self.watermark < 1:
            raise InvalidConfig(f"watermark: got {self.watermark!r}, expected a fraction in [0, 1)")
        if not isinstance(self.priority_age_weight, int | float) or not 0 <= self.priority_age_weight < 1e9:
            raise InvalidConfig(
                f"priority_age_weight: got {self.priority_age_weight!r}, expected a number >= 0"
            )
        for name, choices in (
            ("scheduling_policy", SchedulingPolicy),
            ("priority_scoring", PriorityScoring),
            ("frontend", Frontend),
            ("batching", Batching),
            ("kv_offloading", KVOffloading),
            ("compatibility", Compatibility),
        ):
            value = getattr(self, name)
            if value not in get_args(choices):
                raise InvalidConfig(f"{name}: got {value!r}, expected one of {', '.join(get_args(choices))}")
        _check_version(self)
        _check_pipeline(self)
        _check_speculation(self)
        self._have_groups_where_needed()
        _check_tiers(self)
        _check_offloading(self)
        _check_added_time(self)
        _check_session_kv(self)
        _check_batching(self)
        _check_groups(self)
        if self.compatibility == "blis":
            _check_blis(self)

    def _have_groups_where_needed(self) -> None:
        """Leave one full group unsaid; say it where several MTP modules read ahead, which needs the rules of groups."""
        one_full = (KVCacheGroup(kind="full"),)
        if self.num_prefill_lookahead_tokens > 1:
            object.__setattr__(self, "kv_cache_groups", self.kv_cache_groups or one_full)
        elif self.kv_cache_groups == one_full or (
            self.use_eagle and without_eagle_marks(self.kv_cache_groups) == one_full
        ):
            object.__setattr__(self, "kv_cache_groups", ())

    @property
    def eagle_groups(self) -> tuple[int, ...]:
        """The groups in which a prefix hit loses its last block to drafts."""
        groups = self.kv_cache_groups
        if not rules_of(self.vllm_version).drops_once_for_drafts:
            groups = without_eagle_marks(groups)
        return eagle_groups_of(groups, use_eagle=self.drops_blocks_for_drafts)

    @property
    def num_hash_lookahead_tokens(self) -> int:
        """How many tokens behind a block its hash covers, too (vllm 0.33.0 config/vllm.py)."""
        covers = rules_of(self.vllm_version).hashes_ahead_of_drafts and self.enable_prefix_caching
        return max(1, self.num_prefill_lookahead_tokens) if covers and self.use_eagle else 0

    @property
    def drops_blocks_for_drafts(self) -> bool:
        """Whether a prefix hit loses its last block, since drafts read hidden states behind it."""
        return self.use_eagle and self.num_hash_lookahead_tokens == 0

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
        sizes = sizes_of(self.kv_cache_groups, block_size=self.block_size, max_model_len=self.max_model_len)
        alignment, hash_size = alignment_of(sizes)
        is_hashed = all(group.kind != "state" or group.mode == "align" for group in self.kv_cache_groups)
        return hash_size if is_hashed else alignment

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
        """Whether grammars, adapters or encoders cost anything."""
        costs = (self.max_loras, self.lora_load_us, self.guided_compile_us, self.guided_mask_us)
        return any(costs) or self.has_encoder_time or self.lora_step_factor != 1

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


def _check_types(config: EngineConfig) -> None:
    """Raise InvalidConfig on a boolean that is none, or an integer that is none or too small."""
    at_least_one = ("max_num_seqs", "max_num_batched_tokens", "block_size", "max_model_len")
    least = dict.fromkeys((*at_least_one, "pipeline_parallel_size", "prefill_schedule_interval"), 1)
    least["encoder_data_parallel_size"] = 1
    for field in fields(config):
        value = getattr(config, field.name)
        if field.type == "bool" and not isinstance(value, bool):
            raise InvalidConfig(f"{field.name}: got {value!r}, expected true or false")
        if field.type == "int":
            low = least.get(field.name, 0)
            if isinstance(value, bool) or not isinstance(value, int) or value < low:
                raise InvalidConfig(f"{field.name}: got {value!r}, expected an integer >= {low}")
            most = MOST.get(field.name, MOST_INTEGER)
            if value > most:
                raise InvalidConfig(f"{field.name}: got {value!r}, expected an integer of at most {most:,}")
        is_time = field.type == "float" and field.name.endswith("_us")
        if is_time and isinstance(value, int | float) and value > MOST_ADDED_US:
            raise InvalidConfig(f"{field.name}: got {value!r}, expected at most {MOST_ADDED_US:,} µs")


def _check_version(config: EngineConfig) -> None:
    """Raise InvalidConfig on a version that is not known, or a setting that it does not know."""
    version = config.vllm_version
    if not is_known(version):
        raise InvalidConfig(f"vllm_version: got {version!r}, expected {KNOWN_VERSIONS}")
    rules = rules_of(version)
    for name, is_there, off in (
        ("long_prefill_token_threshold_adaptive", rules.has_adaptive_threshold, "false"),
        ("watermark", rules.has_watermark, "0"),
        ("scheduler_reserve_full_isl", rules.has_full_isl_gate, "false"),
    ):
        value = getattr(config, name)
        if value and not is_there:
            shown = str(value).lower()
            raise InvalidConfig(f"{name}: got {shown}, expected {off}: vLLM {version} does not have it")


def _check_pipeline(config: EngineConfig) -> None:
    """Raise InvalidConfig on stages beside what is not simulated with them, or what the version cannot."""
    if config.pipeline_parallel_size == 1:
        return
    got = f"pipeline_parallel_size: got {config.pipeline_parallel_size}"
    if config.num_speculative_tokens:
        raise InvalidConfig(
            "pipeline_parallel_size: cannot be combined with num_speculative_tokens, expected 1 or no drafts"
        )
    if config.compatibility == "blis":
        raise InvalidConfig(f"{got} with compatibility blis, expected 1: it has no stages")
    if config.async_scheduling and rules_of(config.vllm_version).async_pipeline == "none":
        raise InvalidConfig(
            f"async_scheduling: got true with pipeline_parallel_size {config.pipeline_parallel_size}, expected "
            f"false: vLLM {config.vllm_version} cannot do both"
        )


def _check_speculation(config: EngineConfig) -> None:
    """Raise InvalidConfig on acceptance rates that are none, or lookahead slots that nobody drafts into."""
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


def _check_tiers(config: EngineConfig) -> None:
    """Raise InvalidConfig on a threshold that is no share, or a bandwidth that moves nothing."""
    if not 0 <= config.kv_offload_threshold <= 1:
        raise InvalidConfig(
            f"kv_offload_threshold: got {config.kv_offload_threshold!r}, expected a fraction in [0, 1]"
        )
    if not (config.kv_transfer_bandwidth > 0 and math.isfinite(config.kv_transfer_bandwidth)):
        raise InvalidConfig(
            f"kv_transfer_bandwidth: got {config.kv_transfer_bandwidth!r}, expected a number > 0"
        )


WITHOUT_NATIVE_OFFLOADING: tuple[tuple[str, str | int | bool], ...] = (
    ("enable_prefix_caching", True),
    ("pipeline_parallel_size", 1),
    ("batching", "vllm"),
    ("compatibility", "vllm"),
)
"""Settings that native offloading is simulated with in this one way, and that way."""


def in_the_way_of_offloading(settings: Callable[[str], object]) -> tuple[str, object, object] | None:
    """Return the first setting that native offloading is not simulated with, its value and the one it has to have.

    ``settings``: the value of each by name.
    """
    for name, needed in WITHOUT_NATIVE_OFFLOADING:
        value = settings(name)
        if value != needed:
            return name, value, needed
    return None


def _check_offloading(config: EngineConfig) -> None:
    """Raise InvalidConfig on times that are none, or on what native offloading is not simulated with."""
    for name in ("kv_load_us_per_block", "kv_store_us_per_block"):
        value = getattr(config, name)
        if not isinstance(value, int | float) or not 0 <= value <= MOST_BLOCK_US:
            raise InvalidConfig(f"{name}: got {value!r}, expected a number in [0, {MOST_BLOCK_US:,}] µs")
    if config.kv_offloading == "blis" or config.num_cpu_blocks == 0:
        return
    if config.kv_offloading == "shared" and config.kv_store_threshold > 1:
        raise InvalidConfig(
            f"kv_store_threshold: got {config.kv_store_threshold} with kv_offloading shared, expected 0: offers are "
            "not counted across instances"
        )
    if config.kv_offloading == "shared" and config.kv_cache_groups:
        raise InvalidConfig(
            f"kv_offloading: shared cannot be combined with kv_cache_groups, got {len(config.kv_cache_groups)} groups"
        )
    if config.kv_offloading == "shared" and config.num_speculative_tokens:
        raise InvalidConfig(
            "kv_offloading: shared cannot be combined with num_speculative_tokens "
            f"{config.num_speculative_tokens}, expected 0"
        )
    if not has_native_offloading(config.vllm_version, has_groups=bool(config.kv_cache_groups)):
        raise InvalidConfig(
            f"kv_offloading: got {config.kv_offloading} with vllm_version {config.vllm_version}, expected blis: "
            "the rules of its offloading are not known"
        )
    found = in_the_way_of_offloading(lambda name: getattr(config, name))
    if found is not None:
        name, shown, expected = (str(each).lower() for each in found)
        raise InvalidConfig(
            f"kv_offloading: {config.kv_offloading} cannot be combined with {name} {shown}, expected {expected}"
        )


def _check_groups(config: EngineConfig) -> None:
    """Raise InvalidConfig on groups that vLLM would refuse, or that are not simulated with what stands beside them."""
    groups = config.kv_cache_groups
    _check_retention(config)
    fault = fault_of_version(
        config.vllm_version,
        groups,
        Beside(
            caches_prefixes=config.enable_prefix_caching,
            use_eagle=config.use_eagle,
            num_speculative_tokens=config.num_speculative_tokens,
            ahead=config.num_prefill_lookahead_tokens,
            interval=config.prefix_cache_retention_interval,
        ),
    )
    if fault is not None:
        raise InvalidConfig(f"{fault[0]}: {fault[1]}")
    if not groups:
        return
    fault = faults_of(groups, block_size=config.block_size, caches_prefixes=config.enable_prefix_caching)
    fault = fault or fault_of_drafts(
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


def _check_retention(config: EngineConfig) -> None:
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


def _check_added_time(config: EngineConfig) -> None:
    """Raise InvalidConfig on times that are none, or a factor that makes steps shorter."""
    for name, least in (
        ("guided_mask_us", 0),
        ("draft_us", 0),
        ("encoder_step_us", 0),
        ("encoder_token_us", 0),
        ("encoder_token_pair_us", 0),
        ("launch_us", 0),
        ("host_step_us", 0),
        ("host_prefill_us", 0),
        ("lora_step_factor", 1),
    ):
        value = getattr(config, name)
        if not isinstance(value, int | float) or not least <= value < math.inf:
            raise InvalidConfig(f"{name}: got {value!r}, expected a number >= {least}")


WITHOUT_SESSION_KV: tuple[tuple[str, object], ...] = (
    ("enable_prefix_caching", True),
    ("kv_cache_groups", ()),
    ("num_cpu_blocks", 0),
    ("batching", "vllm"),
    ("compatibility", "vllm"),
)
"""Settings that pinned KV is simulated with in this one way."""


def _check_session_kv(config: EngineConfig) -> None:
    """Raise InvalidConfig on what pinned KV is not simulated with."""
    if config.session_kv_ttl_us == 0:
        return
    for name, needed in WITHOUT_SESSION_KV:
        value = getattr(config, name)
        if value != needed:
            shown, expected = (
                f"{len(each)} groups" if isinstance(each, tuple) else str(each).lower()
                for each in (value, needed)
            )
            raise InvalidConfig(
                f"session_kv_ttl_us: cannot be combined with {name} {shown}, expected {expected}"
            )


def _check_blis(config: EngineConfig) -> None:
    """Raise InvalidConfig on what the peer does not have."""
    if config.async_scheduling:
        raise InvalidConfig("async_scheduling: got true with compatibility blis, expected false: it has none")
    if config.num_speculative_tokens:
        raise InvalidConfig(
            f"num_speculative_tokens: got {config.num_speculative_tokens} with compatibility blis, expected 0: "
            "it has no speculative decoding"
        )


def _check_batching(config: EngineConfig) -> None:
    """Raise InvalidConfig on what another scheduler than vLLM's does not have, or is not simulated with."""
    if config.batching == "vllm":
        return
    for name, off in (
        ("async_scheduling", False),
        ("enable_prefix_caching", False),
        ("pipeline_parallel_size", 1),
        ("num_speculative_tokens", 0),
        ("long_prefill_token_threshold", 0),
        ("num_cpu_blocks", 0),
        ("max_loras", 0),
        ("scheduling_policy", "fcfs"),
        ("compatibility", "vllm"),
    ):
        value = getattr(config, name)
        if value != off:
            shown, expected = (str(each).lower() for each in (value, off))
            raise InvalidConfig(f"{name}: got {shown} with batching {config.batching}, expected {expected}")
    if config.batching == "sarathi" and not config.enable_chunked_prefill:
        raise InvalidConfig("enable_chunked_prefill: got false with batching sarathi, expected true")
