"""What is read of a model's layers, whatever family they are of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from lazy_dataclasses import dataclass

from replay.model.config_json import ModelFields
from replay.model.shape import Attention, Mixer

WAY_ROUND = (
    "or no latency.model_config: engine.kv_cache_groups, num_gpu_blocks, blackbox coefficients written out"
)
"""What is left for a file whose layers are not known."""
INDEX_SCALE_BYTES, INDEX_SCALE_WIDTH = 4, 128
"""A token's key of an indexer is kept in fp8 with a float32 scale per 128 of it (deepseek_v2.py: Indexer)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """A model's layers; None: as config.json says it of all models.

    ``attention``: of the layers that see everything. ``has_fp8_kv_cache``: whatever ``--kv-cache-dtype`` says.
    ``lookup_parameters``: weights of which a token reads a row, beside the embedding. ``only``: of layers that are one
    thing each, what: mamba, attention, mlp or moe. ``states``: numbers of the layers with a state, where quantization
    may name their products.
    """

    mixers: tuple[Mixer, ...]
    attention: Attention | None = None
    num_moe_layers: int | None = None
    num_plain_mlps: int | None = None
    plain_width: int | None = None
    other_parameters: int = 0
    lookup_parameters: int = 0
    residual_streams: int = 1
    has_fp8_kv_cache: bool = False
    not_timed: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    states: frozenset[int] = frozenset()


def connection_parameters(coefficients: int, *, streams: int, hidden: int, num_layers: int) -> int:
    """Return the weights that mix ``streams`` hidden states before and behind both parts of a layer.

    ``coefficients``: how many are made of the hidden states each time (hyper-connections, arXiv:2409.19606).
    """
    return 2 * num_layers * coefficients * streams * hidden if streams > 1 else 0


def indexer_entry_bytes(width: int) -> int:
    """Return what a key of an indexer takes in its cache."""
    return width + width // INDEX_SCALE_WIDTH * INDEX_SCALE_BYTES


def listed_kinds(text: ModelFields, key: str, known: Sequence[str], *, num_layers: int) -> tuple[str, ...]:
    """Return the kind of each layer from a list of names. Raises ConfigError, naming the kind that is unknown."""
    kinds = text.texts(key)
    for kind in kinds:
        if kind not in known:
            text.fail(
                key,
                got=f"{kind!r}, a kind of layer that is not known",
                expected=f"{', '.join(known)}; {WAY_ROUND}",
            )
    if len(kinds) < num_layers:
        text.fail(
            key,
            got=f"{len(kinds)} kinds",
            expected=f"one for each of {num_layers} layers, of {', '.join(known)}; {WAY_ROUND}",
        )
    return kinds[:num_layers]


def in_order(kinds: Sequence[str], mixers: Mapping[str, Mixer]) -> tuple[Mixer, ...]:
    """Return the mixers of layers in the order of the first of each; others of the kinds mix nothing."""
    return tuple(mixers[kind] for kind in dict.fromkeys(kinds) if kind in mixers)
