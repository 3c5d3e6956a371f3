"""The components of a step: Vidur's nineteen, and the ends of the model that they leave out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from calibrate.predictor.measured import ProfileQuery

Group = Literal["attention", "mlp", "add", "communication", "cpu", "ends"]
Axis = Literal["tokens", "sequences", "decode", "prefill"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """One operator of a step. ``axis``: what its time depends on; ``count``: how often a step runs it."""

    name: str
    group: Group
    axis: Axis
    count: Callable[[ProfileQuery], float]
    meaning: str


def _layers(wanted: ProfileQuery) -> float:
    return wanted.shape.num_layers


def _projected_layers(wanted: ProfileQuery) -> float:
    """Return the layers whose projections are operators of their own: those of latent attention are in its module."""
    return 0 if wanted.shape.attention.is_mla else wanted.shape.num_layers


def _dense_layers(wanted: ProfileQuery) -> float:
    return wanted.shape.num_dense_layers


def _moe_layers(wanted: ProfileQuery) -> float:
    return wanted.shape.num_moe_layers


def _shared_layers(wanted: ProfileQuery) -> float:
    shared = wanted.shape.experts.shared_size if wanted.shape.experts else 0
    return wanted.shape.num_moe_layers if shared else 0


def _collectives(wanted: ProfileQuery) -> float:
    """Twice a layer, behind attention and behind the MLP, and once behind the embedding that is split by vocabulary."""
    return 2 * wanted.shape.num_layers + 1 if wanted.tp > 1 else 0


def _hops(wanted: ProfileQuery) -> float:
    return wanted.pp - 1


def _once(_: ProfileQuery) -> float:
    return 1


def _component(
    name: str, group: Group, axis: Axis, count: Callable[[ProfileQuery], float], meaning: str
) -> Component:
    return Component(name=name, group=group, axis=axis, count=count, meaning=meaning)


COMPONENTS: tuple[Component, ...] = (
    _component("attn_norm", "attention", "tokens", _layers, "norm before attention"),
    _component("attn_pre_proj", "attention", "tokens", _projected_layers, "query, key and value projections"),
    _component("attn_rope", "attention", "tokens", _projected_layers, "rotary embedding"),
    _component(
        "attn_kv_cache_save", "attention", "tokens", _projected_layers, "keys and values into the KV cache"
    ),
    _component("attn_prefill", "attention", "prefill", _layers, "attention of prompts and chunks"),
    _component("attn_decode", "attention", "decode", _layers, "attention of decodes"),
    _component("attn_post_proj", "attention", "tokens", _projected_layers, "output projection"),
    _component("mlp_norm", "mlp", "tokens", _layers, "norm before the MLP"),
    _component("mlp_up_proj", "mlp", "tokens", _dense_layers, "gate and up projections"),
    _component("mlp_act", "mlp", "tokens", _dense_layers, "activation"),
    _component("mlp_down_proj", "mlp", "tokens", _dense_layers, "down projection"),
    _component("add", "add", "tokens", _layers, "residual add"),
    _component("tensor_parallel_comm", "communication", "tokens", _collectives, "all-reduce"),
    _component("pipeline_parallel_comm", "communication", "tokens", _hops, "send and receive between stages"),
    _component("schedule", "cpu", "sequences", _once, "the scheduler"),
    _component("sampler", "cpu", "sequences", _once, "sampling"),
    _component("prepare_inputs", "cpu", "sequences", _once, "input preparation"),
    _component("process_outputs", "cpu", "sequences", _once, "output processing"),
    _component("inter_process", "cpu", "sequences", _once, "messages between processes"),
    _component("moe", "mlp", "tokens", _moe_layers, "router and routed experts, in place of the MLP"),
    _component("shared_up_proj", "mlp", "tokens", _shared_layers, "shared expert, gate and up projections"),
    _component("shared_down_proj", "mlp", "tokens", _shared_layers, "shared expert, down projection"),
    _component("embedding", "ends", "tokens", _once, "embedding"),
    _component("lm_head", "ends", "sequences", _once, "LM head, one row per sequence"),
)
"""The nineteen of Vidur (arXiv:2405.05465), then experts, and the ends that it leaves out."""

WINDOWED = "_windowed"
"""Behind the name of attention, where layers with a window were measured by themselves."""

MATMULS = (
    "attn_pre_proj",
    "attn_post_proj",
    "mlp_up_proj",
    "mlp_down_proj",
    "shared_up_proj",
    "shared_down_proj",
    "lm_head",
)
"""Matrix products with the weights: they are computed in tiles, so that their times jump."""
CPU = tuple(each.name for each in COMPONENTS if each.group == "cpu")
ESSENTIAL = (
    "attn_pre_proj",
    "attn_post_proj",
    "mlp_up_proj",
    "mlp_down_proj",
    "moe",
    "attn_prefill",
    "attn_decode",
)
"""Components that make up most of a step: a profile with none of them is not one of the model."""


def needed(wanted: ProfileQuery) -> tuple[Component, ...]:
    """Return the components that a step of this model on this many GPUs has."""
    return tuple(each for each in COMPONENTS if each.count(wanted) > 0)
