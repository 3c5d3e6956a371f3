"""Models whose ``layer_types`` says which layers have a window, with heads or gates that other models do not have.

Weights are counted as vllm 0.32.0 makes them (``model_executor/models``), norms and biases left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from replay.model.config_json import ModelFields
from replay.model.layers.read_layers import Layers, listed_kinds
from replay.model.shape import Attention, Mixer

SLIDING, FULL = "sliding_attention", "full_attention"


def laguna(text: ModelFields, attention: Attention, num_layers: int) -> Layers:
    """Laguna: heads of queries by layer, a gate per head or per element (laguna.py)."""
    heads = text.integers("num_attention_heads_per_layer")
    if heads and len(heads) < num_layers:
        text.fail(
            "num_attention_heads_per_layer",
            got=f"{len(heads)} numbers",
            expected=f"one for each of {num_layers} layers",
        )
    heads = heads[:num_layers] or (attention.num_heads,) * num_layers
    gating = text.values.get("gating")
    per_head = gating is True or gating == "per-head"
    forms = [replace(attention, num_heads=each, has_gate=bool(gating) and not per_head) for each in heads]
    gates = text.needed("hidden_size") * sum(heads) if per_head else 0
    return _by_layer(text, _kinds(text, num_layers), forms, other_parameters=gates)


def step(text: ModelFields, attention: Attention, num_layers: int) -> Layers:
    """Step 3.5 and 3.7: other heads in the layers with a window, perhaps a gate per head (step3p5.py)."""
    kinds = _kinds(text, num_layers)
    other = text.mapping("attention_other_setting")
    if other is not None:
        number, groups = other.needed("num_attention_heads"), other.needed("num_attention_groups")
        width = other.integer("head_dim") or attention.head_dim
        different = replace(
            attention, num_heads=number, num_kv_heads=groups, head_dim=width, v_head_dim=width
        )
    else:
        different = replace(
            attention, num_heads=text.integer("num_sliding_attention_heads") or attention.num_heads
        )
    which = SLIDING if other is None else other.text("attention_type") or SLIDING
    forms = [different if kind == which else attention for kind in kinds]
    is_gated = text.flag("use_head_wise_attn_gate") or False
    gates = text.needed("hidden_size") * sum(each.num_heads for each in forms) if is_gated else 0
    return _by_layer(text, kinds, forms, other_parameters=gates)


def gated(text: ModelFields, attention: Attention, num_layers: int) -> Layers:
    """Trinity and Muse Glimmer: a gate per element at the output of attention (afmoe.py, muse_glimmer.py)."""
    form = replace(attention, has_gate=text.flag("use_attn_output_gate") is not False)
    return _by_layer(text, _kinds(text, num_layers), [form] * num_layers)


def _kinds(text: ModelFields, num_layers: int) -> Sequence[str]:
    """Return the kind of each layer; all see everything where the file does not say."""
    if "layer_types" not in text:
        return (FULL,) * num_layers
    return listed_kinds(text, "layer_types", (SLIDING, FULL), num_layers=num_layers)


def _by_layer(
    text: ModelFields,
    kinds: Sequence[str],
    forms: Sequence[Attention],
    *,
    other_parameters: int = 0,
) -> Layers:
    """Return the layers, those of one kind and one form of attention together, in the order of the first of each."""
    window = text.needed("sliding_window") if SLIDING in kinds else 0
    mixers = [
        Mixer(kind="sliding", num_layers=number, attention=form, window=window)
        if kind == SLIDING
        else Mixer(kind="full", num_layers=number, attention=form)
        for (kind, form), number in Counter(zip(kinds, forms, strict=True)).items()
    ]
    whole = next((each.attention for each in mixers if each.kind == "full"), None)
    return Layers(mixers=tuple(mixers), attention=whole, other_parameters=other_parameters)
