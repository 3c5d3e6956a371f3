"""A vision tower in numbers: its layers, what an image is cut into, and how its outputs become tokens of a prompt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

MMEncoderTPMode = Literal["weights", "data"]
"""vLLM's ``--mm-encoder-tp-mode``: tensor parallelism splits a tower's layers, or its GPUs share the images out."""

LARGEST_IMAGE = 16_384
"""Tokens of the largest image that processors make (Qwen2-VL's and Qwen3-VL's ``max_pixels``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VisionTower:
    """The encoder of images as vLLM 0.32.0 computes it.

    ``kind``: config.json's ``model_type``. ``head_dim`` x ``num_heads`` may be wider than ``hidden_size``.
    ``patch_inputs``: numbers of a patch's pixels. ``merge``: patches that a token of the prompt stands for.
    ``projector``: products per token of the prompt, (inputs, outputs) of each.
    ``tile_patches``: an image is cut into tiles of so many, each encoded by itself with ``class_tokens`` besides; 0: it
    is encoded whole. In ``num_windowed_layers`` of the layers a patch sees the ``window_patches`` of its window alone.
    ``is_split``: tensor parallelism shares out its layers; ``splits_projector``: and its projector.
    ``shares_out_images``: it knows ``--mm-encoder-tp-mode data``; ``falls_back_to_data``: and has it, too, where heads
    cannot be divided. ``largest_image``: tokens of the largest one that its processor makes.
    """

    kind: str
    num_layers: int
    hidden_size: int
    num_heads: int
    head_dim: int
    intermediate_size: int
    patch_inputs: int
    merge: int
    projector: tuple[tuple[int, int], ...]
    is_gated: bool = False
    tile_patches: int = 0
    class_tokens: int = 0
    num_windowed_layers: int = 0
    window_patches: int = 0
    is_split: bool = True
    splits_projector: bool = True
    shares_out_images: bool = True
    falls_back_to_data: bool = False
    largest_image: int = LARGEST_IMAGE

    @property
    def attention_width(self) -> int:
        """Numbers of all heads together."""
        return self.num_heads * self.head_dim

    @property
    def tile_tokens(self) -> int:
        """Tokens of the prompt that a tile becomes; 0 where images are encoded whole."""
        return self.tile_patches // self.merge

    def layer_products(self, ranks: int = 1) -> tuple[tuple[int, int], ...]:
        """Return (inputs, outputs) of a layer's products per patch, on one of ``ranks`` GPUs."""
        hidden = self.hidden_size
        width, inner = -(-self.attention_width // ranks), -(-self.intermediate_size // ranks)
        return (
            (hidden, 3 * width),
            (width, hidden),
            (hidden, 2 * inner if self.is_gated else inner),
            (inner, hidden),
        )

    def parameters(self) -> int:
        """Return how many weights its products have; norms, biases and positions are not counted."""
        layer = sum(inputs * outputs for inputs, outputs in self.layer_products())
        ends = sum(inputs * outputs for inputs, outputs in self.projector)
        return self.num_layers * layer + self.patch_inputs * self.hidden_size + ends

    def num_tiles(self, num_tokens: int) -> int:
        """Return how many tiles an image of so many tokens is cut into; 1 where it is encoded whole."""
        return max(1, round(num_tokens / self.tile_tokens)) if self.tile_patches else 1

    def num_patches(self, num_tokens: int) -> int:
        """Return how many patches an image of so many tokens has, class tokens included."""
        if self.tile_patches:
            return self.num_tiles(num_tokens) * (self.tile_patches + self.class_tokens)
        return num_tokens * self.merge

    def sequences(self, num_tokens: int) -> tuple[int, int]:
        """Return how many sequences an image is for attention that sees all, and the patches of each."""
        number = self.num_tiles(num_tokens)
        return number, self.num_patches(num_tokens) // number
