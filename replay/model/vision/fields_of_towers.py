"""What is read of a vision tower, whatever kind it is."""

from __future__ import annotations

from replay.model.config_json import ModelFields
from replay.model.vision.tower import VisionTower

COLOURS = 3


def text_width(fields: ModelFields) -> int:
    """Return the hidden size of the language model, into which the tower's outputs are projected."""
    return fields.language_model.needed("hidden_size")


def colours(vision: ModelFields) -> int:
    """Return how many numbers a pixel has."""
    return vision.integer("in_channels", "in_chans", "num_channels") or COLOURS


def side(vision: ModelFields, key: str) -> int:
    """Return a length in pixels or patches, of a square that may be given as its two sides."""
    sides = vision.items(key) if isinstance(vision.values.get(key), list) else (vision.needed(key),)
    if len(set(sides)) != 1 or not isinstance(sides[0], int):
        vision.fail(key, got=str(list(sides)), expected="a square")
    return sides[0]


def plain(vision: ModelFields, prefix: str = "") -> VisionTower:
    """Return what a tower is by the names that most classes of transformers use; nothing merged, nothing projected."""
    hidden, heads = vision.needed(f"{prefix}hidden_size"), vision.needed(f"{prefix}num_attention_heads")
    width = vision.integer("qkv_hidden_size") or hidden
    return VisionTower(
        kind="",
        num_layers=vision.needed(f"{prefix}num_hidden_layers"),
        hidden_size=hidden,
        num_heads=heads,
        head_dim=vision.integer("head_dim") or width // heads,
        intermediate_size=vision.needed(f"{prefix}intermediate_size"),
        patch_inputs=colours(vision) * side(vision, "patch_size") ** 2,
        merge=1,
        projector=(),
    )


def shuffled(fields: ModelFields, key: str) -> int:
    """Return how many patches become one token where a ratio of their sides says it; a half where none is given."""
    ratio = fields.values.get(key, 0.5)
    if not isinstance(ratio, int | float) or not 0 < ratio <= 1:
        fields.fail(key, got=str(ratio), expected="a ratio in (0, 1]")
    return round(1 / ratio**2)
