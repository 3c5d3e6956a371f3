"""A model's experts: how many, of what size, and in which layers, by the names that families have for it."""

from __future__ import annotations

from collections.abc import Sequence

from replay.model.config_json import ModelFields
from replay.model.shape import Experts

NUMBERS = ("n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts")
PER_TOKEN = (
    "num_experts_per_tok",
    "num_experts_per_token",
    "top_k_experts",
    "moe_k",
    "moe_top_k",
    "moe_topk",
)
NUMBERS_SHARED = ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts")
SHARED_SIZES = (
    "shared_expert_intermediate_size",
    "shared_intermediate_size",
    "moe_shared_expert_intermediate_size",
    "share_expert_dim",
)
EVERY = ("moe_layer_freq", "decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_interval")
"""Every how-maniest layer has experts."""
SPARSE_LAYERS, DENSE_LAYER = ("sparse", "moe", "hash_moe"), "dense"
NUMBERS_DENSE = ("first_k_dense_replace", "num_dense_layers")
"""How many layers at the start have no experts."""


def read_experts(
    text: ModelFields, *, num_layers: int, number_of: int | None, has_shared_expert: bool
) -> tuple[int, Experts | None]:
    """Return how many layers have experts, and what they are; (0, None) without any.

    ``number_of``: the layers with experts, where it is known; ``has_shared_expert``: one more, of a routed one's size,
    in each of them. Raises ConfigError.
    """
    number = text.integer(*NUMBERS) or 0
    if number == 0:
        return 0, None
    size = text.integer("moe_intermediate_size") or text.needed("intermediate_size")
    number_shared = text.integer(*NUMBERS_SHARED) or 0
    shared_size = text.integer(*SHARED_SIZES)
    shared = (number_shared or 1) * shared_size if shared_size else number_shared * size
    per_token = text.needed(*PER_TOKEN)
    if per_token > number:
        key = next(each for each in PER_TOKEN if each in text)
        text.fail(key, got=f"{per_token}", expected=f"at most the {number} experts that there are")
    experts = Experts(
        num_experts=number,
        num_per_token=per_token,
        intermediate_size=size,
        shared_size=size if has_shared_expert else shared,
        hidden_size=text.integer("moe_latent_size", "routed_expert_hidden_size") or 0,
    )
    return num_moe_layers(text, num_layers=num_layers) if number_of is None else number_of, experts


def num_moe_layers(text: ModelFields, *, num_layers: int) -> int:
    """Return how many layers have experts: those that the file lists, or all of a range, or every n-th of it."""
    kinds = text.texts("mlp_layer_types")
    if kinds:
        return _num_sparse(text, kinds, num_layers=num_layers)
    listed = _listed(text)
    return len(listed) if listed else len(_by_rule(text, num_layers=num_layers))


def moe_layers(text: ModelFields, *, num_layers: int, number: int) -> frozenset[int]:
    """Return the layers with experts, from 0; the last ``number`` where the file does not say which they are."""
    kinds, listed = text.texts("mlp_layer_types"), _listed(text)
    ones = text.items("moe_layer_freq") if text.is_list("moe_layer_freq") else ()
    if kinds:
        found = [layer for layer, kind in enumerate(kinds) if kind in SPARSE_LAYERS]
    elif listed:
        found = [int(str(layer)) for layer in listed if str(layer).isdecimal()]
    elif ones:
        found = [layer for layer, has_experts in enumerate(ones) if has_experts]
    else:
        found = _by_rule(text, num_layers=num_layers)
    within = frozenset(layer for layer in found if layer < num_layers)
    return within if len(within) == number else frozenset(range(num_layers - number, num_layers))


def _by_rule(text: ModelFields, *, num_layers: int) -> list[int]:
    """Return the layers with experts of a file that gives a range of them, or every how-maniest it is."""
    first = text.integer(*NUMBERS_DENSE, "moe_layer_start_index") or 0
    last = text.integer("moe_layer_end_index")
    end = num_layers if last is None else min(num_layers, last + 1)
    every = text.integer(*EVERY) or 1
    plain = set(text.integers("mlp_only_layers"))
    starts_at_zero = text.integer("moe_layer_freq") is not None
    return [n for n in range(first, end) if n not in plain and (n if starts_at_zero else n + 1) % every == 0]


def _num_sparse(text: ModelFields, kinds: Sequence[str], *, num_layers: int) -> int:
    for kind in kinds:
        if kind not in (*SPARSE_LAYERS, DENSE_LAYER):
            text.fail(
                "mlp_layer_types",
                got=repr(kind),
                expected="a kind that is known",
                nearest=(*SPARSE_LAYERS, DENSE_LAYER),
            )
    if len(kinds) < num_layers:
        text.fail(
            "mlp_layer_types", got=f"{len(kinds)} kinds", expected=f"one for each of {num_layers} layers"
        )
    return sum(kind in SPARSE_LAYERS for kind in kinds[:num_layers])


def _listed(text: ModelFields) -> Sequence[object]:
    """Return the layers that a file lists as those with experts: a list (Llama 4), or a text of numbers (Step 3.5)."""
    return text.items("moe_layers") or (text.text("moe_layers_enum") or "").replace(",", " ").split()
