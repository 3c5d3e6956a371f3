"""What is read of a model's layers, whatever family they are of."""

from __future__ import annotations

from dataclasses import dataclass

from replay.model.shape import Attention, Mixer

INDEX_SCALE_BYTES, INDEX_SCALE_WIDTH = 4, 128
"""A token's key of an indexer is kept in fp8 with a float32 scale per 128 of it (deepseek_v2.py: Indexer)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """A model's layers; None: as config.json says it of all models.

    ``attention``: of the layers that see everything. ``has_fp8_kv_cache``: whatever ``--kv-cache-dtype`` says.
    """

    mixers: tuple[Mixer, ...]
    attention: Attention | None = None
    num_moe_layers: int | None = None
    num_plain_mlps: int | None = None
    plain_width: int | None = None
    other_parameters: int = 0
    residual_streams: int = 1
    has_fp8_kv_cache: bool = False
    not_timed: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


def indexer_entry_bytes(width: int) -> int:
    """Return what a key of an indexer takes in its cache."""
    return width + width // INDEX_SCALE_WIDTH * INDEX_SCALE_BYTES
