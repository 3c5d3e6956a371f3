"""A model's layers by how they are measured: attention by its kernels, attention as a whole module, layers of states.

Each kind is seen as a model that has these layers alone, so that what reads or estimates one kind need not know others.
"""

from __future__ import annotations

from functools import lru_cache
from lazy_dataclasses import dataclass, replace
from typing import Literal

from replay.model.shape import Attention, LayerState, Mixer, ModelShape

How = Literal["heads", "module", "state"]
"""Grouped-query attention is measured by its kernels, by heads; latent, sparse and compressed attention as a module of
the layer, its projections included; layers of states by the kernels of their recurrence."""

DELTA_NETS, KIMI_DELTA = "gated delta nets", "Kimi delta attention"
"""Layers of states that tables of measured kernels have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerKind:
    """Layers that are measured alike. ``name``: behind the names of their operators, "" where no others have these.

    ``shape``: the model as if it had these layers alone.
    """

    name: str
    how: How
    shape: ModelShape

    @property
    def mixer(self) -> Mixer:
        """The layers themselves, the first of them where some have a window and some have not."""
        return self.shape.mixers[0]

    @property
    def num_layers(self) -> int:
        """How many layers there are of the kind."""
        return self.shape.num_layers

    def operator(self, name: str) -> str:
        """Return the name of one of its operators among those of a step."""
        return f"{name}_{self.name}" if self.name else name

    def __str__(self) -> str:
        """Return the kind in words."""
        state, attention = self.mixer.state, self.shape.attention
        if state is not None:
            size = f"{state.num_heads} heads of {state.head_dim} x {state.key_dim}"
            return f"{self.num_layers} layers of {state.name} ({size})"
        heads = f"{attention.num_heads} heads of {attention.head_dim}"
        heads += "" if attention.is_mla else f", {attention.num_kv_heads} of KV"
        return f"{self.num_layers} layers of {_attention_in_words(self.mixer, attention)} ({heads})"


def _attention_in_words(mixer: Mixer, attention: Attention) -> str:
    """Return which attention layers have."""
    if mixer.compression is not None:
        return f"attention that keeps one entry for {mixer.compression.ratio} tokens"
    if mixer.indexer is not None:
        index = "an index of its own" if mixer.indexer.num_heads else "the index of the layer before"
        return f"sparse attention by {index}"
    kind = "latent attention" if attention.is_mla else "attention"
    window = f" within {mixer.window:,} tokens" if mixer.is_windowed else ""
    return ("gated " if attention.has_gate else "") + kind + window


@lru_cache(maxsize=64)
def kinds_of_layers(shape: ModelShape) -> tuple[LayerKind, ...]:
    """Return the kinds of a model's layers, in the order of the first of each.

    Layers with a window and without are one kind where their heads are the same.
    """
    groups: dict[object, list[Mixer]] = {}
    for number, mixer in enumerate(shape.mixers):
        is_plain = mixer.state is None and mixer.indexer is None and _how(mixer) == "heads"
        groups.setdefault(mixer.attention if is_plain else number, []).append(mixer)
    names = _names(list(groups.values()))
    return tuple(
        LayerKind(name=name, how=_how(mixers[0]), shape=_alone(shape, tuple(mixers)))
        for name, mixers in zip(names, groups.values(), strict=True)
    )


def _alone(shape: ModelShape, mixers: tuple[Mixer, ...]) -> ModelShape:
    """Return the model as if it had these layers alone."""
    attention = mixers[0].attention or shape.attention
    return replace(
        shape, mixers=mixers, attention=attention, num_layers=sum(each.num_layers for each in mixers)
    )


def _how(mixer: Mixer) -> How:
    """Return how layers are measured."""
    if mixer.state is not None:
        return "state"
    attention = mixer.attention
    is_module = mixer.indexer is not None or (attention is not None and attention.is_mla)
    return "module" if is_module else "heads"


def _names(groups: list[list[Mixer]]) -> list[str]:
    """Return a short name for each kind, none where it is the only one with its operators."""
    are_states = [mixers[0].state is not None for mixers in groups]
    found: list[str] = []
    for mixers, is_state in zip(groups, are_states, strict=True):
        if are_states.count(is_state) == 1:
            found.append("")
            continue
        name = _name(mixers)
        number = sum(each == name or each.startswith(f"{name}_") for each in found)
        found.append(f"{name}_{number + 1}" if number else name)
    return found


def _name(mixers: list[Mixer]) -> str:
    mixer = mixers[0]
    if mixer.state is not None:
        return mixer.state.name.replace("-", "_").replace(" ", "_").lower()
    if mixer.compression is not None:
        return f"one_of_{mixer.compression.ratio}"
    if mixer.indexer is not None:
        return "sparse" if mixer.indexer.num_heads else "shared_index"
    return "window" if all(each.is_windowed for each in mixers) else "full"


def has_full_rank_gate(state: LayerState, hidden: int) -> bool:
    """Return whether the gate of Kimi delta attention is one product as wide as its values, told from its weights."""
    inner, width = state.num_heads * state.head_dim, state.head_dim
    others = hidden * (4 * inner + width + state.num_heads) + width * inner + 3 * state.conv_kernel * inner
    return state.parameters - others == hidden * inner
