"""The components of a step: Vidur's nineteen, and the ends of the model that they leave out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from lazy_dataclasses import dataclass, replace
from typing import Literal

from calibrate.predictor.measured import ProfileQuery
from replay.model.matmuls import How, LayerKind, kinds_of_layers

Group = Literal["attention", "mlp", "add", "communication", "cpu", "ends"]
Axis = Literal["tokens", "sequences", "decode", "prefill", "chunks"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """One operator of a step. ``axis``: what its time depends on; ``count``: how often a step runs it.

    ``of``: how the layers are measured that have it, none where it is of the model; ``kind``: those of one model, whose
    name stands behind the operator's ``base``.
    """

    name: str
    group: Group
    axis: Axis
    count: Callable[[ProfileQuery], float]
    meaning: str
    of: tuple[How, ...] = ()
    kind: LayerKind | None = None

    @property
    def base(self) -> str:
        """The operator's name, whatever the layers."""
        return self.name.removesuffix(f"_{self.kind.name}") if self.kind and self.kind.name else self.name

    def query(self, wanted: ProfileQuery) -> ProfileQuery:
        """Return what is wanted, of a model that has the component's layers alone."""
        return replace(wanted, shape=self.kind.shape) if self.kind else wanted


def _layers(wanted: ProfileQuery) -> float:
    return wanted.shape.num_layers


def _mixing_layers(wanted: ProfileQuery) -> float:
    """Return the layers that mix tokens: of a model with layers of one thing each, others have none."""
    return sum(each.num_layers for each in wanted.shape.mixers)


def _saving_layers(wanted: ProfileQuery) -> float:
    """Return the layers that keep keys and values of their own."""
    return sum(each.num_layers for each in wanted.shape.mixers if each.keeps)


def _gated_modules(wanted: ProfileQuery) -> float:
    return wanted.shape.num_layers if wanted.shape.attention.has_gate else 0


def _connected_layers(wanted: ProfileQuery) -> float:
    return wanted.shape.num_layers if wanted.shape.residual_streams > 1 else 0


def _latent_experts(wanted: ProfileQuery) -> float:
    experts = wanted.shape.experts
    return wanted.shape.num_moe_layers if experts and experts.hidden_size else 0


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


def _normed_layers(wanted: ProfileQuery) -> float:
    return wanted.shape.num_layers if wanted.shape.qk_norm else 0


def _norm_collectives(wanted: ProfileQuery) -> float:
    return wanted.shape.num_layers if wanted.tp > 1 and "qk_norm_comm" in wanted.all_reduces else 0


def _hops(wanted: ProfileQuery) -> float:
    return wanted.pp - 1


def _once(_: ProfileQuery) -> float:
    return 1


def _component(
    name: str,
    group: Group,
    axis: Axis,
    count: Callable[[ProfileQuery], float],
    meaning: str,
    *of: How,
) -> Component:
    return Component(name=name, group=group, axis=axis, count=count, meaning=meaning, of=of)


COMPONENTS: tuple[Component, ...] = (
    _component("attn_norm", "attention", "tokens", _layers, "norm before attention"),
    _component(
        "attn_pre_proj", "attention", "tokens", _mixing_layers, "query, key and value projections", "heads"
    ),
    _component("attn_qk_norm", "attention", "tokens", _normed_layers, "norm of queries and keys"),
    _component("attn_rope", "attention", "tokens", _mixing_layers, "rotary embedding", "heads"),
    _component(
        "attn_kv_cache_save",
        "attention",
        "tokens",
        _saving_layers,
        "keys and values into the KV cache",
        "heads",
    ),
    _component(
        "attn_prefill",
        "attention",
        "prefill",
        _mixing_layers,
        "attention of prompts and chunks",
        "heads",
        "module",
    ),
    _component(
        "attn_decode", "attention", "decode", _mixing_layers, "attention of decodes", "heads", "module"
    ),
    _component("attn_post_proj", "attention", "tokens", _mixing_layers, "output projection", "heads"),
    _component(
        "attn_gate_proj", "attention", "tokens", _gated_modules, "gate of a module's output", "module"
    ),
    _component("state_in_proj", "attention", "tokens", _mixing_layers, "into a recurrence", "state"),
    _component("state_gates_proj", "attention", "tokens", _mixing_layers, "gates of a recurrence", "state"),
    _component("state_prefill", "attention", "chunks", _mixing_layers, "recurrence of prompts", "state"),
    _component("state_decode", "attention", "decode", _mixing_layers, "recurrence of decodes", "state"),
    _component("state_norm", "attention", "tokens", _mixing_layers, "norm and gate behind it", "state"),
    _component("state_out_proj", "attention", "tokens", _mixing_layers, "out of a recurrence", "state"),
    _component("mlp_norm", "mlp", "tokens", _layers, "norm before the MLP"),
    _component("mlp_up_proj", "mlp", "tokens", _dense_layers, "gate and up projections"),
    _component("mlp_act", "mlp", "tokens", _dense_layers, "activation"),
    _component("mlp_down_proj", "mlp", "tokens", _dense_layers, "down projection"),
    _component("add", "add", "tokens", _layers, "residual add"),
    _component("tensor_parallel_comm", "communication", "tokens", _collectives, "all-reduce"),
    _component(
        "qk_norm_comm",
        "communication",
        "tokens",
        _norm_collectives,
        "all-reduce of queries' and keys' squares",
    ),
    _component("pipeline_parallel_comm", "communication", "tokens", _hops, "send and receive between stages"),
    _component("schedule", "cpu", "sequences", _once, "the scheduler"),
    _component("sampler", "cpu", "sequences", _once, "sampling"),
    _component("prepare_inputs", "cpu", "sequences", _once, "input preparation"),
    _component("process_outputs", "cpu", "sequences", _once, "output processing"),
    _component("inter_process", "cpu", "sequences", _once, "messages between processes"),
    _component("router_proj", "mlp", "tokens", _moe_layers, "router: the experts' scores"),
    _component("moe", "mlp", "tokens", _moe_layers, "routed experts, in place of the MLP"),
    _component("shared_up_proj", "mlp", "tokens", _shared_layers, "shared expert, gate and up projections"),
    _component("shared_down_proj", "mlp", "tokens", _shared_layers, "shared expert, down projection"),
    _component("latent_in_proj", "mlp", "tokens", _latent_experts, "into the experts' narrower width"),
    _component("latent_out_proj", "mlp", "tokens", _latent_experts, "out of the experts' narrower width"),
    _component("connections_pre", "add", "tokens", _connected_layers, "hidden states mixed before a part"),
    _component("connections_post", "add", "tokens", _connected_layers, "hidden states mixed behind it"),
    _component("embedding", "ends", "tokens", _once, "embedding"),
    _component("lm_head", "ends", "sequences", _once, "LM head, one row per sequence"),
)
"""The nineteen of Vidur (arXiv:2405.05465), and what it leaves out: other kinds of layers, experts, and the ends."""

WINDOWED = "_windowed"
"""Behind the name of attention, where layers with a window were measured by themselves."""

MATMULS = (
    "attn_pre_proj",
    "attn_post_proj",
    "attn_gate_proj",
    "state_in_proj",
    "state_gates_proj",
    "state_out_proj",
    "mlp_up_proj",
    "mlp_down_proj",
    "router_proj",
    "shared_up_proj",
    "shared_down_proj",
    "latent_in_proj",
    "latent_out_proj",
    "lm_head",
)
"""Matrix products with the weights: they are computed in tiles, so that their times jump."""
CPU = tuple(each.name for each in COMPONENTS if each.group == "cpu")
ESSENTIAL = (
    "attn_pre_proj",
    "attn_post_proj",
    "state_in_proj",
    "state_out_proj",
    "mlp_up_proj",
    "mlp_down_proj",
    "moe",
    "attn_prefill",
    "attn_decode",
    "state_prefill",
    "state_decode",
)
"""Components that make up most of a step: a profile with none of them is not one of the model."""


def needed(wanted: ProfileQuery) -> tuple[Component, ...]:
    """Return the components that a step of this model on this many GPUs has, those of its layers kind by kind."""
    every = [each for component in COMPONENTS for each in _of_each_kind(component, wanted)]
    return tuple(each for each in every if each.count(each.query(wanted)) > 0)


def _of_each_kind(component: Component, wanted: ProfileQuery) -> Iterator[Component]:
    """Yield a component of the model as it is, one of layers for each kind of them."""
    if not component.of:
        yield component
        return
    for kind in kinds_of_layers(wanted.shape):
        if kind.how in component.of:
            yield replace(component, name=kind.operator(component.name), kind=kind)
