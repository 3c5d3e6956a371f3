"""A model on a GPU as ``sim.latency.PeakTimes``: every operation's FLOPs and bytes over the peak that bounds it."""

from __future__ import annotations

from replay.model.gpu_memory import check_parallel
from replay.model.gpus import Gpu
from replay.model.shape import ModelShape
from sim.latency.peak import PeakTimes

FLOPS_PER_WEIGHT = 2.0
"""A multiplication and an addition per weight and token."""

COLLECTIVES_PER_LAYER = 2
"""All-reduces per layer: behind attention and behind the MLP (Megatron-LM, arXiv:1909.08053)."""

ACTIVATION_TRIPS = 12
"""Vectors of hidden size that a layer reads or writes per token beside its products' weights: two norms, two residual
additions, the inputs and outputs of the projections; the MLP's own width is counted apart."""


def peak_times(shape: ModelShape, gpu: Gpu, *, tp: int = 1, pp: int = 1) -> PeakTimes:
    """Return what each part of a step takes one of ``tp`` GPUs, over all layers. Raises ConfigError on a bad tp."""
    check_parallel(shape, tp=tp, pp=pp)
    attention = shape.attention
    bandwidth, rate16 = gpu.bytes_per_us(), gpu.flops_per_us("16bit")
    windowed_share = shape.num_windowed_layers
    in_attention, in_mlp, in_experts = (
        shape.attention_precision,
        shape.mlp_precision,
        shape.expert_precision,
    )
    replicated = shape.num_layers * attention.replicated_parameters(shape.hidden_size)
    attention_weights = (shape.attention_parameters() - replicated) / tp + replicated
    mlp_weights, expert_weights = shape.mlp_parameters() / tp, shape.expert_parameters() / tp
    head_weights = shape.head_parameters() / tp
    matmul = FLOPS_PER_WEIGHT * (
        attention_weights / gpu.flops_per_us(in_attention.matmul)
        + mlp_weights / gpu.flops_per_us(in_mlp.matmul)
        + shape.router_parameters() / rate16
    )
    weights = (
        attention_weights * in_attention.bytes_per_weight
        + mlp_weights * in_mlp.bytes_per_weight
        + shape.router_parameters() * shape.dtype_bytes
    )
    entry_bytes = attention.entries_per_token(tp) * shape.kv_dtype_bytes
    pair, entry = attention.prefill_flops_per_pair(tp) / rate16, attention.decode_flops_per_entry(tp) / rate16
    collectives = COLLECTIVES_PER_LAYER * shape.num_layers if tp > 1 else 0
    vector = shape.hidden_size * shape.dtype_bytes
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
        all_reduce=collectives * 2 * (tp - 1) / tp * vector / gpu.link_bytes_per_us(),
        num_all_reduces=collectives,
        send_recv=vector / gpu.link_bytes_per_us() if pp > 1 else 0.0,
        tp=tp,
        pp=pp,
        is_grouped=attention.num_kv_heads < attention.num_heads and not attention.is_mla,
    )


def activation_bytes_per_token(shape: ModelShape, *, tp: int) -> float:
    """Return what a token's vectors move through memory between the products: norms, residuals, the MLP's width."""
    width = shape.num_matrices * shape.intermediate_size / tp * shape.num_dense_layers
    if shape.experts is not None:
        each = shape.experts.num_per_token * shape.experts.intermediate_size + shape.experts.shared_size
        width += shape.num_matrices * each / tp * shape.num_moe_layers
    return float(ACTIVATION_TRIPS * shape.hidden_size * shape.num_layers + 2 * width) * shape.dtype_bytes
