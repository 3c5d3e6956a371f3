"""A model on a GPU as ``sim.latency.PeakTimes``: every operation's FLOPs and bytes over the peak that bounds it."""

from __future__ import annotations

from typing import TypedDict

from replay.model.gpu_memory import check_parallel
from replay.model.gpus import Gpu
from replay.model.layout import ONE_NODE, SENDS_EVERYTHING, Layout
from replay.model.shape import ModelShape
from sim.latency import PeakTimes

FLOPS_PER_WEIGHT = 2.0
"""A multiplication and an addition per weight and token."""

COLLECTIVES_PER_LAYER = 2
"""All-reduces per layer: behind attention and behind the MLP (Megatron-LM, arXiv:1909.08053)."""

ACTIVATION_TRIPS = 12
"""Vectors of hidden size that a layer reads or writes per token beside its products' weights: two norms, two residual
additions, the inputs and outputs of the projections; the MLP's own width is counted apart."""


def peak_times(
    shape: ModelShape, gpu: Gpu, *, tp: int = 1, pp: int = 1, layout: Layout = ONE_NODE
) -> PeakTimes:
    """Return what each part of a step takes one of ``tp`` GPUs, over all layers. Raises ConfigError on a bad tp."""
    check_parallel(shape, tp=tp, pp=pp)
    layout.check(shape, tp=tp)
    attention = shape.attention
    bandwidth, rate16 = gpu.bytes_per_us(), gpu.flops_per_us("16bit")
    windowed_share = shape.num_windowed_layers
    in_experts = shape.expert_precision
    attention_weights = _attention_weights(shape, tp=tp)
    mlp_weights, expert_weights = (
        shape.mlp_parameters() / tp,
        shape.expert_parameters() / layout.expert_ranks(tp),
    )
    head_weights = shape.head_parameters() / tp
    matmul, weights = _products(shape, gpu, attention_weights, mlp_weights)
    entry_bytes = attention.entries_per_token(tp) * shape.kv_dtype_bytes
    pair, entry = attention.prefill_flops_per_pair(tp) / rate16, attention.decode_flops_per_entry(tp) / rate16
    experts = shape.experts
    return PeakTimes(
        matmul=matmul,
        weights=weights / bandwidth,
        head_matmul=FLOPS_PER_WEIGHT * head_weights / rate16,
        head_weights=head_weights * shape.dtype_bytes / bandwidth,
        prefill_pair=shape.num_full_layers * pair,
        decode_entry=shape.num_full_layers * entry,
        kv_entry=shape.num_full_layers * entry_bytes / bandwidth,
        kv_write=shape.num_layers * entry_bytes / bandwidth,
        activation=activation_bytes_per_token(shape, tp=tp) / bandwidth,
        num_layers=shape.num_layers,
        expert_matmul=FLOPS_PER_WEIGHT
        * shape.active_expert_parameters()
        / tp
        / gpu.flops_per_us(in_experts.matmul),
        expert_weights=expert_weights * in_experts.bytes_per_weight / bandwidth,
        num_experts=experts.num_experts if experts else 0,
        num_experts_per_token=experts.num_per_token if experts else 0,
        num_moe_layers=shape.num_moe_layers,
        windowed_prefill_pair=windowed_share * pair,
        windowed_decode_entry=windowed_share * entry,
        windowed_kv_entry=windowed_share * entry_bytes / bandwidth,
        window=shape.window,
        dp=layout.dp,
        ep=layout.expert_ranks(tp) if layout.enable_expert_parallel else 1,
        tp=tp,
        pp=pp,
        is_grouped=attention.num_kv_heads < attention.num_heads and not attention.is_mla,
        **collectives(shape, gpu, tp=tp, pp=pp, layout=layout),
    )


def _attention_weights(shape: ModelShape, *, tp: int) -> float:
    """Return the weights of attention on one GPU, over all layers; what cannot be split is on each."""
    replicated = shape.num_layers * shape.attention.replicated_parameters(shape.hidden_size)
    return (shape.attention_parameters() - replicated) / tp + replicated


def _products(
    shape: ModelShape, gpu: Gpu, attention_weights: float, mlp_weights: float
) -> tuple[float, float]:
    """Return what a token takes in the products of attention, MLP and routers, µs, and the bytes of their weights."""
    in_attention, in_mlp = shape.attention_precision, shape.mlp_precision
    matmul = FLOPS_PER_WEIGHT * (
        attention_weights / gpu.flops_per_us(in_attention.matmul)
        + mlp_weights / gpu.flops_per_us(in_mlp.matmul)
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
    return float(ACTIVATION_TRIPS * shape.hidden_size * shape.num_layers + 2 * width) * shape.dtype_bytes
