"""A vision tower in numbers: its layers, what an image is cut into, and how its outputs become tokens of a prompt."""

from __future__ import annotations

from lazy_dataclasses import dataclass
from typing import Literal

TowerTPMode = Literal["weights", "data"]
"""vLLM's ``--mm-encoder-tp-mode``: tensor parallelism splits a tower's layers, or its GPUs share the images out."""

MAX_TOKENS_PER_ITEM = 16_384
"""Tokens of the largest image that processors make (Qwen2-VL's and Qwen3-VL's ``max_pixels``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VisionTower:
    """The encoder of images as vLLM 0.32.0 computes it.

    ``kind``: config.json's ``model_type``. ``head_dim`` x ``num_heads`` may be wider than ``hidden_size``.
    ``patch_inputs``: numbers of a patch's pixels. ``merge``: patches that a token of the prompt stands for.
    ``projector``: products per token of the prompt, (inputs, outputs) of each.
    ``tile_patches``: an image is cut into tiles of so many, each encoded by itself with ``class_tokens`` besides; 0: it
    is encoded whole. In ``num_windowed_layers`` of the layers a patch sees the ``window_patches`` of its window alone.
    ``is_split``: tensor parallelism shares out its layers; ``splits_projector``: and its projector, but for its first
    ``whole_products``; ``splits_patches``: and the product that takes patches in; without ``splits_attention`` the MLPs
    alone.
    ``has_data_mode``: it knows ``--mm-encoder-tp-mode data``; ``falls_back_to_data``: and has it, too, where heads
    cannot be divided. ``max_tokens_per_item``: tokens of the largest image that its processor makes,
    ``is_largest_known`` where that is its own and not what is usual.
    ``position_parameters``: of embeddings of places, which every GPU has whole.
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
    whole_products: int = 0
    splits_patches: bool = False
    splits_attention: bool = True
    has_data_mode: bool = True
    falls_back_to_data: bool = False
    max_tokens_per_item: int = MAX_TOKENS_PER_ITEM
    is_largest_known: bool = False
    position_parameters: int = 0

    @property
    def attention_width(self) -> int:
        """Numbers of all heads together."""
        return self.num_heads * self.head_dim

    @property
    def tile_tokens(self) -> int:
        """Tokens of the prompt that a tile becomes; 0 where images are encoded whole."""
        return self.tile_patches // self.merge

    def num_ranks(self, tp: int, *, is_data: bool = False) -> int:
        """Return over how many of ``tp`` GPUs its layers are split; ``is_data``: ``--mm-encoder-tp-mode data``.

        By default tensor parallelism splits them (vllm 0.32.0 config/multimodal.py). A tower that knows no data mode
        takes no notice of it; one that is split nowhere is whole on every GPU, and so is one whose heads cannot be
        divided.
        """
        is_whole = not self.is_split or self.num_heads % tp != 0
        return 1 if is_whole or (is_data and self.has_data_mode) else tp

    def attention_ranks(self, ranks: int) -> int:
        """Return over how many of the GPUs that split its layers the heads of attention are split."""
        return ranks if self.splits_attention else 1

    def projector_outputs(self, ranks: int = 1) -> tuple[tuple[int, int], ...]:
        """Return (inputs, outputs) of the projector's products on one of ``ranks`` GPUs."""
        whole = self.whole_products if self.splits_projector else len(self.projector)
        return tuple(
            (inputs, outputs if place < whole else -(-outputs // ranks))
            for place, (inputs, outputs) in enumerate(self.projector)
        )

    def layer_products(self, ranks: int = 1) -> tuple[tuple[int, int], ...]:
        """Return (inputs, outputs) of a layer's products per patch, on one of ``ranks`` GPUs."""
        hidden = self.hidden_size
        width = -(-self.attention_width // self.attention_ranks(ranks))
        inner = -(-self.intermediate_size // ranks)
        return (
            (hidden, 3 * width),
            (width, hidden),
            (hidden, 2 * inner if self.is_gated else inner),
            (inner, hidden),
        )

    def parameters(self, ranks: int = 1) -> int:
        """Return how many weights its products have on one of ``ranks`` GPUs; norms and biases are not counted."""
        layer = sum(inputs * outputs for inputs, outputs in self.layer_products(ranks))
        ends = sum(inputs * outputs for inputs, outputs in self.projector_outputs(ranks))
        patches = self.patch_inputs * self.hidden_size // (ranks if self.splits_patches else 1)
        return self.num_layers * layer + patches + ends

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
