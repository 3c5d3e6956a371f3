"""Where a GPU's memory goes under vLLM, and how many KV blocks are left."""

from __future__ import annotations

import math
from collections.abc import Sequence
from lazy_dataclasses import dataclass, replace

from replay.model.gpus import Gpu
from replay.model.kernels.latent_kernels import served_on
from replay.model.layers.drafter import Drafter, mtp_drafter
from replay.model.layers.groups_of_layers import Dealt, cached_layers, dealt, undivided
from replay.model.layers.packed_groups import BLOCK, dealt_packed, packed_layers
from replay.model.layout import ONE_NODE, Layout
from replay.model.shape import Mixer, ModelShape
from sim import (
    DEFAULT_VERSION,
    HeldBlocks,
    KVCacheGroup,
    minor_version,
    nearest_rules,
    values_by_version,
)
from traces import ConfigError

GIB = 2**30

NON_TORCH_BYTES = 0.15 * GIB
"""CUDA context and libraries beyond torch's allocator on a single GPU (inference-sim's figure; docs/validation.md has
what it gives on counts from public logs)."""
NON_TORCH_BYTES_IN_A_GROUP = 0.6 * GIB
"""The same in a tensor-parallel group, where NCCL and the custom all-reduce have their buffers (same source)."""

SAMPLER_BYTES_PER_LOGIT = 28
"""vLLM's memory profile samples max_num_seqs tokens with top-k and top-p: float32 logits, sorted logits, int64 order,
probabilities, their sums, the result (vllm 0.32.0 v1/sample/ops/topk_topp_sampler.py): 4 + 4 + 8 + 4 + 4 + 4."""
SAMPLER_BYTES_PER_LOGIT_SECOND_RUNNER = 6
"""vLLM's second model runner samples there without top-k and top-p: 16-bit and float32 logits (vllm 0.24.0
v1/worker/gpu/model_runner.py, _dummy_sampler_run)."""
SECOND_RUNNER_SINCE = 24
SECOND_RUNNER_MODELS = frozenset({"llama", "mistral", "qwen3", "qwen2_moe", "deepseek_v2", "granitemoe"})
"""Model types that vLLM 0.24.0 gives to its second model runner (config/vllm.py); taken for later versions, too."""
LIVE_HIDDEN_STATES = 4
"""Vectors of hidden size per token that live through a layer: residual, normed input, output, one in the making."""

CUDA_GRAPH_BYTES = 0.3 * GIB
"""What vLLM 0.21 to 0.27 sets aside for CUDA graphs: 0.17 to 0.36 GiB in public start-up logs. Its estimate can be off
by gigabytes, which vLLM counts as a bug of its own (vllm-project/vllm#45178)."""

NULL_BLOCK = 1
FIRST_VOCABULARY_PADDING = 64
"""vLLM pads a vocabulary to a multiple of this before it divides it over the group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KvCacheSize:
    """One GPU's memory (bytes) and the KV blocks in it, counted as vLLM does, the null block included.

    ``weight_bytes``: with those of what encodes images (``tower_bytes``) and of what drafts (``draft_bytes``).
    ``kv_bytes_per_token``: what a token of context takes on this GPU, in the layers that keep all of it.
    ``groups``: of layers that keep alike; ``block_size``: of a group that has no size of its own.
    ``kv_cache_memory_bytes``: what the KV cache was given, None: what is left.
    """

    memory_bytes: float
    utilization: float
    weight_bytes: float
    activation_bytes: float
    non_torch_bytes: float
    cuda_graph_bytes: float
    kv_bytes_per_token: float
    block_size: int
    num_gpu_blocks: int
    groups: tuple[KVCacheGroup, ...] = (KVCacheGroup(kind="full"),)
    tower_bytes: float = 0.0
    draft_bytes: float = 0.0
    kv_cache_memory_bytes: int | None = None

    @property
    def kv_bytes(self) -> float:
        """What the KV cache was given, else what is left for it."""
        if self.kv_cache_memory_bytes is not None:
            return self.kv_cache_memory_bytes
        taken = self.weight_bytes + self.activation_bytes + self.non_torch_bytes + self.cuda_graph_bytes
        return self.memory_bytes * self.utilization - taken

    @property
    def num_tokens(self) -> int:
        """How many tokens fit in the cache (``tokens_held``)."""
        return tokens_held(self.groups, num_gpu_blocks=self.num_gpu_blocks, block_size=self.block_size)


def tokens_held(groups: Sequence[KVCacheGroup], *, num_gpu_blocks: int, block_size: int) -> int:
    """Return how many tokens fit in a cache; with several groups those of the longest sequence that has blocks in all.

    Tokens in flight are not among them: how many a server has is not asked here. Without full layers: of a block in
    every group. ``block_size``: of groups without one of their own.
    """
    usable, sizes = num_gpu_blocks - NULL_BLOCK, [group.block_size or block_size for group in groups]
    if len(groups) <= 1 or all(group.kind != "full" for group in groups):
        return usable // max(1, len(groups)) * min(sizes, default=block_size)
    return HeldBlocks(block_size=block_size, groups=tuple(groups), chunk_tokens=0).longest(usable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """What a server is told that bears on its memory, under vLLM's names.

    Without ``gpu_memory_utilization`` the version's default; a version outside ``sim/versions.py`` counts as the
    nearest one in it. ``kv_cache_memory_bytes``: the KV cache of each GPU, whatever is free (vllm 0.32.0
    v1/worker/gpu_worker.py: determine_available_memory). ``drafter``: what drafts, None where nothing does that is
    known. ``language_model_only``: no tower is loaded; ``has_data_towers``: ``mm_encoder_tp_mode`` data.
    """

    gpu_memory_utilization: float | None = None
    kv_cache_memory_bytes: int | None = None
    block_size: int = 16
    max_num_batched_tokens: int = 2048
    max_num_seqs: int = 256
    vllm_version: str = DEFAULT_VERSION
    enable_prefix_caching: bool = True
    prefix_match_unit: int | None = None
    disable_hybrid_kv_cache_manager: bool = False
    num_speculative_tokens: int = 0
    drafter: Drafter | None = None
    has_data_towers: bool = False
    language_model_only: bool = False
    enforce_eager: bool = False

    @property
    def counts_cuda_graphs(self) -> bool:
        """Whether this version's first model runner sets memory for CUDA graphs aside."""
        return nearest_rules(self.vllm_version).counts_cuda_graphs and not self.enforce_eager

    def has_second_runner(self, shape: ModelShape) -> bool:
        """Whether this version serves the model with its second runner, which profiles less memory than the first."""
        minor = minor_version(self.vllm_version) or 0
        return minor >= SECOND_RUNNER_SINCE and shape.model_type in SECOND_RUNNER_MODELS

    @property
    def utilization(self) -> float:
        """The share of the memory that it takes."""
        if self.gpu_memory_utilization is not None:
            return self.gpu_memory_utilization
        return nearest_rules(self.vllm_version).gpu_memory_utilization


def kv_cache_size(
    shape: ModelShape,
    gpu: Gpu,
    *,
    tp: int = 1,
    pp: int = 1,
    layout: Layout = ONE_NODE,
    serving: Serving | None = None,
) -> KvCacheSize:
    """Return one GPU's share: memory x utilization, less weights, activations, non-torch and CUDA graphs, in blocks.

    With ``kv_cache_memory_bytes`` that many bytes, if the weights leave them. Layers that keep unlike share one pool in
    groups (``replay/model/layers/groups_of_layers.py``). Raises ConfigError where nothing is left.
    """
    check_parallel(shape, tp=tp, pp=pp)
    layout.check(shape, tp=tp)
    told = serving or Serving()
    shape = served_on(shape, gpu, tp=tp, version=told.vllm_version)
    layers, group = dealt_of(shape, tp=tp, serving=told, gpu=gpu), tp * pp * layout.dp > 1
    is_second = told.has_second_runner(shape)
    towers = 0.0 if told.language_model_only else tower_bytes(shape, tp=tp, is_data=told.has_data_towers)
    drafts = 0.0 if told.drafter is None else draft_bytes(told.drafter, tp=tp, pp=pp, layout=layout)
    parts = KvCacheSize(
        memory_bytes=gpu.memory_gib * GIB,
        utilization=told.utilization,
        weight_bytes=weight_bytes(shape, tp=tp, pp=pp, layout=layout) + towers + drafts,
        activation_bytes=activation_bytes(
            shape,
            tp=tp,
            num_tokens=told.max_num_batched_tokens,
            max_num_seqs=told.max_num_seqs,
            bytes_per_logit=SAMPLER_BYTES_PER_LOGIT_SECOND_RUNNER if is_second else SAMPLER_BYTES_PER_LOGIT,
        ),
        non_torch_bytes=NON_TORCH_BYTES_IN_A_GROUP if group else NON_TORCH_BYTES,
        cuda_graph_bytes=CUDA_GRAPH_BYTES if told.counts_cuda_graphs and not is_second else 0.0,
        kv_bytes_per_token=kv_bytes_per_token(shape, tp=tp, pp=pp),
        block_size=layers.block_size,
        num_gpu_blocks=0,
        groups=layers.kv_cache_groups,
        tower_bytes=towers,
        draft_bytes=drafts,
        kv_cache_memory_bytes=told.kv_cache_memory_bytes,
    )
    block_bytes = layers.bytes_per_block / pp
    _check_room(parts, block_bytes, where=f"{shape.name} on {gpu.name} tp={tp} pp={pp}")
    return replace(parts, num_gpu_blocks=int(parts.kv_bytes // block_bytes))


def _check_room(parts: KvCacheSize, block_bytes: float, *, where: str) -> None:
    """Raise ConfigError where the memory has no room for a block beside the null block, or for the given KV cache."""
    given, room = parts.kv_cache_memory_bytes, int(parts.memory_bytes - parts.weight_bytes)
    if given is not None and given > room:
        raise ConfigError(
            f"kv_cache_memory_bytes: got {given:,}, expected at most what the weights leave, of {where}: "
            f"{max(0, room):,}"
        )
    if parts.kv_bytes // block_bytes >= NULL_BLOCK + 1:
        return
    if given is not None:
        raise ConfigError(
            f"kv_cache_memory_bytes: got {given:,}, expected at least "
            f"{math.ceil((NULL_BLOCK + 1) * block_bytes):,}: two blocks of the KV cache of {where}"
        )
    memory_gib = parts.memory_bytes / GIB
    short = memory_gib * parts.utilization - parts.kv_bytes / GIB
    raise ConfigError(
        f"KV cache: {where} needs {short:.1f} GiB of each GPU before its first block, got {memory_gib:.1f} GiB x "
        f"{parts.utilization:g}; expected a larger tp, a larger GPU or fewer bits per weight"
    )


def dealt_of(shape: ModelShape, *, tp: int, serving: Serving, gpu: Gpu | None = None) -> Dealt:
    """Return a model's layers as this server would deal them out. Raises ConfigError where vLLM could not.

    ``gpu``: which kernels there are, None: as on an H100.
    """
    if shape.is_compressed:
        if serving.disable_hybrid_kv_cache_manager:
            raise ConfigError(
                f"disable_hybrid_kv_cache_manager: got true for {shape.name}, expected false: its layers keep entries "
                "for several tokens and windows beside them"
            )
        if serving.drafter is not None and serving.drafter != mtp_drafter(shape):
            raise ConfigError(
                f"speculative_method: got {serving.drafter.shape.name} for {shape.name}, expected mtp: how layers of "
                "another model are dealt out beside entries for several tokens is not known"
            )
        size = serving.block_size if serving.block_size % BLOCK == 0 else BLOCK
        packed = packed_layers(shape, block_size=size, with_mtp=serving.drafter is not None)
        return dealt_packed(packed, block_size=size)
    layers = cached_layers(
        shape,
        tp=tp,
        version=serving.vllm_version,
        gpu=gpu,
        num_lookahead=serving.num_speculative_tokens,
        appended=() if serving.drafter is None else serving.drafter.shape.mixers,
    )
    if serving.disable_hybrid_kv_cache_manager:
        return undivided(layers, block_size=serving.block_size, version=serving.vllm_version)
    return dealt(
        layers,
        block_size=serving.block_size,
        caches_prefixes=serving.enable_prefix_caching,
        version=serving.vllm_version,
        match_unit=serving.prefix_match_unit,
    )


def kv_bytes_per_token(shape: ModelShape, *, tp: int = 1, pp: int = 1) -> float:
    """Return what a token of context takes on one GPU, in the layers that keep all of it (else in the windowed)."""
    full = shape.kv_bytes_per_token(tp)
    return (full or shape.kv_bytes_per_token(tp, windowed=True)) / pp


def weight_bytes(shape: ModelShape, *, tp: int = 1, pp: int = 1, layout: Layout = ONE_NODE) -> float:
    """Return the weights on one GPU; with pipeline stages the fullest: its layers and the larger end.

    Experts are shared among ``tp`` x ``dp`` GPUs, a slice of each or with expert parallelism whole ones: the fullest
    GPU has one more where they do not go up. The language model's: ``tower_bytes`` and ``draft_bytes`` have the others.
    """
    layers, ends = _layer_bytes(shape, tp=tp, layout=layout), _vocabulary_bytes(shape, tp=tp)
    lookup = shape.lookup_parameters * shape.dtype_bytes / tp
    both_ends = ends * (1 if shape.is_tied else 2)
    return layers + both_ends + lookup if pp == 1 else layers / pp + ends + lookup


def tower_bytes(shape: ModelShape, *, tp: int = 1, is_data: bool = False) -> float:
    """Return the weights on one GPU of what encodes images and sounds; 0 where nothing does, or it is not known.

    In the model's own type: checkpoints that are quantized leave it as it was. Tensor parallelism splits it as
    ``VisionTower`` says; audio towers are whole on every GPU. Every pipeline stage has them (vllm 0.32.0
    model_executor/models: no tower asks for its stage).
    """
    tower, seeing = shape.vision, 0
    if tower is not None:
        ranks = tower.num_ranks(tp, is_data=is_data)
        seeing = tower.parameters(ranks) + tower.position_parameters
    return float((seeing + shape.audio_parameters) * shape.dtype_bytes)


def draft_bytes(drafter: Drafter, *, tp: int = 1, pp: int = 1, layout: Layout = ONE_NODE) -> float:
    """Return the weights on one GPU of what drafts, on the last of ``pp`` stages whole.

    With stages it keeps an embedding of its own, as the model's is on the first (vllm 0.32.0
    v1/spec_decode/llm_base_proposer.py: _maybe_share_embeddings).
    """
    shape = drafter.shape
    joining = drafter.joining_parameters * shape.dtype_bytes / (tp if drafter.splits_joining else 1)
    embeds = replace(shape, vocab_size=drafter.num_embedded or shape.vocab_size)
    embedding = (drafter.has_embedding or pp > 1) * _vocabulary_bytes(embeds, tp=tp)
    head = drafter.has_head * drafter.num_modules * _vocabulary_bytes(shape, tp=tp)
    ends = max(embedding, head) if shape.is_tied else embedding + head
    return _layer_bytes(shape, tp=tp, layout=layout) + joining + ends


def _vocabulary_bytes(shape: ModelShape, *, tp: int) -> float:
    """Return what one GPU's part of an embedding or of an LM head takes."""
    padded = -(-shape.vocab_size // FIRST_VOCABULARY_PADDING) * FIRST_VOCABULARY_PADDING
    return padded * shape.hidden_size * shape.dtype_bytes / tp


def _layer_bytes(shape: ModelShape, *, tp: int, layout: Layout) -> float:
    """Return one GPU's weights of all layers; experts are shared out as the layout says."""
    replicated = shape.replicated_parameters()
    kept_by_heads = sum(_kept_by_heads(each, shape.hidden_size, tp=tp) for each in shape.mixers)
    in_attention = (shape.attention_parameters() - replicated) / tp + replicated + kept_by_heads
    return (
        in_attention * shape.attention_precision.bytes_per_weight
        + shape.mlp_parameters() / tp * shape.mlp_precision.bytes_per_weight
        + shape.expert_parameters()
        * layout.expert_share(shape, tp=tp)
        * shape.expert_precision.bytes_per_weight
        + shape.router_parameters() * shape.dtype_bytes
    )


def _kept_by_heads(mixer: Mixer, hidden_size: int, *, tp: int) -> int:
    """Return the weights that a GPU holds beyond its share, as each has a whole head of keys and values."""
    attention = mixer.attention
    if attention is None or not mixer.keeps or attention.is_mla or attention.num_kv_heads >= tp:
        return 0
    width = attention.head_dim + attention.v_head_dim
    return int(mixer.num_layers * hidden_size * width * (1 - attention.num_kv_heads / tp))


def activation_bytes(
    shape: ModelShape,
    *,
    tp: int,
    num_tokens: int,
    max_num_seqs: int,
    bytes_per_logit: float = SAMPLER_BYTES_PER_LOGIT,
) -> float:
    """Return the most that a step's intermediate results take: in the MLP, in the experts or in the sampler."""
    hidden = LIVE_HIDDEN_STATES * shape.hidden_size
    widest = shape.num_matrices * shape.intermediate_size / tp if shape.num_dense_layers else 0.0
    if shape.experts is not None:
        each = max(2 * shape.experts.intermediate_size / tp, shape.hidden_size)
        widest = max(widest, shape.experts.num_per_token * (each + shape.experts.intermediate_size / tp))
    forward = num_tokens * (hidden + widest) * shape.dtype_bytes
    sampler = min(max_num_seqs, num_tokens) * shape.vocab_size * bytes_per_logit
    return max(forward, sampler + num_tokens * shape.hidden_size * shape.dtype_bytes)


def check_parallel(shape: ModelShape, *, tp: int, pp: int) -> None:
    """Raise ConfigError when vLLM could not divide the model so."""
    heads = shape.attention.num_heads
    if heads % tp:
        fitting = [n for n in range(1, tp + 1) if heads % n == 0]
        raise ConfigError(
            f"tp: got {tp}, expected a divisor of {shape.name}'s {heads} heads (nearest: {fitting[-1]})"
        )
    if pp > shape.num_layers:
        raise ConfigError(f"pp: got {pp}, expected at most {shape.name}'s {shape.num_layers} layers")


def shares_by_version() -> str:
    """Return which share of the memory vLLM takes without being told, in words: today's, and the one before."""
    (_, first), *_, (since, last) = values_by_version("gpu_memory_utilization")
    return f"{last:g}, before vLLM {since} {first:g}"
