"""Which matrix products a layer consists of: their shapes, each GPU's share of them under tensor parallelism."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from lazy_dataclasses import dataclass

from replay.model.matmuls.layer_kinds import (
    DELTA_NETS,
    KIMI_DELTA,
    How,
    LayerKind,
    has_full_rank_gate,
    kinds_of_layers,
)
from replay.model.matmuls.precisions import table_precisions
from replay.model.shape import ModelShape, Precision
from traces import ConfigError

PLAIN = ("bfloat16",)
"""What products are in that no quantization covers."""

Mix = tuple[tuple[tuple[str, ...], float], ...]
"""What tables call each precision that a product has in some layers, and its share of the weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Matmul:
    """A product of m tokens: (m, k) with (k, n). ``feature``: what m is called in a table of operators.

    ``mix``: its precisions, the most of its weights first. ``count``: how many layers have it.
    """

    operator: str
    n: int
    k: int
    mix: Mix
    feature: str = "tokens"
    count: int = 1


def needed_matmuls(shape: ModelShape, *, tp: int = 1, are_modules_measured: bool = False) -> list[Matmul]:
    """Return the products of a model, experts left out: of its layers, and of the LM head.

    ``are_modules_measured``: attention that was measured as a module, with its projections, is left out, and layers of
    several kinds have their own. Else raises ConfigError for both, whose projections are others.
    """
    kinds = kinds_of_layers(shape)
    if not are_modules_measured:
        _refuse(shape, kinds)
    found = [each for kind in kinds for each in _PRODUCTS[kind.how](kind, tp)]
    found.append(
        Matmul(
            operator="lm_head",
            n=-(-shape.vocab_size // tp),
            k=shape.hidden_size,
            mix=_mix(shape, "lm_head", None),
            feature="sequences",
        )
    )
    shared = shape.experts.shared_size if shape.experts else 0
    if shape.num_dense_layers:
        found += _mlp("mlp", dense_width(shape) // tp, shape, count=shape.num_dense_layers)
    if shared:
        found += _mlp("shared", shared // tp, shape, count=shape.num_moe_layers)
    if shape.experts and are_modules_measured:
        found.append(
            Matmul(
                operator="router_proj", n=shape.experts.num_experts, k=shape.hidden_size, mix=((PLAIN, 1.0),)
            )
        )
    latent = shape.experts.hidden_size if shape.experts else 0
    if latent:
        both = (("in", latent, shape.hidden_size), ("out", shape.hidden_size, latent))
        found += [
            Matmul(operator=f"latent_{name}_proj", n=n, k=k, mix=((PLAIN, 1.0),), count=shape.num_moe_layers)
            for name, n, k in both
        ]
    return found


def dense_width(shape: ModelShape) -> int:
    """Return how wide an MLP is, the mean where layers differ."""
    if shape.plain_width is None or not shape.num_dense_layers:
        return shape.intermediate_size
    return shape.plain_width // shape.num_dense_layers


def _refuse(shape: ModelShape, kinds: tuple[LayerKind, ...]) -> None:
    """Raise ConfigError for what is no model of one kind of grouped-query attention."""
    if shape.attention.is_mla:
        raise ConfigError(
            f"{shape.name}: multi-head latent attention, but operators are known for grouped-query attention only"
        )
    if len(kinds) > 1 or shape.attention.has_gate:
        raise ConfigError(
            f"{shape.name}: layers of several kinds, but operators are known for one kind of attention"
        )


def _mix(shape: ModelShape, operator: str, part: Precision | None) -> Mix:
    """Return an operator's precisions as tables call them; ``part``: of the part that it is in, None: of none."""
    plain = Precision(name=shape.dtype, bytes_per_weight=shape.dtype_bytes, matmul="16bit")
    shares: dict[tuple[str, ...], float] = {}
    for precision, share in shape.precisions_of(operator, part or plain):
        names = table_precisions(precision)
        shares[names] = shares.get(names, 0.0) + share
    return tuple(shares.items())


def _projections(kind: LayerKind, tp: int) -> list[Matmul]:
    """Return the products around grouped-query attention; a gate of its output is made with the queries."""
    shape, attention = kind.shape, kind.shape.attention
    heads, kv_heads = attention.num_heads // tp, max(1, attention.num_kv_heads // tp)
    values = 0 if attention.values_are_keys else attention.v_head_dim
    qkv = heads * (attention.head_dim + (attention.v_head_dim if attention.has_gate else 0))
    if not attention.reads_other_layers:
        qkv += kv_heads * (attention.head_dim + values)
    sizes = (
        ("attn_pre_proj", qkv, shape.hidden_size),
        ("attn_post_proj", shape.hidden_size, heads * attention.v_head_dim),
    )
    return [_of_kind(kind, name, n, k, _mix(shape, name, shape.attention_precision)) for name, n, k in sizes]


def _beside_module(kind: LayerKind, tp: int) -> list[Matmul]:
    """Return what a measured module leaves out: the gate of its output (Kimi K3)."""
    attention = kind.shape.attention
    if not attention.has_gate:
        return []
    width = attention.num_heads // tp * attention.v_head_dim
    mix = _mix(kind.shape, "latent", kind.shape.attention_precision)
    return [_of_kind(kind, "attn_gate_proj", width, kind.shape.hidden_size, mix)]


def _around_state(kind: LayerKind, tp: int) -> list[Matmul]:
    """Return the products around a recurrence; none of a layer whose recurrence no table has.

    As vllm 0.33.0 fuses them (layers/mamba/gdn/qwen_gdn_linear_attn.py, models/kimi_k3/nvidia/kda.py).
    """
    shape, state = kind.shape, kind.mixer.state
    if state is None or state.name not in (DELTA_NETS, KIMI_DELTA):
        return []
    hidden, values = shape.hidden_size, state.num_heads * state.head_dim // tp
    into, out = (_mix(shape, name, shape.attention_precision) for name in ("state_in_proj", "state_out_proj"))
    plain: Mix = ((PLAIN, 1.0),)
    if state.name == DELTA_NETS:
        keys = state.key_heads * state.key_dim // tp
        found = [
            _of_kind(kind, "state_in_proj", 2 * keys + 2 * values, hidden, into),
            _of_kind(kind, "state_gates_proj", 2 * state.num_heads // tp, hidden, plain),
        ]
    else:
        gate = values if has_full_rank_gate(state, hidden) else state.head_dim
        width = 3 * values + gate + state.head_dim + state.num_heads // tp
        found = [
            _of_kind(kind, "state_in_proj", width, hidden, into),
            _of_kind(kind, "state_gates_proj", values, state.head_dim, plain),
        ]
    return [*found, _of_kind(kind, "state_out_proj", hidden, values, out)]


def _of_kind(kind: LayerKind, name: str, n: int, k: int, mix: Mix) -> Matmul:
    return Matmul(operator=kind.operator(name), n=n, k=k, mix=mix, count=kind.num_layers)


_PRODUCTS: Mapping[How, Callable[[LayerKind, int], list[Matmul]]] = {
    "heads": _projections,
    "module": _beside_module,
    "state": _around_state,
}


def _mlp(prefix: str, width: int, shape: ModelShape, *, count: int) -> list[Matmul]:
    hidden, up = shape.hidden_size, width * (shape.num_matrices - 1)
    sizes = ((f"{prefix}_up_proj", up, hidden), (f"{prefix}_down_proj", hidden, width))
    return [
        Matmul(operator=name, n=n, k=k, mix=_mix(shape, name, shape.mlp_precision), count=count)
        for name, n, k in sizes
    ]
