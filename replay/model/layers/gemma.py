"""Gemma 3n and 4: windows and full layers of other heads, layers that read another's keys, an embedding per layer.

Weights are counted as vllm 0.32.0 makes them (gemma3n.py, gemma4.py), norms and biases left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from replay.model.config_json import ModelFields, shown
from replay.model.layers.read_layers import Layers, listed_kinds
from replay.model.shape import Attention, Mixer

SLIDING, FULL = "sliding_attention", "full_attention"
LAUREL_MATRICES, GATE_MATRICES = 2, 2


def gemma4(text: ModelFields, attention: Attention, num_layers: int) -> Layers:
    """Gemma 4: full layers of other heads, perhaps experts beside an MLP in every layer.

    With ``use_double_wide_mlp`` the layers that read another's keys have an MLP twice as wide.
    """
    kinds = listed_kinds(text, "layer_types", (SLIDING, FULL), num_layers=num_layers)
    own = _heads_of_full_layers(text, kinds)
    width = own.integer("head_dim") or text.integer("global_head_dim") or attention.head_dim
    full = Attention(
        num_heads=attention.num_heads,
        num_kv_heads=own.integer("num_key_value_heads")
        or text.integer("num_global_key_value_heads")
        or attention.num_kv_heads,
        head_dim=width,
        v_head_dim=width,
        values_are_keys=text.flag("attention_k_eq_v") or False,
    )
    num_sharing = _num_sharing(text, num_layers)
    mlp = text.needed("intermediate_size")
    num_wide = num_sharing if text.flag("use_double_wide_mlp") else 0
    return Layers(
        mixers=_mixers(text, kinds, attention, full, num_sharing=num_sharing),
        num_moe_layers=num_layers if text.flag("enable_moe_block") else 0,
        num_plain_mlps=num_layers,
        plain_width=(num_layers + num_wide) * mlp if num_wide else None,
        other_parameters=_gates_per_layer(text, num_layers),
        lookup_parameters=_embedding_per_layer(text, num_layers),
    )


def gemma3n(text: ModelFields, attention: Attention, num_layers: int) -> Layers:
    """Gemma 3n: several hidden states of which one is computed (AltUp), and a path of low rank beside attention."""
    kinds = listed_kinds(text, "layer_types", (SLIDING, FULL), num_layers=num_layers)
    widths = text.integers("intermediate_size")
    if len(widths) < num_layers:
        text.fail(
            "intermediate_size", got=f"{len(widths)} numbers", expected=f"one for each of {num_layers} layers"
        )
    hidden, inputs = text.needed("hidden_size"), text.needed("altup_num_inputs")
    laurel = LAUREL_MATRICES * hidden * text.needed("laurel_rank")
    mixed = hidden * inputs + inputs**3 + inputs**2  # AltUp's router and coefficients
    projections = 2 * (inputs - 1) * hidden * hidden
    return Layers(
        mixers=_mixers(text, kinds, attention, attention, num_sharing=_num_sharing(text, num_layers)),
        num_plain_mlps=num_layers,
        plain_width=sum(widths[:num_layers]),
        other_parameters=_gates_per_layer(text, num_layers) + num_layers * (laurel + mixed) + projections,
        lookup_parameters=_embedding_per_layer(text, num_layers),
        left_out=("AltUp: the time of mixing its hidden states is not counted",),
    )


def _heads_of_full_layers(text: ModelFields, kinds: Sequence[str]) -> ModelFields:
    """Return what ``per_layer_config`` says of the full layers, all alike; nothing where it is absent."""
    by_layer = text.mapping("per_layer_config")
    none = ModelFields(replace(text.section, nodes={}))
    if by_layer is None:
        return none
    unknown = next((key for key in by_layer.values if not (key.isdecimal() and len(key) < 6)), None)
    if unknown is not None:
        by_layer.fail(unknown, got=shown(by_layer.values[unknown]), expected="the number of a layer")
    found = {int(key): by_layer.mapping(key) for key in by_layer.values}
    said = {number: each for number, each in found.items() if each is not None and each.values}
    full = [number for number, kind in enumerate(kinds) if kind == FULL]
    first = said.get(full[0]) if full else None
    if first is None or any(each.values != first.values for each in said.values()) or sorted(said) != full:
        text.fail(
            "per_layer_config",
            got=shown({number: dict(each.values) for number, each in said.items()}),
            expected="the same of every full layer, and nothing of the others",
        )
    return first


def _num_sharing(text: ModelFields, num_layers: int) -> int:
    number = text.integer("num_kv_shared_layers") or 0
    if number >= num_layers:
        text.fail("num_kv_shared_layers", got=f"{number}", expected=f"fewer than the {num_layers} layers")
    return number


def _mixers(
    text: ModelFields, kinds: Sequence[str], sliding: Attention, full: Attention, *, num_sharing: int
) -> tuple[Mixer, ...]:
    """Return the layers; the last ``num_sharing`` read what the last of their kind before them has kept."""
    forms = {SLIDING: sliding, FULL: full}
    number = len(kinds) - num_sharing
    keyed = Counter((kind, at >= number) for at, kind in enumerate(kinds))
    return tuple(
        Mixer(
            kind="sliding" if kind == SLIDING else "full",
            num_layers=count,
            attention=replace(forms[kind], reads_other_layers=shares),
            window=text.needed("sliding_window") if kind == SLIDING else 0,
        )
        for (kind, shares), count in keyed.items()
    )


def _gates_per_layer(text: ModelFields, num_layers: int) -> int:
    """Return the weights that bring each layer's own embedding into it."""
    width = text.integer("hidden_size_per_layer_input") or 0
    return (1 + GATE_MATRICES) * num_layers * width * text.needed("hidden_size")


def _embedding_per_layer(text: ModelFields, num_layers: int) -> int:
    """Return the weights of the embedding that has a row for each token and layer."""
    width = text.integer("hidden_size_per_layer_input") or 0
    vocab = text.integer("vocab_size_per_layer_input") or text.needed("vocab_size")
    return vocab * num_layers * width
