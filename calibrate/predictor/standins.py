"""Substitutes for operators that no profile has: the roofline of their bytes and FLOPs, at shares of the peaks.

The shares are deliberately rough and listed with every table: the substituted operators are a small part of a step
unless a profile lacks a projection or attention itself. They were read off the operators that Vidur's A100 and H100
profiles and the operator tables do have (docs/explanation/latency-models.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from calibrate.predictor.components import CPU
from calibrate.predictor.measured import Floats, ProfileQuery
from replay.model import Gpu, ModelShape, Precision
from replay.model.matmuls import dense_width, needed_matmuls

COMPUTE_SHARE = 0.6
"""The share of the peak rate that a product reaches: large ones reach 0.55 to 0.75 of it in the tables."""
BANDWIDTH_SHARE = 0.6
"""The share of the peak bandwidth that is reached: activations and norms of Vidur's profiles reach 0.35 to 0.6,
products of one row 0.6 to 0.8."""
LAUNCH_US = 2.0
"""The shortest kernels of the tables take 2.2 to 2.5 µs."""
COLLECTIVE_US = 5.0
"""An all-reduce of a few bytes takes 4 to 5 µs in the tables, replayed in a CUDA graph."""
LINK_SHARE = 0.7
QK_NORM_BYTES = 8
"""What a norm over all heads sends: the sums of the squares of a token's queries and of its keys, in 32 bits."""

STEP_US = 500.0
"""Stands in for all CPU costs of a step where none was profiled, and for launches that CUDA graphs leave: with it the
TPOT of 58 measured points of dense models has no bias (tests/studies/validation/silicon_profiled.py, the third to
tune on)."""


def stand_in(name: str, points: Floats, wanted: ProfileQuery, gpu: Gpu) -> Floats:
    """Return the µs that stand in for a component at rows of (tokens), (sequences), (batch, keys) or (tokens, keys)."""
    return _STAND_INS[name](points, wanted, gpu)


def _memory(elements: Callable[[ProfileQuery], float]) -> Callable[[Floats, ProfileQuery, Gpu], Floats]:
    """Return the time of a kernel that moves this many elements per token and computes next to nothing."""

    def time_us(points: Floats, wanted: ProfileQuery, gpu: Gpu) -> Floats:
        moved = points[:, 0] * elements(wanted) * wanted.shape.dtype_bytes
        return LAUNCH_US + moved / (gpu.bytes_per_us() * BANDWIDTH_SHARE)

    return time_us


def _product(
    n_and_k: Callable[[ProfileQuery], tuple[float, float]], operator: str
) -> Callable[[Floats, ProfileQuery, Gpu], Floats]:
    """Return the time of a matrix product of (tokens, k) with (k, n)."""

    def time_us(points: Floats, wanted: ProfileQuery, gpu: Gpu) -> Floats:
        n, k = n_and_k(wanted)
        shape = wanted.shape
        found = np.zeros(len(points))
        for precision, share in _precisions(shape, operator):
            compute = 2.0 * points[:, 0] * n * k / (gpu.flops_per_us(precision.matmul) * COMPUTE_SHARE)
            moved = n * k * precision.bytes_per_weight + points[:, 0] * (n + k) * shape.dtype_bytes
            found += share * np.maximum(compute, moved / (gpu.bytes_per_us() * BANDWIDTH_SHARE))
        return LAUNCH_US + found

    return time_us


def _precisions(shape: ModelShape, operator: str) -> tuple[tuple[Precision, float], ...]:
    """Return what an operator's weights are kept in, and in which shares."""
    plain = Precision(name=shape.dtype, bytes_per_weight=shape.dtype_bytes, matmul="16bit")
    parts = {"attn": shape.attention_precision, "state": shape.attention_precision}
    parts |= {"mlp": shape.mlp_precision, "shared": shape.mlp_precision}
    return shape.precisions_of(operator, parts.get(operator.split("_", maxsplit=1)[0], plain))


def _qkv(wanted: ProfileQuery) -> float:
    a = wanted.shape.attention
    kv_heads = max(1, a.num_kv_heads // wanted.tp)
    return a.num_heads / wanted.tp * a.head_dim + kv_heads * (a.head_dim + a.v_head_dim)


def _prefill(points: Floats, wanted: ProfileQuery, gpu: Gpu) -> Floats:
    """Return prefill attention at rows of (tokens, keys per query)."""
    flops = points[:, 0] * points[:, 1] * wanted.shape.attention.prefill_flops_per_pair(wanted.tp)
    return LAUNCH_US + flops / (gpu.flops_per_us("16bit") * COMPUTE_SHARE)


def _decode(points: Floats, wanted: ProfileQuery, gpu: Gpu) -> Floats:
    """Return decode attention at rows of (sequences, keys)."""
    shape = wanted.shape
    entries = points[:, 0] * points[:, 1] * shape.attention.entries_per_token(wanted.tp)
    return LAUNCH_US + entries * shape.kv_dtype_bytes / (gpu.bytes_per_us() * BANDWIDTH_SHARE)


def _experts(points: Floats, wanted: ProfileQuery, gpu: Gpu) -> Floats:
    """Return the routed experts: those that tokens touch are read, tokens times top-k computed."""
    shape, experts = wanted.shape, wanted.shape.experts
    assert experts is not None, "only a model with experts has this component"  # noqa: S101 - our own arithmetic
    tokens = points[:, 0]
    one = shape.num_matrices * shape.hidden_size * experts.intermediate_size / wanted.tp
    missed = (1.0 - experts.num_per_token / experts.num_experts) ** tokens
    read = one * experts.num_experts * (1.0 - missed) * shape.expert_precision.bytes_per_weight
    flops = 2.0 * tokens * experts.num_per_token * one
    compute = flops / (gpu.flops_per_us(shape.expert_precision.matmul) * COMPUTE_SHARE)
    return 2 * LAUNCH_US + np.maximum(compute, read / (gpu.bytes_per_us() * BANDWIDTH_SHARE))


def reduced_bytes(operator: str, wanted: ProfileQuery) -> int:
    """Return the bytes per token that an operator brings to other GPUs: a hidden state, or two sums of squares."""
    shape = wanted.shape
    return QK_NORM_BYTES if operator == "qk_norm_comm" else shape.hidden_size * shape.dtype_bytes


def _all_reduce(operator: str) -> Callable[[Floats, ProfileQuery, Gpu], Floats]:
    def time_us(points: Floats, wanted: ProfileQuery, gpu: Gpu) -> Floats:
        moved = points[:, 0] * reduced_bytes(operator, wanted) * 2 * (wanted.tp - 1) / wanted.tp
        return COLLECTIVE_US + moved / (gpu.link_bytes_per_us() * LINK_SHARE)

    return time_us


def _send(points: Floats, wanted: ProfileQuery, gpu: Gpu) -> Floats:
    moved = points[:, 0] * wanted.shape.hidden_size * wanted.shape.dtype_bytes
    return COLLECTIVE_US + moved / (gpu.link_bytes_per_us() * LINK_SHARE)


def _nothing(points: Floats, _: ProfileQuery, __: Gpu) -> Floats:
    return np.zeros(len(points))


def _as_measured(operator: str) -> Callable[[ProfileQuery], tuple[float, float]]:
    """Return what tells (n, k) of a product of one kind of layers, or of the experts' narrower width."""

    def n_and_k(wanted: ProfileQuery) -> tuple[float, float]:
        products = needed_matmuls(wanted.shape, tp=wanted.tp, are_modules_measured=True)
        found = next(each for each in products if each.operator == operator)
        return found.n, found.k

    return n_and_k


def _state_values(wanted: ProfileQuery) -> float:
    state = wanted.shape.mixers[0].state
    return state.num_heads * state.head_dim / wanted.tp if state else 0.0


def _ffn(wanted: ProfileQuery) -> float:
    return dense_width(wanted.shape) / wanted.tp


def _shared(wanted: ProfileQuery) -> float:
    return wanted.shape.experts.shared_size / wanted.tp if wanted.shape.experts else 0.0


_STAND_INS: Mapping[str, Callable[[Floats, ProfileQuery, Gpu], Floats]] = {
    "attn_norm": _memory(lambda w: 4.0 * w.shape.hidden_size),  # vLLM adds the residual in the same kernel
    "mlp_norm": _memory(lambda w: 4.0 * w.shape.hidden_size),
    "add": _nothing,
    "attn_qk_norm": _memory(lambda w: 2.0 * _qkv(w)),
    "attn_rope": _memory(lambda w: 2.0 * _qkv(w)),
    "attn_kv_cache_save": _memory(lambda w: 2.0 * w.shape.attention.entries_per_token(w.tp)),
    "mlp_act": _memory(lambda w: w.shape.num_matrices * _ffn(w)),
    "attn_pre_proj": _product(lambda w: (_qkv(w), w.shape.hidden_size), "attn_pre_proj"),
    "attn_post_proj": _product(
        lambda w: (w.shape.hidden_size, w.shape.attention.num_heads * w.shape.attention.v_head_dim / w.tp),
        "attn_post_proj",
    ),
    "mlp_up_proj": _product(
        lambda w: ((w.shape.num_matrices - 1) * _ffn(w), w.shape.hidden_size), "mlp_up_proj"
    ),
    "mlp_down_proj": _product(lambda w: (w.shape.hidden_size, _ffn(w)), "mlp_down_proj"),
    "shared_up_proj": _product(
        lambda w: ((w.shape.num_matrices - 1) * _shared(w), w.shape.hidden_size), "shared_up_proj"
    ),
    "shared_down_proj": _product(lambda w: (w.shape.hidden_size, _shared(w)), "shared_down_proj"),
    "moe": _experts,
    "attn_prefill": _prefill,
    "attn_decode": _decode,
    **{name: _all_reduce(name) for name in ("tensor_parallel_comm", "qk_norm_comm")},
    "pipeline_parallel_comm": _send,
    "embedding": _memory(lambda w: 2.0 * w.shape.hidden_size),
    "lm_head": _product(lambda w: (w.shape.vocab_size / w.tp, w.shape.hidden_size), "lm_head"),
    **{
        name: _product(_as_measured(name), name)
        for name in (
            *("attn_gate_proj", "state_in_proj", "state_gates_proj", "state_out_proj"),
            *("latent_in_proj", "latent_out_proj", "router_proj"),
        )
    },
    "state_norm": _memory(lambda w: 3.0 * _state_values(w)),
    "connections_pre": _memory(lambda w: 4.0 * w.shape.residual_streams * w.shape.hidden_size),
    "connections_post": _memory(lambda w: 4.0 * w.shape.residual_streams * w.shape.hidden_size),
    **dict.fromkeys(CPU, _nothing),
}
