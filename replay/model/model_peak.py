"""A model on a GPU as ``sim.latency.PeakTimes``: every operation's FLOPs and bytes over the peak that bounds it."""

from __future__ import annotations

from lazy_dataclasses import dataclass
from typing import TypedDict

from replay.model.gpu_memory import check_parallel
from replay.model.gpus import Gpu
from replay.model.kernels.expert_kernels import expert_curve
from replay.model.kernels.reach import relative_reach
from replay.model.layout import ONE_NODE, SENDS_EVERYTHING, Layout
from replay.model.operator_forms import (
    CHUNK,
    convolution_us,
    pick_us,
    recurrence_form,
    recurrence_us,
    scan_factor,
    state_form,
)
from replay.model.shape import MatmulKind, ModelShape, Precision
from sim import DEFAULT_VERSION
from sim.latency import PeakTimes
from traces import ConfigError

FLOPS_PER_WEIGHT = 2.0
"""A multiplication and an addition per weight and token."""

COLLECTIVES_PER_LAYER = 2
"""All-reduces per layer: behind attention and behind the MLP (Megatron-LM, arXiv:1909.08053)."""

ACTIVATION_TRIPS = 12
"""Vectors of hidden size that a layer reads or writes per token beside its products' weights: two norms, two residual
additions, the inputs and outputs of the projections; the MLP's own width is counted apart."""


STREAM_TRIPS = 8
"""The same per stream of hyper-connections: read and written before and behind both halves of a layer (vllm 0.32.0
mhc_pre_tilelang, mhc_post_tilelang)."""


def peak_times(
    shape: ModelShape,
    gpu: Gpu,
    *,
    tp: int = 1,
    pp: int = 1,
    layout: Layout = ONE_NODE,
    version: str = DEFAULT_VERSION,
) -> PeakTimes:
    """Return what each part of a step takes one of ``tp`` GPUs, over all layers. Raises ConfigError on a bad tp.

    ``version``: of vLLM, whose kernels for experts differ. Experts that cannot be cut for so many GPUs are whole.
    """
    check_parallel(shape, tp=tp, pp=pp)
    layout = layout.served(shape, tp=tp)
    layout.check(shape, tp=tp)
    refuse_not_timed(shape)
    bandwidth, rate16 = gpu.bytes_per_us(), gpu.flops_per_us("16bit")
    attention_weights, mlp_weights = _attention_weights(shape, tp=tp), shape.mlp_parameters() / tp
    head_weights = shape.head_parameters() / tp
    matmul, weights = _products(shape, gpu, attention_weights, mlp_weights)
    whole, part = _mixing(shape, gpu, tp=tp)
    return PeakTimes(
        matmul=matmul,
        weights=weights / bandwidth,
        head_matmul=FLOPS_PER_WEIGHT * head_weights / rate16,
        head_weights=head_weights * shape.dtype_bytes / bandwidth,
        prefill_pair=whole.prefill_flops / rate16,
        decode_entry=whole.decode_flops / rate16,
        kv_entry=whole.entry_bytes / bandwidth,
        kv_write=(shape.kv_bytes_per_token(tp) + shape.kv_bytes_per_token(tp, windowed=True)) / bandwidth,
        activation=activation_bytes_per_token(shape, tp=tp) / bandwidth,
        num_layers=shape.num_layers,
        **_experts(shape, gpu, tp=tp, layout=layout),
        windowed_prefill_pair=part.prefill_flops / rate16,
        windowed_decode_entry=part.decode_flops / rate16,
        windowed_kv_entry=part.entry_bytes / bandwidth,
        window=part.tokens,
        **_states(shape, gpu, tp=tp),
        **_measured(shape, gpu, tp=tp, layout=layout, version=version),
        block_layers=shape.num_layers if shape.expert_precision.block or shape.mlp_precision.block else 0,
        latent_layers=_latent_layers(shape),
        norm_layers=shape.num_layers if tp > 1 and shape.qk_norm == "all heads" else 0,
        dp=layout.dp,
        ep=layout.expert_ranks(tp) if layout.enable_expert_parallel else 1,
        tp=tp,
        pp=pp,
        is_grouped=shape.attention.is_grouped,
        **collectives(shape, gpu, tp=tp, pp=pp, layout=layout),
    )


def _latent_layers(shape: ModelShape) -> int:
    return sum(
        each.num_layers for each in shape.mixers if each.attention is not None and each.attention.is_mla
    )


class ExpertWork(TypedDict):
    """The experts' members of ``PeakTimes``, by the formula."""

    expert_matmul: float
    expert_weights: float
    num_experts: int
    num_experts_per_token: int
    num_moe_layers: int


def _experts(shape: ModelShape, gpu: Gpu, *, tp: int, layout: Layout) -> ExpertWork:
    precision, experts = shape.expert_precision, shape.experts
    weights = shape.expert_parameters() / layout.expert_ranks(tp)
    flops = FLOPS_PER_WEIGHT * shape.active_expert_parameters() / tp
    return ExpertWork(
        expert_matmul=flops * _us_per_flop(gpu, precision),
        expert_weights=weights * precision.bytes_per_weight / gpu.bytes_per_us(),
        num_experts=experts.num_experts if experts else 0,
        num_experts_per_token=experts.num_per_token if experts else 0,
        num_moe_layers=shape.num_moe_layers,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mixing:
    """What layers that see alike take per pair and per entry, all together; ``tokens``: the most a query sees."""

    prefill_flops: float = 0.0
    decode_flops: float = 0.0
    entry_bytes: float = 0.0
    tokens: int = 0


def _mixing(shape: ModelShape, gpu: Gpu, *, tp: int) -> tuple[_Mixing, _Mixing]:
    """Return what the layers take that see the whole context, and those that see a part of it.

    An indexer sees the whole context, with one small head of keys, in fp8; the attention behind it its ``top_k``
    tokens, in the latent form (vllm 0.32.0 flashmla_sparse.py), whatever the phase. Its scan takes ``scan_factor``
    times what attention does for as many FLOPs: its scores are written down, and read again to pick from. One that
    picks blocks scans in 16 bits, and keeps one score of a block. Where one
    entry stands for several tokens, a token of context counts as its part of one.
    """
    whole, part = _Mixing(), _Mixing()
    for each in shape.mixers:
        attention, number = each.attention, each.num_layers / each.tokens_per_entry
        if shape.is_compressed and each.is_windowed:
            continue  # per token (``_newest_us``)
        if attention is not None and each.indexer is not None:
            indexer = each.indexer
            rate = 1.0 if indexer.block_size else gpu.flops_per_us("fp8") / gpu.flops_per_us("16bit")
            scan = number * 2.0 * indexer.num_heads * indexer.head_dim / rate
            scanned = number * indexer.entry_bytes
            again = 1.0 if indexer.block_size else scan_factor()
            whole = _plus(whole, _Mixing(prefill_flops=again * scan, decode_flops=scan, entry_bytes=scanned))
            latent = number * attention.decode_flops_per_entry(tp)
            read = number * shape.token_bytes(each, tp)
            picked = _Mixing(
                prefill_flops=latent, decode_flops=latent, entry_bytes=read, tokens=each.most_seen
            )
            part = _plus(part, picked)
        elif attention is not None:
            seen = _Mixing(
                prefill_flops=number * attention.prefill_flops_per_pair(tp),
                decode_flops=number * attention.decode_flops_per_entry(tp),
                entry_bytes=number * shape.token_bytes(each, tp),
                tokens=each.window,
            )
            whole, part = (whole, _plus(part, seen)) if each.is_windowed else (_plus(whole, seen), part)
    return whole, part


class ExpertRows(TypedDict):
    """The fields of ``PeakTimes`` that are what experts took."""

    experts_tokens: tuple[float, ...]
    experts_us: tuple[float, ...]


def _measured(shape: ModelShape, gpu: Gpu, *, tp: int, layout: Layout, version: str) -> ExpertRows:
    """Return what a layer's experts took; nothing of engines that share experts: their tokens differ by step."""
    whole = tp if layout.enable_expert_parallel else 1
    found = None if layout.dp > 1 else expert_curve(shape, gpu, tp=tp, ep=whole, version=version)
    if found is None:
        return ExpertRows(experts_tokens=(), experts_us=())
    return ExpertRows(experts_tokens=found.tokens, experts_us=found.time_us)


class States(TypedDict):
    """The fields of ``PeakTimes`` that are about layers with a state, or an index."""

    recurrence: float
    chain: float
    state: float
    per_token: float


def _states(shape: ModelShape, gpu: Gpu, *, tp: int) -> States:
    """Return what the layers with a state take, all together: per prompt token, along a prompt, and per request.

    And what a token takes in those with an index, to be given its keys. A token's inputs go through the convolution,
    its chunk through the recurrence (``replay.model.operator_forms``).
    """
    picking = sum(each.num_layers * pick_us(each.indexer) for each in shape.mixers if each.indexer)
    newest = _newest_us(shape, gpu, tp=tp) if shape.is_compressed else 0.0
    found = States(recurrence=0.0, chain=0.0, state=0.0, per_token=picking + newest)
    for each in shape.mixers:
        if each.state is None:
            continue
        form = recurrence_form(each.state).on(gpu)
        kept = each.state.bytes_per_request(tp, dtype_bytes=shape.dtype_bytes)
        own = recurrence_us(each.state, gpu, tp=tp, dtype_bytes=shape.dtype_bytes)
        convolved = convolution_us(each.state, gpu, tp=tp, dtype_bytes=shape.dtype_bytes)
        found["recurrence"] += each.num_layers * (own + convolved)
        chunks = (
            form.chunk_us / CHUNK if each.state.num_products else 0.0
        )  # short convolutions have no recurrence
        found["chain"] += each.num_layers * (chunks + convolved)
        found["state"] += (
            each.num_layers * state_form(each.state).on(gpu).moved * 2.0 * kept / gpu.bytes_per_us()
        )
    return found


def _newest_us(shape: ModelShape, gpu: Gpu, *, tp: int) -> float:
    """Return what a token takes in the windows of layers that compress the rest, all its keys counted as there.

    They are 128 tokens, so that what a context's first ones lack does not show.
    """
    found = 0.0
    for each in shape.mixers:
        window = each.compression.window if each.compression else each.window
        if each.attention is not None:
            products = each.attention.decode_flops_per_entry(tp) / gpu.flops_per_us("16bit")
            found += (
                each.num_layers * window * max(products, shape.token_bytes(each, tp) / gpu.bytes_per_us())
            )
    return found


def _plus(one: _Mixing, other: _Mixing) -> _Mixing:
    return _Mixing(
        prefill_flops=one.prefill_flops + other.prefill_flops,
        decode_flops=one.decode_flops + other.decode_flops,
        entry_bytes=one.entry_bytes + other.entry_bytes,
        tokens=max(one.tokens, other.tokens),
    )


def kinds_not_timed(shape: ModelShape) -> tuple[str, ...]:
    """Return the kinds of a model's layers whose time no formula here has."""
    kinds = list(shape.not_timed)
    parts = [each for each in shape.mixers if not (shape.is_compressed and each.is_windowed)]
    seen = {each.most_seen for each in parts if each.most_seen}
    if len(seen) > 1 and not kinds:
        kinds.append("layers of several windows")
    return tuple(kinds)


def refuse_not_timed(shape: ModelShape) -> None:
    """Raise ConfigError, naming the kind of layer, where no formula here has a model's time per step."""
    kinds = kinds_not_timed(shape)
    if kinds:
        raise ConfigError(
            f"latency.model: got roofline or physics for {shape.name} with {', '.join(kinds)}, expected blackbox or "
            "extended with coefficients: the time of such layers is not modelled; its KV cache is"
        )


def _attention_weights(shape: ModelShape, *, tp: int) -> float:
    """Return the weights of attention on one GPU, over all layers; what cannot be split is on each."""
    replicated = shape.replicated_parameters()
    return (shape.attention_parameters() - replicated) / tp + replicated


def _us_per_flop(gpu: Gpu, precision: Precision) -> float:
    """Return what an operation takes at the peak, the mean over weights that are kept in several precisions."""
    return sum(share / gpu.flops_per_us(kind) for kind, _, share in _kinds(precision))


def _reached_us_per_flop(gpu: Gpu, precision: Precision) -> float:
    """Return the same at what its kernels reach of the peak, over what Hopper's reach of theirs."""
    return sum(
        share / gpu.flops_per_us(kind) / relative_reach(gpu, kind, in_blocks=in_blocks)
        for kind, in_blocks, share in _kinds(precision)
    )


def _kinds(precision: Precision) -> list[tuple[MatmulKind, bool, float]]:
    """Return (kind of product, whether scaled by blocks, share of the weights) of a precision."""
    rest = 1 - sum(share for _, _, share in precision.others)
    own = (precision.matmul, precision.block > 0, rest)
    return [own, *((kind, False, share) for _, kind, share in precision.others)]


def _products(
    shape: ModelShape, gpu: Gpu, attention_weights: float, mlp_weights: float
) -> tuple[float, float]:
    """Return what a token takes in the products of attention, MLP and routers, µs, and the bytes of their weights.

    At the peak that a GPU's kernels come as near to as Hopper's do to theirs (``replay/model/kernels/reach.py``): what
    share of it they reach is the latency model's business.
    """
    in_attention, in_mlp = shape.attention_precision, shape.mlp_precision
    matmul = FLOPS_PER_WEIGHT * (
        attention_weights * _reached_us_per_flop(gpu, in_attention)
        + mlp_weights * _reached_us_per_flop(gpu, in_mlp)
        + shape.router_parameters() / gpu.flops_per_us("16bit")
    )
    weights = (
        attention_weights * in_attention.bytes_per_weight
        + mlp_weights * in_mlp.bytes_per_weight
        + shape.router_parameters() * shape.dtype_bytes
    )
    return matmul, weights


class Collectives(TypedDict):
    """The fields of ``PeakTimes`` that are about GPUs talking to each other."""

    all_reduce: float
    num_all_reduces: int
    all_to_all: float
    num_all_to_alls: int
    send_recv: float
    waiting: float


def collectives(shape: ModelShape, gpu: Gpu, *, tp: int, pp: int, layout: Layout) -> Collectives:
    """Return what collectives take per token and step: all-reduces, experts' dispatch and combine, stages' sends.

    A ring all-reduce moves 2 (n - 1)/n of a vector. With engines in step (dp > 1) each layer with experts brings every
    token to every engine and the results back (all-gather, reduce-scatter: dp - 1 vectors each), or, with a backend
    that sends a token to its experts only, to the k of ep GPUs that are another's, the tokens shared among tp GPUs.
    """
    vector = shape.hidden_size * shape.dtype_bytes
    num_all_reduces = COLLECTIVES_PER_LAYER * shape.num_layers if tp > 1 else 0
    num_all_to_alls = 2 * shape.num_moe_layers if layout.dp > 1 else 0
    ranks, experts = layout.expert_ranks(tp), shape.experts
    copies = float(layout.dp - 1)
    if layout.all2all_backend not in SENDS_EVERYTHING and experts is not None:
        copies = experts.num_per_token * (ranks - 1) / ranks / tp
    crossings = layout.num_crossings(tp=tp, pp=pp)
    inside, between = gpu.link_bytes_per_us(), layout.bytes_per_us(layout.gpus_per_node + 1, gpu)
    neighbours = tp * pp * layout.dp
    return Collectives(
        all_reduce=num_all_reduces * 2 * (tp - 1) / tp * vector / layout.bytes_per_us(tp, gpu),
        num_all_reduces=num_all_reduces,
        all_to_all=num_all_to_alls * copies * vector / layout.bytes_per_us(neighbours, gpu),
        num_all_to_alls=num_all_to_alls,
        send_recv=vector * ((pp - 1 - crossings) / inside + crossings / between),
        waiting=num_all_reduces * layout.waiting_us(tp)
        + num_all_to_alls * layout.waiting_us(neighbours)
        + crossings * layout.network_us,
    )


def activation_bytes_per_token(shape: ModelShape, *, tp: int) -> float:
    """Return what a token's vectors move through memory between the products: norms, residuals, the MLP's width."""
    width = shape.num_matrices * shape.intermediate_size / tp * shape.num_dense_layers
    if shape.experts is not None:
        each = shape.experts.num_per_token * shape.experts.intermediate_size + shape.experts.shared_size
        width += shape.num_matrices * each / tp * shape.num_moe_layers
    trips = ACTIVATION_TRIPS + (STREAM_TRIPS * shape.residual_streams if shape.residual_streams > 1 else 0)
    return float(trips * shape.hidden_size * shape.num_layers + 2 * width) * shape.dtype_bytes
