"""Which matrix products a layer consists of: their shapes, each GPU's share of them under tensor parallelism."""

from __future__ import annotations

from dataclasses import dataclass

from replay.model.matmuls.precisions import table_precisions
from replay.model.shape import ModelShape
from traces import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Matmul:
    """A product of m tokens: (m, k) with (k, n). ``feature``: what m is called in a table of operators.

    ``precisions``: what tables call the precision of its weights, the likeliest first. ``count``: how many layers have
    it.
    """

    operator: str
    n: int
    k: int
    precisions: tuple[str, ...]
    feature: str = "tokens"
    count: int = 1


def needed_matmuls(shape: ModelShape, *, tp: int = 1, are_modules_measured: bool = False) -> list[Matmul]:
    """Return the products of a model, experts left out: of its layers, and of the LM head.

    ``are_modules_measured``: multi-head latent attention was measured with its projections, which are then left out.
    Raises ConfigError for that attention where they were not, since its projections are others, and for layers of
    several kinds.
    """
    attention = shape.attention
    if attention.is_mla and not are_modules_measured:
        raise ConfigError(
            f"{shape.name}: multi-head latent attention, but operators are known for grouped-query attention only"
        )
    if any(each.attention != attention or attention.has_gate for each in shape.mixers):
        raise ConfigError(
            f"{shape.name}: layers of several kinds, but operators are known for one kind of attention"
        )
    found = [] if attention.is_mla else _projections(shape, tp=tp)
    found.append(
        Matmul(
            operator="lm_head",
            n=-(-shape.vocab_size // tp),
            k=shape.hidden_size,
            precisions=("bfloat16",),
            feature="sequences",
        )
    )
    shared = shape.experts.shared_size if shape.experts else 0
    if shape.num_dense_layers:
        found += _mlp("mlp", shape.intermediate_size // tp, shape, count=shape.num_dense_layers)
    if shared:
        found += _mlp("shared", shared // tp, shape, count=shape.num_moe_layers)
    return found


def _projections(shape: ModelShape, *, tp: int) -> list[Matmul]:
    """Return the products around grouped-query attention."""
    attention = shape.attention
    heads, kv_heads = attention.num_heads // tp, max(1, attention.num_kv_heads // tp)
    qkv = heads * attention.head_dim + kv_heads * (attention.head_dim + attention.v_head_dim)
    own, layers = table_precisions(shape.attention_precision.name), shape.num_layers
    return [
        Matmul(operator="attn_pre_proj", n=qkv, k=shape.hidden_size, precisions=own, count=layers),
        Matmul(
            operator="attn_post_proj",
            n=shape.hidden_size,
            k=heads * attention.v_head_dim,
            precisions=own,
            count=layers,
        ),
    ]


def _mlp(prefix: str, width: int, shape: ModelShape, *, count: int) -> list[Matmul]:
    hidden, precisions = shape.hidden_size, table_precisions(shape.mlp_precision.name)
    up = width * (shape.num_matrices - 1)
    return [
        Matmul(operator=f"{prefix}_up_proj", n=up, k=hidden, precisions=precisions, count=count),
        Matmul(operator=f"{prefix}_down_proj", n=hidden, k=width, precisions=precisions, count=count),
    ]
